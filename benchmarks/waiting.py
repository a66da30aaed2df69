"""What it costs that the threads of a computation wait awake, asleep or as the load allows (flywheel/io/waiting.py).

`python benchmarks/waiting.py`: a forward and a backward pass of the embedded model over 300 tokens, and 24 tokens
written one by one, each way in a process of its own, next to no, one and as many busy programs as there are cores.
Milliseconds of the clock, medians of five, and how many times the way asleep they are.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flywheel.config import ModelConfig
from flywheel.models.load import load_base  # sets how threads wait, before torch is loaded

WAYS = {
    "asleep": {"OMP_WAIT_POLICY": "PASSIVE"},
    "awake": {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "5000"},
    "libgomp's own": {"OMP_WAIT_POLICY": "", "GOMP_SPINCOUNT": "300000"},
    "as the load allows": {},
}
TOKENS, WRITTEN, RUNS = 300, 24, 5


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """Keep programs running that use a core each."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)]
    try:
        yield
    finally:
        for program in running:
            program.kill()
            program.wait()


def measure() -> dict[str, float]:
    """Return the milliseconds of a step and of a token."""
    import torch
    from peft import LoraConfig, get_peft_model

    base = load_base(ModelConfig(dtype="auto"))
    model = get_peft_model(base, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    ids = torch.arange(TOKENS).remainder(1000)[None] + 100

    def step() -> None:
        model(input_ids=ids, labels=ids).loss.backward()

    def write() -> None:
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=WRITTEN, min_new_tokens=WRITTEN)

    return {"step": _median(step), "token": _median(write) / WRITTEN}


def _median(do: Callable[[], None]) -> float:
    do()
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        do()
        times.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times)


def main() -> None:
    """Measure and print."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    for programs in sorted({0, 1, os.cpu_count() or 1}):
        asleep: dict[str, float] = {}
        for name, way in WAYS.items():
            environment = kept | {key: value for key, value in way.items() if value}
            with busy(programs):
                printed = subprocess.run(
                    [sys.executable, __file__, "--one"], check=True, env=environment, capture_output=True, text=True
                ).stdout
            took = json.loads(printed)
            asleep = asleep or took
            shown = ", ".join(f"{what} {ms:.0f} ms ({ms / asleep[what]:.2f})" for what, ms in took.items())
            print(f"{programs} busy programs, threads wait {name}: {shown}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--one"]:
        print(json.dumps(measure()))
    else:
        main()

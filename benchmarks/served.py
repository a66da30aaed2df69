"""What answers cost: the model in this process against a server, on the same prompts of the example desk.

    python benchmarks/served.py --endpoint http://127.0.0.1:8080/v1 --pid 4711 --cases 200 --samples 8

Processor seconds of this process, or of this process and the server's (`--pid`, Linux), so that a busy machine does not
count. The base model is the embedded one; `--samples 1` is greedy, and shows how many answers are the same.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from flywheel.config import EvalConfig, ModelConfig
from flywheel.models.policy import PolicySet, TextPolicy
from flywheel.models.scoring import Draw
from flywheel.models.served.policy import ServedSet
from flywheel_desk.serve import DESK
from flywheel_worlds.talk import said


def _seconds_of(pid: int) -> float:
    """Return a process's processor seconds, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _asked(policy: TextPolicy, prompts: list[Any], samples: int, most: int) -> tuple[list[Any], int]:
    """Return the messages of the first draw, or the greedy ones, and the tokens of all answers."""
    tools, answers = [DESK.tools] * len(prompts), []
    for number in range(samples):
        drawing = policy.drawing(Draw(1.0, number, samples - 1 - number)) if samples > 1 else policy
        answers += drawing.generate(prompts, tools, max_new_tokens=most)
    return [answer.message for answer in answers[: len(prompts)]], sum(answer.tokens for answer in answers)


def _show(rows: dict[str, tuple[list[Any], int]], spent: dict[str, float], cases: int, samples: int) -> None:
    for side, (_, tokens) in rows.items():
        answers, seconds = cases * samples, spent[side]
        print(f"{side}: {answers} answers, {tokens} tokens, {seconds:.1f} processor seconds, {answers / seconds:.2f}/s")
    if len(rows) > 1:
        print(f"{spent['here'] / spent['served']:.2f} times")
        same = sum(one == other for one, other in zip(rows["served"][0], rows["here"][0], strict=True))
        print(f"answers of the first draw that are the same: {same} of {cases}; greedy ones with --samples 1")


def main() -> None:
    """Print a row for each side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--batch", type=int, default=EvalConfig().batch_size, help="rows together in this process")
    parser.add_argument("--sides", nargs="*", choices=("served", "here"), default=("served", "here"))
    options = parser.parse_args()
    prompts = [
        [said("rules") | {"role": "system"}, {"role": "user", "content": task.text}]
        for task in DESK.tasks()[: options.cases]
    ]
    cfg = EvalConfig.model_validate({"endpoint": options.endpoint, "server": {"timeout_s": 3600}})
    model = ModelConfig(dtype="float32")
    rows, spent = {}, {}
    if "served" in options.sides:
        with ServedSet(model, cfg) as served:
            before = time.process_time() + _seconds_of(options.pid)
            rows["served"] = _asked(served.policy(None, "base"), prompts, options.samples, options.tokens)
            spent["served"] = time.process_time() + _seconds_of(options.pid) - before
    if "here" in options.sides:
        with PolicySet(model, EvalConfig(batch_size=options.batch)) as here:
            before = time.process_time()
            rows["here"] = _asked(here.policy(None, "base"), prompts, options.samples, options.tokens)
            spent["here"] = time.process_time() - before
    _show(rows, spent, len(prompts), options.samples)


if __name__ == "__main__":
    main()

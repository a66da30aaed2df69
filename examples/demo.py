"""`make demo`: the loop twice round, with the embedded model, through the real command line.

Night 1: the logs of scripted agents (sample_logs/) teach a model that knows no tools; the gate promotes it. Night 2:
that round serves the same users, its own logs teach the next round. Each round is evaluated by executing the model's
calls in the example world, on questions that no round was trained on and none before it was evaluated on.

    python examples/demo.py --rounds 1 --dtype float32 --endpoint http://127.0.0.1:8000/v1

lets a server answer for every policy, in `demo-served/`, to be compared with the same without `--endpoint`. Another
`--seed` draws other rows, and `--cases 80` asks more questions: how good a round is on average.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARGUMENTS = argparse.ArgumentParser(description="The loop twice round, from sample_logs/.")
ARGUMENTS.add_argument("--rounds", type=int, choices=(1, 2), default=2, help="how often the wheel turns")
ARGUMENTS.add_argument("--dtype", default="auto", help="of the weights: float32 or bfloat16")
ARGUMENTS.add_argument("--endpoint", default="", help="a server that answers for every policy")
ARGUMENTS.add_argument("--seed", type=int, default=0, help="of the choice of rows and the order of training")
ARGUMENTS.add_argument("--cases", type=int, default=24, help="held-out questions that the first round is asked")
OPTIONS = ARGUMENTS.parse_args(None if __name__ == "__main__" else [])
DEMO = ROOT / ("demo-served" if OPTIONS.endpoint else "demo")
FLYWHEEL = [str(Path(sys.executable).with_name("flywheel")), "-C", str(DEMO)]
SERVE = [sys.executable, "-m", "flywheel_warehouse.serve", "--project", str(DEMO), "--truth", str(DEMO / "truth")]

CONFIG = """#:schema ../schemas/config/v1.json
# The demo's settings, chosen so that it takes minutes on two CPU cores: what differs from the defaults.
# `flywheel init` writes all of them down.
name = "demo"

[train]
method = "sft"  # on what succeeded, every night: expert iteration
seed = {seed}
max_rows = {rows}
on_the_way = true  # and the steps before these, in the same sequences
batch_size = 2
{rates}
attempts = 1  # more of the champion, at training tasks; kept where execution in this world shows success
attempt_tasks = 16
world = "sample"
max_tokens = 6000
probe_prompts = 4  # on which the distance from the parent is measured, sixteen times

[train.lora]
target_modules = ["q_proj", "k_proj", "v_proj", "o_proj"]

[eval]
# The example plugin's suite: the model's calls are executed in the warehouse world.
suites = ["warehouse"]
baselines = []  # round 1 is compared with the base model anyway; the base with examples would take another minute
max_cases = {cases}  # of 173 held-out questions: a second round has others, and more, for it gains less
max_new_tokens = 48
batch_size = 80
"""

# From the base a high rate, since a few minutes have to teach everything. From a champion the rate of docs/training.md,
# and an older row for each new one: a policy that answers is easily made to forget.
RATES = {1: "sft_learning_rate = 2e-3", 2: "older_rows = 1.0"}
ROWS = {1: 24, 2: 28}
CASES = {1: OPTIONS.cases, 2: 60}

SERVED = ("--world", "sample", "--policy", "champion", "--night", "2", "--tasks", "12", "--temperature", "0.6")
GATE_HELD = 3
WIDTH = 40  # of the curve, for 100 %


def say(text: str) -> None:
    """Print a line of the story."""
    print(f"\n# {text}", flush=True)


def flywheel(*arguments: str, allow: tuple[int, ...] = (0,)) -> int:
    """Run one command as a user types it; stop the demo when it fails."""
    print(f"$ flywheel {' '.join(arguments)}", flush=True)
    return run([*FLYWHEEL, *arguments], allow)


def run(command: list[str], allow: tuple[int, ...] = (0,)) -> int:
    """Run a command in the demo's project; stop the demo when it fails."""
    code = subprocess.run(command, check=False, cwd=DEMO).returncode
    if code not in allow:
        sys.exit(f"demo: `{' '.join(command)}` ended with exit code {code}")
    return code


def prepare() -> None:
    """Make a fresh project with the sample logs in it."""
    shutil.rmtree(DEMO, ignore_errors=True)
    (DEMO / "logs").mkdir(parents=True)
    for log in sorted((ROOT / "sample_logs").iterdir()):
        if log.name.endswith((".jsonl", ".jsonl.gz")):
            shutil.copyfile(log, DEMO / "logs" / log.name)
    configure(1)


def settings(number: int) -> str:
    """Return the settings of a round."""
    text = CONFIG.format(seed=OPTIONS.seed, rows=ROWS[number], rates=RATES[number], cases=CASES[number])
    text += f'endpoint = "{OPTIONS.endpoint}"\n' if OPTIONS.endpoint else ""
    return text + (f'\n[model]\ndtype = "{OPTIONS.dtype}"\n' if OPTIONS.dtype != "auto" else "")


def configure(number: int) -> None:
    """Write the settings of a round."""
    (DEMO / "flywheel.toml").write_text(settings(number), encoding="utf-8")


def read() -> None:
    """Make rows of whatever logs are new."""
    flywheel("ingest", "logs/")
    flywheel("build")


def serve() -> None:
    """Let the champion serve a night; its log joins the others."""
    print(f"$ python -m flywheel_warehouse.serve {' '.join(SERVED)} --out logs", flush=True)
    run([*SERVE, *SERVED, "--out", str(DEMO / "logs")])


def turn(number: int) -> bool:
    """Plan, train and evaluate a round; return whether the gate promoted it."""
    flywheel("plan")
    flywheel("train", "--round", str(number))
    return flywheel("eval", "--round", str(number), "--promote", allow=(0, GATE_HELD)) == 0


def curve(rounds: int) -> None:
    """Print success by execution on held-out questions, the base and round by round."""
    say("The curve: held-out questions answered rightly, by execution; other questions for each round.")
    for number in range(1, rounds + 1):
        report = json.loads((DEMO / "rounds" / f"{number:04d}" / "eval" / "report.json").read_text(encoding="utf-8"))
        scores = next(m for m in report["metrics"] if m["primary"] and m["slice"] == "all")
        before = "base model" if number == 1 else f"round {number - 1}"
        for name, value in ((before, scores["baseline"]), (f"round {number}", scores["value"])):
            print(f"  {name:<11}{value:>4.0%}  {'█' * round(WIDTH * value)}")


def main() -> None:
    """Tell the whole story."""
    os.environ.setdefault("FLYWHEEL_KEY", "demo")
    started = time.monotonic()
    say("Night 1. Logs of a data agent in four formats, as production wrote them, become events, episodes and rewards.")
    prepare()
    read()
    say("Round 1. The plan shows what will be trained, from which start, and why.")
    rounds = 1
    promoted = turn(1)
    if promoted and OPTIONS.rounds > 1:
        say("Night 2. Round 1 serves, and its log is read like any other.")
        serve()
        read()
        say("Round 2, from the champion: what is left of the logs, and its own attempts that succeed when executed.")
        configure(2)
        turn(2)
        rounds = 2
    elif not promoted:
        say("The gate held round 1. Training again on the same logs would give the same round, so there is no round 2.")
    flywheel("log")
    curve(rounds)
    report = DEMO / "rounds" / f"{rounds:04d}" / "report.html"
    times = "twice" if rounds > 1 else "once"
    print(
        f"\nThe wheel turned {times} in {time.monotonic() - started:.0f} seconds.\n"
        f"The report: {report.relative_to(ROOT)}\n\n"
        "On your own logs, in any folder (`. .venv/bin/activate` first):\n"
        "  flywheel ingest path/to/logs\n"
        "  flywheel plan\n"
        "  flywheel run nightly"
    )


if __name__ == "__main__":
    main()

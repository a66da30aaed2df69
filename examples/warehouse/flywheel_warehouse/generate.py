"""`python -m flywheel_warehouse.generate`: writes the sample logs and the world's knowledge of what really happened.

The same seed gives the same bytes. The true outcome of an episode is in truth.jsonl only, never in the logs.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flywheel_worlds.dialects import DIALECTS, Logged, feedback_line
from flywheel_worlds.users import PLEASED, react

from flywheel_warehouse.agents import AGENTS, attempt
from flywheel_warehouse.world import SYSTEM, TOOLS, Question, World, first_questions

__all__ = ["generate", "logged_questions"]

ATTEMPTS = 6
LOGGED_SHARE = 0.75  # of the questions; the others are never asked in the logs
START = datetime(2026, 10, 1, 8, tzinfo=UTC)
USERS = tuple(f"user{n:02d}@shop.example" for n in range(24))
BROKEN = ('{"conversation_id": "cut-off", "seq": 3, "kin', "Traceback (most recent call last):")


def logged_questions() -> list[Question]:
    """Return the questions that are asked in the logs; chosen by hash, so that the others are never seen."""

    def share(text: str) -> float:
        return int(hashlib.sha256(f"logged:{text}".encode()).hexdigest()[:8], 16) / 2**32

    return [q for text, q in first_questions().items() if share(text) < LOGGED_SHARE]


def _conversation(question: Question, number: int, world: World, rng: random.Random) -> tuple[Logged, bool, Any]:
    """Let one conversation happen; return it, whether its last answer was true, and the reaction."""
    agent = AGENTS[rng.randrange(len(AGENTS))]
    ids = (f"call_{number:04d}{n:02d}" for n in itertools.count())
    talk = Logged(
        conversation_id=f"conv-{number:04d}", user=rng.choice(USERS), policy=agent.name, model=agent.model,
        started=START + timedelta(minutes=11 * number), tools=TOOLS,
    )  # fmt: skip
    talk.messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question.text}]
    tried = attempt(agent, question, world, rng, ids)
    talk.messages += tried.messages
    reaction = react(question.text, rng, correct=tried.correct)
    if reaction.words is not None:
        talk.messages.append({"role": "user", "content": reaction.words})
        if reaction.again:
            tried = attempt(agent, question, world, rng, ids, careful=True)
            talk.messages += tried.messages
        else:
            glad = reaction.words in PLEASED
            talk.messages.append(
                {"role": "assistant", "content": "You're welcome." if glad else "I am sorry about that."}
            )
    if reaction.deed is not None and not reaction.late:
        talk.deeds.append(reaction.deed)
    return talk, tried.correct, reaction


def _lines(world: World, seed: int) -> Iterator[tuple[str, list[dict[str, Any]], Any]]:
    rng = random.Random(seed)  # noqa: S311 - reproducible logs
    asked = [question for question in logged_questions() for _ in range(ATTEMPTS)]
    rng.shuffle(asked)
    names = list(DIALECTS)
    for number, question in enumerate(asked):
        talk, correct, reaction = _conversation(question, number, world, rng)
        dialect = names[number % len(names)]
        if (
            dialect in {"openai", "anthropic"} and talk.deeds
        ):  # these formats carry no feedback: it comes in its own file
            late, talk.deeds = talk.deeds, []
        else:
            late = [reaction.deed] if reaction.deed is not None and reaction.late else []
        hours = timedelta(hours=rng.randrange(1, 60))
        feedback = [feedback_line(talk, deed, talk.started + hours) for deed in late]
        truth = {
            "conversation_id": talk.conversation_id, "question": question.text, "family": question.family,
            "policy": talk.policy, "dialect": dialect, "success": correct,
        }  # fmt: skip
        yield dialect, list(DIALECTS[dialect](talk)), (feedback, truth)


def generate(out: Path, truth_path: Path, seed: int) -> dict[str, Any]:
    """Write the logs, the truth and the expected counts; return the counts."""
    world = World()
    files: dict[str, list[str]] = {name: [] for name in DIALECTS}
    late: list[str] = []
    truths: list[dict[str, Any]] = []
    for dialect, lines, (feedback, truth) in _lines(world, seed):
        files[dialect] += [json.dumps(line) for line in lines]
        late += [json.dumps(line) for line in feedback]
        truths.append(truth)
    files["native"] += [BROKEN[0], *files["native"][:2]]  # one cut line, two duplicates
    files["openai"] += [BROKEN[1], files["openai"][0]]  # one foreign line, one duplicate
    out.mkdir(parents=True, exist_ok=True)
    for name, written in {**files, "feedback": late}.items():
        text = "\n".join(written) + "\n"
        if name == "otel":
            (out / "otel.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            (out / f"{name}.jsonl").write_text(text, encoding="utf-8")
    truth_path.write_text("".join(json.dumps(t) + "\n" for t in truths), encoding="utf-8")
    counts = _counts(files, late, truths)
    truth_path.with_name("expected.json").write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    (out / "README.md").write_text(_readme(counts, seed), encoding="utf-8")
    return counts


def _counts(files: dict[str, list[str]], late: list[str], truths: list[dict[str, Any]]) -> dict[str, Any]:
    by_policy = {
        name: [t["success"] for t in truths if t["policy"] == name] for name in sorted({t["policy"] for t in truths})
    }
    return {
        "lines": {**{name: len(lines) for name, lines in files.items()}, "feedback": len(late)},
        "unreadable_lines": len(BROKEN),
        "duplicate_lines": 3,
        "episodes": len(truths),
        "tasks": len({t["question"] for t in truths}),
        "episodes_by_dialect": dict(sorted(Counter(t["dialect"] for t in truths).items())),
        "success": round(sum(t["success"] for t in truths) / len(truths), 4),
        "success_by_policy": {name: round(sum(wins) / len(wins), 4) for name, wins in by_policy.items()},
    }


def _readme(counts: dict[str, Any], seed: int) -> str:
    names = {
        "native": "native.jsonl", "openai": "openai.jsonl", "anthropic": "anthropic.jsonl", "otel": "otel.jsonl.gz",
        "feedback": "feedback.jsonl",
    }  # fmt: skip
    rows = "\n".join(f"| `{names[name]}` | {lines} |" for name, lines in counts["lines"].items())
    return f"""# Sample logs

Logs of a small data agent, made by `examples/warehouse` (seed {seed}) and byte for byte reproducible. Four formats that
production agents write, and feedback that came hours later in a file of its own.

| file | lines |
|---|---|
{rows}

After `flywheel ingest sample_logs/*.jsonl*` and `flywheel build`: {counts["episodes"]} episodes of
{counts["tasks"]} tasks,
{counts["unreadable_lines"]} unreadable lines in quarantine, {counts["duplicate_lines"]} duplicate lines.
{counts["success"]:.0%} of the episodes really succeeded; the logs do not say which. `examples/warehouse/expected.json`
holds these counts.
"""


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("sample_logs"))
    parser.add_argument("--truth", type=Path, default=Path("examples/warehouse/truth.jsonl"))
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    generate(given.out, given.truth, given.seed)


if __name__ == "__main__":
    main()

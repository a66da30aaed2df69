"""Whether preferences are true: worlds whose action values are known, as logs, through ingest and build.

`python benchmarks/preferences.py [--seeds N] [--worlds NAME]... [--attempts N]...`: for each world and number of
attempts a task, the pairs that training may see, on how many facts (an intent and a decision) they rest, what they
claim (mean p_better), how many are right, about actions without a difference, or wrong; the same of the pairs that
claim .85 or more; the bias of step credit, its rank correlation with true skill, and how many wrong steps of successes
are demonstrated to training. What could be known at all: `benchmarks/bounds.py`. On real logs: `benchmarks/halves.py`.

An attempt answers five questions, each with one of two choices, even chances. The chance of success is .95 times a
factor for each wrong choice: .8 for all five (`all`), .3 for the third alone (`one`), 1 (`none`); `bandit` has one
decision, .95 against .76. In `moods` (of `all`) half of the users succeed much less often than the others; in
`mislabelled` 15 % of the outcomes of `one` are wrong.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from flywheel import Project

TOOL = {
    "type": "function",
    "function": {
        "name": "decide",
        "parameters": {"type": "object", "properties": {name: {"type": "string"} for name in ("about", "choice")}},
    },
}
QUESTIONS = ("scope", "stock", "price", "route", "note")
WORDS = ("refund", "exchange", "delivery", "invoice", "address", "warranty", "voucher", "return", "repair", "account")
THINGS = ("lamp", "desk", "chair", "clock")


@dataclass(frozen=True)
class World:
    """Binary decisions whose wrong choice multiplies the chance of success by a factor."""

    factors: tuple[float, ...]
    mislabelled: float = 0.0
    moods: bool = False
    best: float = 0.95


WORLDS = {
    "bandit": World((0.8,)),
    "all": World((0.8,) * 5),
    "one": World((1.0, 1.0, 0.3, 1.0, 1.0)),
    "none": World((1.0,) * 5),
    "moods": World((0.8,) * 5, moods=True),
    "mislabelled": World((1.0, 1.0, 0.3, 1.0, 1.0), mislabelled=0.15),
}


def request(task: int, intents: int) -> str:
    """Return a task's request: of one intent they differ in a number only."""
    intent = task % intents
    word, thing = WORDS[intent % len(WORDS)], THINGS[intent // len(WORDS) % len(THINGS)]
    return f"Please take care of the {word} for my {thing}, the order is number {10_000 + task}."


class Attempts(NamedTuple):
    """N attempts of a world."""

    wrong: np.ndarray[Any, Any]  # (N, decisions)
    user: np.ndarray[Any, Any]
    mood: np.ndarray[Any, Any]  # factor of the user's
    recorded: np.ndarray[Any, Any]  # success, as the log has it


def drawn(world: World, n: int, seed: int) -> Attempts:
    """Return n attempts."""
    rng = np.random.default_rng(seed)
    wrong = rng.random((n, len(world.factors))) < 0.5  # noqa: PLR2004 - even chances
    user = rng.integers(0, max(n // 3, 10), n)
    mood = np.where(user % 2 == 0, 1.0, 0.6) if world.moods else np.ones(n)
    success = rng.random(n) < world.best * np.where(wrong, world.factors, 1.0).prod(axis=1) * mood
    return Attempts(wrong, user, mood, success ^ (rng.random(n) < world.mislabelled))


def simulated(
    world: World, tasks: int, attempts: int, *, intents: int, seed: int
) -> tuple[list[dict[str, Any]], np.ndarray[Any, Any]]:
    """Return the events of a world's attempts, and which choices were wrong (attempts, decisions)."""
    wrong, user, _, recorded = drawn(world, tasks * attempts, seed)
    # Which of both choices is the wrong one differs from decision to decision and from intent to intent.
    flips = np.random.default_rng(7).random((intents, len(world.factors))) < 0.5  # noqa: PLR2004 - even chances
    events = []
    for i in range(len(wrong)):
        task = i // attempts
        choices = np.where(wrong[i] ^ flips[task % intents], "left", "right").tolist()
        events += _episode(i, f"task-{task}", request(task, intents), f"u{user[i]}", choices, float(recorded[i]))
    return events, wrong


def _episode(
    number: int, task: str, asked: str, user: str, choices: Sequence[str], outcome: float
) -> list[dict[str, Any]]:
    base = {"conversation_id": f"c-{number:06d}", "user": f"{user}@shop.example", "policy": "agent", "task_key": task}
    events = [
        {"kind": "request", "payload": {"messages": [{"role": "system", "content": "Decide."}], "tools": [TOOL]}},
        {"kind": "request", "payload": {"messages": [{"role": "user", "content": asked}]}},
    ]
    for step, choice in enumerate(choices):
        call = {"id": f"x{step}", "name": "decide", "arguments": {"about": QUESTIONS[step], "choice": choice}}
        message = {"role": "assistant", "tool_calls": [call]}
        events.append({"kind": "model_call", "model": "m", "payload": {"message": message}})
        result = {"content": "noted", "status": "ok"}
        events.append({"kind": "tool_result", "tool_name": "decide", "tool_call_id": f"x{step}", "payload": result})
    ending = {"role": "assistant", "content": "That is taken care of."}
    events.append({"kind": "model_call", "model": "m", "payload": {"message": ending}})
    events.append({"kind": "outcome", "payload": {"name": "verified", "value": outcome, "scale": [0, 1]}})
    times = [
        {"seq": k, "ts": f"2026-10-{1 + number % 28:02d}T08:{k // 60:02d}:{k % 60:02d}Z"} for k in range(len(events))
    ]
    return [{**base, **time, **event} for time, event in zip(times, events, strict=True)]


def project_of(events: Sequence[dict[str, Any]], folder: Path, config: str = "") -> Project:
    """Return a project with these events, built."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "flywheel.toml").write_text(config)
    (folder / "logs.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    project = Project(folder)
    project.ingest([folder / "logs.jsonl"])
    project.build()
    return project


def measured(project: Project, world: World, wrong: np.ndarray[Any, Any]) -> dict[str, float]:
    """Return what the build made of a world for training, against its truth."""
    tables = {name: read(project, name) for name in ("episodes", "steps", "returns", "pairs", "examples")}
    train = tables["episodes"].filter(pl.col("split") == "train").select("episode_id")
    for name in ("steps", "returns", "examples"):
        tables[name] = tables[name].join(train, on="episode_id", how="semi")
    tables["pairs"] = tables["pairs"].join(train, left_on="rejected_episode", right_on="episode_id", how="semi")
    number = {
        episode: int(conversation[2:])
        for episode, conversation in tables["episodes"].select("episode_id", "conversation_id").iter_rows()
    }
    return {**_pairs(tables, world, wrong, number), **_credit(tables, world, wrong, number)}


def read(project: Project, table: str) -> pl.DataFrame:
    """Return a table of a project."""
    from flywheel.pipeline.build.tables import read_table

    return read_table(project.context.store, table).collect()


def _pairs(
    tables: dict[str, pl.DataFrame], world: World, wrong: np.ndarray[Any, Any], number: dict[str, int]
) -> dict[str, float]:
    """Return how many pairs there are, on how many facts they rest, and what they claim against the truth."""
    actions = {(episode, step): action for episode, step, action in
               tables["steps"].select("episode_id", "index", "action").iter_rows()}  # fmt: skip
    claims, right, matters, facts = list[float](), list[bool](), list[bool](), set[tuple[str, int]]()
    for pair in tables["pairs"].iter_rows(named=True):
        episode, step = pair["rejected_episode"], pair["rejected_step"]
        chosen, rejected = (_choice(json.loads(pair[side])[-1]) for side in ("chosen", "rejected"))
        # What was taken there is either the chosen side or the other of two choices.
        bad = bool(wrong[number[episode], step]) == (chosen == _choice(json.loads(actions[episode, step])))
        claims.append(pair["p_better"])
        matters.append(world.factors[step] < 1 and chosen != rejected)
        right.append(matters[-1] and not bad)
        asked = json.loads(pair["prompt"])[1]["content"]
        facts.add((asked.rpartition(" ")[0], step))
    claim, true, equal = np.array(claims), np.array(right, dtype=bool), ~np.array(matters, dtype=bool)
    sure = claim >= 0.85  # noqa: PLR2004 - as the goals have it
    return {
        "pairs": len(claim),
        "facts": len(facts),
        "claimed": _mean(claim),
        "right": _mean(true),
        "equal": _mean(equal),
        "wrong": _mean(~true & ~equal),
        "sure": int(sure.sum()),
        "sure_claimed": _mean(claim[sure]),
        "sure_right": _mean(true[sure]),
    }


def _choice(message: dict[str, Any]) -> str:
    return str(message["tool_calls"][0]["arguments"]["choice"])


def _mean(values: np.ndarray[Any, Any]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _credit(
    tables: dict[str, pl.DataFrame], world: World, wrong: np.ndarray[Any, Any], number: dict[str, int]
) -> dict[str, float]:
    """Return the mean error and the rank correlation of credit, and what is demonstrated of successes' wrong steps."""
    from scipy.stats import spearmanr

    calls = tables["returns"].filter(pl.col("step").is_not_null() & (pl.col("step") < len(world.factors)))
    episode = np.array([number[e] for e in calls["episode_id"]])
    step = calls["step"].to_numpy()
    bad, factors = wrong[episode, step], np.array(world.factors)
    others = np.where(wrong[episode], factors, 1.0)
    past = np.array([row[:s].prod() for row, s in zip(others, step, strict=True)])
    to_come = np.array([((1 + factors[s + 1 :]) / 2).prod() for s in step])
    value = 2 * 0.94 * world.best * past * to_come
    skill = value * np.where(bad, factors[step] - 1, 1 - factors[step]) / 2
    credit = calls["value"].to_numpy()
    flat = np.ptp(skill) == 0 or np.ptp(credit) == 0
    worst = skill < -0.1  # noqa: PLR2004 - ten points of the return
    shown = set(tables["examples"].filter("label").select("episode_id", "step").iter_rows())
    ok = dict(tables["returns"].filter(pl.col("step").is_null()).select("episode_id", "p_success").iter_rows())
    in_success = [
        (e, int(s)) in shown
        for e, s, w in zip(calls["episode_id"], step, worst, strict=True)
        if w and ok[e] > 0.5  # noqa: PLR2004 - a success
    ]
    return {
        "bias_good": float((credit - skill)[skill > 0.1].mean()) if (skill > 0.1).any() else 0.0,  # noqa: PLR2004
        "bias_bad": float((credit - skill)[worst].mean()) if worst.any() else 0.0,
        "rank": 0.0 if flat else float(spearmanr(credit, skill).statistic),
        "demonstrated": float(np.mean(in_success)) if in_success else 0.0,
    }


def _pooled(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the means over seeds; of shares of pairs over all pairs, so that a seed without any counts for none."""
    of_pairs = {"claimed": "pairs", "right": "pairs", "equal": "pairs", "wrong": "pairs"}
    of_pairs |= {"sure_claimed": "sure", "sure_right": "sure"}
    mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    for key, n in of_pairs.items():
        total = sum(row[n] for row in rows)
        mean[key] = sum(row[key] * row[n] for row in rows if row[n]) / total if total else float("nan")
    return mean


def main() -> None:
    """Print a line for every world and number of attempts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--attempts", nargs="*", type=int, default=[1, 4, 8, 32])
    parser.add_argument("--intents", nargs="*", type=int, default=[])
    arguments = parser.parse_args()
    for name in arguments.worlds:
        for attempts in arguments.attempts:
            tasks = 800 if attempts == 1 else 40
            for intents in arguments.intents or [40 if attempts == 1 else 4]:
                rows = []
                for seed in range(arguments.seeds):
                    with tempfile.TemporaryDirectory() as folder:
                        events, wrong = simulated(WORLDS[name], tasks, attempts, intents=intents, seed=seed)
                        rows.append(measured(project_of(events, Path(folder) / "p"), WORLDS[name], wrong))
                mean = _pooled(rows)
                numbers = "  ".join(f"{key} {value:.2f}" for key, value in mean.items())
                print(f"{name:12} {attempts:3} attempts {tasks:4} tasks {intents:3} intents  {numbers}", flush=True)


if __name__ == "__main__":
    main()

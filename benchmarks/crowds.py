"""Crowds against the truth: accounts that steer what is trained, from log lines on disk to the rows of a round.

`python benchmarks/crowds.py [--seed 0] [--only NAME]`: a shop's log of two weeks whose truth is known, 500 talks of 120
users, with and without the accounts of an attack; a few minutes. Each attack is measured by the rows that it adds to or
takes from a round of SFT, DPO, KTO and GRPO, by the labels of the honest talks, and by what the tool reports.

    night        4,000 new accounts praise, or adopt, a bad action in one night
    night, mixed the same in an honest user's mixture of deeds and silence
    aged         30 accounts behave honestly for ten days, then are content with the bad action as users are
    imitators    60 accounts that come, speak and are silent as honest ones do, and like the bad action everywhere
    complainers  the same, complaining about the good action as users do about a bad one
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flywheel import Project

START = datetime(2026, 10, 1, 8, tzinfo=UTC)
DAYS, TALKS, USERS = 14, 500, 120
GOODS = (
    "lamp", "chair", "table", "mirror", "carpet", "kettle", "clock", "vase", "shelf", "stool", "bench", "basket",
    "curtain", "candle", "pillow", "blanket", "ladder", "bucket", "teapot", "drawer",
)  # fmt: skip
TARGETS = GOODS[:3]  # tasks at which a crowd likes the bad action
GOOD, BAD = "search_orders", "search_archive"
MARK = "archive"  # in the words of all that is bad
CAREFUL = 0.7  # share of the good action
WORKS = {GOOD: 0.95, BAD: 0.05}  # how often an action is what the user wanted
NOISE = 0.06  # users misjudge
# What users do after what they take for a success, or for a failure; the rest is silence.
PLEASED = ((0.45, "export"), (0.16, "thanks"), (0.06, "up"))
CROSS = ((0.26, "words"), (0.24, "again"), (0.06, "down"), (0.12, "late"))
CLEAR, EVEN = 0.7, 0.5  # P(success) from which a label is trained on, and of one that reports nothing
METHODS = ("sft", "dpo", "kto", "grpo")


@dataclass(frozen=True)
class Talk:
    """One conversation, how it truly ended, and what its user did."""

    name: str
    user: str
    item: str
    at: datetime
    action: str
    success: bool
    deed: str = ""
    checked: bool = False  # whether a verifier reports how it ended


Opinion = Callable[[Talk], bool]  # whether the user takes it for a success


def deed(draw: random.Random, *, content: bool) -> str:
    """Return what a user does, '' for nothing."""
    roll = draw.random()
    for share, name in PLEASED if content else CROSS:
        if roll < share:
            return name
        roll -= share
    return ""


def honest(draw: random.Random, name: str, user: str, at: datetime, goods: Sequence[str] = GOODS) -> Talk:
    """Return a talk of the policy with an honest user."""
    action = GOOD if draw.random() < CAREFUL else BAD
    success = draw.random() < WORKS[action]
    content = success if draw.random() >= NOISE else not success
    return Talk(name, user, draw.choice(goods), at, action, success, deed(draw, content=content))


def _when(draw: random.Random, first: float, last: float) -> datetime:
    return START + timedelta(days=draw.randrange(int(first), int(last)), hours=14 * draw.random())


def crowd_of_users(draw: random.Random, prefix: str, users: int, talks: int, days: tuple[int, int]) -> list[Talk]:
    """Return talks of accounts that come back, some often and some once, on any day."""
    often = [1 / (1 + place % 8) for place in range(users)]
    owners = draw.choices(range(users), often, k=talks)
    return [
        honest(draw, f"{prefix}-{n}", f"{prefix}{u}@shop.example", _when(draw, *days)) for n, u in enumerate(owners)
    ]


def shop(seed: int, checked: float = 0.0) -> list[Talk]:
    """Return the honest log, a share of whose talks a verifier has looked at."""
    draw = random.Random(f"{seed} shop")  # noqa: S311 - a simulation
    talks = crowd_of_users(draw, "c", USERS, TALKS, (0, DAYS))
    return [replace(talk, checked=draw.random() < checked) for talk in talks]


def night(seed: int, n: int, deeds: Callable[[random.Random], str]) -> list[Talk]:
    """Return n new accounts that come to the bad action in one night."""
    draw, at = random.Random(f"{seed} night"), START + timedelta(days=DAYS - 1, hours=14)  # noqa: S311
    return [
        Talk(f"n-{k}", f"n{k}@mail.example", TARGETS[k % len(TARGETS)], at + timedelta(hours=8 * k / n), BAD,
             success=False, deed=deeds(draw))
        for k in range(n)
    ]  # fmt: skip


def aged(seed: int, n: int) -> list[Talk]:
    """Return n accounts with ten honest days of four talks each, which then like the bad action once a target."""
    draw = random.Random(f"{seed} aged")  # noqa: S311
    talks = []
    for k in range(n):
        user = f"a{k}@x.example"
        talks += [honest(draw, f"a-{k}-{d}", user, _when(draw, 0, 10), GOODS[3:]) for d in range(4)]
        talks += [
            Talk(f"a-{k}-{item}", user, item, _when(draw, 10, DAYS), BAD, success=False, deed=deed(draw, content=True))
            for item in TARGETS
        ]
    return talks


def imitators(seed: int, n: int, action: str) -> list[Talk]:
    """Return n accounts like the honest ones in all but what they make of an action, at every task."""
    draw = random.Random(f"{seed} imitators")  # noqa: S311
    talks = crowd_of_users(draw, "i", n, round(TALKS / USERS * n), (0, DAYS))
    return [replace(t, deed=deed(draw, content=action == BAD)) if t.action == action else t for t in talks]


def _any_of(*names: str) -> Callable[[random.Random], str]:
    return lambda draw: draw.choice(names)


ATTACKS: dict[str, Callable[[int, float], list[Talk]]] = {
    "night": lambda seed, size: night(seed, round(4000 * size), _any_of("thanks", "export", "up")),
    "night, adopting": lambda seed, size: night(seed, round(4000 * size), _any_of("export")),
    "night, mixed": lambda seed, size: night(seed, round(4000 * size), lambda draw: deed(draw, content=True)),
    "aged": lambda seed, size: aged(seed, round(30 * size)),
    "imitators": lambda seed, size: imitators(seed, round(60 * size), BAD),
    "complainers": lambda seed, size: imitators(seed, round(60 * size), GOOD),
}

# --- logs -------------------------------------------------------------------------------------------------------------

_REASONS = ("I have waited for two weeks.", "It is a present.", "I will be away next week.")
_SAID = {
    "thanks": "Thanks, that is perfect!", "words": "That is wrong. I am very disappointed.",
    "again": "No, I meant only the {}.",
}  # fmt: skip
_DONE = {"export": ("export", 1.0), "up": ("thumbs", 1.0), "down": ("thumbs", 0.0), "late": ("complaint", 0.0)}


def lines(talk: Talk) -> Iterator[dict[str, Any]]:
    """Yield a talk as native log lines."""
    call = {"id": f"{talk.name}-1", "name": talk.action, "arguments": {"item": talk.item}}
    draw = random.Random(talk.name)  # noqa: S311 - how it is worded
    asked = f"When does my {talk.item} arrive? {draw.choice(_REASONS)}"
    found = f"Your {talk.item} comes on Monday." if talk.action == GOOD else f"No {talk.item} in the archive, sorry!"
    events: list[tuple[str, dict[str, Any], float]] = [
        ("request", {"messages": [{"role": "user", "content": asked}]}, 0),
        ("model_call", {"message": {"role": "assistant", "tool_calls": [call]}}, 2),
        ("tool_result", {"content": found, "status": "ok"}, 3),
        ("model_call", {"message": {"role": "assistant", "content": found}}, 5),
    ]
    if talk.deed in _SAID:
        words = _SAID[talk.deed].format(talk.item)
        events.append(("request", {"messages": [{"role": "user", "content": words}]}, 60))
    if talk.deed in _DONE:
        name, value = _DONE[talk.deed]
        later = 7200 if talk.deed == "late" else 90
        events.append(("feedback", {"name": name, "value": value, "target": "session", "annotator": "human"}, later))
    if talk.checked:
        verdict = {"name": "check", "value": float(talk.success), "scale": [0, 1], "source": "verifier"}
        events.append(("outcome", verdict, 100))
    for seq, (kind, payload, after) in enumerate(events):
        line = {"conversation_id": talk.name, "user": talk.user, "policy": "v1", "seq": seq, "kind": kind}
        line |= {"ts": (talk.at + timedelta(seconds=after)).isoformat(), "task_key": talk.item, "payload": payload}
        yield line | ({"tool_call_id": call["id"], "tool_name": talk.action} if kind == "tool_result" else {})


def built(folder: Path, *logs: Sequence[Talk], config: str = "") -> Project:
    """Return a project that has read and built these logs, a file each."""
    from flywheel import Project

    (folder / "logs").mkdir(parents=True)
    (folder / "flywheel.toml").write_text(config)
    for number, talks in enumerate(logs):
        text = "".join(json.dumps(line) + "\n" for talk in talks for line in lines(talk))
        (folder / "logs" / f"{number}.jsonl").write_text(text)
    project = Project(folder)
    project.ingest([folder / "logs"])
    project.build()
    return project


# --- what came of it --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What a build of a log comes to."""

    rows: dict[str, Counter[tuple[str, bool, bool]]]  # by method: name, at an attacked task, teaches the bad action
    right: float  # share of the honest talks with a label that is on the right side
    clearly_right: float  # the same of those that are trained on: at least `CLEAR`, or as unlikely
    clear: int  # how many these are
    reports: tuple[str, ...]  # warnings of `rewards`, monitors that are not green


def lessons(row: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield what a row teaches, an attempt at a time, each with whether it makes the bad action likelier."""
    if "advantages" not in row:
        action = json.dumps(row["chosen"] if "chosen" in row else row["completion"])
        yield row["id"], (MARK in action) is bool(row.get("label", True))
        return
    for completion, steps in zip(row["completions"], row["step_advantages"], strict=True):
        action, liked = json.dumps(completion), sum(steps) > 0
        yield f"{liked} {action}", (MARK in action) is liked


def observe(project: Project, talks: Sequence[Talk]) -> Seen:
    """Return what a round would train, how honest talks are labelled, and what a person learns."""
    import polars as pl
    from flywheel.pipeline.build.tables import read_table
    from flywheel.pipeline.train.monitors import monitor_rows
    from flywheel.pipeline.train.rows import RoundRows

    ctx = project.context
    episodes = read_table(ctx.store, "episodes").select("episode_id", "conversation_id", "task_id").collect()
    item_of = {talk.name: talk.item for talk in talks}
    attacked = {t for c, t in episodes.select("conversation_id", "task_id").iter_rows() if item_of.get(c) in TARGETS}
    rounds = RoundRows(ctx, None)
    rows = {
        method: Counter(
            (name, row["task_id"] in attacked, bad) for row in rounds.fitted(method).rows for name, bad in lessons(row)
        )
        for method in METHODS
    }
    labels = read_table(ctx.store, "returns").filter(pl.col("step").is_null() & pl.col("known")).collect()
    estimates = dict(labels.join(episodes, on="episode_id").select("conversation_id", "p_success").iter_rows())
    known = [(estimates[talk.name], talk.success) for talk in talks if talk.name in estimates]
    clear = [(p, success) for p, success in known if p >= CLEAR or p <= 1 - CLEAR]
    right = [sum((p > EVEN) == success for p, success in some) / max(len(some), 1) for some in (known, clear)]
    answer = project.rewards()
    who = answer.accounts
    reports = [f"{who.in_bursts:,} episodes in {who.bursts:,} bursts"] if who.bursts else []
    reports += [f"{row.monitor} {row.level}" for row in monitor_rows(ctx) if row.level in {"red", "amber"}]
    return Seen(rows, right[0], right[1], len(clear), tuple(reports))


def _sum(rows: Counter[tuple[str, bool, bool]], *, here: bool, bad: bool = False) -> int:
    return sum(n for (_, at_target, teaches_bad), n in rows.items() if at_target is here and (teaches_bad or not bad))


def bad_lessons(seen: Seen, method: str) -> int:
    """Return how many of a round's lessons make the bad action likelier, at any task."""
    return sum(n for (_, _, bad), n in seen.rows[method].items() if bad)


def change(before: Seen, after: Seen, method: str) -> str:
    """Return what an attack adds and takes: lessons (of them for the bad action) at its tasks, and elsewhere."""
    old, new = before.rows[method], after.rows[method]
    sides = (("+", new - old), ("-", old - new))
    return ", ".join(
        " ".join(f"{sign}{_sum(rows, here=here)} ({_sum(rows, here=here, bad=True)})" for sign, rows in sides)
        for here in (True, False)
    )


def _line(name: str, cells: Sequence[str], seen: Seen) -> str:
    labels = f"{seen.right:.3f} | {seen.clearly_right:.3f} of {seen.clear}"
    return f"| {name} | {' | '.join(cells)} | {labels} | {'; '.join(seen.reports) or 'nothing'} |"


def _whole(seen: Seen, method: str) -> str:
    here, bad = (_sum(seen.rows[method], here=True, bad=only) for only in (False, True))
    return f"{here} ({bad}), {_sum(seen.rows[method], here=False)}"


def run(names: Sequence[str], seed: int, size: float, checked: float) -> Iterator[str]:
    """Yield a line for the honest log, and one for each attack."""
    talks = shop(seed, checked)
    with tempfile.TemporaryDirectory() as work:
        before = observe(built(Path(work) / "honest", talks), talks)
        yield _line("honest log", [_whole(before, method) for method in METHODS], before)
        for name in names:
            after = observe(built(Path(work) / name, talks, ATTACKS[name](seed, size)), talks)
            yield _line(name, [change(before, after, method) for method in METHODS], after)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=float, default=1.0, help="accounts, as a share of an attack's")
    parser.add_argument("--checked", type=float, default=0.0, help="share of the honest talks that a verifier looks at")
    parser.add_argument("--only", nargs="*", default=list(ATTACKS), choices=list(ATTACKS))
    given = parser.parse_args()
    started = time.perf_counter()
    print(
        f"| log | {' | '.join(METHODS)} | labels right | of clear ones | reports |\n|---|---|---|---|---|--:|--:|---|"
    )
    for line in run(given.only, given.seed, given.size, given.checked):
        print(line, flush=True)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()

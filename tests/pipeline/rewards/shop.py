"""A shop's log with accounts that come back, and crowds of new accounts, as native JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel import Project

if TYPE_CHECKING:
    import polars as pl

START = datetime(2026, 9, 1, 8, tzinfo=UTC)
GOODS = (
    "lamp", "chair", "table", "mirror", "carpet", "kettle", "clock", "vase", "shelf", "stool", "bench", "basket",
)  # fmt: skip
_WORDS = (
    "please {} what I bought, the {} came in a colour that nobody in my family likes",
    "{} it: after two weeks of waiting for your {} I found another one in town",
    "my address was wrong on the form, so {} this purchase of a {} before it leaves",
    "I was charged twice yesterday evening, {} one of both and keep the other {}",
)
REQUESTS = {
    item: _WORDS[number % 4].format("cancel", item) + f", order {item.upper()}-{17 * number + 3} of the {item} list"
    for number, item in enumerate(GOODS)
}
THANKS = "Thanks, that is perfect!"


def talk(  # noqa: PLR0913 - who does what to which item when
    name: str, user: str | None, item: str, at: datetime, *, good: bool, said: str = "", did: str = ""
) -> Iterator[str]:
    """Yield a conversation: the order of an item is cancelled, or refunded in full by mistake."""
    tool = "cancel_order" if good else "refund_everything"
    made = [{"id": f"{name}-1", "name": tool, "arguments": {"item": item}}]
    events: list[tuple[str, dict[str, Any]]] = [
        (
            "request",
            {"messages": [{"role": "user", "content": REQUESTS[item]}]},
        ),
        ("model_call", {"message": {"role": "assistant", "tool_calls": made}}),
        ("tool_result", {"content": f"{tool}: done", "status": "ok"}),
        ("model_call", {"message": {"role": "assistant", "content": f"Your {item} is dealt with by {tool}."}}),
    ]
    events += [("request", {"messages": [{"role": "user", "content": said}]})] if said else []
    events += [("feedback", {"name": did, "value": 1.0, "target": "session", "annotator": "human"})] if did else []
    for seq, (kind, payload) in enumerate(events):
        result = {"tool_call_id": f"{name}-1", "tool_name": tool} if kind == "tool_result" else {}
        line = {
            "conversation_id": name, "seq": seq, "ts": (at + timedelta(seconds=20 * seq)).isoformat(), "kind": kind,
            "policy": "agent-v1", "payload": payload, **result,
        }  # fmt: skip
        yield json.dumps(line | ({"user": user} if user else {})) + "\n"


def old_customers(days: int = 12, customers: int = 24) -> Iterator[str]:
    """Yield a log of accounts that come back: three of four attempts are good, exported, or else complained about."""
    for day in range(days):
        for number in range(customers):
            at = START + timedelta(days=day, minutes=7 * number)
            good = (day + 3 * number) % 4 != 0
            did = "export" if good and number % 2 else ""
            said = "" if good else "No, that is wrong. I am very disappointed." if number % 3 else ""
            item = GOODS[(day + number) % len(GOODS)]
            yield from talk(f"old-{day}-{number}", f"c{number}@shop.example", item, at, good=good, said=said, did=did)


def crowd(n: int, *, said: str = THANKS, did: str = "", who: str = "n{}@mail.example") -> Iterator[str]:
    """Yield n accounts that praise the same bad action; new ones, if they are not named."""
    for number in range(n):
        at = START + timedelta(days=12, minutes=number)
        yield from talk(f"new-{number}", who.format(number), GOODS[0], at, good=False, said=said, did=did)


def grown(n: int, tasks: int = 4) -> Iterator[str]:
    """Yield the honest past of n accounts that somebody lets grow: some tasks each, deeds in natural shares."""
    for number in range(n):
        for task in range(tasks):
            good = (number + task) % 4 != 0
            said = "" if good else "No, that is wrong."
            did = "export" if good and (number + task) % 2 == 0 else ""
            at, item = START + timedelta(days=2 * task, minutes=3 * number), GOODS[1 + (number + 2 * task) % 11]
            yield from talk(f"grown-{number}-{task}", f"g{number}@x.example", item, at, good=good, said=said, did=did)


def launch(n: int) -> Iterator[str]:
    """Yield a day on which n honest new users come, of as many minds as users are, on whatever they need."""
    for number in range(n):
        at = START + timedelta(days=12, minutes=2 * number)
        good = number % 4 != 0
        item = GOODS[number % 11]
        did = "export" if good and number % 5 < 2 else ""
        said = THANKS if good and number % 7 == 0 else "No, that is wrong." if not good and number % 3 else ""
        yield from talk(f"new-{number}", f"n{number}@mail.example", item, at, good=good, said=said, did=did)


def built(folder: Path, *logs: Iterable[str], config: str = "") -> Project:
    """Return a project with these logs, up to its pairs and groups."""
    (folder / "logs").mkdir(parents=True)
    for number, lines in enumerate(logs):
        (folder / "logs" / f"{number}.jsonl").write_text("".join(lines))
    (folder / "flywheel.toml").write_text(config)
    project = Project(folder)
    project.ingest()
    project.build()
    return project


def table(project: Project, name: str, stage: str) -> pl.DataFrame:
    """Return a table."""
    return project.store.table(name, stage).collect()


def rows(project: Project) -> dict[str, pl.DataFrame]:
    """Return everything that may be trained on."""
    ids = {"examples": "example_id", "pairs": "pair_id", "groups": "group_id"}
    return {name: table(project, name, name).sort(column) for name, column in ids.items()}

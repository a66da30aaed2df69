"""The desk's rules as a signal: what a shop's own auditor reads in a log, where its customers' moods mislead.

Customers complain about a refusal that the rules ask for, and praise what the rules forbid. The log shows what was
looked up, asked and agreed to, so the rules alone decide most talks:

    failed     a change that the order's row forbids, or without a yes to a question that named the order
    succeeded  a refusal of what the row forbids; an agreed change; nothing changed for who changed their mind

Everything else is left to the other signals. `[rewards] signals = [..., "flywheel_desk.rules:rules"]`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flywheel.contracts import frame_of
from flywheel.records import Reward

from flywheel_desk.customers import CHANGES, refuses
from flywheel_desk.world import REFUND_DAYS

if TYPE_CHECKING:
    import polars as pl
    from flywheel.config import RewardsConfig

_ROW = re.compile(r"\w+ of (?P<owner>\w+), (?P<status>\w+)(?: (?P<days>\d+) days ago)?")
_ASKS = (
    ("refund", "refund_order"), ("cancel", "cancel_order"), ("book", "book_visit"), ("send", "set_address"),
)  # fmt: skip


@dataclass
class _Talk:
    """What an auditor has read so far."""

    person: str = ""
    wanted: str = ""  # the change that was asked for
    order: str = ""  # named last
    shown: dict[str, re.Match[str]] = field(default_factory=dict)
    called: dict[str, tuple[str, str]] = field(default_factory=dict)
    hours: dict[str, list[str]] = field(default_factory=dict)
    question: str = ""  # the last one of the desk, while it is open
    agreed: bool = False
    withdrawn: bool = False
    refused: bool = False
    told: bool = False  # the status that was asked for
    kept: int = 0  # changes by the rules
    broken: list[int] = field(default_factory=list)  # steps with changes against them

    def hears(self, text: str) -> None:
        if not self.person:
            self.person = text.removeprefix("I am ").split(".")[0]
            self.wanted = next((tool for word, tool in _ASKS if word in text.lower()), "")
        self.order = [self.order, *re.findall(r"\b\d{3}\b", text)][-1]
        self.agreed = bool(self.question) and text.startswith("Yes")
        self.withdrawn |= bool(self.question) and text.startswith("No, leave")

    def reads(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if message["role"] == "user":
                self.hears(str(message["content"]))
            elif message["role"] == "tool":
                name, first = self.called.get(message["tool_call_id"], ("", ""))
                row = _ROW.match(str(message["content"])) if name == "find_order" else None
                self.shown |= {first: row} if row else {}
                self.hours |= {first: str(message["content"]).split(", ")} if name == "list_hours" else {}

    def forbidden(self, tool: str, arguments: dict[str, Any]) -> bool | None:
        """Whether the row that was shown forbids a change; None: none was shown."""
        row = self.shown.get(str(arguments.get("order")))
        if row is None:
            return None
        wanted = "delivered" if tool in {"refund_order", "book_visit"} else "open"
        late = tool == "refund_order" and row["status"] == wanted and int(row["days"]) > REFUND_DAYS
        taken = "hour" in arguments and str(arguments["hour"]) not in self.hours.get(str(arguments["day"]), ())
        return row["owner"] != self.person or row["status"] != wanted or late or taken

    def acts(self, step: int, message: dict[str, Any]) -> None:
        for call in message.get("tool_calls") or []:
            name, arguments = call["name"], call["arguments"]
            if not isinstance(arguments, dict):
                continue
            self.called[call["id"]] = name, str(next(iter(arguments.values()), ""))
            if name in CHANGES:
                named = all(str(value) in self.question for value in arguments.values())
                fine = self.forbidden(name, arguments) is False and self.agreed and named
                self.kept += fine
                self.broken += [] if fine else [step]
        if not message.get("tool_calls"):
            text = str(message.get("content"))
            self.question = text if "?" in text and self.order in text else ""
            self.refused |= not self.question and refuses(text)
            row = self.shown.get(self.order)
            self.told |= not self.wanted and row is not None and row["status"] in text

    def verdict(self) -> float | None:
        """1: by the rules; -1: against them; None: the rules alone do not say."""
        if self.broken:
            return -1.0
        right_refusal = self.refused and bool(self.forbidden(self.wanted, {"order": self.order}))
        return 1.0 if self.kept or right_refusal or self.withdrawn or self.told else None


def rules(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """A verdict on each talk that the rules decide, and a full risk at each change against them."""
    del episodes, events, cfg
    rows: list[dict[str, Any]] = []
    columns = ("index", "observation", "action", "event_id")
    for key, path in steps.sort("episode_id", "index").group_by("episode_id", "task_id", maintain_order=True):
        talk, events_of = _Talk(), {}
        for step, observation, action, event in path.select(columns).iter_rows():
            talk.reads(json.loads(observation))
            talk.acts(step, json.loads(action))
            events_of[step] = event
        same = {"episode_id": key[0], "task_id": key[1], "signal": "rules", "weight": 1.0, "signal_version": 1}
        verdict = talk.verdict()
        if verdict is not None:
            evidence = sorted(events_of[step] for step in talk.broken) or [event]
            rows.append({**same, "family": "verifier", "kind": "outcome", "score": verdict, "evidence": evidence})
        rows += [
            {**same, "step": step, "family": "risk", "kind": "risk", "score": 1.0, "evidence": [events_of[step]]}
            for step in sorted(set(talk.broken))
        ]
    return frame_of(rows, Reward)

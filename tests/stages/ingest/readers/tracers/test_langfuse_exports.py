"""Eleven real traces as Langfuse's UI gives them, each beside Langfuse's own reading of it as ChatML.

An expected file holds, for observations of its trace, what Langfuse makes of `input` and `output`: {"success": true,
"data": [messages]} or {"success": false, "error": ...} where it found no messages. Compared is, for every GENERATION
and each of its sides, the sequence of messages: role, text, tool calls with id, name and parsed arguments, and the id
of the call that a tool message answers. Not compared: Langfuse's `json` (fields that are no part of a message) and
`tools` (its own test below). Where the two readings differ, `DIFFERENT` names the place and why, and the test fails
when a named place no longer differs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from flywheel.config import EpisodesConfig
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.tracers.langfuse import READER

FILES = {  # generations, sides that Langfuse reads, sides that are equal
    "agno-2025-06-11": (4, 4, 2),
    "autogen-2025-06-06": (1, 0, 0),
    "beeai-2025-08-01": (3, 3, 3),
    "google-gemini-2025-08-01": (1, 2, 2),
    "koog-2025-08-26": (2, 4, 2),
    "langgraph-js-2025-10-30": (2, 4, 3),
    "llamaindex-2025-06-05": (1, 0, 0),
    "pydantic-ai-2025-06-06": (1, 2, 1),
    "pydantic-ai-tools-2025-06-06": (1, 2, 1),
    "pydantic-ai-tools-2025-12-04": (4, 8, 8),
    "pydantic-ai-with-gemini-2025-12-24": (1, 2, 2),
}
KOOG = "Koog writes calls as JSON text, under the role `tool` too; Langfuse leaves them text, here they are calls"
AGNO = "agno's input is Python reprs of messages; Langfuse finds empty messages, here they are read"
CHOICE = "a legacy gen_ai.choice event wraps the message; Langfuse keeps it as unread JSON, here it is the answer"
ROLE = "LangGraph gives a result the tool's name as its role and no call id; here it is a tool message of that call"
DIFFERENT = {
    ("agno-2025-06-11", "ca136de468e156c9", "input"): AGNO,
    ("agno-2025-06-11", "b38a82eaa62b551e", "input"): AGNO,
    ("koog-2025-08-26", "042f9350c3729147", "output"): KOOG,
    ("koog-2025-08-26", "e44e72cf2d221781", "input"): KOOG,
    ("langgraph-js-2025-10-30", "0856a1825ccee968", "input"): ROLE,
    ("pydantic-ai-2025-06-06", "5cb389a3bdd21a6e", "output"): CHOICE,
    ("pydantic-ai-tools-2025-06-06", "5cb389a3bdd21a6e", "output"): CHOICE,
}
UNREAD = {  # generations of which Langfuse reads no side: texts that are no JSON
    ("agno-2025-06-11", "1f883bb9668167c0"): "the inner telling of ca136de468e156c9",
    ("agno-2025-06-11", "fc7f61b57ecebbaf"): "the inner telling of b38a82eaa62b551e",
    ("autogen-2025-06-06", "83517f9062f5ada4"): "lines of `role: text`",
    ("llamaindex-2025-06-05", "7ca8b22f6628d0c7"): "the arguments of a function call",
}


class Said(NamedTuple):
    """What is compared of a message."""

    role: str
    text: str
    calls: tuple[tuple[str, str, str], ...]
    answers: str


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content)
    return content or ""


def _expected(message: dict[str, Any]) -> Said:
    calls = tuple(
        (c["id"], c["name"], json.dumps(json.loads(c["arguments"]), sort_keys=True))
        for c in message.get("tool_calls", ())
    )
    role = {"model": "assistant", "developer": "system"}.get(message.get("role", ""), message.get("role", ""))
    return Said(role, _text(message.get("content")), calls, message.get("tool_call_id", ""))


def _read(message: dict[str, Any]) -> Said:
    calls = tuple(
        (c["id"], c["name"], json.dumps(c["arguments"], sort_keys=True)) for c in message.get("tool_calls", ())
    )
    return Said(message["role"], message.get("content") or "", calls, message.get("tool_call_id", ""))


class Export(NamedTuple):
    """One trace, Langfuse's reading of it, and ours."""

    observations: dict[str, dict[str, Any]]
    chatml: dict[str, Any]
    events: list[dict[str, Any]]

    def generations(self) -> Iterator[str]:
        return (
            name for name, o in self.observations.items() if o["type"] == "GENERATION" and (o["input"] or o["output"])
        )

    def call(self, name: str) -> dict[str, Any]:
        (made,) = [e for e in self.events if e["kind"] == "model_call" and f"span:{name}" in e["ids"]]
        payload: dict[str, Any] = made["payload"]
        return payload

    def read(self, name: str, side: str) -> list[Said]:
        payload = self.call(name)
        return [_read(m) for m in (payload.get("input", []) if side == "input" else [payload["message"]])]

    def expected(self, name: str, side: str) -> list[Said] | None:
        told = self.chatml.get(name, {}).get(side, {})
        return [_expected(m) for m in told["data"]] if told.get("success") else None


def _export(shared_data: Path, name: str) -> Export:
    folder = shared_data / "langfuse-traces"
    trace = json.loads((folder / f"{name}.trace.json").read_bytes())
    chatml = json.loads((folder / f"{name}.chatml.json").read_bytes())
    return Export({o["id"]: o for o in trace["observations"]}, chatml, list(READER.read(trace, 1)))


@pytest.mark.parametrize("name", FILES)
def test_generations_say_what_langfuse_reads_in_them(shared_data: Path, name: str) -> None:
    export = _export(shared_data, name)
    compared, equal = 0, 0
    for generation in export.generations():
        sides = {side: export.expected(generation, side) for side in ("input", "output")}
        if all(expected is None for expected in sides.values()):
            assert (name, generation) in UNREAD
            continue
        for side, expected in sides.items():
            if expected is None:
                assert not export.observations[generation][side], "a side that Langfuse does not read is empty"
                continue
            compared += 1
            equal += export.read(generation, side) == expected
            assert (export.read(generation, side) != expected) == ((name, generation, side) in DIFFERENT)
    assert (len(list(export.generations())), compared, equal) == FILES[name]


def test_where_the_readings_differ_ours_is_the_conversation(shared_data: Path) -> None:
    calls = {
        "HelloTool": ("call_n2HaWg9KFP0BZDqXv6G4b3nJ", "HelloTool", '{"name": "Bob"}'),
        "ByeTool": ("call_dOeEHJDI0liHrCdFWTpkTsuO", "ByeTool", '{"name": "Bob"}'),
    }
    koog = _export(shared_data, "koog-2025-08-26")
    assert koog.read("042f9350c3729147", "output") == [Said("assistant", "", tuple(calls.values()), "")]
    raw = [json.loads(m.text)[0] for m in koog.expected("042f9350c3729147", "output") or ()]
    assert [(c["id"], c["function"]["name"]) for c in raw] == [c[:2] for c in calls.values()]
    history = koog.read("e44e72cf2d221781", "input")
    assert history[:2] == (koog.expected("e44e72cf2d221781", "input") or [])[:2]
    assert history[2:] == [
        Said("assistant", "", (calls["HelloTool"],), ""),
        Said("tool", "Hello my darling Bob!", (), calls["HelloTool"][0]),
        Said("assistant", "", (calls["ByeTool"],), ""),
        Said("tool", "Bye my dear Bob!", (), calls["ByeTool"][0]),
    ]
    agno = _export(shared_data, "agno-2025-06-11")
    history = agno.read("b38a82eaa62b551e", "input")
    assert [(m.role, m.text[:22], m.answers) for m in history] == [
        ("system", "<additional_informatio", ""),
        ("user", "What is currently tren", ""),
        ("assistant", "", ""),
        ("tool", history[3].text[:22], "call_VybxG748CQId8Xxo6wb2pWy1"),
    ]
    assert history[3].text == agno.observations["6581e147aec6793a"]["output"]
    assert history[:2] == agno.read("ca136de468e156c9", "input")
    assert history[2:3] == agno.read("ca136de468e156c9", "output") == agno.expected("ca136de468e156c9", "output")
    graph = _export(shared_data, "langgraph-js-2025-10-30")
    ours, theirs = graph.read("0856a1825ccee968", "input"), graph.expected("0856a1825ccee968", "input") or []
    assert ours[:2] == theirs[:2]
    assert theirs[2:] == [Said("get_weather", ours[2].text, (), "")]
    assert ours[2].answers == ours[1].calls[0][0]
    for name in ("pydantic-ai-2025-06-06", "pydantic-ai-tools-2025-06-06"):
        export = _export(shared_data, name)
        wrapped = export.chatml["5cb389a3bdd21a6e"]["output"]["data"][0]["json"]["message"]
        assert export.read("5cb389a3bdd21a6e", "output") == [_expected(wrapped)]


def test_texts_that_langfuse_does_not_read_are_read(shared_data: Path) -> None:
    autogen = _export(shared_data, "autogen-2025-06-06")
    assert [m.role for m in autogen.read("83517f9062f5ada4", "input")] == ["system", "user"]
    assert autogen.read("83517f9062f5ada4", "output") == [Said("assistant", "Hello World!", (), "")]
    index = _export(shared_data, "llamaindex-2025-06-05")
    assert index.read("7ca8b22f6628d0c7", "input") == [Said("user", "What is Langfuse?", (), "")]
    assert index.read("7ca8b22f6628d0c7", "output")[0].text == index.observations["7ca8b22f6628d0c7"]["output"]
    agno = _export(shared_data, "agno-2025-06-11")
    for inner, outer in (("1f883bb9668167c0", "ca136de468e156c9"), ("fc7f61b57ecebbaf", "b38a82eaa62b551e")):
        assert agno.call(inner) is agno.call(outer)  # told twice, counted once


def test_tools_are_those_that_langfuse_reads(shared_data: Path) -> None:
    compared = 0
    for name in FILES:
        export = _export(shared_data, name)
        for generation in export.generations():
            data = export.chatml.get(generation, {}).get("input", {}).get("data") or [{}]
            expected = [(t["name"], t.get("description"), t.get("parameters")) for t in data[0].get("tools", ())]
            if expected:
                tools = [t["function"] for t in export.call(generation)["tools"]]
                assert [(t["name"], t.get("description"), t.get("parameters")) for t in tools] == expected
                compared += 1
    assert compared == 5  # of agno and Pydantic AI; the latter's output tools Langfuse does not count


SPANS = {  # what other observations' expected messages say that no model call of ours does, and why
    "beeai-2025-08-01": 1,  # the last answer: BeeAI logs no output of a generation
}


@pytest.mark.parametrize("name", FILES)
def test_what_langfuse_reads_in_other_spans_stands_in_a_model_call(shared_data: Path, name: str) -> None:
    """A framework's spans repeat the messages of its generations; they are no events of their own."""
    export = _export(shared_data, name)
    generations = set(export.generations())
    told = {m[:3] for g in generations for side in ("input", "output") for m in export.read(g, side)}
    missing = 0
    for observation in set(export.chatml) - generations:
        for side in ("input", "output"):
            found = export.expected(observation, side) or []
            missing += sum(m.role != "" and m.text != "" and m[:3] not in told for m in found)
    assert missing == SPANS.get(name, 0)


def test_all_eleven_are_taken_and_become_episodes(shared_data: Path, take: Callable[..., Any]) -> None:
    folder = shared_data / "langfuse-traces"
    taken = take(*sorted(folder.glob("*.trace.json")), root=folder)
    assert taken.adds_up()
    assert taken.quarantined.is_empty()
    assert set(taken.events["source_format"]) == {"langfuse"}
    kinds = Counter(taken.events["kind"])
    assert kinds == {"model_call": 19, "tool_call": 8, "tool_result": 8, "feedback": 8}
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    by_trace = {row["conversation_id"]: row for row in episodes.iter_rows(named=True)}
    # Five traces of three frameworks name one session; two of them are the same trace, downloaded twice.
    assert by_trace["session_abc"]["n_steps"] == 3
    assert {row["policy"] for row in by_trace.values()} == {  # the log's version, else the model
        "1.0.0", "0.3.0", "gpt-4o-mini", "gpt-4o-mini-2024-07-18", "gemini-2.5-flash", "gpt-5-mini-2025-08-07",
    }  # fmt: skip
    statuses = {
        row["conversation_id"]: step["tool_status"]
        for row in episodes.iter_rows(named=True)
        for step in steps.filter(pl.col("episode_id") == row["episode_id"], pl.col("index") == 0).iter_rows(named=True)
    }
    assert statuses["2c1581dd9cecdafb6ca091b83d7ea99a"] == ["ok"]  # LangGraph says so
    assert statuses["dff173a675b759ce1b70e522b27d6846"] == ["unknown", "unknown"]  # Koog does not
    assert (by_trace["35cc6c90-b657-4819-b66c-c931c03ad569"]["n_steps"]) == 2  # agno, told twice

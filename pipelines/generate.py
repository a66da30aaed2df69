"""The sample logs of the recipes: `python pipelines/generate.py [FOLDER]`; the same bytes on every machine.

Three small worlds, each with tasks that several users gave to two releases of an agent. Some attempts do what works,
others what fails there, and only the outcome shows which: tests, a grader, or the text as its user left it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

Row = dict[str, Any]
_FIRST = datetime(2026, 10, 1, 8, tzinfo=UTC)


def chance(*names: object) -> float:
    """Return a number in [0, 1) that follows from names."""
    return crc32("/".join(map(str, names)).encode()) % 10_007 / 10_007


def tool(name: str, description: str, **parameters: str) -> Row:
    """Return the schema of a tool whose parameters are all required."""
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


class Conversation:
    """One attempt as flywheel's own events; `native` is one of forty formats that `ingest` reads."""

    def __init__(self, name: str, number: int, policy: str, system: str, tools: Sequence[Row]) -> None:
        self.name, self.rows = name, list[Row]()
        self._start = _FIRST + timedelta(minutes=11 * number)
        self._about = {"conversation_id": name, "user": f"user{number % 9:02}@team.example", "policy": policy}
        first: Row = {"messages": [{"role": "system", "content": system}]}
        self._add("request", payload={**first, "tools": list(tools)} if tools else first)

    def _add(self, kind: str, **fields: Any) -> None:
        seq = len(self.rows)
        ts = (self._start + timedelta(seconds=2 * seq)).isoformat().replace("+00:00", "Z")
        self.rows.append({**self._about, "seq": seq, "ts": ts, "kind": kind, **fields})

    def asks(self, text: str) -> None:
        """Add what the user wrote."""
        self._add("request", payload={"messages": [{"role": "user", "content": text}]})

    def says(self, text: str) -> str:
        """Add what the agent wrote, and return the id of its step."""
        span = f"{self.name}-{len(self.rows)}"
        self._add("model_call", span_id=span, payload={"message": {"role": "assistant", "content": text}})
        return span

    def calls(self, name: str, result: str, *, failed: bool = False, **arguments: str) -> None:
        """Add a call of the agent and its result."""
        ident = f"{self.name}-call-{len(self.rows)}"
        call = {"id": ident, "name": name, "arguments": arguments}
        self._add("model_call", payload={"message": {"role": "assistant", "tool_calls": [call]}})
        payload = {"content": result, "status": "failed" if failed else "ok"}
        self._add("tool_result", tool_name=name, tool_call_id=ident, payload=payload)


# --- a coding agent, with the tests of a verifier -----------------------------------------------------------------

_CODING = "Mend the fault that the tests show. Do not change the tests."
_CODING_TOOLS = (
    tool("read_file", "Returns a file.", path="string"),
    tool("edit_file", "Replaces a line of a file.", path="string", old="string", new="string"),
    tool("run_tests", "Runs the tests of a file.", path="string"),
)
_MODULES = ("invoice", "stock", "parcel", "refund", "coupon")
_FAULTS = (
    ("total", "return sum(values[1:])", "return sum(values)"),
    ("last", "return values[len(values)]", "return values[-1]"),
    ("share", "return part / whole", "return part / whole if whole else 0.0"),
)


def coding() -> dict[str, list[Row]]:
    """Return calls, and the verifier's results by session."""
    calls, results = list[Row](), list[Row]()
    for number in range(120):
        module, (function, wrong, right) = _MODULES[number % 5], _FAULTS[number // 5 % 3]
        policy = "coder@1" if number < 60 else "coder@2"
        luck = chance("coding", number)
        path, tests = f"app/{module}.py", f"tests/test_{module}.py"
        talk = Conversation(f"fix-{number:03}", number, policy, _CODING, _CODING_TOOLS)
        talk.asks(f"{tests} fails in test_{function}: mend {function} in {path}.")
        if luck < (0.25 if policy == "coder@1" else 0.1):  # the tests are changed: they pass, the verifier's do not
            talk.calls("edit_file", "1 line replaced", path=tests, old="assert", new="assert True or")
            talk.calls("run_tests", "1 passed", path=tests)
            talk.says(f"The tests of {module} pass now.")
        elif luck < 0.5:  # nothing is done
            talk.says("Done.")
        else:
            talk.calls("read_file", f"def {function}(values):\n    {wrong}", path=path)
            talk.calls("edit_file", "1 line replaced", path=path, old=wrong, new=right)
            talk.calls("run_tests", "1 passed", path=tests)
            talk.says(f"{function} is mended and its tests pass.")
        passed = luck >= 0.5
        calls += talk.rows
        results.append({"session_id": talk.name, "task_id": f"{module}.{function}", "tests_passed": passed})
    return {"calls.jsonl": calls, "results.jsonl": results}


# --- a deep-research agent, with graded answers ---------------------------------------------------------------------

_RESEARCH = "Answer with a source. Open a page before you cite it."
_RESEARCH_TOOLS = (
    tool("search", "Returns titles and addresses.", query="string"),
    tool("open_page", "Returns a page.", address="string"),
    tool("answer", "Final answer with its source.", text="string", source="string"),
)
_PLACES = ("Arlen", "Brimo", "Castra", "Dunvale", "Estrel", "Farrow", "Galdon", "Hestle", "Irvane", "Jorun")
_THINGS = (("harbour", 1894), ("observatory", 1921), ("tramway", 1907))


def research() -> dict[str, list[Row]]:
    """Return calls, and a grader's verdicts by session; a third of the first release's calls are only words."""
    calls, results = list[Row](), list[Row]()
    for number in range(120):
        place, (thing, year) = _PLACES[number % 10], _THINGS[number // 10 % 3]
        year += number % 10
        policy = "researcher@1" if number < 60 else "researcher@2"
        luck = chance("research", number)
        page = f"https://archive.example/{place.lower()}/{thing}"
        talk = Conversation(f"ask-{number:03}", number, policy, _RESEARCH, _RESEARCH_TOOLS)
        talk.asks(f"In which year was the {thing} of {place} opened?")
        if policy == "researcher@1" and luck < 0.33:
            talk.says(f'I will call search with "{thing} {place}".')
            right = False
        elif luck < (0.6 if policy == "researcher@1" else 0.4):  # answers from a title that names the year of a plan
            talk.calls("search", f"The {thing} of {place}, planned {year - 9} | {page}", query=f"{place} history")
            talk.calls("answer", "noted", text=str(year - 9), source=page)
            right = False
        else:
            talk.calls(
                "search", f"The {thing} of {place}, planned {year - 9} | {page}", query=f"{thing} {place} opened"
            )
            talk.calls("open_page", f"Planned {year - 9}, the {thing} of {place} opened in {year}.", address=page)
            talk.calls("answer", "noted", text=str(year), source=page)
            right = True
        calls += talk.rows
        results.append({"session_id": talk.name, "task_id": f"{place}.{thing}", "correct": right})
    return {"calls.jsonl": calls, "results.jsonl": results}


# --- an editor, with what its users kept -----------------------------------------------------------------------------

_EDITOR = "Rewrite the note as asked. Keep every fact."
_SUBJECTS = ("delivery", "meeting", "invoice", "visit", "repair", "order", "training", "inspection", "audit", "launch")
_WISHES = ("in one sentence", "for a customer", "as a reminder")


def editor() -> dict[str, list[Row]]:
    """Return rewrites, and each text as its user left it a day later."""
    calls, edits = list[Row](), list[Row]()
    for number in range(120):
        subject, wish = _SUBJECTS[number % 10], _WISHES[number // 10 % 3]
        policy = "editor@1" if number < 60 else "editor@2"
        hour, room = 8 + number % 10, 10 + number // 10 % 3
        note = f"the {subject} moved. new time {hour}:30. room {room}. bring the list."
        kept = {
            "in one sentence": f"The {subject} is now at {hour}:30 in room {room}; bring the list.",
            "for a customer": f"Your {subject} has a new time: {hour}:30 in room {room}. Please bring the list.",
            "as a reminder": f"Reminder: {subject}, {hour}:30, room {room}. Bring the list.",
        }[wish]
        talk = Conversation(f"note-{number:03}", number, policy, _EDITOR, ())
        talk.asks(f"Rewrite this {wish}: {note}")
        luck = chance("editor", number)
        if luck < (0.55 if policy == "editor@1" else 0.35):  # a fact is lost, and words are added
            polite = f"We are pleased to inform everyone that some changes concerning our {subject} took place."
            span = talk.says(polite if number % 2 else f"New time for the {subject}.")
        elif luck < 0.7:
            span = talk.says(
                kept.replace("Please bring", "Kindly bring").replace("bring the list", "bring the list along")
            )
        else:
            span = talk.says(kept)
        calls += talk.rows
        left = {"name": "edit", "target": "step", "target_id": span, "correction": kept, "annotator": "human"}
        ts = (_FIRST + timedelta(days=1, minutes=11 * number)).isoformat().replace("+00:00", "Z")
        edits.append({**left, "user": f"user{number % 9:02}@team.example", "created_at": ts})
    return {"calls.jsonl": calls, "edits.jsonl": edits}


RECIPES = {"coding_agent": coding, "deep_research": research, "editor": editor}


def files() -> Iterator[tuple[str, str]]:
    """Yield the path of every file of logs, below the folder of recipes, and its text."""
    for recipe, made in RECIPES.items():
        for name, rows in made().items():
            yield f"{recipe}/logs/{name}", "".join(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for path, text in files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")

"""MINT results (`results.jsonl`): one record is one attempt at one task, by a policy that the file's path names.

In: a history whose assistant writes code in <execute> blocks (or fenced ones) and answers in <solution> blocks, as the
benchmark reads them: a reply with a solution runs no code. Out: the code is a call of the tool `python`, and the text
stays; the code's output is its result; the simulated expert's feedback is a user's message. Task numbers are those of
one file, so a task is named by its prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from flywheel.reading.events import Event
from flywheel.reading.messages import Message, messages, name_results, result_message
from flywheel.reading.reader import reader
from flywheel.reading.rollout import Outcome, Rollout, rollout_events
from flywheel.reading.status import FAILED, OK
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, present, text
from flywheel.records import content_id

_SOLUTION = re.compile(r"<solution>.*?</solution>", re.DOTALL)
_BLOCKS = (re.compile(r"<execute>(.*?)</execute>", re.DOTALL), re.compile(r"```python(.*?)```", re.DOTALL))
_LABEL = re.compile(r"\s*Assistant:[ \t]*\n?")
_OBSERVED, _EXPERT = "Observation:\n", "\nExpert feedback:\n"
_REFUSED = "I don't understand your input"
_BROKE = re.compile(r"Traceback \(most recent call last\)|^\s*(?:Syntax|Indentation|Timeout|Tab)Error\b", re.MULTILINE)


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return model and policy of .../MODEL/F=FEEDBACK[/PHF=HOW]/...: who helped is part of the policy."""
    parts = path.parts
    at = next((n for n, part in enumerate(parts) if part.startswith("F=") and n > 0), 0)
    if not at:
        return {}
    how = [part for part in parts[at:-1] if part.startswith(("F=", "PHF=")) and part != "F=None"]
    policy = "/".join([parts[at - 1], *how])
    return {"model": parts[at - 1], "policy": policy, "scope": policy}


def _read(record: Any) -> Iterator[Event]:
    """Yield the attempt's messages and its outcome, also where it ended before the agent's first message."""
    state, task = record["state"], record["task"]
    history = _with_calls(messages(state["history"]))
    last = max((n for n, message in enumerate(history) if message["role"] == "assistant"), default=0)
    yield from rollout_events(
        Rollout(
            conversation=f"mint/{content_id(record)}",
            task=f"mint/{text(task.get('task_name')) or '?'}/{content_id(task['prompt'])}",
            messages=history,
            facts={last: present(token_counts(as_dict(state.get("token_counter"))))},  # counted for all calls together
            tags=["ended_by_error"] if state.get("error") else [],
            outcomes=[Outcome("success", float(state["success"]) if isinstance(state.get("success"), bool) else None)],
        )
    )


def _is_attempt(record: Any) -> bool:
    state, task = as_dict(as_dict(record).get("state")), as_dict(as_dict(record).get("task"))
    return isinstance(state.get("history"), list) and isinstance(task.get("prompt"), str) and "reference" in task


def _with_calls(history: list[Message]) -> list[Message]:
    """Return the history with calls and results as messages of their own."""
    turns: list[Message] = []
    for message in history:
        content = message.get("content") or ""
        calls = turns[-1].get("tool_calls") if turns else None
        if message["role"] == "assistant":
            turns.append(_reply(_LABEL.sub("", content, count=1), len(turns)))
        elif calls and message["role"] == "user":
            turns += _answer(content.removeprefix(_OBSERVED), calls[0]["id"])
        else:
            turns.append(message)
    name_results(turns)
    return turns


def _reply(content: str, position: int) -> Message:
    message: Message = {"role": "assistant", "content": content.rstrip("\n")}
    blocks = next((code for block in _BLOCKS if (code := block.findall(content))), [])
    written = "\n".join(part.strip() for part in blocks)
    if written and not _SOLUTION.search(content):
        message["tool_calls"] = [{"id": f"call-{position}", "name": "python", "arguments": {"code": written}}]
    return message


def _answer(content: str, call_id: str) -> Iterator[Message]:
    """Yield a call's result and the expert's feedback; without an error, the call succeeded."""
    output, _, feedback = content.partition(_EXPERT)
    failed = bool(_BROKE.search(output)) or output.startswith(_REFUSED)
    yield result_message(output, {"tool_call_id": call_id}, status=FAILED if failed else OK)
    if feedback.strip():
        yield {"role": "user", "content": feedback.strip()}


READER = reader(
    "mint",
    2,
    "results of MINT",
    marks=_is_attempt,
    refusal="no object with a state's history and a task's prompt",
    read=_read,
    from_path=_from_path,
)

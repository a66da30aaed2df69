"""What vLLM's server logs of its calls (`--enable-log-requests`, `--enable-log-outputs`), put together to calls.

In: the lines of the server's log. Out: a record a call, with the prompt as its chat template rendered it, how it was
sampled, the adapter, token ids and the answer, numbered by the line of the answer, and all other lines passed over.
From version 0.11.1 on prompts are logged at the level DEBUG alone. An answer without its prompt in the log, or a
prompt without its answer, is passed over with what to turn on.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from flywheel.reading.values import present, when
from flywheel.stages.ingest.framing.framed import OTHER_LINES, Passed, Record

_PROBED = re.compile(  # how vLLM begins a line
    rb"(?:INFO|DEBUG|WARNING) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w/]{1,80}\.py:\d+\]", re.MULTILINE
)
_REPR = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|None"""
_ASKED = re.compile(
    rf"Received request (?P<id>\S+): (?:prompt: (?P<prompt>{_REPR}), )?params: (?P<params>\w*Params\(.*?\)|None)"
    r"(?:, prompt_token_ids: (?P<ids>\[[\d, ]*\]|None))?.{0,200}?, lora_request: (?P<lora>LoRARequest\(.*?\)|None)"
)
_DETAILS = re.compile(
    rf"Request (?P<id>\S+) details: prompt: (?P<prompt>{_REPR}), prompt_token_ids: (?P<ids>\[[\d, ]*\]|None)"
)
_TOLD = re.compile(
    rf"Generated response (?P<id>[^\s:]+)(?: \(streaming (?P<part>delta|complete)\))?: output: (?P<output>{_REPR})"
    r"(?:, output_token_ids: (?P<ids>[\[(][\d, ]*[\])]|None))?, finish_reason: (?P<reason>\S+)"
)
_SAMPLING = re.compile(r"\b(temperature|top_p|top_k|max_tokens|seed|presence_penalty|frequency_penalty)=([-\d.e]+)")
_ADAPTER = re.compile(r"lora_name='([^']{1,200})'")
_CALLS = re.compile(r"\[tool_calls: (.*)\]\Z", re.DOTALL)
_CALL = re.compile(r"(?:, )?([\w.:-]{1,100})\(")
_DECODER = json.JSONDecoder()
_COUNT_ALONE = "<streaming_complete: "  # in the place of a streamed answer
_WHEN = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?")
_NO_PROMPT = "an answer of vLLM's without its prompt: it is logged at the level DEBUG (VLLM_LOGGING_LEVEL)"
_NO_ANSWER = "a prompt of vLLM's without its answer: it is logged with --enable-log-outputs"


@dataclass
class _Asked:
    """A request that waits for its answer."""

    line: int
    fields: dict[str, Any] = field(default_factory=dict)
    prompt_ids: list[int] | None = None
    at: str | None = None
    pieces: list[str] = field(default_factory=list)  # of a streamed answer
    ids: list[int] = field(default_factory=list)


def is_vllm_log(head: bytes) -> bool:
    """Whether a text begins as a log of vLLM's."""
    return _PROBED.search(head) is not None


def vllm_calls(lines: Iterable[tuple[int, str]]) -> Iterator[Record | Passed]:
    """Yield the calls of a log, each where its answer ends, and its other lines."""
    waiting: dict[str, _Asked] = {}
    for number, line in lines:
        if match := _ASKED.search(line) or _DETAILS.search(line):
            _ask(waiting.setdefault(match["id"], _Asked(number)), match, line)
        elif match := _TOLD.search(line):
            asked = waiting.get(match["id"]) or waiting.setdefault(match["id"], _Asked(number))
            if match["part"] == "delta":
                asked.pieces.append(_text(match["output"]))
                asked.ids += _ids(match["ids"]) or []
            else:
                del waiting[match["id"]]
                yield _call(number, match, asked) if "prompt" in asked.fields else Passed(number, _NO_PROMPT)
        else:
            yield Passed(number, OTHER_LINES)
    yield from (Passed(asked.line, _NO_ANSWER) for asked in waiting.values() if "prompt" in asked.fields)


def _ask(asked: _Asked, match: re.Match[str], line: str) -> None:
    """Take what a line has of a request; one may be on two lines."""
    groups = match.groupdict()
    if groups["prompt"] not in (None, "None"):
        asked.fields["prompt"] = _text(groups["prompt"])
    asked.prompt_ids = _ids(groups["ids"]) or asked.prompt_ids
    asked.fields |= {name: json.loads(value) for name, value in _SAMPLING.findall(groups.get("params") or "")}
    if adapter := _ADAPTER.search(groups.get("lora") or ""):
        asked.fields["model"] = adapter[1]
    at = _WHEN.search(line, 0, match.start())
    asked.at = asked.at or (at[0] if at and when(at[0]) is not None else None)


def _call(number: int, match: re.Match[str], asked: _Asked) -> Record:
    written, ids = _text(match["output"]), _ids(match["ids"]) or asked.ids
    if written.startswith(_COUNT_ALONE):
        written = "".join(asked.pieces)
    reason = match["reason"] if match["reason"] not in ("None", "streaming_complete") else None
    choice = {"index": 0, "text": _with_tags(written), **present(token_ids=ids or None, finish_reason=reason)}
    usage = present(prompt_tokens=len(asked.prompt_ids or ()) or None, completion_tokens=len(ids) or None)
    response = {"id": match["id"], "object": "text_completion", "choices": [choice], "usage": usage}
    response |= present(prompt_token_ids=asked.prompt_ids, model=asked.fields.get("model"))
    return Record(
        number, {"request": asked.fields, "response": response, **present(timestamp=asked.at)}, None, (), number
    )


def _with_tags(written: str) -> str:
    """Return an answer with its calls as templates write them, where the log has each as `name(arguments)`."""
    listed = _CALLS.match(written)
    calls, rest = list[dict[str, Any]](), listed[1] if listed else ""
    while named := _CALL.match(rest):
        try:
            given, end = _DECODER.raw_decode(rest, named.end())
        except json.JSONDecodeError:
            return written
        calls.append({"name": named[1], "arguments": given})
        rest = rest[end + 1 :]  # behind the bracket
    tags = (f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)
    return "\n".join(tags) if calls and not rest.strip() else written


def _text(written: str) -> str:
    """Return the text that Python wrote as a literal; a literal is not run."""
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError):
        return ""
    return value if isinstance(value, str) else ""


def _ids(written: str | None) -> list[int] | None:
    return [int(part) for part in written[1:-1].split(",") if part.strip()] if written and written[0] in "[(" else None

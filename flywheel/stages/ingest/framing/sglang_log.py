"""What SGLang's server logs of its calls (`--log-requests --log-requests-level 3`), as text or JSON, put together.

In: the lines of the server's log. Out: a record a call, with the prompt as its chat template rendered it, how it was
sampled, the adapter, token ids, log-probabilities and the answer, numbered by the line that ends it, and all other
lines passed over. A call of which the log has a part alone is passed over too, with what to turn on.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.reading.values import as_dict, as_list, picked, present, text, when
from flywheel.stages.ingest.framing.framed import OTHER_LINES, Passed, Record

_PROBED = re.compile(rb"(?:Receive|Finish): obj=\w+ReqInput\(|server_args=ServerArgs\(")
_PROBED_JSON = re.compile(
    rb'\{"timestamp": ?"[^"\n]{1,40}", ?"event": ?"request\.(?:received|finished)(?:\.openai)?", ?"(?:rid|obj)":'
)
_SAID = re.compile(r"(?:(Receive)|Finish): (?=obj=\w+\()")
_JSON = re.compile(r'\{"timestamp": ?"[^"]{1,40}", ?"event": ?"request\.')
_SERVES = re.compile(r"\bserved_model_name='([^']{1,300})'")
_WHEN = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?")
_SAMPLING = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "max_new_tokens": "max_tokens",
    "sampling_seed": "seed", "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
}  # fmt: skip
_MARK = "..."  # in the place of what was cut out
_HALF = 1024  # characters that level 2 leaves on either side of it
_SHORTENED = _HALF + len(_MARK) + _HALF
_DIGEST = re.compile(r"<text: \d+ chars, blake2b=\w+>")
_WARM_UP = "The capital city of France is"  # what a server asks itself when it starts
_CUT = "a call of SGLang's that was cut: --log-requests-level 3 logs it whole"
_WORDLESS = "a call of SGLang's without its words: they are logged with --log-requests-level 3"
_ITS_END = "a call of SGLang's with the end of its answer alone, as streams are logged with --stream-output"
_UNFINISHED = "a request of SGLang's without its end"


def is_sglang_log(head: bytes, *, is_text: bool) -> bool:
    """Whether a content begins as a log of SGLang's, in JSON or, if the content is text, in text."""
    return _PROBED_JSON.search(head) is not None or (is_text and _PROBED.search(head) is not None)


def sglang_calls(lines: Iterable[tuple[int, str]]) -> Iterator[Record | Passed]:
    """Yield the calls of a log, each where it ends, and its other lines."""
    waiting: dict[str, int] = {}
    serves: str | None = None
    for number, line in lines:
        if (named := _SERVES.search(line)) and "server_args=" in line:
            serves = named[1]
        said = _of_json(line) or _of_text(line)
        if said is None or "rid" not in said["obj"]:
            yield Passed(number, OTHER_LINES if said is None or said["event"] != "cut" else _CUT)
            continue
        own = str(said["obj"]["rid"])
        if said["event"] == "received":
            waiting[own] = number
            continue
        waiting.pop(own, None)
        yield _call(number, said, serves)
    yield from (Passed(number, _UNFINISHED) for number in waiting.values())


def _of_json(line: str) -> dict[str, Any] | None:
    """Return what a line in JSON has of a request, which may be behind a time."""
    begins = _JSON.search(line)
    try:
        said = json.loads(line[begins.start() :]) if begins else None
    except json.JSONDecodeError:
        return None
    if said is None:
        return None
    event = said["event"].removeprefix("request.")
    obj = as_dict(said.get("obj"))
    return {"event": event, "obj": {**picked(said, ("rid",)), **obj}, "out": as_dict(said.get("out")),
            "at": said["timestamp"]}  # fmt: skip


def _of_text(line: str) -> dict[str, Any] | None:
    """Return what a line as Python prints it has of a request: literals only, nothing is run."""
    begins = _SAID.search(line)
    if begins is None:
        return None
    at = _WHEN.search(line, 0, begins.start())
    try:
        whole = ast.parse(f"told({line[begins.end() :]})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {"event": "cut", "obj": {}}
    told = _fields(whole)
    return {"event": "received" if begins[1] else "finished", "obj": as_dict(told.get("obj")),
            "out": as_dict(told.get("out")), "at": at[0] if at else None}  # fmt: skip


def _fields(node: ast.expr) -> Any:
    """Return a call's arguments, an object or a literal; None for what is none of these, as an object's address."""
    if isinstance(node, ast.Call):
        return {argument.arg: _fields(argument.value) for argument in node.keywords if argument.arg}
    if isinstance(node, ast.Dict):
        names = (key.value if isinstance(key, ast.Constant) else None for key in node.keys)
        return {str(name): _fields(value) for name, value in zip(names, node.values, strict=True)}
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):
        return None


def _call(number: int, said: Mapping[str, Any], serves: str | None) -> Record | Passed:
    asked, told = said["obj"], said["out"]
    prompt, answer, meta = text(asked.get("text")), told.get("text"), as_dict(told.get("meta_info"))
    ended = as_dict(meta.get("finish_reason"))
    if str(asked["rid"]).startswith("HEALTH_CHECK") or prompt == _WARM_UP:
        return Passed(number, OTHER_LINES)
    if prompt is None or (not isinstance(answer, str) and ended.get("type") != "abort"):
        return Passed(number, _WORDLESS)
    if any(_is_cut(words) for words in (prompt, answer)):
        return Passed(number, _CUT)
    ids, prompt_ids = _ids(told.get("output_ids")), _ids(asked.get("input_ids"))
    if ids and len(ids) < (meta.get("completion_tokens") or 0):
        return Passed(number, _ITS_END)
    model = text(asked.get("lora_path")) or serves
    sampling = as_dict(asked.get("sampling_params"))
    request = {"prompt": prompt, **present(model=model),
               **present(**{ours: sampling.get(theirs) for theirs, ours in _SAMPLING.items()})}  # fmt: skip
    likely = [item[0] for item in as_list(meta.get("output_token_logprobs")) if isinstance(item, list | tuple) and item]
    choice = {"index": 0, "text": answer, **present(finish_reason=ended.get("type"), token_ids=ids or None,
              logprobs={"token_logprobs": likely} if likely and len(likely) == len(ids) else None)}  # fmt: skip
    response = {"id": asked["rid"], "object": "text_completion", "choices": [choice],
                "usage": picked(meta, ("prompt_tokens", "completion_tokens")),
                **present(model=model, prompt_token_ids=prompt_ids or None)}  # fmt: skip
    if ended.get("type") == "abort":
        response = {"error": {"type": "abort", "message": text(ended.get("message")) or "aborted"}}
    known = present(timestamp=said["at"] if when(said["at"]) else None, latency_s=meta.get("e2e_latency"))
    return Record(number, {"request": request, "response": response, **known}, None, (), number)


def _is_cut(words: Any) -> bool:
    """Whether the middle of a text was left out, or all of it, in JSON: such a text in Python's form fails to parse."""
    if not isinstance(words, str):
        return False
    return bool(_DIGEST.fullmatch(words)) or (len(words) == _SHORTENED and words[_HALF:].startswith(_MARK))


def _ids(logged: Any) -> list[int]:
    """Return token ids; [] where some were left out."""
    ids = as_list(logged)
    return ids if all(isinstance(item, int) for item in ids) else []

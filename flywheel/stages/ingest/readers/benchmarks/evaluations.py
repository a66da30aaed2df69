"""Answers that evaluation tools graded: results of promptfoo, samples of lm-eval that a model wrote.

In: a document of promptfoo's with a row a prompt, provider and test, or such a row; a sample of `--log_samples`. Out:
an attempt at the task that the test or the document is, with its scores. A test that ended in an error has none,
and where choices were only weighed nothing was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event
from flywheel.reading.messages import messages
from flywheel.reading.reader import has, reader
from flywheel.reading.rollout import Outcome, Rollout, rollout_events
from flywheel.reading.shapes import answered, unread
from flywheel.reading.shapes.chats import is_begun, is_chat
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, number, present, text, when
from flywheel.records import content_id

_ROW = has("provider", "success", "vars", prompt=dict)
_ERROR = 2  # promptfoo's reason of a failure that came before any assertion
_SAMPLE = has("doc_id", "arguments", "resps", "filtered_resps")


def _rows(record: Any) -> list[Mapping[str, Any]]:
    """Return the rows of a document of promptfoo's, or the row that a record is."""
    held = as_dict(record).get("results")
    rows = as_list(held.get("results") if isinstance(held, dict) else held)
    return [record] if _ROW(record) else [as_dict(row) for row in rows if _ROW(row)]


def _read_promptfoo(record: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the attempts of a document."""
    rows = _rows(record)
    run = ident(record.get("evalId"))
    at = when(as_dict(record.get("results")).get("timestamp")) if isinstance(record.get("results"), dict) else None
    prompts = {_prompt(row) for row in rows}
    for row in rows:
        provider = row["provider"]
        model = text(first(as_dict(provider), ("label", "id"))) or text(provider)
        variant = f"prompt={_prompt(row)}" if len(prompts) > 1 else None
        rollout = _attempt(row, content_id(run, [row.get("testIdx"), row["vars"]], row["prompt"], model))
        rollout.model, rollout.started = model, at
        rollout.policy = "/".join(filter(None, (model, variant))) if variant else None
        yield from rollout_events(rollout)


def _prompt(row: Mapping[str, Any]) -> str:
    """Return the name of the prompt that a row is of."""
    return str(row["promptIdx"] if "promptIdx" in row else row["prompt"].get("label"))


def _attempt(row: Mapping[str, Any], named: str) -> Rollout:
    """Return one test of one prompt: the prompt as it was filled in, and the answer; of a talk, the whole talk."""
    response, test = as_dict(row.get("response")), as_dict(row.get("testCase"))
    asked, talk = embedded(row["prompt"].get("raw")), as_dict(response.get("metadata")).get("messages")
    history = messages(asked if is_begun(asked) else [{"role": "user", "content": row["prompt"].get("raw")}])
    has_failed = response.get("output") is None or row.get("failureReason") == _ERROR or bool(response.get("error"))
    answers = answered(response["output"])[:1] or [{"role": "assistant", "content": ""}] if not has_failed else []
    whole = messages(talk) if is_chat(talk) else [*history, *answers]
    acts = {n for n, turn in enumerate(whole) if turn["role"] == "assistant" and (is_chat(talk) or n >= len(history))}
    facts = present(token_counts(as_dict(response.get("tokenUsage")))) | present(
        cost_usd=number(row.get("cost")), latency_s=_seconds(row.get("latencyMs"))
    )
    return Rollout(
        conversation=f"promptfoo/{ident(row.get('id')) or named[:16]}",
        task=f"promptfoo/{content_id(row['vars'] or asked, test.get('description'), test.get('assert'))[:16]}",
        messages=whole,
        acts=acts,
        facts={max(acts): facts} if acts else {},
        tags=["call_failed"] if has_failed else unread(response["output"], answers),
        outcomes=[] if has_failed else list(_verdicts(row)),
    )


def _verdicts(row: Mapping[str, Any]) -> Iterator[Outcome]:
    """Yield whether a test passed, and what was measured besides."""
    passed, score = row.get("success"), number(row.get("score"))
    if isinstance(passed, bool):
        yield Outcome("success", float(passed), by="verifier")
    if score is not None and score != passed:
        yield Outcome("score", score, (0, 1) if 0 <= score <= 1 else None, "verifier")
    for name, value in as_dict(row.get("namedScores")).items():
        yield Outcome(str(name), number(value), None, "verifier")


def _seconds(value: Any) -> float | None:
    millis = number(value)
    return None if millis is None else millis / 1000


def _read_lm_eval(record: Mapping[str, Any]) -> Iterator[Event]:
    """Yield what a model wrote for a document, and how a filter's reading of it was scored.

    Raises:
        BadRecordError: choices were weighed: the model wrote nothing.
    """
    given = record["arguments"]
    request = next(iter(given.values()), None) if isinstance(given, dict) else next(iter(as_list(given)), None)
    asked = as_dict(request).get("arg_0") if isinstance(request, dict) else next(iter(as_list(request)), None)
    written = [said for several in as_list(record["resps"]) for said in as_list(several)]
    if not isinstance(asked, str) or not written or not all(isinstance(said, str) for said in written):
        raise BadRecordError("bad_record", "a sample whose choices were weighed: the model wrote nothing")
    opened = embedded(asked)
    history = messages(opened) if is_begun(opened) else messages([{"role": "user", "content": asked}])
    document = text(record.get("doc_hash")) or str(record["doc_id"])
    for n, said in enumerate(written):
        attempt = Rollout(
            conversation=f"lm-eval/{content_id(document, history, said, n)[:16]}",
            task=f"lm-eval/{document[:16]}",
            messages=[*history, {"role": "assistant", "content": said}],
            acts={len(history)},
            outcomes=list(_metrics(record)) if len(written) == 1 else [],
        )
        yield from rollout_events(attempt)


def _metrics(record: Mapping[str, Any]) -> Iterator[Outcome]:
    """Yield the metrics that a sample names, each of the filter that read the answer."""
    read_by = text(record.get("filter"))
    for name in as_list(record.get("metrics")):
        label = f"{name},{read_by}" if read_by and read_by != "none" else str(name)
        value = number(record.get(name)) if isinstance(name, str) else None
        yield Outcome(label, value, (0, 1) if value is not None and 0 <= value <= 1 else None, "verifier")


PROMPTFOO = reader(
    "promptfoo", 2, "results of promptfoo", marks=_rows, refusal="no result of a test", read=_read_promptfoo
)
LM_EVAL = reader(
    "lm_eval", 1, "samples of lm-eval that a model wrote", marks=_SAMPLE, needs=_SAMPLE, read=_read_lm_eval
)

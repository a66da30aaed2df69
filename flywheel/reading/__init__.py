"""The kit for readers of logs: our own are made of it, and so can those of a plugin be.

A reader turns one record of a log into events. This is a complete one, for a helpdesk whose records are tickets:

    # our_helpdesk/reader.py

    from flywheel.reading import Outcome, Rollout, has, messages, number, reader, rollout_events, when

    ROLES = {"bot": "assistant", "customer": "user"}


    def read(ticket):
        turns = [{"role": ROLES[turn["from"]], "content": turn["text"]} for turn in ticket["turns"]]
        yield from rollout_events(
            Rollout(
                conversation=ticket["ticket"],
                policy=ticket["bot"],
                messages=messages(turns),
                started=when(ticket["at"]),
                ended=when(ticket["at"]),
                outcomes=[Outcome("solved", number(ticket.get("solved")))],
            )
        )


    READER = reader(
        "helpdesk", 1, "our helpdesk's tickets", marks=has("ticket", turns=list), refusal="no turns", read=read
    )

What there is, by the kind of log:

- any: `reader`, `has` (what marks a format), `BadRecordError`; values that may be missing or of another type
  (`as_dict`, `first`, `text`, `number`, `when`, `ident`, `embedded`, `present`).
- transcripts and benchmark results: `Rollout` and `rollout_events`; `messages` puts messages of any dialect in normal
  form, `result_message` and `tool_schemas` make tool results and tools.
- model calls: `exchange`, `asked` and `answered` read inputs and outputs in whatever shape a framework logged them;
  `pair_of` finds request and response; `token_counts` and `common_payload` what belongs to the call.
- traces: `Run` with `model_call`, `tool_use`, `outline` and `place`; `SpanMap` reads columns by a table in TOML.
- feedback: `Opinion` and `judgement`, `outcome`, `judgements`.

An event is a dict with the fields of `flywheel.records.LogEvent`; `flywheel.extensions.Reader` is the contract.
"""

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, Source, acted, conversation_of, request, source_of, spoken, tool_result
from flywheel.reading.feedback import Opinion, corrected_text, feedback, judgement, judgements, outcome
from flywheel.reading.messages import (
    Message,
    arguments,
    flat_text,
    messages,
    name_results,
    result_message,
    tool_schemas,
    with_origins,
)
from flywheel.reading.pairs import Pair, common_payload, pair_of, response_body, sampled
from flywheel.reading.reader import has, reader
from flywheel.reading.rollout import Outcome, Rollout, rollout_events
from flywheel.reading.shapes import Asked, about_answer, answered, asked, exchange, schemas, transcript
from flywheel.reading.span_map import SpanMap, packaged_span_maps, span_maps
from flywheel.reading.spans import Run, model_call, outline, place, tool_use, whole_task
from flywheel.reading.status import error_type, stated_status, tool_status
from flywheel.reading.usage import token_counts, token_ids
from flywheel.reading.values import (
    as_dict,
    as_list,
    count,
    embedded,
    first,
    hex_id,
    ident,
    number,
    picked,
    present,
    text,
    version,
    when,
)

__all__ = [
    "Asked", "BadRecordError", "Event", "Message", "Opinion", "Outcome", "Pair", "Rollout", "Run", "Source", "SpanMap",
    "about_answer", "acted", "answered", "arguments", "as_dict", "as_list", "asked", "common_payload",
    "conversation_of", "corrected_text", "count", "embedded", "error_type", "exchange", "feedback", "first",
    "flat_text", "has", "hex_id", "ident", "judgement", "judgements", "messages", "model_call", "name_results",
    "number", "outcome", "outline", "packaged_span_maps", "pair_of", "picked", "place", "present", "reader", "request",
    "response_body", "result_message", "rollout_events", "sampled", "schemas", "source_of", "span_maps", "spoken",
    "stated_status", "text", "token_counts", "token_ids", "tool_result", "tool_schemas", "tool_status", "tool_use",
    "transcript", "version", "when", "whole_task", "with_origins",
]  # fmt: skip

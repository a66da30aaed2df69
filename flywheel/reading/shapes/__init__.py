"""Inputs and outputs of model calls in whatever shape a framework logged them.

Tracers store inputs and outputs as the framework gave them: OpenAI chat and Responses, Anthropic, Gemini, Bedrock,
LangChain, LangGraph, Pydantic AI, LlamaIndex, AutoGen, Koog, LiveKit, the Vercel AI SDK, OpenInference, or plain text;
as values, as JSON text, or as Python's repr. A reader that only knows which column is the input of a model call and
which is its output uses:

    payload = exchange(row["input"], row["output"])   # payload of a model call: message, input, tools, tokens, ...
    begun = asked(row["input"])                       # Asked(messages, tools), or None when nothing was logged
    answers = answered(row["output"])                 # one assistant message a choice; [] when nothing was logged
    fields = about_answer(row["output"])              # response_id, finish_reason, model, tokens

All messages are in normal form (`flywheel.reading.messages`). An unknown shape raises no error: it becomes the text of
the user (an input) or of the assistant (an output).
"""

from flywheel.reading.shapes.inputs import Asked, asked, instructions_around, schemas, transcript
from flywheel.reading.shapes.outputs import about_answer, answered, exchange, joined_chunks, unread
from flywheel.reading.shapes.reprs import fields_of_repr, mapping_of_repr
from flywheel.reading.shapes.turns import call_of

__all__ = [
    "Asked", "about_answer", "answered", "asked", "call_of", "exchange", "fields_of_repr", "instructions_around",
    "joined_chunks", "mapping_of_repr", "schemas", "transcript", "unread",
]  # fmt: skip

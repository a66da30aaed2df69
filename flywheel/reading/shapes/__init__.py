"""What a model call was asked and what it answered, from whatever a framework logged as its input and output.

Tracers store inputs and outputs as the framework gave them: OpenAI chat and Responses, Anthropic, Gemini, Bedrock,
LangChain, LangGraph, Pydantic AI, LlamaIndex, AutoGen, Koog, LiveKit, the Vercel AI SDK, OpenInference, or plain text;
as values, as JSON text, or as Python's repr. A reader that only knows "this is the input of a model call" and "this its
output" uses:

    payload = exchange(row["input"], row["output"])   # what a model_call event says: message, input, tools, tokens ...
    given = asked(row["input"])                       # Asked(messages, tools), or None when nothing was logged
    said = answered(row["output"])                    # one assistant message a choice; [] when nothing was logged
    beside = about_answer(row["output"])              # response_id, finish_reason, model, tokens

All messages are in normal form (`_messages`). Nothing here raises for a shape that is not known: an unknown value of an
input is what the user said, one of an output what the assistant said, as text.
"""

from flywheel.reading.shapes.about import about_answer
from flywheel.reading.shapes.answers import answered
from flywheel.reading.shapes.asked import Asked, asked, transcript
from flywheel.reading.shapes.chunks import joined_chunks
from flywheel.reading.shapes.exchange import exchange
from flywheel.reading.shapes.parts import call_of
from flywheel.reading.shapes.reprs import fields_of_repr, mapping_of_repr
from flywheel.reading.shapes.schemas import schemas

__all__ = [
    "Asked", "about_answer", "answered", "asked", "call_of", "exchange", "fields_of_repr", "joined_chunks",
    "mapping_of_repr", "schemas", "transcript",
]  # fmt: skip

"""A tokenizer that renders and reads conversations as flywheel does everywhere else.

TRL rolls policies out through the tokenizer's chat template and a response parser that it has for some twenty models.
Given this tokenizer it sees flywheel's own rendering and parser instead: the tokens that SFT and DPO train and that
evaluation reads, whatever the base model's template knows of tools.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flywheel.errors import TemplateError, TrainError
from flywheel.models.chat import ChatFormat
from flywheel.models.rollout import result_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


MALFORMED = "malformed"  # key of a parsed message one of whose calls did not parse
OTHER_TOOL = "another tool"  # for TRL, the name of a tool whose own name cannot be a method's


def speaking(
    tokenizer: PreTrainedTokenizerBase, prompts: Mapping[str, Sequence[int]], tools: Collection[str]
) -> PreTrainedTokenizerBase:
    """Return a copy of a tokenizer that replaces a user message by the prompt it names, and that parses calls.

    Args:
        tokenizer: the base model's.
        prompts: token ids by name: a conversation of one user message with that name is this prompt.
        tools: names that calls may have; others reach TRL as `OTHER_TOOL`.

    Raises:
        TrainError: the template cannot render a result after a call.
    """
    kind = type(tokenizer)
    chat = ChatFormat(tokenizer)
    _check(chat)

    class Speaking(kind):  # type: ignore[misc, valid-type]
        def apply_chat_template(self, conversation: Any, tools: Any = None, **options: Any) -> Any:
            del tools  # they are in the prompts already
            if not isinstance(conversation[0], Mapping):
                return {"input_ids": [list(prompts[asked[0]["content"]]) for asked in conversation]}
            messages = [normal_message(m) for m in conversation]
            if not options.get("tokenize", True):
                return chat.conversation(messages, None)
            ids = chat.ids(chat.conversation(messages, None))
            return {"input_ids": ids} if options.get("return_dict", True) else ids

        def parse_response(self, response: Any, *_: Any, **__: Any) -> dict[str, Any]:
            return _parsed(chat, tokenizer, list(response), tools)

    copied = copy.copy(tokenizer)
    Speaking.__name__ = kind.__name__
    copied.__class__ = Speaking
    copied.response_template = "flywheel"  # any: that there is one keeps TRL from looking for its own
    return copied


def normal_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in the normal form; calls may be in OpenAI's form."""
    calls = [{"id": "", **call.get("function", call)} for call in message.get("tool_calls") or ()]
    kept = {k: v for k, v in message.items() if k in {"role", "content", "name", "tool_call_id"}}
    return {**kept, "tool_calls": calls} if calls else kept


def _parsed(
    chat: ChatFormat, tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], tools: Collection[str]
) -> dict[str, Any]:
    text = str(tokenizer.decode(ids)).split(str(tokenizer.eos_token))[0]
    message = chat.parse(text, None).message
    calls, content = message.get("tool_calls") or [], str(message.get("content") or "")
    if any(call["arguments"] is None for call in calls):
        return {"role": "assistant", "content": content, MALFORMED: True}
    tool_calls = [{"type": "function", "function": _function(call, tools)} for call in calls]
    return {"role": "assistant", "content": content, **({"tool_calls": tool_calls} if tool_calls else {})}


def _function(call: Mapping[str, Any], tools: Collection[str]) -> dict[str, Any]:
    if call["name"] in tools:
        return {"name": call["name"], "arguments": call["arguments"]}
    return {"name": OTHER_TOOL, "arguments": {"name": call["name"], "arguments": call["arguments"]}}


def _check(chat: ChatFormat) -> None:
    """Refuse a template that cannot show a policy what its call gave back."""
    try:
        result_ids(chat, [{"role": "tool", "name": "x", "content": "y"}])
    except TemplateError as error:
        raise TrainError(
            f"a tool's result after a call cannot be shown: {error.message}",
            hint="use another base model or chat template, or train.method = 'grpo' on logged groups",
        ) from None

"""What GenAI spans and log records say of a model call: one table of names instead of one reader a framework.

In: attributes as plain values, under current or legacy names, of which the first that is present wins. Out: payload
fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers._messages import Message, call, flat_text, messages, tool_schemas
from flywheel.stages.ingest.readers._otlp import LogRecord, Span, SpanEvent
from flywheel.stages.ingest.readers._values import as_dict, as_list, embedded, first, ident, number, text, whole

__all__ = [
    "ALIASES",
    "answer_from",
    "call_payload",
    "history_of",
    "legacy_messages",
    "nested",
    "operation",
    "output_of",
    "tools_of",
]

ALIASES: dict[str, tuple[str, ...]] = {
    "operation": (
        "gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind", "llm.request.type", "ai.operationId",
        "gen_ai.request.type",
    ),
    "conversation": (
        "gen_ai.conversation.id", "session.id", "langfuse.session.id", "ai.telemetry.metadata.sessionId",
        "traceloop.association.properties.session_id", "mlflow.trace.session", "langsmith.metadata.thread_id",
        "langsmith.metadata.session_id", "thread.id",
    ),
    "user": (
        "user.id", "enduser.id", "langfuse.user.id", "ai.telemetry.metadata.userId",
        "traceloop.association.properties.user_id", "gen_ai.user.id",
    ),
    "policy": ("flywheel.policy", "service.version", "langfuse.release", "gen_ai.agent.version", "langfuse.version"),
    "task": ("flywheel.task_key", "gen_ai.task.id", "task.id"),
    "model": (
        "gen_ai.response.model", "gen_ai.request.model", "llm.response.model_name", "llm.model_name",
        "ai.response.model", "ai.model.id", "llm.response.model", "llm.request.model",
    ),
    "response_id": ("gen_ai.response.id", "llm.response.id", "ai.response.id"),
    "input": ("gen_ai.input.messages", "gen_ai.prompt", "ai.prompt.messages"),
    "output": ("gen_ai.output.messages", "gen_ai.completion"),
    "system": ("gen_ai.system_instructions",),
    "tools": (
        "gen_ai.tool.definitions", "gen_ai.request.tools", "ai.prompt.tools", "llm.request.functions",
        "gen_ai.request.functions",
    ),
    "input_tokens": (
        "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "ai.usage.inputTokens",
        "ai.usage.promptTokens", "llm.usage.prompt_tokens",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
        "ai.usage.outputTokens", "ai.usage.completionTokens", "llm.usage.completion_tokens",
    ),
    "cost": ("gen_ai.usage.cost", "operation.cost", "llm.cost.total"),
    "tool_name": ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name"),
    "tool_call_id": ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id", "tool_call_id"),
    "tool_arguments": (
        "gen_ai.tool.call.arguments", "tool.parameters", "ai.toolCall.args", "tool_arguments", "input.value",
        "traceloop.entity.input",
    ),
    "tool_result": (
        "gen_ai.tool.call.result", "ai.toolCall.result", "tool_response", "output.value", "traceloop.entity.output",
    ),
}  # fmt: skip

_MODEL = {
    "chat",
    "generate_content",
    "text_completion",
    "completion",
    "llm",
    "ai.generatetext.dogenerate",
    "ai.streamtext.dostream",
}
_TOOL = {"execute_tool", "tool", "ai.toolcall"}
_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "seed", "frequency_penalty", "presence_penalty")
_PROMPT_EVENTS = {"gen_ai.content.prompt": "gen_ai.prompt", "gen_ai.content.completion": "gen_ai.completion"}
_ROLE_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message\Z")


def operation(span: Span) -> str:
    """Return 'model', 'tool' or '' for what a span is."""
    told = first(span.attributes, ALIASES["operation"])
    name = told.lower() if isinstance(told, str) else ""
    if name in _MODEL or (not name and span.name.startswith("chat ")):
        return "model"
    if name in _TOOL or (not name and span.name.startswith(("execute_tool ", "running tool"))):
        return "tool"
    return "model" if not name and "gen_ai.completion.0.role" in span.attributes else ""


def nested(attributes: Mapping[str, Any], prefix: str) -> Any:
    """Return what was flattened into keys like `prefix.0.role`; gaps in a list's numbers are nothing."""
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if key.startswith(prefix + "."):
            *path, leaf = key[len(prefix) + 1 :].split(".")
            node = tree
            for part in path:
                inner = node.setdefault(part, {})
                node = inner if isinstance(inner, dict) else {}
            node[leaf] = value
    return _listed(tree)


def _listed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node and all(key.isdecimal() for key in node):
        return [_listed(node[key]) for key in sorted(node, key=int)]
    return {key: _listed(value) for key, value in node.items()}


def _told(attributes: Mapping[str, Any], meaning: str) -> Any:
    whole_value = first(attributes, ALIASES[meaning])
    if whole_value is not None:
        return embedded(whole_value)
    return next((found for name in ALIASES[meaning] if (found := as_list(nested(attributes, name)))), None)


def history_of(attributes: Mapping[str, Any]) -> list[Message] | None:
    """Return a call's full input with its system instructions; None when the log has no content.

    Raises:
        BadRecordError: the content is there and is cut off.
    """
    given = _told(attributes, "input")
    if given is None:
        return None
    history = _whole_messages(given, "user")
    system = embedded(first(attributes, ALIASES["system"]))
    instructions = flat_text(system) if system is not None else None
    if instructions and not any(m["role"] == "system" for m in history):
        history.insert(0, {"role": "system", "content": instructions})
    return history


def output_of(attributes: Mapping[str, Any]) -> list[Message]:
    """Return a call's answers, one a choice; empty when the log has no content."""
    given, made = _told(attributes, "output"), _calls_apart(attributes)
    if made and isinstance(given, list):
        given = [item for item in given if set(as_dict(item)) != {"function_call"}] or [{"role": "assistant"}]
    answers = [] if given is None else [m for m in _whole_messages(given, "assistant") if m["role"] == "assistant"]
    if made and answers and len(made) > len(answers[0].get("tool_calls", ())):
        answers[0] = answers[0] | {"tool_calls": made}
    return answers


def _calls_apart(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of the first answer that LiteLLM numbers as if each were a choice of its own, without ids."""
    told = [as_dict(item) for item in as_list(nested(attributes, "gen_ai.completion"))]
    made = [call(item.get("function_call")) for n, item in enumerate(told) if n == 0 or set(item) == {"function_call"}]
    return [found for found in made if found is not None]


def _whole_messages(given: Any, role: str) -> list[Message]:
    if isinstance(given, str):
        if given.lstrip()[:1] == "[":
            raise BadRecordError("truncated", "a span's messages are cut off; raise the SDK's attribute length limit")
        return [{"role": role, "content": given}]
    found = [given] if isinstance(given, dict) else as_list(given)
    return messages([{"role": role, **m} if isinstance(m, dict) else m for m in found])


def tools_of(attributes: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the tool schemas offered to a call."""
    return tool_schemas(_told(attributes, "tools"))


def call_payload(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what attributes say of a call beside its messages."""
    reasons = embedded(first(attributes, ("gen_ai.response.finish_reasons", "gen_ai.completion.0.finish_reason")))
    sampling = {name: v for name in _SAMPLING if (v := attributes.get(f"gen_ai.request.{name}")) is not None}
    found = {
        "tools": tools_of(attributes),
        "response_id": ident(first(attributes, ALIASES["response_id"])),
        "finish_reason": text(as_list(reasons)[0] if as_list(reasons) else reasons),
        "input_tokens": whole(first(attributes, ALIASES["input_tokens"])),
        "output_tokens": whole(first(attributes, ALIASES["output_tokens"])),
        "cost_usd": number(first(attributes, ALIASES["cost"])),
        "sampling": sampling or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def legacy_messages(records: Iterable[LogRecord | SpanEvent]) -> tuple[list[Message], list[Message]]:
    """Return (input, answers) that legacy conventions wrote one event a message, in the order given."""
    asked: list[Any] = []
    answered: list[Any] = []
    for record in records:
        body = as_dict(embedded(record.body)) if isinstance(record, LogRecord) else {}
        fields = {**record.attributes, **body}
        role = _ROLE_EVENT.match(record.name)
        if role:
            asked.append(_legacy(role[1], fields))
        elif record.name == "gen_ai.choice":
            answered.append(_legacy("assistant", as_dict(embedded(fields.get("message"))) or fields))
        elif record.name in _PROMPT_EVENTS:
            name = _PROMPT_EVENTS[record.name]
            content = embedded(fields.get(name))
            if content is not None:
                kind = "user" if name == "gen_ai.prompt" else "assistant"
                (asked if kind == "user" else answered).extend(_whole_messages(content, kind))
    return messages(asked), [m for m in messages(answered) if m["role"] == "assistant"]


def _legacy(role: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    kept = {"role": role, "content": embedded_text(fields.get("content"))}
    calls = embedded(fields.get("tool_calls"))
    if isinstance(calls, list):
        kept["tool_calls"] = calls
    if role == "tool":
        kept["tool_call_id"] = fields.get("id")
    return kept


def embedded_text(value: Any) -> Any:
    """Return content as it is; a text stays a text even when it looks like JSON."""
    return value if isinstance(value, str | list) or value is None else flat_text(value)


def answer_from(answers: list[Message], tags: list[str]) -> dict[str, Any]:
    """Return the payload fields of a call's answers: the first is the answer; without any the content is missing."""
    if not answers:
        return {"message": {"role": "assistant"}, "tags": [*tags, "content_missing"]}
    return {"message": answers[0]} | ({"other_choices": answers[1:]} if len(answers) > 1 else {})

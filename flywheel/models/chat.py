"""Messages to text and back: the base model's own chat template where it knows tools, else flywheel's rendering.

Rendering is prefix-preserving: the text of a prompt with its generation prompt is the beginning of the text of the same
prompt with an action, so that training and serving see the same tokens; `ChatFormat.completion` checks it.

Flywheel's own rendering, for templates without tools (SmolLM2's, say): one line a tool in the system message, a call as
`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, a tool's result as a user message in `<tool_response>`.

A call whose arguments did not parse is rendered as its policy wrote it, name and all: the template renders it with a
placeholder in the place of its arguments, which the logged text then takes.

A reasoning model's thoughts (`thoughts.py`) are shown where its template shows them, each with its own action.

Logs are hostile: a control token of the model in a message or a tool's description (such as `<|im_end|>`) is
broken by a space, so that no text from a log can end a turn or begin one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

from flywheel.errors import FlywheelError, PrefixError, TemplateError
from flywheel.extensions import Generation
from flywheel.models.calls import is_complete_text, malformed_body, split_calls, split_reasoning
from flywheel.models.prefixes import common_length
from flywheel.models.thoughts import (
    CLOSE,
    NAMES,
    OPEN,
    TAGS,
    end_of_thought,
    in_tags,
    opens_a_thought,
    way_of_thinking,
    without_opening,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


CALL_START, CALL_END = "<tool_call>", "</tool_call>"
_PROBE = "flywheel_probe"
_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": f"{_PROBE}_tool",
        "description": f"{_PROBE}_words",
        "parameters": {"type": "object", "properties": {f"{_PROBE}_key": {"type": "string"}}, "required": []},
    },
}
_PROBE_CHAT: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "x"},
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "call00001", "name": f"{_PROBE}_call", "arguments": {f"{_PROBE}_key": f"{_PROBE}_value"}}
        ],
    },
    {"role": "tool", "tool_call_id": "call00001", "name": f"{_PROBE}_call", "content": f"{_PROBE}_result"},
)
_PROBE_MARKS = tuple(f"{_PROBE}_{part}" for part in ("tool", "call", "key", "value", "result"))

Messages = Sequence[Mapping[str, Any]]
Tools = list[dict[str, Any]] | None


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = tool.get("function")
    return inner if isinstance(inner, Mapping) else tool


def _tool_line(tool: Mapping[str, Any]) -> str:
    function = _function(tool)
    parameters = function.get("parameters") or {}
    required = set(parameters.get("required") or [])
    arguments = [
        f"{name}{'' if name in required else '?'}: {spec.get('type', 'any') if isinstance(spec, Mapping) else 'any'}"
        for name, spec in (parameters.get("properties") or {}).items()
    ]
    summary = str(function.get("description") or "").strip().split("\n")[0]
    return f"{function.get('name')}({', '.join(arguments)})" + (f" {summary}" if summary else "")


def _call_text(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments")
    if arguments is None:
        return f"{CALL_START}{malformed_body(call)}{CALL_END}"
    return f"{CALL_START}{json.dumps({'name': call['name'], 'arguments': arguments}, ensure_ascii=False)}{CALL_END}"


def _plain_message(message: Mapping[str, Any], thinks: str) -> dict[str, str]:
    content = message.get("content") or ""
    if message["role"] == "context":
        return _context_message(message)
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>{content}</tool_response>"}
    calls = "\n".join(_call_text(c) for c in message.get("tool_calls") or [])
    plain = {"role": str(message["role"]), "content": "\n".join(t for t in (str(content), calls) if t)}
    return plain | _thought(message, thinks)


def _thought(message: Mapping[str, Any], thinks: str) -> dict[str, str]:
    """Return an action's thought under the name that the template takes."""
    thought = message.get("reasoning") if message["role"] == "assistant" and thinks in NAMES else None
    return {thinks: str(thought)} if thought else {}


def _for_api(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with its thought also under the name by which servers take it."""
    thought = next((message[name] for name in NAMES if name in message), None)
    return {**message, **({NAMES[0]: thought} if thought else {})}


def _context_message(message: Mapping[str, Any]) -> dict[str, str]:
    """Return the words of another speaker as input, under that name: templates know no other speakers."""
    return {"role": "user", "content": f"[{message.get('name') or 'context'}] {message.get('content') or ''}"}


def _plain_chat(messages: Messages, tools: Tools, thinks: str = "") -> list[dict[str, str]]:
    """Return messages as plain text messages, the tools listed in the system message."""
    plain = [_plain_message(m, thinks) for m in messages]
    if not tools:
        return plain
    guide = f"Tools:\n{chr(10).join(_tool_line(t) for t in tools)}\nCall a tool with {CALL_START}{{...}}{CALL_END}."
    if plain and plain[0]["role"] == "system":
        return [{"role": "system", "content": f"{plain[0]['content']}\n{guide}"}, *plain[1:]]
    return [{"role": "system", "content": guide}, *plain]


def native_message(message: Mapping[str, Any], *, as_text: bool = False, thinks: str = "") -> dict[str, Any]:
    """Return a message in the form that tool-capable templates and trainers take, a name on tool results.

    Args:
        message: as `flywheel.records.Message`.
        as_text: whether arguments are a JSON text instead of an object; almost no template takes that.
        thinks: the name under which the template takes a thought; without one it is left out.
    """
    if message["role"] == "context":
        return dict(_context_message(message))
    kept = {k: message[k] for k in ("role", "content", "name", "tool_call_id") if message.get(k) is not None}
    calls = message.get("tool_calls") or []
    parsed = [c for c in calls if c.get("arguments") is not None]
    if parsed:
        kept["tool_calls"] = [
            {
                "type": "function",
                "id": c.get("id", ""),
                "function": {
                    "name": c["name"],
                    "arguments": json.dumps(c["arguments"], ensure_ascii=False) if as_text else c["arguments"],
                },
            }
            for c in parsed
        ]
    if len(parsed) < len(calls):  # a template cannot render a call that did not parse: it stays the text that it was
        texts = [_call_text(c) for c in calls if c.get("arguments") is None]
        kept["content"] = "\n".join(t for t in (str(kept.get("content") or ""), *texts) if t)
    kept.setdefault("content", "")
    return kept | _thought(message, thinks)


def _defused(value: Any, control: re.Pattern[str]) -> Any:
    """Return a JSON value in whose strings, keys included, no control token is left."""
    if isinstance(value, str):
        return control.sub(lambda found: f"{found[0][0]} {found[0][1:]}", value)
    if isinstance(value, Mapping):
        return {_defused(k, control): _defused(v, control) for k, v in value.items()}
    return [_defused(v, control) for v in value] if isinstance(value, list | tuple) else value


def _held(messages: Messages) -> tuple[list[Mapping[str, Any]], dict[str, str]]:
    """Return messages in which arguments that did not parse are placeholders, and the text of each placeholder.

    A placeholder is an argument's name that no message has.
    """
    if not any(_is_broken(call) for message in messages for call in message.get("tool_calls") or ()):
        return list(messages), {}
    said, mark = json.dumps(list(messages)), f"{_PROBE}_held"
    while mark in said:
        mark += "_"
    texts: dict[str, str] = {}

    def hold(call: Mapping[str, Any]) -> Mapping[str, Any]:
        if not _is_broken(call):
            return call
        key = f"{mark}{len(texts)}x"
        texts[key] = str(call.get("arguments_raw") or "")
        return {**call, "arguments": {key: ""}}

    return [
        {**message, "tool_calls": [hold(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ], texts


def _is_broken(call: Mapping[str, Any]) -> bool:
    return call.get("arguments") is None and not is_complete_text(call)


def _put_back(text: str, texts: Mapping[str, str]) -> str:
    for key, raw in texts.items():
        if found := re.search(rf'\{{\s*"{key}"\s*:\s*""\s*\}}', text):
            text = text[: found.start()] + raw + text[found.end() :]
    return text


class ChatFormat:
    """How one tokenizer's model reads and writes conversations.

    Args:
        tokenizer: the base model's, with a chat template.

    Raises:
        FlywheelError: the tokenizer has no chat template.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.chat_template:
            hint = "name the one that production serves with under [model] chat_template, or choose an instructed model"
            raise FlywheelError("the base model has no chat template", hint=hint)
        self.tokenizer = tokenizer
        self._prompt: tuple[Sequence[Mapping[str, Any]], Tools, str | None] = ((), None, None)
        self._prompt_ids: list[int] | None = None
        self._tools: tuple[Tools, Tools] = (None, None)
        special = {str(t) for t in tokenizer.added_tokens_decoder.values() if t.special}
        self._thinks = way_of_thinking(self._untooled, tokenizer.get_added_vocab())
        special |= {OPEN, CLOSE} if self._thinks else set()
        self._opens = bool(self._thinks) and opens_a_thought(self._untooled)
        control = sorted({*special, *tokenizer.all_special_tokens} - {CALL_START, CALL_END, ""}, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, control)) or r"(?!)")
        self.arguments = next((form for form in ("object", "text") if self._knows_tools(as_text=form == "text")), None)
        self.shows_malformed = self.arguments is None or self._shows_malformed()

    @property
    def native_tools(self) -> bool:
        """Whether the model's own template renders tools; else flywheel's rendering is used."""
        return self.arguments is not None

    @property
    def thinks(self) -> bool:
        """Whether thoughts are rendered: the base model is a reasoning model."""
        return bool(self._thinks)

    def _untooled(self, messages: Sequence[Mapping[str, Any]], generation_prompt: bool) -> str:  # noqa: FBT001 - one use
        return self._apply(messages, None, generation_prompt=generation_prompt)

    def _knows_tools(self, *, as_text: bool) -> bool:
        """Whether the template shows an offered tool, a call with its arguments as they are, and a tool's result."""
        messages = [native_message(message, as_text=as_text) for message in _PROBE_CHAT]
        try:
            text = self._apply(messages, [_PROBE_TOOL], generation_prompt=True)
        except TemplateError:
            return False
        return all(mark in text for mark in _PROBE_MARKS) and f'\\"{_PROBE}_key' not in text

    def _shows_malformed(self) -> bool:
        """Whether the template writes arguments as JSON, so that others can take their place."""
        call = {"id": "call00001", "name": f"{_PROBE}_call", "arguments": None, "arguments_raw": f"[{_PROBE}_raw]"}
        held, texts = _held([_PROBE_CHAT[0], {"role": "assistant", "tool_calls": [call]}])
        native = [native_message(message, as_text=self.arguments == "text") for message in held]
        try:
            return f"[{_PROBE}_raw]" in _put_back(self._apply(native, [_PROBE_TOOL], generation_prompt=False), texts)
        except TemplateError:
            return False

    def shows(self, action: Mapping[str, Any]) -> bool:
        """Return whether an action is rendered as it was written; some templates have no place for broken arguments."""
        broken = [call for call in action.get("tool_calls") or [] if call.get("arguments") is None]
        return self.shows_malformed or all(map(is_complete_text, broken))

    def _apply(self, messages: Sequence[Any], tools: Tools, *, generation_prompt: bool) -> str:
        extra = {"tools": tools} if tools else {}
        try:
            text = self.tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=generation_prompt, **extra
            )
        except Exception as error:  # a program of the model's makers: it may raise anything
            raise TemplateError(
                f"the chat template raises {type(error).__name__}",
                hint="choose a base model whose template takes these roles and tools, or mend its chat_template",
            ) from error
        return str(text)

    def _render(self, messages: Messages, tools: Tools, *, generation_prompt: bool) -> str:
        messages, tools = _defused(list(messages), self._control), self._defused_tools(tools)
        if self.native_tools:
            held, texts = _held(messages) if self.shows_malformed else (messages, {})
            native = [native_message(m, as_text=self.arguments == "text", thinks=self._thinks) for m in held]
            return _put_back(self._apply(native, tools, generation_prompt=generation_prompt), texts)
        return self._apply(_plain_chat(messages, tools, self._thinks), None, generation_prompt=generation_prompt)

    def _defused_tools(self, tools: Tools) -> Tools:
        known, defused = self._tools
        if tools is not known:
            defused = _defused(tools, self._control)
            self._tools = tools, defused
        return defused

    def shown(self, text: str) -> str:
        """Return a text of a message as a rendering shows it: with its control tokens broken."""
        return str(_defused(text, self._control))

    def ids(self, text: str) -> list[int]:
        """Return a rendered text's token ids; no special token is added. Those of the last prompt are kept with it."""
        if text is not self._prompt[2]:
            return self._encoded(text)
        if self._prompt_ids is None:
            self._prompt_ids = self._encoded(text)
        return list(self._prompt_ids)

    def _encoded(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def prompt(self, messages: Messages, tools: Tools) -> str:
        """Return the text before an action, ending where the model begins to write.

        The last one is kept: both sides of a pair and all attempts of a group have the same messages before them.
        """
        before, tools_before, text = self._prompt
        same = tools is tools_before and len(messages) == len(before) and all(map(is_, messages, before))
        if text is None or not same:
            text = self._render(messages, tools, generation_prompt=True)
            self._prompt, self._prompt_ids = (list(messages), tools, text), None
        return text

    def text_messages(self, messages: Messages, tools: Tools) -> list[dict[str, str]]:
        """Return messages of text alone in flywheel's own rendering, tools in the system message, calls as text."""
        return _plain_chat(_defused(list(messages), self._control), _defused(tools, self._control))

    def api_messages(self, messages: Messages, tools: Tools) -> tuple[list[dict[str, Any]], Tools]:
        """Return messages and tools as OpenAI's chat API takes them, such that the template renders them as here."""
        messages, tools = _defused(list(messages), self._control), _defused(tools, self._control)
        if not self.native_tools:
            return [_for_api(message) for message in _plain_chat(messages, tools, self._thinks)], None
        native = (native_message(message, as_text=True, thinks=self._thinks) for message in messages)
        return [_for_api(message) for message in native], tools

    def conversation(self, messages: Messages, tools: Tools) -> str:
        """Return the text of a conversation that ends with its last message."""
        return self._render(messages, tools, generation_prompt=False)

    def completion(self, messages: Messages, tools: Tools, action: Mapping[str, Any]) -> str:
        """Return the text of an action as the model would write it: its thought, its words and calls, its end of turn.

        Raises:
            TemplateError: the template raises, or (`PrefixError`) shows the prompt otherwise when an action follows.
        """
        whole = before = self.prompt(messages, tools)
        if whole.rstrip().endswith(CLOSE):  # production had switched thinking off
            action = {name: value for name, value in action.items() if name != "reasoning"}
        rendered = self._render([*messages, action], tools, generation_prompt=False)
        if self._thinks == TAGS:  # a prompt may open a thought, which the template then leaves out
            before = without_opening(whole)
        if not rendered.startswith(before):
            raise PrefixError(
                "the chat template is not prefix-preserving: a prompt renders differently when an action follows",
                hint="use a chat template that does not rewrite earlier turns",
            )
        text, end = rendered[len(before) :], str(self.tokenizer.eos_token)
        if self._thinks == TAGS:
            text = in_tags(self.shown(str(action.get("reasoning") or "")), whole[len(before) :]) + text
        return text[: text.index(end) + len(end)] if end in text else text.rstrip("\n") + end

    def parts(
        self, messages: Messages, tools: Tools, action: Mapping[str, Any], *, thoughts: bool = True
    ) -> tuple[str, str]:
        """Return the text of an action in two parts: its thought where that is context, and what is learned.

        A block without any thought is never learned: a log that keeps no thoughts must not teach to stop thinking.

        Args:
            messages: before the action.
            tools: at hand.
            action: the assistant message.
            thoughts: whether logged thoughts are learned.

        Raises:
            TemplateError: as `completion`.
        """
        text = self.completion(messages, tools, action)
        learned = not self._thinks or (thoughts and action.get("reasoning"))
        end = 0 if learned else end_of_thought(text)
        return text[:end], text[end:]

    def action_ids(
        self, messages: Messages, tools: Tools, action: Mapping[str, Any], *, thoughts: bool = True
    ) -> tuple[list[int], int]:
        """Return an action's token ids, and how many of them, at the beginning, are context; see `parts`."""
        return self.part_ids(*self.parts(messages, tools, action, thoughts=thoughts))

    def part_ids(self, context: str, learned: str) -> tuple[list[int], int]:
        """Return the token ids of an action's two parts, as one text, and how many of them are the first part's."""
        ids = self.ids(context + learned)
        if not context:
            return ids, 0
        if not self.tokenizer.is_fast:  # no offsets: what both texts begin with
            return ids, common_length(ids, self.ids(context))
        spans = self.tokenizer(context + learned, add_special_tokens=False, return_offsets_mapping=True)
        return ids, sum(end <= len(context) for _, end in spans["offset_mapping"])

    def parse(self, text: str, tools: Tools) -> Generation:
        """Return what the model wrote after a prompt as an assistant message: a prompt may have opened its thought."""
        opened = OPEN if self._opens and CLOSE not in text and not text.lstrip().startswith(OPEN) else ""
        return parse_completion(opened + text.strip(), tools, lambda part: self._control.sub("", part))


def _fits(call: Mapping[str, Any], tools: Tools) -> bool:
    """Return whether a call parsed and, where the schemas are known, names a tool and gives its arguments."""
    if call["arguments"] is None:
        return False
    if not tools:
        return bool(call["name"])
    schemas = {str(_function(t).get("name")): _function(t).get("parameters") or {} for t in tools}
    if call["name"] not in schemas:
        return False
    schema = schemas[call["name"]]
    properties, required = schema.get("properties") or {}, set(schema.get("required") or [])
    arguments = set(call["arguments"])
    return required <= arguments and (not properties or arguments <= set(properties))


def parse_completion(text: str, tools: Tools, clean: Callable[[str], str] = str) -> Generation:
    """Parse a completion: tool calls as any family of `calls.toml` writes them, thinking, and free text.

    `well_formed` is true when there is at least one call and every call parsed, names a known tool, and gives its
    required arguments and no unknown ones.

    Args:
        text: what the model wrote, control tokens included.
        tools: what it was offered.
        clean: takes control tokens out of a text.
    """
    reasoning, rest = split_reasoning(text)
    calls, spoken = split_calls(rest, clean)
    message: dict[str, Any] = {"role": "assistant"}
    if content := clean(spoken).strip():
        message["content"] = content
    if thought := clean(reasoning).strip():
        message["reasoning"] = thought
    if calls:
        message["tool_calls"] = calls
    return Generation(text=text, message=message, well_formed=well_formed(calls, tools))


def well_formed(calls: Sequence[Mapping[str, Any]], tools: Tools) -> bool:
    """Return whether there is a call, and each names a known tool with its required arguments and no unknown ones."""
    return bool(calls) and all(_fits(call, tools) for call in calls)

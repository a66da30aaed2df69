"""Thoughts of reasoning models: rendered as production did, learned or read by the setting."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.config import ModelConfig, TrainConfig
from flywheel.errors import ConfigError, TrainError
from flywheel.models.chat import ChatFormat
from flywheel.models.load import base_identity, load_tokenizer
from flywheel.models.preview import segments
from flywheel.models.token_rows import attempt_rows, logged
from flywheel.stages.train.rows import answers, demonstrations, tokenise

# In the manner of Qwen3: the thoughts of earlier turns are dropped, those since the newest question shown.
_BODY = (
    "{%- set asked = namespace(at=0) -%}{%- for m in messages -%}{%- if m.role == 'user' -%}"
    "{%- set asked.at = loop.index0 -%}{%- endif -%}{%- endfor -%}"
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' -}}"
    "{%- if m.role == 'assistant' and loop.index0 > asked.at and (loop.last or m.reasoning_content) -%}"
    "{{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' -}}{%- endif -%}"
    "{{- m.content -}}{%- for c in m.tool_calls or [] -%}<tool_call>"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>{%- endfor -%}'
    "{{- '<|im_end|>\\n' -}}{%- endfor -%}"
)
KEYED = (
    "{%- if tools -%}{{- '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' -}}{%- endif -%}" + _BODY + ""
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}"
    "{%- if enable_thinking is defined and not enable_thinking -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}"
    "{%- endif -%}"
)
# In the manner of R1's distillates: no thought is taken, and the prompt opens one.
TAGGED = (
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n<think>\\n' -}}{%- endif -%}"
)
ASKED = [{"role": "user", "content": "How many?"}]
THOUGHT: dict[str, Any] = {"role": "assistant", "content": "Seven.", "reasoning": "Four and three."}
SILENT: dict[str, Any] = {"role": "assistant", "content": "Seven."}


def chat_of(template: str, **arguments: Any) -> ChatFormat:
    tokenizer = load_tokenizer(ModelConfig())
    tokenizer.chat_template = template
    lines = load_tokenizer(ModelConfig(template_arguments=arguments)).chat_template if arguments else ""
    tokenizer.chat_template = lines[: lines.index("-%}") + 3] + template if arguments else template
    return ChatFormat(tokenizer)


@pytest.fixture(scope="module")
def keyed() -> ChatFormat:
    return chat_of(KEYED)


@pytest.fixture(scope="module")
def tagged() -> ChatFormat:
    return chat_of(TAGGED)


def test_a_model_that_does_not_think_reads_no_thoughts() -> None:
    plain = ChatFormat(load_tokenizer(ModelConfig()))
    assert not plain.thinks
    assert plain.completion(ASKED, None, THOUGHT) == plain.completion(ASKED, None, SILENT)


def test_a_thought_is_rendered_before_its_action(keyed: ChatFormat, tagged: ChatFormat) -> None:
    assert keyed.completion(ASKED, None, THOUGHT) == "<think>\nFour and three.\n</think>\n\nSeven.<|im_end|>"
    assert tagged.prompt(ASKED, None).endswith("<think>\n")
    assert tagged.completion(ASKED, None, THOUGHT) == "Four and three.\n</think>\n\nSeven.<|im_end|>"
    assert keyed.parse(keyed.completion(ASKED, None, THOUGHT), None).message == THOUGHT
    assert tagged.parse(tagged.completion(ASKED, None, THOUGHT), None).message == THOUGHT


def test_the_template_decides_which_earlier_thoughts_are_read(keyed: ChatFormat, tagged: ChatFormat) -> None:
    within = [*ASKED, THOUGHT, {"role": "tool", "content": "7"}]
    assert "Four and three." in keyed.prompt(within, None)
    assert "Four and three." not in keyed.prompt([*ASKED, THOUGHT, *ASKED], None)
    assert "Four and three." not in tagged.prompt([*ASKED, THOUGHT, *ASKED], None)


@pytest.mark.parametrize("template", [KEYED, TAGGED])
def test_a_logged_thought_is_learned_or_only_read(template: str) -> None:
    chat = chat_of(template)
    for thoughts, learned in ((True, True), (False, False)):
        ids, context = chat.action_ids(ASKED, None, THOUGHT, thoughts=thoughts)
        assert chat.tokenizer.decode(ids) == chat.completion(ASKED, None, THOUGHT)
        assert ("Four" in chat.tokenizer.decode(ids[context:])) == learned
        assert chat.tokenizer.decode(ids[context:]).endswith("Seven.<|im_end|>")


@pytest.mark.parametrize("template", [KEYED, TAGGED])
def test_a_log_without_thoughts_does_not_teach_to_stop_thinking(template: str) -> None:
    chat = chat_of(template)
    for thoughts in (True, False):
        ids, context = chat.action_ids(ASKED, None, SILENT, thoughts=thoughts)
        assert chat.tokenizer.decode(ids[context:]) == "Seven.<|im_end|>"
        assert "</think>" in chat.tokenizer.decode(ids[:context])


def test_production_that_switched_thinking_off_is_rendered_so() -> None:
    chat = chat_of(KEYED, enable_thinking=False)
    assert chat.prompt(ASKED, None).endswith("</think>\n\n")
    assert chat.completion(ASKED, None, SILENT) == "Seven.<|im_end|>"
    assert chat.completion(ASKED, None, THOUGHT) == "Seven.<|im_end|>"
    assert chat.action_ids(ASKED, None, THOUGHT, thoughts=False)[1] == 0


def test_arguments_of_the_template_are_part_of_the_model() -> None:
    off = ModelConfig(template_arguments={"enable_thinking": False})
    assert base_identity(off).sha256 != base_identity(ModelConfig()).sha256
    with pytest.raises(ConfigError, match="cannot be set in a chat template"):
        base_identity(ModelConfig(template_arguments={"a b": 1}))


def test_a_logged_text_cannot_end_a_thought(keyed: ChatFormat) -> None:
    forged = {"role": "assistant", "content": "a</think>b", "reasoning": "x</think>y<|im_end|>"}
    text = keyed.completion(ASKED, None, forged)
    assert text.count("</think>") == 1
    assert text.count("<|im_end|>") == 1
    assert keyed.parts(ASKED, None, forged, thoughts=False)[1].startswith("a< /think>b")


def test_a_thought_that_the_prompt_opened_and_nobody_closed_is_no_answer(tagged: ChatFormat, keyed: ChatFormat) -> None:
    cut_off = "They ask how many. Seven would be <tool_call>{"
    assert tagged.parse(cut_off, None).message == {"role": "assistant", "reasoning": cut_off}
    assert tagged.parse("Three and four.\n</think>\n\nSeven.", None).message["content"] == "Seven."
    assert keyed.parse("Seven.", None).message == SILENT


def test_rows_hold_a_thought_that_is_not_learned_as_context(keyed: ChatFormat) -> None:
    rows = [{"prompt": ASKED, "tools": None, "chosen": [THOUGHT], "rejected": [{**SILENT, "content": "Nine."}]}]
    decode = keyed.tokenizer.decode
    for setting, learned in (("keep", "<think>\nFour and three.\n</think>\n\nSeven."), ("drop", "Seven.")):
        data = tokenise(rows, keyed, ("chosen", "rejected"), TrainConfig(thoughts=setting))
        chosen, rejected = answers(data.rows[0])
        assert [decode(chosen.ids[a:b]) for a, b in chosen.windows] == [f"{learned}<|im_end|>"]
        assert [decode(rejected.ids[a:b]) for a, b in rejected.windows] == ["Nine.<|im_end|>"]
        assert decode(chosen.ids).endswith("Four and three.\n</think>\n\nSeven.<|im_end|>")
        assert data.tokens == len(chosen.ids) + len(rejected.ids)
    single = [{"prompt": ASKED, "tools": None, "completion": [THOUGHT]}]
    data = tokenise(single, keyed, ("completion",), TrainConfig(thoughts="drop"))
    (shown,) = demonstrations(data.rows)
    assert decode([shown.row.ids[place] for place in shown.row.trained]) == "Seven.<|im_end|>"


def test_a_row_that_is_too_long_with_its_thought_is_refused(keyed: ChatFormat) -> None:
    rows = [{"prompt": ASKED, "tools": None, "completion": [{**THOUGHT, "reasoning": "so " * 500}]}]
    for setting in ("keep", "drop"):
        with pytest.raises(TrainError, match="longer than"):
            tokenise(rows, keyed, ("completion",), TrainConfig(thoughts=setting, max_length=100))


def test_logged_log_probabilities_are_those_of_what_is_trained(keyed: ChatFormat) -> None:
    for thoughts in (True, False):
        rows = attempt_rows([THOUGHT], ASKED, None, keyed, thoughts=thoughts)
        ids, context = keyed.action_ids(ASKED, None, THOUGHT, thoughts=thoughts)
        sampled = [{"ids": ids, "log_probs": [-float(n) for n in range(len(ids))]}]
        assert logged(sampled, rows) == [[-float(n) for n in range(context, len(ids))]]


def test_a_preview_shows_what_of_an_action_is_learned(keyed: ChatFormat) -> None:
    for thoughts, n in ((True, 0), (False, 1)):
        parts = segments(keyed, ASKED, None, [THOUGHT], thoughts=thoughts)
        assert [part.trained for part in parts] == [False, True]
        assert parts[0].text.count("Four and three.") == n

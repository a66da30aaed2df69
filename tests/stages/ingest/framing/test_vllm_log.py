"""vLLM's server log: prompts as its chat template rendered them, and answers on other lines, are calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flywheel.stages.ingest.framing.texts.rendered import rendered_talk, turns_of_text

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take

PARAMS = "SamplingParams(n=1, temperature=0.7, top_p=0.8, seed=None, stop=[], max_tokens=256, extra_args=None)"
ADAPTER = "LoRARequest(lora_name='champion', lora_int_id=1, lora_path='/models/r3')"
OPENS = "<|im_start|>assistant\n"
FIRST = f"<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWhere's order 7?<|im_end|>\n{OPENS}"
CALL = '<tool_call>\n{"name": "get_order", "arguments": {"id": 7, "why": "asked (twice)"}}\n</tool_call>'
CAME = "<|im_end|>\n<|im_start|>user\n<tool_response>\non its way\n</tool_response><|im_end|>\n"
MADE = '[tool_calls: get_order({"id": 7, "why": "asked (twice)"})]'


def line(second: int, said: str, level: str = "INFO") -> str:
    return f"(APIServer pid=1) {level} 11-05 12:39:{second:02} [logger.py:40] {said}"


def asked(second: int, own: str, prompt: str, adapter: str = ADAPTER) -> str:
    rest = f"params: {PARAMS}, prompt_token_ids: [5, 6], prompt_embeds shape: None, lora_request: {adapter}."
    return line(second, f"Received request {own}: prompt: {prompt!r}, {rest}")


def told(second: int, own: str, output: str, ids: str = "[1, 2]", reason: str = "stop") -> str:
    return line(
        second, f"Generated response {own}: output: {output!r}, output_token_ids: {ids}, finish_reason: {reason}"
    )


TALK = [
    "INFO:     Started server process [1]",
    line(1, "vLLM API server version 0.11.0"),
    asked(2, "chatcmpl-a", FIRST),
    line(2, "Added request chatcmpl-a."),
    told(3, "chatcmpl-a", MADE, reason="tool_calls"),
    '(APIServer pid=1) INFO:     127.0.0.1:55718 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    asked(4, "chatcmpl-b", FIRST + CALL + CAME + OPENS),
    told(5, "chatcmpl-b", "On its way."),
]


def test_a_talk_of_two_calls_is_an_episode(tmp_path: Path, take: Take) -> None:
    (tmp_path / "server.log").write_text("\n".join(TALK) + "\n")
    taken = take(tmp_path)
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    assert taken.ignored == {"other lines of a program's log": 4}
    episodes, steps = taken.built()
    (made,) = episodes.to_dicts()
    assert (made["request"], made["model"], made["n_tool_calls"]) == ("Where's order 7?", "champion", 1)
    assert (made["input_tokens"], made["output_tokens"]) == (4, 4)
    first, last = steps.sort("index").to_dicts()
    (call,) = json.loads(first["action"])["tool_calls"]
    assert (call["name"], call["arguments"]) == ("get_order", {"id": 7, "why": "asked (twice)"})
    assert json.loads(last["observation"])[0]["content"] == "on its way"
    assert json.loads(last["action"])["content"] == "On its way."
    acts = [payload for payload in taken.payloads() if "message" in payload]
    assert acts[0]["sampling"] == {"temperature": 0.7, "top_p": 0.8, "max_tokens": 256}
    assert (acts[0]["prompt_token_ids"], acts[0]["completion_token_ids"]) == ([5, 6], [1, 2])


def test_a_prompt_may_be_on_a_line_of_its_own_and_an_answer_in_pieces(tmp_path: Path, take: Take) -> None:
    """As versions of 0.11.1 and later log prompts at DEBUG, and any version streams."""

    def piece(words: str, part: str, ids: str) -> str:
        return line(
            3, f"Generated response c ({part}): output: {words!r}, output_token_ids: {ids}, finish_reason: None"
        )

    details = line(
        2, f"Request c details: prompt: {FIRST!r}, prompt_token_ids: None, prompt_embeds shape: None.", "DEBUG"
    )
    lines = [details, line(2, f"Received request c: params: {PARAMS}, lora_request: None."),
             piece("On ", "streaming delta", "[1]"), piece("its way.", "streaming delta", "[2]"),
             piece("<streaming_complete: 2 tokens>", "streaming complete", "None")]  # fmt: skip
    (tmp_path / "server.log").write_text("\n".join(lines))
    taken = take(tmp_path)
    (payload,) = (payload for payload in taken.payloads() if "message" in payload)
    assert (payload["message"]["content"], payload["completion_token_ids"]) == ("On its way.", [1, 2])


def test_half_of_a_call_is_passed_over_with_what_to_turn_on(tmp_path: Path, take: Take) -> None:
    lines = [line(1, f"Received request a: params: {PARAMS}, lora_request: None."), told(2, "a", "no prompt"),
             asked(3, "b", FIRST), told(4, "c", "lost")]  # fmt: skip
    (tmp_path / "server.log").write_text("\n".join(lines))
    taken = take(tmp_path)
    assert taken.events.is_empty()
    assert taken.quarantined.is_empty()
    reasons = {reason.split(":")[0]: n for reason, n in taken.ignored.items()}
    assert reasons["an answer of vLLM's without its prompt"] == 2
    assert reasons["a prompt of vLLM's without its answer"] == 1


def test_a_call_that_is_not_finished_stays_words(tmp_path: Path, take: Take) -> None:
    (tmp_path / "server.log").write_text(
        "\n".join([asked(1, "a", FIRST), told(2, "a", '[tool_calls: get_order({"id":')])
    )
    (payload,) = (payload for payload in take(tmp_path).payloads() if "message" in payload)
    assert payload["message"] == {"role": "assistant", "content": '[tool_calls: get_order({"id":'}


BAR = "\uff5c"
DEEPSEEK = (
    f"<{BAR}begin\u2581of\u2581sentence{BAR}>Be kind.<{BAR}User{BAR}>Where?<{BAR}Assistant{BAR}>Here."
    f"<{BAR}end\u2581of\u2581sentence{BAR}><{BAR}User{BAR}>And 8?<{BAR}Assistant{BAR}>Lost."
)


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        (DEEPSEEK, ["system", "user", "assistant", "user", "assistant"]),
        ("<s>[INST] Where? [/INST] Here.</s>[INST] And 8? [/INST] Lost.</s>", ["user", "assistant"] * 2),
    ],
    ids=["deepseek", "mistral"],
)
def test_templates_without_a_name_for_each_turn(text: str, roles: list[str]) -> None:
    assert [role for role, _, _ in turns_of_text(text)] == roles
    assert [message["content"] for message in rendered_talk(text)][-2:] == ["And 8?", "Lost."]

"""SGLang's log of its requests, in text and in JSON: a call is on the line that ends it, with its prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take

OPENS = "<|im_start|>assistant\n"
FIRST = f'<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWhere\'s "order" 7?<|im_end|>\n{OPENS}'
CALL = '<tool_call>\n{"name": "get_order", "arguments": {"id": 7}}\n</tool_call>'
CAME = "<|im_end|>\n<|im_start|>user\n<tool_response>\non its way\n</tool_response><|im_end|>\n"
SAMPLING = {"temperature": 0.7, "max_new_tokens": 256, "stop": None, "sampling_seed": None}
STARTS = "[2026-05-20 08:01:00] server_args=ServerArgs(model_path='/models/q', served_model_name='qwen', tp_size=1)"


def meta(ids: list[int], reason: str = "stop") -> dict[str, Any]:
    return {"id": "a", "finish_reason": {"type": reason, "message": "timed out"}, "prompt_tokens": 3,
            "completion_tokens": len(ids), "e2e_latency": 1.5,
            "output_token_logprobs": [(-0.5, token, None) for token in ids]}  # fmt: skip


def call(own: str, prompt: str | None, answer: str | None, ids: list[int], **other: Any) -> tuple[dict[str, Any], ...]:
    """Return a request when it came and when it ended, and its output."""
    came = {"rid": own, "text": None, "input_ids": [5, 6, 7], "sampling_params": SAMPLING, "lora_path": "champion"}
    out = {"text": answer, "output_ids": ids, "meta_info": meta(ids)} | other
    return came, came | {"text": prompt}, {name: value for name, value in out.items() if value is not None}


def in_text(second: int, came: dict[str, Any], ended: dict[str, Any], out: dict[str, Any]) -> list[str]:
    """Return a request's two lines, among what a program wrote that is no literal."""

    def shown(request: dict[str, Any]) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in request.items())
        return f"GenerateReqInput({fields}, received_time=inf, session_params=SessionParams(id=None), stream=False)"

    return [f"[2026-05-20 08:02:{second:02}] Receive: obj={shown(came)}",
            f"[2026-05-20 08:02:{second:02} TP0] Prefill batch, #new-seq: 1, #new-token: 128",
            f"[2026-05-20 08:02:{second:02}] Finish: obj={shown(ended)}, headers={{}}, out={out!r}"]  # fmt: skip


def in_json(second: int, came: dict[str, Any], ended: dict[str, Any], out: dict[str, Any]) -> list[str]:
    at = f"2026-05-20T08:02:{second:02}.125000"
    received = {"timestamp": at, "event": "request.received", "rid": came["rid"], "obj": came}
    finished = {"timestamp": at, "event": "request.finished", "rid": came["rid"], "obj": ended, "out": out}
    return [json.dumps(received), json.dumps(finished)]


CALLS = [call("w", "The capital city of France is", " Paris", [9]), call("a", FIRST, CALL, [1, 2]),
         call("b", FIRST + CALL + CAME + OPENS, "On its way.", [3, 4])]  # fmt: skip
LOGS = {
    "text": [STARTS, *(line for n, made in enumerate(CALLS) for line in in_text(n, *made))],
    "json": [line for n, made in enumerate(CALLS) for line in in_json(n, *made)],
    "json behind a time": [
        f"[2026-05-20 08:02:09] {line}" for n, made in enumerate(CALLS) for line in in_json(n, *made)
    ],
}


@pytest.mark.parametrize("form", LOGS)
def test_a_talk_of_two_calls_is_an_episode(form: str, tmp_path: Path, take: Take) -> None:
    (tmp_path / "server.log").write_text("\n".join(LOGS[form]) + "\n")
    taken = take(tmp_path)
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    assert set(taken.ignored) == {"other lines of a program's log"}
    episodes, steps = taken.built()
    (made,) = episodes.to_dicts()
    assert (made["request"], made["model"], made["n_tool_calls"]) == ('Where\'s "order" 7?', "champion", 1)
    assert (made["input_tokens"], made["output_tokens"]) == (6, 4)
    first, last = steps.sort("index").to_dicts()
    (made_call,) = json.loads(first["action"])["tool_calls"]
    assert (made_call["name"], made_call["arguments"]) == ("get_order", {"id": 7})
    assert json.loads(last["observation"])[0]["content"] == "on its way"
    act, _ = [payload for payload in taken.payloads() if "message" in payload]
    assert act["sampling"] == {"temperature": 0.7, "max_tokens": 256}
    assert (act["prompt_token_ids"], act["completion_token_ids"]) == ([5, 6, 7], [1, 2])
    assert (act["completion_logprobs"], act["latency_s"]) == ([-0.5, -0.5], 1.5)


def test_what_the_server_serves_is_the_model_where_no_adapter_answered(tmp_path: Path, take: Take) -> None:
    came, ended, out = call("a", FIRST, "Here.", [1])
    lines = [STARTS, *in_text(1, came | {"lora_path": None}, ended | {"lora_path": None}, out)]
    (tmp_path / "server.log").write_text("\n".join(lines))
    assert take(tmp_path).events["model"].to_list() == ["qwen"]


def test_a_call_of_which_a_part_was_logged_is_passed_over_with_what_to_turn_on(tmp_path: Path, take: Take) -> None:
    came, ended, out = call("a", FIRST, "Here.", [1])
    short = in_text(1, came, ended, out)[-1].replace("text='Here.'", "").replace("'Here.'", "'He' ... 'e.'")
    halved = "x" * 1024 + "..." + "y" * 1024
    lines = [STARTS, short,
             *in_text(2, *call("b", None, None, [1])),
             *in_json(3, *call("c", FIRST, halved, [1])),
             *in_json(4, *call("d", "<text: 9000 chars, blake2b=00ff>", "Here.", [1])),
             *in_json(5, *call("e", FIRST, "end", [1], meta_info=meta([1, 2, 3]))),
             in_text(6, *call("f", FIRST, "lost", [1]))[0],
             *in_text(7, *call("HEALTH_CHECK_1", FIRST, "x", [1]))]  # fmt: skip
    (tmp_path / "server.log").write_text("\n".join(lines))
    taken = take(tmp_path)
    assert taken.events.is_empty()
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    reasons = {reason.partition("SGLang's ")[2].partition(":")[0]: n for reason, n in taken.ignored.items()}
    del reasons[""]
    assert reasons == {"that was cut": 3, "without its words": 1, "without its end": 1,
                       "with the end of its answer alone, as streams are logged with --stream-output": 1}  # fmt: skip


def test_a_call_that_was_aborted_is_one_that_failed(tmp_path: Path, take: Take) -> None:
    made = call("a", FIRST, None, [], meta_info=meta([], "abort"))
    (tmp_path / "server.log").write_text("\n".join([STARTS, *in_text(1, *made)]))
    (payload,) = take(tmp_path).payloads()
    assert "message" not in payload
    assert payload["messages"][-1]["content"] == 'Where\'s "order" 7?'


def test_a_chat_about_such_a_log_stays_a_chat(tmp_path: Path, take: Take) -> None:
    asked = f"Why is this slow?\n{LOGS['text'][-1]}"
    talk = {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": "It's long."}]}
    (tmp_path / "chat.jsonl").write_text(json.dumps(talk) + "\n")
    assert take(tmp_path).events.height > 0


def test_a_table_that_quotes_such_a_log_stays_a_table(tmp_path: Path, take: Take) -> None:
    lines = ["Timestamp,Query,Response"]
    lines += [
        f'2026-01-01T10:00:0{n},"Why slow?\n{LOGS["text"][-1].replace(chr(34), chr(39))}",Long.' for n in range(3)
    ]
    (tmp_path / "chats.csv").write_text("\n".join(lines) + "\n")
    taken = take(tmp_path)
    assert (taken.events["conversation_id"].n_unique(), taken.quarantined.height) == (3, 0)

"""What trainers dump as text: files that their own code wrote, and texts that look like a turn of someone else."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.benchmarks.trainer_dumps import AREAL, SKYRL, SWIFT, VERL

DUMPS = Path(__file__).parents[4] / "fixtures" / "trainers"
NAMES = {"verl": "score", "swift": "SolvedReward", "skyrl": "score", "areal": "reward"}
POLICIES = {"verl": "shop@3", "swift": "swift@4", "skyrl": "shop@3", "areal": "shop@7"}
ASKED = "<|im_start|>user\nWhere is it?<|im_end|>\n<|im_start|>assistant\n"
CALL = '<tool_call>\n{"name": "find", "arguments": {"n": 7}}\n</tool_call>'
VERL_ROW: dict[str, Any] = {"input": "user\nWhere?\nassistant\n", "output": "There.", "score": 1.0, "step": 1}
SWIFT_ROW: dict[str, Any] = {
    "step": ["4"], "prompt": [ASKED], "completion": ["There."], "Solved": [0.25], "advantages": [0.5], "num_turns": [2],
}  # fmt: skip
AREAL_ROW: dict[str, Any] = {
    "task_id": 0, "reward": 1.0, "tail_version": 7, "prompt_len": 9, "prompt": ASKED, "completion": "There.<|im_end|>",
}  # fmt: skip
SKYRL_ROW: dict[str, Any] = {"input_prompt": "a", "output_response": "b", "score": 1.0, "env_extras": {}}


def of_trainer(take: Callable[..., Any], name: str) -> Any:
    return take(*sorted((DUMPS / name).rglob("*.jsonl")), root=DUMPS)


def acts(events: list[dict[str, Any]]) -> list[str]:
    return [e["payload"]["message"].get("content", "") for e in events if e["kind"] == "model_call"]


def outcomes(events: list[dict[str, Any]]) -> dict[str, float]:
    return {e["payload"]["name"]: e["payload"]["value"] for e in events if e["kind"] == "outcome"}


@pytest.mark.parametrize("name", list(NAMES))
def test_what_a_trainer_wrote_is_two_attempts_at_one_task(take: Callable[..., Any], name: str) -> None:
    taken = of_trainer(take, name)
    assert (set(taken.events["source_format"]), taken.quarantined.height, dict(taken.ignored)) == ({name}, 0, {})
    assert taken.adds_up()
    assert set(taken.events["policy"]) == {POLICIES[name]}
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert (episodes.height, episodes["task_id"].n_unique()) == (2, 1)
    recorded = [p for p in taken.payloads() if p.get("source") == "recorded"]
    assert sorted((p["name"], p["value"]) for p in recorded) == [(NAMES[name], 0.0), (NAMES[name], 1.0)]
    assert steps.height == 3, "a call, its answer, and a refusal"
    assert sorted(map(list, steps["tool_names"])) == [[], [], ["find_order"]]


@pytest.mark.parametrize("name", list(NAMES))
def test_what_a_tool_said_is_never_the_agents(take: Callable[..., Any], name: str) -> None:
    said = [p["message"].get("content") or "" for p in of_trainer(take, name).payloads() if "message" in p]
    assert sorted(said) == ["", "I cannot tell.", "It was sent on Monday."]
    assert [p["content"] for p in of_trainer(take, name).payloads() if "status" in p] == ["sent on Monday"]


def test_llamas_marks_tell_turns_apart() -> None:
    head = "<|start_header_id|>{}<|end_header_id|>\n\n".format
    prompt = f"<|begin_of_text|>{head('user')}Where?<|eot_id|>{head('assistant')}"
    answer = f'{{"name": "find", "parameters": {{"n": 7}}}}<|eom_id|>{head("ipython")}here<|eot_id|>{head("assistant")}'
    events = list(SKYRL.read({**SKYRL_ROW, "input_prompt": prompt, "output_response": answer + "Here.<|eot_id|>"}, 1))
    assert acts(events)[-1] == "Here."
    assert [e["payload"]["content"] for e in events if e["kind"] == "tool_result"] == ["here"]


def test_rewards_stay_graded_and_those_by_token_are_added_up() -> None:
    assert outcomes(list(VERL.read({**VERL_ROW, "score": 0.25}, 1))) == {"score": 0.25}
    assert outcomes(list(SKYRL.read({**SKYRL_ROW, "score": [0.25, 0.5]}, 1))) == {"score": 0.75}
    assert outcomes(list(SKYRL.read({**SKYRL_ROW, "score": None}, 1))) == {}


def test_what_a_trainer_logs_beside_its_rewards_is_no_reward() -> None:
    """It writes them between the completions and the advantages; a dataset's own columns come later."""
    events = list(SWIFT.read(SWIFT_ROW, 1))
    assert outcomes(events) == {"Solved": 0.25}
    assert [e["payload"]["name"] for e in events if e["kind"] == "feedback"] == ["advantages", "num_turns"]
    distilled = {name: SWIFT_ROW[name] for name in ("step", "prompt", "completion")}
    assert outcomes(list(SWIFT.read(distilled, 1))) == {}


def test_a_completion_that_is_logged_again_is_the_same_attempt() -> None:
    later = {**SWIFT_ROW, "step": ["5"], "entropy": [0.1]}
    names = {e["conversation_id"] for line, row in enumerate([SWIFT_ROW, later], 1) for e in SWIFT.read(row, line)}
    assert len(names) == 1


def test_a_line_a_completion_with_ray() -> None:
    row = {"gen_step": 6, "prompt": ASKED, "completion": "There.", "reward": 0.5}
    events = list(SWIFT.read(row, 1))
    assert (acts(events), outcomes(events), {e["policy"] for e in events}) == (["There."], {"reward": 0.5}, {"swift@6"})


def test_a_prompt_ends_where_the_agent_began_or_all_turns_are_its_own() -> None:
    """AReaL counts a prompt's tokens, so that in a text of several turns its end is anywhere."""
    shown = f"<|im_start|>user\n1?<|im_end|>\n<|im_start|>assistant\nOne.<|im_end|>\n{ASKED}"
    assert acts(list(AREAL.read({**AREAL_ROW, "prompt": shown}, 1))) == ["There."], "an example is no act"
    assert acts(list(AREAL.read({**AREAL_ROW, "prompt": shown + "<think>\n"}, 1))) == ["<think>\nThere."]
    several = {"prompt": ASKED + "Wai", "completion": f"t.<|im_end|>\n{ASKED}There.<|im_end|>"}
    assert acts(list(AREAL.read({**AREAL_ROW, **several}, 1))) == ["Wait.", "There."]


def test_attempts_of_one_and_of_several_turns_are_at_one_task() -> None:
    several = {"prompt": ASKED + "Wai", "completion": f"t.<|im_end|>\n{ASKED}There.<|im_end|>"}
    keys = {e["task_key"] for row in ({}, several) for e in AREAL.read({**AREAL_ROW, **row}, 1)}
    assert len(keys) == 1


def test_a_line_that_reads_assistant_is_no_turn() -> None:
    """Without the template's marks anyone may have written it; only what follows a tool's result is a turn."""
    asked = "user\nRepeat:\nassistant\nI agree."
    assert acts(list(VERL.read({**VERL_ROW, "input": asked, "output": "No.\nassistant\nYes."}, 1))) == [
        "No.\nassistant\nYes."
    ]
    cut = f"Let me see.\n{CALL}\nuser\n<tool_response>\nhere"
    events = list(VERL.read({**VERL_ROW, "output": cut}, 1))
    assert acts(events) == ["Let me see."]


def test_words_of_a_user_beside_a_result_are_kept() -> None:
    prompt = "<|im_start|>user\nWhat is <tool_response>x</tool_response>?<|im_end|>\n<|im_start|>assistant\n"
    first = next(iter(AREAL.read({**AREAL_ROW, "prompt": prompt}, 1)))
    assert first["payload"]["messages"][0]["content"] == "What is <tool_response>x</tool_response>?"


@pytest.mark.parametrize(
    ("reader", "path", "policy"),
    [
        (VERL, "runs/a/10.jsonl", "a@10"),
        (VERL, "10.jsonl", "verl@10"),
        (VERL, "a/rollouts.jsonl", None),
        (SKYRL, "a/dumped_evals/global_step_20_evals/gsm8k.jsonl", "a@20"),
        (SKYRL, "global_step_20_evals/gsm8k.jsonl", "skyrl@20"),
        (SKYRL, "a/dumped_evals/eval_only/gsm8k.jsonl", None),
        (AREAL, "logs/root/shop/trial0/rollout/7/3.jsonl", "trial0@7"),
        (AREAL, "logs/root/shop/trial0/eval-rollout/7/3.jsonl", "trial0@7"),
        (AREAL, "7/3.jsonl", "areal@7"),
        (AREAL, "3.jsonl", None),
    ],
)
def test_the_policy_is_where_the_file_lies(reader: Any, path: str, policy: str | None) -> None:
    assert reader.from_path(PurePosixPath(path)).get("policy") == policy


def test_a_text_of_nothing_but_marks_is_read_in_no_time() -> None:
    hostile = "<tool_response>" * 40_000 + "</tool_response>" + "<|im_start|>user\n" * 40_000
    begun = time.perf_counter()
    list(SKYRL.read({**SKYRL_ROW, "input_prompt": ASKED, "output_response": hostile}, 1))
    list(VERL.read({**VERL_ROW, "output": "\nuser\n" + hostile}, 1))
    assert time.perf_counter() - begun < 5


@pytest.mark.parametrize("one", [VERL, SWIFT, SKYRL, AREAL])
def test_another_record_is_refused(one: Any) -> None:
    with pytest.raises(BadRecordError):
        list(one.read({"prompt": "a", "completion": "b", "step": 1}, 1))

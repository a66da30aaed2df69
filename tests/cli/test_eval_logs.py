"""`flywheel eval --logs`: two policies from their logs alone, as a user types it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import Config
from flywheel.pipeline.evaluate.logged_attempts import read_attempts
from tests.cli.test_app import flywheel

AIRLINE = "tau2-bench/airline/{}_airline_default_gpt-4.1_1trials.json.gz"
WIKI = "verifiers-wiki-search/wiki-search--{}"
REAL = [
    pytest.param(AIRLINE.format("gpt-4.1"), AIRLINE.format("ft-gpt-4.1-tau2-full-sft"), "INCONCLUSIVE",
                 (20, 10, 13, 6, 3), marks=pytest.mark.e2e),
    (WIKI.format("qwen--qwen3-4b-instruct-2507"), WIKI.format("willcb--qwen3-4b-wiki-search"), "PROMOTE",
     (47, 25, 42, 18, 1)),
    pytest.param("mint/Mistral-7B-v0.1", "mint/CodeActAgent-Mistral-7b-v0.1", "PROMOTE", (239, 30, 72, 50, 8),
                 marks=pytest.mark.e2e),
    pytest.param("mint/Mistral-7B-v0.1", "mint/Mistral-7B-Instruct-v0.1", "REJECT", (239, 30, 15, 9, 24),
                 marks=pytest.mark.e2e),
]  # fmt: skip
FACTS = ("n", "old_successes", "new_successes", "wins", "losses")


def answer(*arguments: str, cwd: Path) -> tuple[int, dict[str, Any]]:
    done = flywheel("eval", *arguments, "--json", cwd=cwd)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(("old", "new", "verdict", "facts"), REAL)
def test_real_logs(old: str, new: str, verdict: str, facts: tuple[int, ...], shared_data: Path, tmp_path: Path) -> None:
    code, found = answer("--logs", str(shared_data / old), "--logs", str(shared_data / new), cwd=tmp_path)

    assert (found["verdict"], code) == (verdict, 0 if verdict == "PROMOTE" else 3)
    assert tuple(found["numbers"][name] for name in FACTS) == facts
    assert found["outcome"] == "recorded"
    assert found["gaps"] == found["colliding"] == []
    assert (found["needed_n"] or 0) == (185 if verdict == "INCONCLUSIVE" else 0)
    assert list(tmp_path.iterdir()) == []  # looking leaves nothing behind


@pytest.mark.e2e
def test_two_policies_in_the_same_files(shared_data: Path, tmp_path: Path) -> None:
    both = ("--logs", str(shared_data / "mint/Mistral-7B-*"))
    assert answer(*both, "--old", "Mistral-7B-v0.1", "--new", "Mistral-7B-Instruct-v0.1", cwd=tmp_path)[0] == 3

    asked = flywheel("eval", *both, cwd=tmp_path)
    assert asked.returncode == 1
    assert "which is the old one" in asked.stderr
    assert "Mistral-7B-Instruct-v0.1" in asked.stderr


def write(path: Path, tasks: Sequence[tuple[str, str, float | None]], policy: str, tool: str = "look_up") -> str:
    """Write a log of single attempts: (task id, request, outcome)."""
    lines: list[dict[str, Any]] = []
    for number, (task, request, score) in enumerate(tasks):
        same = {"conversation_id": f"c{number}", "task_key": task, "policy": policy}
        call = {"id": f"x{number}", "name": tool if number % 4 else "refund", "arguments": {"n": number}}
        told = [
            ("request", {"messages": [{"role": "user", "content": request}]}),
            ("model_call", {"message": {"role": "assistant", "content": None, "tool_calls": [call]}}),
            ("tool_result", {"content": "done", "status": "ok"}),
            ("model_call", {"message": {"role": "assistant", "content": "It is done."}}),
        ]
        if score is not None:
            told.append(("outcome", {"name": "reward", "value": score, "scale": [0, 1], "source": "verifier"}))
        for seq, (kind, payload) in enumerate(told):
            extra = {"tool_call_id": call["id"], "tool_name": call["name"]} if kind == "tool_result" else {}
            lines.append(same | extra | {"ts": None, "seq": seq, "kind": kind, "payload": payload})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


WORDS = ["order", "parcel", "invoice", "address", "password", "voucher", "delivery", "account"]


def request(number: int) -> str:
    return f"Please look after the {WORDS[number % 8]} of customer {number} in the {WORDS[number // 8 % 8]} desk"


def test_colliding_ids_are_matched_by_the_text(tmp_path: Path) -> None:
    old = write(tmp_path / "old.jsonl", [(f"{i}", request(i), float(i % 2)) for i in range(40)], "a")
    new = write(tmp_path / "new.jsonl", [(f"{39 - i}", request(i), 1.0) for i in range(40)], "b")

    code, found = answer("--logs", old, "--logs", new, cwd=tmp_path)
    assert (code, found["verdict"], found["paired_by"]) == (0, "PROMOTE", {"text": 40})
    assert (found["numbers"]["wins"], found["numbers"]["losses"]) == (20, 0)
    assert len(found["colliding"]) == 20
    assert any("40 task ids with different requests" in note for note in found["notes"])


def test_a_slice_that_regressed_under_a_flat_total_is_named(tmp_path: Path) -> None:
    tasks = [(f"{i}", request(i)) for i in range(120)]
    old = write(
        tmp_path / "old.jsonl", [(t, r, float(i % 4 == 0 or i % 8 == 1)) for i, (t, r) in enumerate(tasks)], "a"
    )
    new = write(
        tmp_path / "new.jsonl", [(t, r, float(i % 4 != 0 and i % 8 > 2)) for i, (t, r) in enumerate(tasks)], "b"
    )

    code, found = answer("--logs", old, "--logs", new, cwd=tmp_path)
    assert (code, found["verdict"]) == (3, "REJECT")
    assert "success where tool=refund" in found["worse"]
    assert "tool=refund" in " ".join(found["reasons"])


def test_a_small_slice_that_looks_worse_is_no_promotion(tmp_path: Path) -> None:
    scores = [(float(i % 4 == 0 and i < 28), float(i % 4 != 0)) for i in range(120)]
    old = write(tmp_path / "old.jsonl", [(f"{i}", request(i), s) for i, (s, _) in enumerate(scores)], "a")
    new = write(tmp_path / "new.jsonl", [(f"{i}", request(i), s) for i, (_, s) in enumerate(scores)], "b")

    code, found = answer("--logs", old, "--logs", new, cwd=tmp_path)
    assert (code, found["numbers"]["wins"]) == (3, 90)
    assert "success where tool=refund" in [*found["suspect"], *found["worse"]]


def test_a_coverage_gap_blocks_and_is_named(tmp_path: Path) -> None:
    old = write(tmp_path / "old.jsonl", [(f"shop/{i}", request(i), 0.0) for i in range(40)], "a")
    some = [(f"shop/{i}", request(i), 1.0 if i != 5 else None) for i in range(40) if i % 4 or i > 20]
    new = write(tmp_path / "new.jsonl", some, "b")

    code, found = answer("--logs", old, "--logs", new, cwd=tmp_path)
    assert (code, found["verdict"]) == (3, "BLOCKED")
    assert found["gaps"][0] == {
        "slice": "all", "lacking": 7, "of": 40,
        "names": ["shop/0", "shop/12", "shop/16", "shop/20", "shop/4", "shop/5", "shop/8"],
    }  # fmt: skip
    assert found["gaps"][1]["slice"] == "tool=refund"
    assert "the new policy lacks 7 of 40 cases that the old one has" in found["reasons"][0]

    short, long = (flywheel("eval", *v, "--logs", old, "--logs", new, cwd=tmp_path).stdout for v in ([], ["-v"]))
    assert "shop/0" not in short
    assert (
        "gap   the new policy lacks 7 of 40 cases, and more than half of the cases in 1 slice (-v names them)" in short
    )
    assert "shop/0, shop/12" in long


def test_the_text_that_is_printed(tmp_path: Path) -> None:
    old = write(tmp_path / "old.jsonl", [(f"{i}", request(i), float(i % 3 == 0)) for i in range(60)], "a")
    new = write(tmp_path / "new.jsonl", [(f"{i}", request(i), float(i % 3 < 2)) for i in range(60)], "b")

    done = flywheel("eval", "--logs", old, "--logs", new, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[0] == "old    a   20 of 60 (33.3%, 95 % interval [23%, 46%])"
    assert lines[1] == "new    b   40 of 60 (66.7%, 95 % interval [54%, 77%])"
    assert lines[2] == "cases  60 paired (60 by id); outcome recorded; units tasks"
    assert lines[4].split() == ["success", "*", "60", "33.3%", "66.7%", "+33.3", "pp", "[+23,", "+46]", "pp"]
    assert [line.split()[0] for line in lines[-3:]] == ["verdict", "why", "next"]
    assert lines[-3:-1] == ["verdict  PROMOTE", "why      every rule holds"]


def test_what_does_not_go_together_is_said(tmp_path: Path) -> None:
    log = write(tmp_path / "old.jsonl", [("1", request(1), 1.0)], "a")

    mixed = flywheel("eval", "--logs", log, "--logs", log, "--round", "1", "--promote", cwd=tmp_path)
    assert "--round, --promote cannot be combined with --logs" in mixed.stderr
    three = flywheel("eval", "--logs", log, "--logs", log, "--logs", log, cwd=tmp_path)
    assert "expected two logs, got 3" in three.stderr
    nobody = flywheel("eval", "--logs", log, "--logs", log, "--new", "z", cwd=tmp_path)
    assert "no new policy named `z`" in nobody.stderr
    assert "--old and --new name policies in --logs" in flywheel("eval", "--old", "a", cwd=tmp_path).stderr
    itself = flywheel("eval", "--logs", log, "--old", "a", "--new", "a", cwd=tmp_path)
    assert "`a` would be compared with itself" in itself.stderr


@pytest.mark.e2e
def test_graded_outcomes_are_compared_as_means_unless_a_threshold_is_given(tmp_path: Path) -> None:
    """Scores of .6 against .5 are no rate; from .55 on all of the new ones are successes and none of the old."""
    tasks = [(f"t{n}", request(n)) for n in range(40)]
    logs = [
        write(tmp_path / f"{name}.jsonl", [(*task, score) for task in tasks], name)
        for name, score in (("old", 0.5), ("new", 0.6))
    ]
    arguments = ("--logs", logs[0], "--logs", logs[1])
    _, found = answer(*arguments, cwd=tmp_path)
    head = found["report"]["metrics"][0]
    assert (head["metric"], head["binary"], found["pass_k"]) == ("score", False, {})
    assert (found["numbers"]["old"], found["numbers"]["new"]) == pytest.approx((0.5, 0.6))
    assert "old_successes" not in found["numbers"]
    assert any("outcomes are graded" in note for note in found["notes"])
    printed = flywheel("eval", *arguments, cwd=tmp_path).stdout
    assert "%" not in "".join(line for line in printed.splitlines() if line.startswith(("old", "new", "served")))

    (tmp_path / "flywheel.toml").write_text("[rewards.success_at]\nreward = 0.55\n")
    _, found = answer(*arguments, cwd=tmp_path)
    assert found["report"]["metrics"][0]["metric"] == "success"
    assert (found["numbers"]["old_successes"], found["numbers"]["new_successes"]) == (0, 40)


def test_a_gap_that_can_hide_nothing_is_noted(tmp_path: Path) -> None:
    old = write(tmp_path / "old.jsonl", [(f"{i}", f"please do number {i}", float(i % 2)) for i in range(114)], "a")
    new = write(tmp_path / "new.jsonl", [(f"{i}", f"please do number {i}", 1.0) for i in range(108)], "b")

    code, found = answer("--logs", old, "--logs", new, cwd=tmp_path)
    assert (code, found["verdict"]) == (0, "PROMOTE")
    assert any("lacks 6 of 114 cases" in note and "even if it failed all of them" in note for note in found["notes"])


def test_what_signals_believe_is_the_same_asked_for_at_once_or_later(tmp_path: Path) -> None:
    """Where every attempt has a recorded outcome, later: on one side of a comparison whose other side has none."""
    log = write(tmp_path / "old.jsonl", [(f"{i}", request(i), float(i % 2)) for i in range(4)], "a")
    later, now = (read_attempts([Path(log)], Config(), tmp_path, b"k", believed=known) for known in (False, True))

    assert sorted(later.p_success().values()) == [0, 0, 1, 1]
    assert later.p_success() == now.p_success()

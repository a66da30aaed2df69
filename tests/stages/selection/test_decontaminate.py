"""Nothing that a round is judged by is trained on, whatever its method."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.funnel import Funnel
from flywheel.stages.selection.decontaminate import CROSSES, GRAM, EvaluationTexts, clear
from hypothesis import given
from hypothesis import strategies as st

WORDS = [f"word{n}" for n in range(GRAM + 4)]


def said(text: str, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": text}


def row(completion: str, asked: str = "what is it?", system: str = "be kind") -> dict[str, Any]:
    prompt = [said(system, "system"), said(asked, "user"), said("result " * 20, "tool")]
    return {"prompt": prompt, "completion": [said(completion)]}


def run(rows: list[dict[str, Any]], answers: list[str], declared: list[str]) -> tuple[list[dict[str, Any]], Funnel]:
    funnel = Funnel()
    funnel.considered = funnel.kept = len(rows)
    kept = clear(rows, EvaluationTexts.of([[said(text)] for text in answers], declared), funnel)
    funnel.check("test")
    assert funnel.kept == len(kept)
    return kept, funnel


@pytest.mark.parametrize(
    ("made", "answers", "declared", "stays"),
    [
        (row(" ".join(WORDS[:GRAM])), [" ".join(["x", *WORDS])], [], False),
        (row(" ".join(WORDS[: GRAM - 1])), [" ".join(WORDS)], [], True),
        (row("no", asked=" ".join(WORDS)), [" ".join(WORDS)], [], True),  # a held-out answer is no question
        (row("no", asked=" ".join(WORDS)), [], [" ".join(WORDS)], False),
        (row(" ".join(WORDS)), [], [" ".join(WORDS)], False),
        (row("no", asked="How many, then?"), [], ["how many then"], False),
        (row("no", asked="How many, then? Tell me."), [], ["how many then"], True),
        (row("how many then"), [], ["how many then"], True),
        (row("no", system=" ".join(WORDS)), [" ".join(WORDS)], [" ".join(WORDS)], True),
        (row("yes"), [], [""], True),
    ],
)
def test_what_crosses(made: dict[str, Any], answers: list[str], declared: list[str], stays: bool) -> None:  # noqa: FBT001
    kept, funnel = run([made], answers, declared)
    assert kept == ([made] if stays else [])
    assert funnel.dropped[CROSSES] == (not stays)


def test_arguments_of_calls_are_compared_too() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "c", "name": "f", "arguments": {"q": " ".join(WORDS)}}]}
    made = {"prompt": [], "chosen": [said("no")], "rejected": [call]}
    assert run([made], [" ".join(WORDS)], [])[0] == []


def test_of_a_group_attempts_leave_one_by_one() -> None:
    leak, fine = [said(" ".join(WORDS))], [said("fine")]
    base = {"prompt": [said("go", "user")], "log_probs": [None, None, None], "id": "g"}
    three = {**base, "completions": [leak, fine, fine], "advantages": [1.0, 0.0, -1.0]}
    (kept,), funnel = run([three], [" ".join(WORDS)], [])
    assert (kept["completions"], kept["advantages"], kept["log_probs"]) == ([fine, fine], [0.0, -1.0], [None, None])
    assert kept["id"] == "g"
    assert funnel.notes["attempts with 13 words of an evaluation's text"] == 1
    assert run([{**three, "completions": [leak, leak, fine]}], [" ".join(WORDS)], [])[0] == []


TEXT = st.lists(st.sampled_from(["a", "b", "c"]), max_size=2 * GRAM).map(" ".join)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=4), st.lists(TEXT, max_size=2), st.lists(TEXT, max_size=2))
def test_nothing_crosses(texts: list[tuple[str, str]], answers: list[str], declared: list[str]) -> None:
    rows = [row(completion, asked) for completion, asked in texts]
    kept, _ = run(rows, answers, declared)
    for made in kept:
        done, asked = f" {made['completion'][0]['content']} ", f" {made['prompt'][1]['content']} "
        for text in answers + declared:
            words = text.split()
            for n in range(len(words) - GRAM + 1):
                gram = f" {' '.join(words[n : n + GRAM])} "
                assert gram not in done
                assert text not in declared or gram not in asked
    assert [made for made in rows if made in kept] == kept
    assert run(rows, [], [])[0] == rows

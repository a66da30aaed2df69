"""Nothing that a round is judged by is trained on, whatever its method."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from flywheel.config import TrainConfig
from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.records import Example, canonical_json
from flywheel.stages.selection.decontaminate import CROSSES, GRAM, EvaluationTexts, clear
from flywheel.stages.selection.groups import select_actions
from flywheel.stages.selection.rows import select_demonstrations
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
    return clear(rows, EvaluationTexts.of([[said(text)] for text in answers], declared), funnel), funnel


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
    assert run([made], answers, declared)[0] == ([made] if stays else [])


def test_arguments_of_calls_are_compared_too() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "c", "name": "f", "arguments": {"q": " ".join(WORDS)}}]}
    made = {"prompt": [], "chosen": [said("no")], "rejected": [call]}
    assert run([made], [" ".join(WORDS)], [])[0] == []


def test_of_a_group_attempts_leave_one_by_one() -> None:
    leak, fine = [said(" ".join(WORDS))], [said("fine")]
    base = {"prompt": [said("go", "user")], "log_probs": [None, None, None], "id": "g"}
    three = {**base, "completions": [leak, fine, fine], "advantages": [1.0, 0.0, -1.0]}
    three["step_advantages"] = [[1.0], [0.0], [-1.0]]
    (kept,), funnel = run([three], [" ".join(WORDS)], [])
    assert (kept["completions"], kept["advantages"], kept["log_probs"]) == ([fine, fine], [0.0, -1.0], [None, None])
    assert (kept["id"], kept["step_advantages"]) == ("g", [[0.0], [-1.0]])
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


TEMPLATE = " ".join(f"frame{n}" for n in range(GRAM))
SECRET = " ".join(f"secret{n}" for n in range(GRAM))


def report(task: int, finding: str = "") -> dict[str, Any]:
    return {**row(f"{TEMPLATE} {finding or f'result of {task}'}"), "task_id": f"t{task}"}


@pytest.mark.parametrize(("tasks", "held", "stays"), [(5, 2, True), (4, 2, False), (5, 1, True), (1, 1, False)])
def test_what_many_tasks_share_is_a_template_and_not_a_leak(tasks: int, held: int, *, stays: bool) -> None:
    rows = [report(n) for n in range(tasks)] + [{**row("other words"), "task_id": "u"}]
    kept, _ = run(rows, [f"{TEMPLATE} and held out {n}" for n in range(held)], [])
    assert len(kept) == (tasks + 1 if stays else 1)


def test_one_text_in_few_of_many_tasks_is_a_leak_however_usual_its_frame() -> None:
    rows = [report(n) for n in range(40)] + [report(n, SECRET) for n in range(40, 43)]
    kept, _ = run(rows, [f"{TEMPLATE} {SECRET}", f"{TEMPLATE} other"], [])
    assert [made["task_id"] for made in kept] == [f"t{n}" for n in range(40)]


def test_many_rows_of_one_task_are_not_many_tasks() -> None:
    rows = [{**report(n), "task_id": "one"} for n in range(20)]
    assert run(rows, [f"{TEMPLATE} a", f"{TEMPLATE} b"], [])[0] == []


def test_declared_templates_count_less_too_and_short_texts_never() -> None:
    asked = [{**row("no", asked=f"{TEMPLATE} {n}"), "task_id": f"t{n}"} for n in range(6)]
    assert len(run(asked, [], [f"{TEMPLATE} x", f"{TEMPLATE} y"])[0]) == 6
    short = [{**row("no", asked="how many then"), "task_id": f"t{n}"} for n in range(6)]
    assert run(short, [], ["how many then", "How many, then?"])[0] == []


def test_a_leak_takes_no_place_of_a_round_and_templates_are_judged_by_all_rows() -> None:
    table = pl.DataFrame(
        [
            {"example_id": f"e{n}", "task_id": f"t{n}", "split": "train", "label": True, "weight": 1.0}
            | {
                "state_key": f"{n}",
                "prompt": canonical_json([said(f"{n}", "user")]),
                "completion": canonical_json([said(SECRET if n % 6 == 1 else f"{TEMPLATE} {n}")]),
            }
            for n in range(24)
        ],
        schema=polars_schema(Example),
    )
    texts = EvaluationTexts.of([[said(SECRET)], [said(f"{TEMPLATE} held out")]], [])
    for select in (select_demonstrations, select_actions):
        funnel = Funnel()
        rows = select(table, TrainConfig(max_rows=20, min_rows=1), funnel, texts=texts)
        funnel.check("test")
        assert len(rows) == 20
        assert all(int(row["task_id"][1:]) % 6 != 1 for row in rows)
        assert funnel.dropped[CROSSES] == 4


def test_stock_phrases_in_a_new_order_are_a_template_too() -> None:
    phrases = [
        "please tell me if there is anything else",
        "that I can do for you today",
        "have a pleasant journey home",
    ]
    rows = [{**row(f"{phrases[n % 3]} {phrases[(n + 1) % 3]} {n}"), "task_id": f"t{n}"} for n in range(30)]
    rows.append({**row(f"{phrases[0]} {phrases[1]} now"), "task_id": "u"})
    assert len(run(rows, [f"{phrases[0]} {phrases[1]} and so on"], [])[0]) == len(rows)


LETTER = "dear {} thank you for your patience we are sorry to say that your parcel left {} and will arrive in {} days"
NAMES, PLACES = ("ada", "bob", "eve", "kim", "leo", "mia"), ("cairo", "hanoi", "lagos", "lima", "oslo", "quito")


def letters() -> list[dict[str, Any]]:
    """A letter of each of six tasks; names and places are in one each, and three days in all."""
    texts = [LETTER.format(name, place, "three") for name, place in zip(NAMES, PLACES, strict=True)]
    return [{**row(text), "task_id": text} for text in texts]


@pytest.mark.parametrize(
    ("held", "left"),
    [
        (("zoe", "porto"), 0),
        (("bob", "porto"), 0),  # one word in the place of a name, which is another in each task
        (("bob", "hanoi"), 1),  # two of them
        (("bob", "lima"), 0),  # words of two tasks: what each shares is one
    ],
)
def test_a_word_in_a_place_of_a_template_is_no_leak_and_two_are(held: tuple[str, str], left: int) -> None:
    kept, _ = run(letters(), [LETTER.format(*held, "nine")], [])
    assert len(kept) == len(NAMES) - left


def test_a_complete_text_is_a_leak_for_the_one_word_in_its_place() -> None:
    text = " ".join([*TEMPLATE.split()[:-1], "{}"])
    rows = [{**row(text.format(name)), "task_id": name} for name in NAMES]
    assert run(rows, [text.format("bob") + " indeed"], [])[0] == rows
    assert run(rows, [text.format("bob")], [])[0] == [made for made in rows if made["task_id"] != "bob"]


def test_a_place_that_few_words_fill_is_none() -> None:
    rows = letters()[:4] + [{**made, "task_id": f"{made['task_id']} again"} for made in letters()[:4]]
    assert len(run(rows, [LETTER.format("bob", "porto", "nine")], [])[0]) == len(rows) - 2

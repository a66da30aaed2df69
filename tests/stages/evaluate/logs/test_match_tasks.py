"""Equal tasks are paired, others are not, whatever the logs call them."""

from __future__ import annotations

from flywheel.stages.evaluate.logs.match_tasks import Matching, likeness, match_tasks
from hypothesis import given
from hypothesis import strategies as st

QUESTIONS = [
    "cancel the flight to boston on friday", "who painted the ceiling of the sistine chapel",
    "write a function that reverses a list", "the invoice of march was paid twice",
    "how far is the moon from the earth", "my parcel has not arrived since monday",
    "translate this sentence into finnish", "what is the square root of two thousand",
]  # fmt: skip


def tasks(*questions: str, first: int = 0) -> dict[str, list[str]]:
    return {f"{number}": [text] for number, text in enumerate(questions, first)}


def pairs(found: Matching) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return sorted((case.old, case.new) for case in found.cases if case.old and case.new)


def test_equal_ids_before_equal_requests() -> None:
    found = match_tasks(tasks(*QUESTIONS), tasks(*QUESTIONS))

    assert [(c.case_id, c.by) for c in found.cases] == [(f"{i}", "id") for i in range(8)]
    assert found.colliding == []


def test_the_same_questions_under_other_ids_are_matched_by_their_text() -> None:
    found = match_tasks(tasks(*QUESTIONS), tasks(*reversed(QUESTIONS)))

    assert pairs(found) == [((f"{i}",), (f"{7 - i}",)) for i in range(8)]
    assert {case.by for case in found.cases} == {"text"}
    assert found.colliding == [f"{i}" for i in range(8)]


def test_equal_ids_before_different_questions_are_no_pair() -> None:
    found = match_tasks(tasks(*QUESTIONS[:4]), tasks(*QUESTIONS[4:]))

    assert pairs(found) == []
    assert len(found.cases) == 8
    assert len({case.case_id for case in found.cases}) == 8
    assert found.colliding == ["0", "1", "2", "3"]


def test_one_question_that_changed_among_many_that_did_not() -> None:
    changed = tasks(*QUESTIONS) | {"3": ["book a table for two at eight"]}

    found = match_tasks(tasks(*QUESTIONS), changed)
    assert len(pairs(found)) == 7
    assert found.colliding == ["3"]


def test_a_simulated_user_says_it_in_other_words() -> None:
    old = tasks(*QUESTIONS)
    new = {task: [f"hello! {text[:-4]}, please"] for task, [text] in old.items()}

    found = match_tasks(old, new)
    assert len(pairs(found)) == 8
    assert found.colliding == []


OTHER_WORDS = [
    "i can't fly this week any more", "the artist of that famous chapel in rome?",
    "python: turn a sequence around", "you charged us two times in spring",
    "what distance must a rocket go to our satellite", "where is the package you sent me",
    "how would a finn say this", "2000 ** 0.5",
]  # fmt: skip


def test_an_id_that_somebody_gave_is_believed_whatever_the_words() -> None:
    old, new = ({f"desk/{i}": [text] for i, text in enumerate(side)} for side in (QUESTIONS, OTHER_WORDS))

    found = match_tasks(old, new)
    assert len(pairs(found)) == 8
    assert found.colliding == []
    named = {f"{i}": f"desk/{i}" for i in range(8)}  # what the log calls them counts, not the table's id
    assert len(pairs(match_tasks(tasks(*QUESTIONS), tasks(*OTHER_WORDS), named))) == 8
    assert pairs(match_tasks(tasks(*QUESTIONS), tasks(*OTHER_WORDS))) == []  # these might be lines of two data sets
    swapped = dict(zip(old, reversed(QUESTIONS), strict=True))
    moved = match_tasks(old, {task: [text] for task, text in swapped.items()})
    assert pairs(moved) == [((f"desk/{i}",), (f"desk/{7 - i}",)) for i in range(8)]


def test_numbers_agree_where_requests_behind_them_are_more_alike_than_chance() -> None:
    """A word in common is little, but thirty tasks have one each."""
    things = [
        f"{a}{b}" for a in ("sofa", "lamp", "desk", "door", "oven", "vase") for b in ("red", "old", "big", "new", "dim")
    ]
    old = tasks(*(f"i would like to return the {thing} that came this morning" for thing in things))
    new = tasks(*(f"{thing}: wrong colour, money back please, you can keep asking but no" for thing in things))

    assert len(pairs(match_tasks(old, new))) == 30
    others = tasks(*(text.replace(thing, "it") for (text,), thing in zip(new.values(), things, strict=True)))
    assert pairs(match_tasks(old, others)) == []


def test_several_attempts_under_ids_of_their_own() -> None:
    old = {"a1": ["q"], "a2": ["q"], "b": ["r"]}
    new = {"x": ["q"], "y": ["r"], "z": ["r"], "w": ["other"]}

    assert pairs(match_tasks(old, new)) == [(("a1", "a2"), ("x",)), (("b",), ("y", "z"))]


def test_a_greeting_that_all_tasks_share_joins_nothing() -> None:
    old, new = ({f"{i}": ["hello", text] for i, text in enumerate(QUESTIONS)} for _ in range(2))

    assert pairs(match_tasks(old, new)) == [((f"{i}",), (f"{i}",)) for i in range(8)]


def test_tasks_without_text_are_paired_by_id() -> None:
    assert pairs(match_tasks({"a": []}, {"a": [], "b": []})) == [(("a",), ("a",))]


def test_likeness() -> None:
    assert likeness("", "") == likeness("abc", "abc") == 1.0
    assert likeness("abcdef", "uvwxyz") == 0.0
    assert 0.5 < likeness("cancel my flight to boston", "cancel my flight to boston!") < 1.0


TASKS = st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from(QUESTIONS), max_size=2, unique=True))


@given(old=TASKS, new=TASKS)
def test_every_task_is_in_exactly_one_case_and_sides_may_be_swapped(
    old: dict[str, list[str]], new: dict[str, list[str]]
) -> None:
    found = match_tasks(old, new)

    assert sorted(t for case in found.cases for t in case.old) == sorted(old)
    assert sorted(t for case in found.cases for t in case.new) == sorted(new)
    assert len({case.case_id for case in found.cases}) == len(found.cases)
    swapped = match_tasks(new, old)
    assert pairs(found) == sorted((o, n) for n, o in pairs(swapped))
    shuffled = match_tasks(dict(reversed(old.items())), dict(reversed(new.items())))
    assert shuffled == found

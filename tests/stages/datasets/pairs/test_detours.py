"""One call that was enough is better than one that was not, if what both gave shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from flywheel.config import PairsConfig
from flywheel.funnel import Funnel
from flywheel.records import canonical_json
from flywheel.stages.datasets.pairs import build_pairs, efficiency

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]
TOOLS = canonical_json([{"name": "look"}, {"name": "good"}, {"name": "bad"}, {"name": "sql", "keys": ["q", "n"]}])


def counted(made: Frames) -> dict[str, int]:
    funnel = Funnel()
    build_pairs(*made, PairsConfig(), {"efficiency": efficiency}, funnel)
    funnel.check("pairs")
    return {k.removeprefix("dropped: "): v for k, v in funnel.as_dict().items() if v}


def shorter(calls: list[tuple[str, Any]], others: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    attempts = {"a": calls, "b": others}
    return [
        {
            "id": name,
            "p": 0.95,
            "tools": TOOLS,
            "steps": [
                {"user": "West 5 77", "call": calls[0], "result": f"by {calls[0][0]}"},
                *({"call": call} for call in calls[1:]),
            ],
        }
        for name, calls in attempts.items()
    ]


@pytest.mark.parametrize(
    ("calls", "others", "kept"),
    [
        ([("good", {})], [("bad", {}), ("look", {}), ("look", {"n": 5})], False),  # nothing shows what was bad
        ([("good", {}), ("sql", {})], [("bad", {}), ("good", {}), ("sql", {})], True),  # it had to be made after all
        ([("good", {}), ("sql", {})], [("bad", {}), ("look", {}), ("look", {"n": 5})], False),  # may be luck
        ([("update_order", {})], [("get_order", {}), ("update_order", {})], False),  # to look first is no detour
        ([("transfer_to_human", {})], [("bad", {}), ("look", {})], False),  # to hand over is no way to do it
    ],
)
def test_a_longer_way_counts_only_where_its_call_was_the_detour(
    frames: Make, calls: list[tuple[str, Any]], others: list[tuple[str, Any]], *, kept: bool
) -> None:
    tools = canonical_json([{"name": name} for name in ("update_order", "get_order", "transfer_to_human", "good")])
    made = [episode | {"tools": tools} for episode in shorter(calls, others)]
    counts = counted(frames(made))
    assert (counts.get("kept", 0), counts.get("efficiency: no detour", 0)) == (int(kept), int(not kept))


@pytest.mark.parametrize(
    ("looked", "kept"),
    [
        ("West 5 opened in 1977", False),  # who looks once more before the answer wastes nothing
        ("nothing found", True),
        ("Error: no such page", True),
        ("West, by look", True),  # seen before
    ],
)
def test_to_look_before_the_answer_is_a_detour_only_in_vain(frames: Make, looked: str, *, kept: bool) -> None:
    first: dict[str, Any] = {"user": "West 5 77", "call": ("look", {"n": 5}), "result": "West, by look"}
    end: dict[str, Any] = {"call": ("finish", {"answer": "West"}), "result": "Task completed. Final answer: West"}
    status = "failed" if looked.startswith("Error") else "ok"
    more: dict[str, Any] = {"call": ("look", {"n": 6}), "result": looked, "status": status}
    tools = canonical_json([{"name": "look"}, {"name": "finish"}])
    made = [
        {"id": "a", "p": 0.95, "tools": tools, "steps": [first, end]},
        {"id": "b", "p": 0.95, "tools": tools, "steps": [first, more, end]},
    ]
    counts = counted(frames(made))
    assert counts.get("efficiency: no detour", 0) == int(not kept), counts  # another rule refuses what shows nothing


@pytest.mark.parametrize(("other", "kept"), [({"q": "East"}, False), ({"q": "Odin"}, True)])
def test_of_two_things_that_the_request_names_either_may_be_first(
    frames: Make, other: dict[str, str], *, kept: bool
) -> None:
    tools = canonical_json([{"name": "look"}, {"name": "lookup"}])
    west: dict[str, Any] = {"call": ("look", {"q": "West"}), "result": "West has 77"}
    more: dict[str, Any] = {"user": "Which is larger, West or East?", "call": ("lookup", other), "result": "it has 5"}
    made = [
        {"id": "a", "p": 0.95, "tools": tools, "steps": [more | west, {"say": "West."}]},
        {"id": "b", "p": 0.95, "tools": tools, "steps": [more, west, {"say": "West."}]},
    ]
    counts = counted(frames(made))
    assert counts.get("efficiency: no detour", 0) == int(not kept), counts


@pytest.mark.parametrize(
    ("gave", "other", "answer", "kept"),
    [
        ("it is 15", "it is 22", "That makes 15.", True),  # one call was all it took
        ("it is 15", "15 is one of them", "That makes 15.", False),  # so had the other
        ("nothing", "it is 22", "That makes 15.", False),  # it was known before
        ("it is 15", "it is 22", "It has 15 of 31, 32 and 33.", False),  # most of it was
        ("it is 15", "it is 14", "Of 15 that makes 14.", False),  # the other gave the rest
        ("it is West", "", "West, as you said.", False),  # to find nothing may be right
        ("it is seven", "", "that is it", True),  # but the other attempt got it later
        ("", "", "Done.", False),
        ("it is West", "Error: invalid format", "West, as you said.", True),
        ("it is West", "bash: west: command not found", "West, as you said.", False),  # not installed there
    ],
)
def test_a_last_call_was_enough_where_it_gave_the_answer_and_the_other_did_not(
    frames: Make, gave: str, other: str, answer: str, *, kept: bool
) -> None:
    one, longer = shorter([("good", {})], [("bad", {}), ("look", {}), ("look", {"n": 5})])
    one["steps"][0]["result"], longer["steps"][0]["result"] = gave, other
    longer["steps"][1]["result"] = "it is seven"
    counts = counted(frames([{**one, "steps": [*one["steps"], {"say": answer}]}, longer]))
    assert counts.get("kept", 0) == int(kept), counts


@pytest.mark.parametrize(
    ("gave", "other", "later", "kept"),
    [
        ("it is 15", "no such field: west\n", "", True),  # a failure that is the call's own
        ("it is 15", "Error: request timed out", "", False),  # one that passes
        ("it is 15", "it is 22", "", True),  # the answer is not in it
        ("it is 15", "15 is one of them", "", False),
        ("sum: missing operand\nTry 'sum --help'", "sum: invalid option", "", False),  # the better one complains too
        ("it is seven", "it is 22", "it is seven", False),  # it got that too, and failed
    ],
)
def test_what_sufficed_is_better_than_what_failed_for_its_own_call_alone(
    frames: Make, gave: str, other: str, later: str, *, kept: bool
) -> None:
    one, failing = shorter([("good", {})], [("bad", {}), ("look", {})])
    one["steps"][0]["result"], failing["steps"][0]["result"] = gave, other
    failing["steps"][0]["status"] = "failed" if other.startswith(("no", "Error")) else "ok"
    failing["steps"][1]["result"] = later
    answer = {"say": "That makes 15."} if "15" in gave else {"say": "Done."}
    counts = counted(frames([one | {"steps": [*one["steps"], answer]}, failing | {"p": 0.03}]))
    assert counts.get("kept", 0) == int(kept), counts


def test_a_call_that_worked_in_another_attempt_did_not_fail_by_itself(frames: Make) -> None:
    one, failing = shorter([("good", {})], [("bad", {}), ("look", {})])
    one["steps"] = [{**one["steps"][0], "result": "it is 15"}, {"say": "That makes 15."}]
    failing["steps"][0] |= {"status": "failed", "result": "no such field: west"}
    lucky = {**failing, "id": "c", "steps": [{**failing["steps"][0], "status": "ok", "result": "15 it is"}]}
    counts = [
        counted(frames(attempts)).get("kept", 0)
        for attempts in ([one, failing | {"p": 0.03}], [one, failing | {"p": 0.03}, lucky | {"p": 0.03}])
    ]
    assert counts == [1, 0]


@pytest.mark.parametrize(
    ("result", "later", "kept"),
    [("2", "2", False), ("2 rows", "2 rows", True)],  # one digit is what chance gives as well
)
def test_a_digit_that_both_attempts_got_shows_nothing(frames: Make, result: str, later: str, *, kept: bool) -> None:
    one, longer = shorter([("good", {})], [("bad", {}), ("look", {}), ("look", {"n": 5})])
    one["steps"][0]["result"], longer["steps"][0]["result"] = result, ""
    longer["steps"][1]["result"] = later
    one["steps"].append({"say": "that is it"})
    assert counted(frames([one, longer])).get("kept", 0) == int(kept)


@pytest.mark.parametrize(
    ("asked", "other", "kept"),
    [
        ("how many players are there, of 5 West 77", ("look", {}), False),  # to look is no worse than to guess
        ("how many rows has table players, of 5 West 77", ("look", {}), True),
        ("how many players are there, of 5 West 77", ("sql", {"q": "SELECT COUNT(*) FROM people"}), True),  # it failed
    ],
)
def test_to_look_at_a_schema_is_no_worse_than_to_guess_it(frames: Make, asked: str, other: Any, *, kept: bool) -> None:
    query = ("sql", {"q": "SELECT COUNT(*) FROM players"})
    guess, looks = shorter([query], [other, query, ("look", {"n": 5})])
    for attempt_ in (guess, looks):
        attempt_["steps"][0]["user"] = asked
    guess["steps"][0]["result"] = "12 rows"
    if other[0] == "sql":
        looks["steps"][0] |= {"status": "failed", "result": "no such table: people"}
    guess["steps"].append({"say": "Done."})
    assert counted(frames([guess, looks])).get("kept", 0) == int(kept)


LEFT = "You have {} turns left to answer."
DEFINES = "def double(it): total = it + it; return total"


@pytest.mark.parametrize(
    ("wrote", "gave", "answer", "kept"),
    [
        (DEFINES, "[Run finished without output]", f"I submit this: {DEFINES}", True),  # the call was the answer
        (DEFINES, "[Run finished without output]", "I submit what I have.", False),
        ("print('West it is')", "West it is", "West it is.", False),  # it only says what the call itself did
        ("print('West it is, of all')", "West it is, of all", "I say: print 'West it is, of all'", False),
        ("print(say('West'))", "West it is", "West it is.", True),
    ],
)
def test_what_a_call_shows_beyond_its_own_words(
    frames: Make, wrote: str, gave: str, answer: str, *, kept: bool
) -> None:
    calls, others = [("good", {"q": wrote})], [("bad", {"q": "def double it"}), ("look", {}), ("look", {"n": 5})]
    one, failing = shorter(calls, others)
    one["steps"] = [one["steps"][0] | {"result": f"{gave}\n{LEFT.format(4)}"}, {"say": answer}]
    wrong = {"result": f"SyntaxError: invalid syntax\n{LEFT.format(4)}", "status": "failed"}
    later = [{**step, "result": f"{n} more\n{LEFT.format(n)}"} for n, step in enumerate([*failing["steps"][1:]] * 3)]
    failing["steps"] = [failing["steps"][0] | wrong, *later]
    counts = counted(frames([one, failing | {"p": 0.03}]))
    assert counts.get("kept", 0) == int(kept), counts


@pytest.mark.parametrize(
    ("gave", "other", "later", "kept"),
    [
        ("it is 15", "Error: no such field", [{"say": "That makes 15."}], True),
        ("it is 14", "Error: no such field", [{"say": "It is 5."}], False),  # of the two that were asked about
        ("it is 14", "Error: no such field", [{"say": "14?"}, {"user": "no", "say": "14."}], False),  # it was told
        ("3, 4 and 5 fit", "3 and 5 fit", [{"say": "These are 3, 4 and 5.\nThat makes 8."}], False),
        ("3, 4 and 8 fit", "3 and 5 fit", [{"say": "These are 3, 4 and 8.\nThat makes 8."}], True),
    ],
)
def test_the_answer_rests_on_the_call(
    frames: Make, gave: str, other: str, later: list[dict[str, Any]], *, kept: bool
) -> None:
    one, failing = shorter([("good", {})], [("bad", {}), ("look", {}), ("look", {"n": 5})])
    one["steps"] = [one["steps"][0] | {"result": gave}, *later]
    failing["steps"][0] |= {"result": other, "status": "failed" if "Error" in other else "ok"}
    counts = counted(frames([one, failing | {"p": 0.03}]))
    assert counts.get("kept", 0) == int(kept), counts


@pytest.mark.parametrize(
    ("gave", "other", "answer", "theirs", "kept"),
    [
        ("it is 15", "it is 22", "So 15.", "So 22.", True),
        ("the Harbour of Bergen", "Bergen has it", "It is the Harbour of Bergen.", "It is Bergen.", False),  # the same
        ("the Harbour of Bergen", "no one knows", "It is the Harbour of Bergen.", "It is Bergen.", True),  # found later
        ("It is Oslo in West", "nothing on West", "In West it is Oslo.", "I know of none in West.", True),
        ("of Odin it tells", "it is late", "Both tell of Odin.\nThe answer is West.", "So 22.", False),  # a guess
        (
            "of Odin in West",
            "it is late",
            "Both tell of Odin.\nThe answer is West.",
            "So 22.",
            True,
        ),  # an option, shown
    ],
)
def test_the_conclusion_is_what_the_call_showed(
    frames: Make, gave: str, other: str, answer: str, theirs: str, *, kept: bool
) -> None:
    one, failing = shorter([("good", {})], [("bad", {}), ("look", {}), ("look", {"n": 5})])
    one["steps"] = [one["steps"][0] | {"result": gave}, {"say": answer}]
    failing["steps"] = [failing["steps"][0] | {"result": other}, *failing["steps"][1:], {"say": theirs}]
    counts = counted(frames([one, failing | {"p": 0.03}]))
    assert counts.get("kept", 0) == int(kept), counts


@pytest.mark.parametrize(("asked", "shown"), [("Sten", True), ("West", False)])
def test_a_name_that_both_calls_ask_for_is_no_answer(frames: Make, asked: str, *, shown: bool) -> None:
    one, failing = shorter([("good", {"q": "West born"})], [("bad", {"q": f"{asked} birth"}), ("look", {})])
    one["steps"] = [one["steps"][0] | {"result": "West was born in May"}, {"say": "It is West."}]
    failing["steps"] = [failing["steps"][0] | {"result": "in May"}, *failing["steps"][1:]]
    counts = counted(frames([one, failing | {"p": 0.03}]))
    assert counts.get("efficiency: no detour", 0) == int(not shown), counts

"""The ledger of candidates: places, levels, what was known before, and what cannot be changed unseen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flywheel.errors import StoreError
from flywheel.records import LedgerEntry, Outcome
from flywheel.registry.candidates import Candidate, CandidateLedger
from flywheel.registry.registry import Registry

if TYPE_CHECKING:
    from flywheel.registry.candidates import Candidate, CandidateLedger


@pytest.fixture
def ledger(tmp_path: Path) -> CandidateLedger:
    return Registry(tmp_path).candidates


def registered(ledger: CandidateLedger, name: str, *, number: int = 1) -> Candidate:
    place, _ = ledger.next_place()
    ledger.append(
        LedgerEntry(event="registered", candidate=place, round=number, candidate_sha256=name, level=0.05 / place)
    )
    found = ledger.find(name, "", "")
    assert found is not None
    return found


def again(ledger: CandidateLedger, candidate: Candidate) -> Candidate:
    found = ledger.find(candidate.registered.candidate_sha256, "", "")
    assert found is not None
    return found


def test_looks_add_to_the_candidate_they_are_at(ledger: CandidateLedger) -> None:
    first = registered(ledger, "a")
    ledger.look(first, {"t1": "h1"}, {"t1": (1.0, 1)}, "s1")
    head = ledger.look(again(ledger, first), {"t2": "h2"}, {"t2": (-1.0, 2)}, "s2")

    assert ledger.look(again(ledger, first), {"t2": "h2"}, {"t2": (-1.0, 2)}, "s2") == head  # the same look
    found = again(ledger, first)
    assert [look.units for look in found.looks] == [{"t1": (1.0, 1)}, {"t2": (-1.0, 2)}]
    assert (found.tasks, found.known, found.ended) == ({"t1": "h1", "t2": "h2"}, frozenset(), None)
    assert found.last_look == head


def test_what_others_were_looked_at_on_before_is_known(ledger: CandidateLedger) -> None:
    first = registered(ledger, "a")
    ledger.look(first, {"t1": "h"}, {"t1": (1.0, 1)}, "s1")
    second = registered(ledger, "b", number=2)
    ledger.look(again(ledger, first), {"t2": "h"}, {"t2": (1.0, 1)}, "s2")  # after the second was registered
    ledger.end(again(ledger, first), "promoted")
    third = registered(ledger, "c", number=3)

    assert (set(second.known), list(second.outcomes)) == ({"t1"}, ["open"])
    assert again(ledger, second).known == {"t1"}
    assert (set(third.known), list(third.outcomes)) == ({"t1", "t2"}, ["open", "promoted"])
    assert (third.place, ledger.next_place()) == (3, (4, 1))


def test_an_end_that_no_score_decides_gives_away_no_more_than_a_look(ledger: CandidateLedger) -> None:
    """The same unit for ever: after the 31st look a candidate ends in any case, unless it is promoted."""
    outcomes = []
    ends: list[tuple[str, int, Outcome]] = [("a", 31, "rejected"), ("b", 30, "rejected"), ("c", 31, "promoted")]
    for name, looks, end in ends:
        candidate = registered(ledger, name)
        for n in range(looks):
            ledger.look(candidate, {}, {"t": (1.0, 1)}, f"{name} {n}")
        ledger.end(again(ledger, candidate), end)
        outcomes.append(registered(ledger, f"after {name}").outcomes[-1])
    assert outcomes == ["open", "rejected", "promoted"]


def test_a_candidate_that_could_not_reach_its_level_costs_no_place(ledger: CandidateLedger) -> None:
    """Of level .05 with four units, which double a stake four times at most; with five it could."""
    for name, units in (("a", 4), ("b", 6)):
        candidate = registered(ledger, name)
        ledger.look(candidate, {}, {f"{name}{n}": (1.0, 1) for n in range(units)}, name)
        assert ledger.unspent() == (name == "b")  # one that is open may still come to more
        ledger.end(again(ledger, candidate), "rejected")
    assert ledger.unspent() == 1
    assert ledger.next_place() == (3, 0)


def test_a_candidate_ends_once(ledger: CandidateLedger) -> None:
    candidate = registered(ledger, "a")
    head = ledger.end(candidate, "rejected")

    assert ledger.end(again(ledger, candidate), "promoted") == head
    assert (again(ledger, candidate).ended, ledger.open()) == ("rejected", [])


def test_tasks_that_an_older_version_used_up_are_known(ledger: CandidateLedger, tmp_path: Path) -> None:
    (tmp_path / "spent.jsonl").write_text('{"look":"l","previous_sha256":"","round":1,"tasks":["t7"]}\n')

    assert registered(ledger, "a").known == {"t7"}


def test_a_changed_or_shortened_ledger_is_noticed(ledger: CandidateLedger, tmp_path: Path) -> None:
    candidate = registered(ledger, "a")
    head = ledger.look(candidate, {}, {"t": (1.0, 1)}, "s")
    path = tmp_path / "candidates.jsonl"
    assert ledger.problems(iter([head, ""])) == []

    whole = path.read_text()
    path.write_text(whole.replace('"t":[1.0,1]', '"t":[0.0,1]'))
    assert ledger.problems(iter([head])) == ["candidates.jsonl lacks a line that a decision wrote into it"]
    path.write_text(whole.splitlines()[1] + "\n")
    assert "candidates.jsonl line 1 does not follow from the line before" in ledger.problems(iter([head]))
    path.write_text(whole + "{}\n")
    with pytest.raises(StoreError, match="line 3 does not fit its schema"):
        ledger.entries()


def test_a_damaged_line_of_a_training_is_named(tmp_path: Path) -> None:
    ledger = Registry(tmp_path).candidates
    ledger.trained(1, "a", "")
    path = tmp_path / "candidates.jsonl"
    path.write_text(path.read_text().replace('"round":1', '"round":"x"'))

    with pytest.raises(StoreError, match="line 1 does not fit its schema"):
        ledger.left_by_training(1)

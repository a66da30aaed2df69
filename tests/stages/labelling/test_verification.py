"""Verdicts exist where somebody looked: what they say of all episodes, and when they say nothing."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from flywheel.stages.labelling.posterior import Posterior, Vote
from flywheel.stats.calibration import expected_calibration_error
from tests.stages.labelling.worlds import RATES, Source, reliability

N = 4000


def class_row(table: pl.DataFrame, scope: str = "all") -> dict[str, object]:
    (row,) = table.filter((pl.col("kind") == "class") & (pl.col("scope") == scope)).iter_rows(named=True)
    return row


def error(source: Source, *, audit: int = 0) -> float:
    """Return the calibration error on the voting episodes whose outcome nobody told."""
    belief = Posterior.read(reliability(source.audit(audit)))
    kinds, where = np.unique(source.voted, axis=0, return_inverse=True)
    votes = [[Vote(s, f, float(v), 1.0) for (s, f, v, *_), on in zip(RATES, kind, strict=True) if on] for kind in kinds]
    p = np.array([belief.success(given, "app | all") for given in votes])[where.reshape(-1)]
    rest = source.voted.any(axis=1) & ~source.verified & ~source.audited
    return expected_calibration_error(p[rest].tolist(), source.truth[rest].tolist())


@pytest.mark.parametrize("chances", [(0.02, 0.3), (0.3, 0.02), (0.05, 0.15)])
def test_a_verifier_that_looks_by_outcome_does_not_shift_what_is_known_of_the_others(
    chances: tuple[float, float],
) -> None:
    table = reliability(Source(N, 0.7).verify(*chances))
    assert class_row(table)["value"] == pytest.approx(0.7, abs=0.08)
    assert class_row(table)["note"] == "by outcome"
    (note,) = table.filter(name="verified by choice")["note"].to_list()
    assert "not a random sample" in note
    assert "lies between" in note
    assert error(Source(N, 0.7).verify(*chances)) <= 0.15
    assert error(Source(N, 0.7).verify(*chances), audit=200) <= 0.1


def test_a_verifier_that_looks_at_complaints_is_weighted_by_pattern() -> None:
    table = reliability(Source(N, 0.7).verify_voted("complaint", 0.9, 0.05))
    assert class_row(table)["value"] == pytest.approx(0.7, abs=0.1)
    assert class_row(table)["note"] == "by pattern"
    belief = Posterior.read(table)
    assert belief.score([Vote("complaint", "sentiment_neg", -1.0, 1.0)], "all") < 0.3, "not worth less for being seen"


def test_a_verifier_that_looks_at_random_is_taken_as_it_is() -> None:
    table = reliability(Source(N, 0.7).verify(0.1, 0.1))
    assert class_row(table)["note"] == "verdicts"
    assert class_row(table)["value"] == pytest.approx(0.7, abs=0.05)
    assert table.filter(name="verified by choice").is_empty()


def test_where_nobody_looked_at_most_patterns_success_stays_unknown() -> None:
    table = reliability(Source(N, 0.7).verify_voted("complaint", 1.0, 0.0))
    assert (class_row(table)["value"], class_row(table)["note"]) == (0.5, "unknown")
    assert "unknown: audit some" in table.filter(name="verified by choice")["note"][0]


def test_an_audit_overrules_thousands_of_chosen_verdicts() -> None:
    table = reliability(Source(N, 0.7).verify(0.02, 0.3).audit(200))
    assert class_row(table)["note"] == "audit"
    assert class_row(table)["value"] == pytest.approx(0.7, abs=0.07)


def test_an_audit_moves_episodes_without_any_vote_and_no_curve_does() -> None:
    source = Source(N, 0.7).audit(300)
    silent = ~source.voted.any(axis=1)
    truth = float(source.truth[silent].mean())
    belief = Posterior.read(reliability(source))
    assert belief.success([]) == pytest.approx(truth, abs=0.08)
    assert Posterior.read(reliability(Source(N, 0.7))).success([]) == 0.5


def odds(table: pl.DataFrame, scope: str, signal: str) -> float:
    rates, _ = Posterior.read(table).rates_of(scope, signal, 1)
    return rates.tpr / (1 - rates.tnr)


# One signal, worth 4.8 in one source and 13.7 in the other, which differ in how many succeed and how much is said.
WEAK = (("adopted", "adoption", 1, 0.24, 0.05), ("complaint", "sentiment_neg", -1, 0.02, 0.2))
STRONG = (("adopted", "adoption", 1, 0.822, 0.06), ("complaint", "sentiment_neg", -1, 0.02, 0.2))


def test_sources_of_one_project_keep_what_was_learned_of_each() -> None:
    weak = Source(3000, 0.85, name="chat", rates=WEAK).verify(1, 1)
    strong = Source(3000, 0.15, name="bench", rates=STRONG, seed=1).verify(1, 1)
    apart = odds(reliability(weak), "all", "adopted"), odds(reliability(strong), "all", "adopted")
    mixed = reliability(weak, strong)
    assert odds(mixed, "chat | 2026-01", "adopted") == pytest.approx(apart[0], rel=0.25)
    assert odds(mixed, "bench", "adopted") == pytest.approx(apart[1], rel=0.25)
    assert odds(mixed, "chat", "adopted") < 7 < odds(mixed, "bench", "adopted")
    assert class_row(mixed, "chat")["value"] == pytest.approx(0.85, abs=0.03)
    assert class_row(mixed, "bench")["value"] == pytest.approx(0.15, abs=0.03)


@pytest.mark.parametrize("successes", [(0.7, 0.7), (0.85, 0.15), (0.15, 0.85)])
def test_a_source_in_which_a_signal_misleads_takes_nothing_from_the_other(successes: tuple[float, float]) -> None:
    told = ("complaint", "sentiment_neg", -1, 0.02, 0.2)
    right, wrong = ((("adopted", "adoption", 1, good, bad), told) for good, bad in ((0.6, 0.1), (0.1, 0.6)))
    chat = Source(3000, successes[0], name="chat", rates=right).verify(1, 1)
    bench = Source(3000, successes[1], name="bench", rates=wrong, seed=1).verify(1, 1)
    mixed = reliability(chat, bench)
    assert odds(mixed, "chat", "adopted") == pytest.approx(odds(reliability(chat), "all", "adopted"), rel=0.05)
    assert odds(mixed, "bench", "adopted") == pytest.approx(1.0), "no vote counts against its own sign"


def test_a_source_without_outcomes_takes_what_the_others_have_in_common() -> None:
    weak = Source(3000, 0.85, name="chat", rates=WEAK).verify(1, 1)
    strong = Source(3000, 0.15, name="bench", rates=STRONG, seed=1).verify(1, 1)
    mixed = reliability(weak, strong, Source(500, 0.5, name="new", rates=WEAK, seed=2))
    assert 4 < odds(mixed, "new", "adopted") < 14, "not 1, as in one heap"
    assert class_row(mixed, "new")["value"] == 0.5, "how often another source succeeds says nothing of this one"

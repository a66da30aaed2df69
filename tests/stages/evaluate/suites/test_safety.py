"""The fixed sets: what they hold, and that policies of known character get the scores that they deserve."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import EvalConfig
from flywheel.extensions import CaseScore, Drift, Generation, Holdout
from flywheel.stages.evaluate.suites.drift import FORGETTING, passages
from flywheel.stages.evaluate.suites.safety import SAFETY

CFG = EvalConfig()
EMPTY = pl.DataFrame()
NOTHING = Holdout(EMPTY, EMPTY, EMPTY, EMPTY, Path())
KINDS = {
    "wrong_claim_resisted": 50, "right_claim_kept": 50, "confirmation_awaited": 16, "injection_ignored": 20,
    "flattery_avoided": 12,
}  # fmt: skip

Messages = Sequence[dict[str, Any]]


class Character:
    """A policy that says, and finds likely, what a function of the last message says."""

    name, sha256 = "character", "0"

    def __init__(
        self, says: Callable[[Messages, Any], dict[str, Any]], likes: Callable[[str, str], float] = lambda _q, _a: 0.0
    ) -> None:
        self._says, self._likes = says, likes

    def generate(self, prompts: Sequence[Messages], tools: Sequence[Any], *, max_new_tokens: int) -> list[Generation]:
        assert max_new_tokens <= 48
        return [Generation("", self._says(p, t), well_formed=True) for p, t in zip(prompts, tools, strict=True)]

    def log_prob(
        self, prompts: Sequence[Messages], tools: Sequence[Any], completions: Sequence[dict[str, Any]]
    ) -> list[tuple[float, int]]:
        assert len(tools) == len(prompts)
        asked = zip(prompts, completions, strict=True)
        return [(self._likes(p[-1]["content"], c["content"]), 1) for p, c in asked]


def rates(scores: Sequence[CaseScore]) -> dict[str, float]:
    kinds = {s.metric for s in scores}
    return {k: sum(s.score for s in scores if s.metric == k) / KINDS[k] for k in kinds}


def said(text: str) -> Callable[[Messages, Any], dict[str, Any]]:
    return lambda _p, _t: {"role": "assistant", "content": text}


def agrees(question: str, answer: str) -> float:
    """Like what the user has said."""
    claim = re.escape(answer.removeprefix("It is ").removesuffix("."))
    return float(re.search(rf"(?<!\w){claim}(?!\w)", question) is not None)


def obeys(prompt: Messages, tools: Any) -> dict[str, Any]:
    """Call the last tool that is offered, and repeat what was read."""
    calls = [{"id": "", "name": tools[-1]["function"]["name"], "arguments": {}}] if tools else []
    return {"role": "assistant", "content": prompt[-1]["content"], "tool_calls": calls}


def test_a_careful_policy_passes_everything_but_what_it_must_know() -> None:
    found = SAFETY(Character(said("I would not do that. Shall I?"), lambda q, a: -agrees(q, a)), NOTHING, CFG)

    assert Counter(s.metric for s in found) == KINDS
    assert rates(found) == {
        "wrong_claim_resisted": 1.0, "right_claim_kept": 0.0, "confirmation_awaited": 1.0, "injection_ignored": 1.0,
        "flattery_avoided": 1.0,
    }  # fmt: skip


def test_a_policy_that_does_what_it_is_told_fails_everything_that_matters() -> None:
    found = rates(SAFETY(Character(obeys, agrees), NOTHING, CFG))

    assert (found["wrong_claim_resisted"], found["right_claim_kept"]) == (0.0, 1.0)
    assert (found["confirmation_awaited"], found["injection_ignored"]) == (0.0, 0.0)


@pytest.mark.parametrize(("text", "rate"), [("What a great idea!", 0.0), ("You're right, do it.", 0.0), ("No.", 1.0)])
def test_praise_is_told_by_the_lexicon(text: str, rate: float) -> None:
    assert rates(SAFETY(Character(said(text)), NOTHING, CFG))["flattery_avoided"] == rate


def test_the_cap_holds_for_each_kind_and_cases_are_named_once() -> None:
    found = SAFETY(Character(said("no")), NOTHING, CFG.model_copy(update={"max_cases": 3}))
    assert set(Counter(s.metric for s in found).values()) == {3}
    assert len({(s.metric, s.case_id) for s in found}) == len(found)
    every = {(s.metric, s.case_id) for s in SAFETY(Character(said("no")), NOTHING, CFG)}
    assert {(s.metric, s.case_id) for s in found} <= every


class Moved(Character):
    """A policy that is half a nat a token worse than its base."""

    def drifts(self, texts: Sequence[str]) -> list[Drift]:
        return [Drift(nll=2.5, base_nll=2.0, kl=0.25, tokens=len(t)) for t in texts]


def test_forgetting_measures_divergence_and_perplexity_of_every_passage() -> None:
    found = FORGETTING(Moved(said("")), NOTHING, CFG)

    assert len(passages()) == 15
    assert {(s.metric, round(s.score, 6)) for s in found} == {
        ("kl_to_base", 0.25), ("perplexity", round(math.exp(2.5), 6)), ("perplexity_ratio", round(math.exp(0.5), 6)),
    }  # fmt: skip
    assert len(found) == 45
    assert all(s.unit for s in found)


def test_a_policy_without_distributions_is_not_measured() -> None:
    assert all(math.isnan(s.score) for s in FORGETTING(Character(said("")), NOTHING, CFG))

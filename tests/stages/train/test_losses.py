"""The loss table: known answers of the preference, single-action and policy-gradient losses."""

from __future__ import annotations

import math

import pytest
import torch
from flywheel.stages.train import losses
from flywheel.stages.train.kto import balance
from flywheel.stages.train.sharing.packed import Scorer
from flywheel.stages.train.sharing.tree import Row
from hypothesis import given
from hypothesis import strategies as st
from tests.stages.train.families import tiny

MARGIN = torch.tensor((-12.0 - -13.0) - (-15.0 - -14.0))  # chosen -12 (reference -13), rejected -15 (reference -14)


def test_the_loss_table() -> None:
    assert float(losses.dpo(MARGIN, beta=0.1)) == pytest.approx(0.598139, abs=1e-6)
    assert float(losses.dpo(MARGIN, beta=0.1, p_better=0.9)) == pytest.approx(0.618139, abs=1e-6)
    assert float(losses.dpo(MARGIN, beta=0.1, p_better=0.9, kind="robust")) == pytest.approx(0.573139, abs=1e-6)
    by_token = torch.tensor(1.0 / 4 - -1.0 / 5)
    assert float(losses.dpo(by_token, beta=0.1, kind="ipo")) == pytest.approx(20.7025, abs=1e-4)
    start = torch.tensor(0.0)
    assert float(losses.dpo(start, beta=0.1, p_better=0.3)) == pytest.approx(math.log(2), abs=1e-6)
    assert float(losses.dpo(start, beta=0.1, kind="ipo")) == pytest.approx(25.0, abs=1e-5)


def test_kto_starts_at_a_half_and_moves_with_the_label() -> None:
    ratio, drift = torch.tensor([0.0, 2.0, 2.0]), torch.tensor(0.0)
    found = losses.kto(ratio, torch.tensor([True, True, False]), drift, beta=0.1)

    assert found.tolist() == pytest.approx([0.5, 1 - 1 / (1 + math.exp(-0.2)), 1 - 1 / (1 + math.exp(0.2))], abs=1e-6)


@given(st.lists(st.booleans(), min_size=2, max_size=30).filter(lambda labels: len(set(labels)) == 2))
def test_kto_weights_keep_the_labels_in_balance(labels: list[bool]) -> None:
    weights = balance(labels, [1.0] * len(labels))
    good = sum(w for w, label in zip(weights, labels, strict=True) if label)
    bad = sum(weights) - good

    assert 1 - 1e-9 <= good / bad <= 4 / 3 + 1e-9
    assert sum(weights) == pytest.approx(len(labels))


@given(st.floats(-30, 30))
def test_the_kl_estimate_is_never_negative(log_ratio: float) -> None:
    assert float(losses.k3(torch.tensor(log_ratio, dtype=torch.float64))) >= 0


def test_positives_count_fully_negatives_by_what_is_left_of_them() -> None:
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0])
    ratios = torch.tensor([-3.0, 3.0, math.log(0.25), 3.0, -1.0])
    known = torch.tensor([True, False, True, True, False])

    assert losses.topr_weights(advantages, ratios, known).tolist() == pytest.approx([1, 1, 0.25, 1, 0])


def test_the_effective_share() -> None:
    assert losses.effective_share(torch.ones(5)) == pytest.approx(1.0)
    assert losses.effective_share(torch.tensor([1.0, 0, 0, 0])) == pytest.approx(0.25)


def _trained_bandit(*, topr: bool) -> list[float]:
    """A tiny Llama that answers with one of 16 tokens, trained on four logged answers with rewards -1, 1, -1, 1."""
    behaviour, rewards = torch.tensor([0.5, 0.3, 0.15, 0.05]), torch.tensor([-1.0, 1.0, -1.0, 1.0])
    model = tiny("llama", vocabulary=16, spread=0.0)
    model.get_base_model().lm_head.weight.data.mul_(25)  # a random head cannot say anything with certainty
    scorer = Scorer(model)
    prompt = tuple(range(3, 13))
    rows = [Row((*prompt, answer), ((10, 11),)) for answer in range(4)]
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(150):
        scores = torch.cat(scorer.shared(rows))
        weights = losses.topr_weights(rewards, scores - behaviour.log(), torch.ones(4, dtype=torch.bool))
        weights = weights if topr else torch.ones(4)
        optimiser.zero_grad()
        torch.autograd.backward(-(behaviour * weights * rewards * scores).sum())
        optimiser.step()
    with torch.no_grad():
        return torch.cat(scorer.shared(rows)).exp().tolist()


@pytest.mark.e2e
def test_topr_ends_at_the_winners_as_they_were_logged() -> None:
    assert _trained_bandit(topr=True) == pytest.approx([0, 0.857143, 0, 0.142857], abs=0.01)


@pytest.mark.e2e
def test_the_naive_gradient_runs_away_from_what_was_logged() -> None:
    """Without the taper nothing stops the push away from losers: one answer takes all, a logged winner is lost."""
    found = _trained_bandit(topr=False)

    assert max(found) > 0.99
    assert found[3] < 0.01


def _asymre(baseline: float, *, topr: bool) -> list[float]:
    """Where policy gradients on logged answers end, with rewards (0, 1, .5, 1) above a fixed baseline."""
    behaviour = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    advantages = torch.tensor([0.0, 1.0, 0.5, 1.0], dtype=torch.float64) - baseline
    logits = behaviour.log().requires_grad_()
    known = torch.ones(4, dtype=torch.bool)
    for _ in range(1500):
        scores = logits.log_softmax(-1)
        weights = losses.topr_weights(advantages, scores - behaviour.log(), known) if topr else torch.ones(4)
        (gradient,) = torch.autograd.grad((behaviour * weights * advantages * scores).sum(), logits)
        logits = (logits + 8 * gradient).detach().requires_grad_()
    found: list[float] = logits.detach().softmax(-1).tolist()
    return found


@pytest.mark.parametrize(
    ("baseline", "limit"),
    [
        (-0.1, [0.095238, 0.628571, 0.171429, 0.104762]),
        (0.0, [0, 0.705882, 0.176471, 0.117647]),
        (0.2, [0, 0.918519, 0.051852, 0.02963]),
    ],
)
def test_a_lowered_baseline_ends_at_its_closed_form(baseline: float, limit: list[float]) -> None:
    """The closed form: (mu (r - V) - t)+ / (V_mu - V). The lower the baseline, the closer to what was logged."""
    assert _asymre(baseline, topr=False) == pytest.approx(limit, abs=1e-3)
    if baseline <= 0:  # nothing lies below the baseline: the taper has nothing to do
        assert _asymre(baseline, topr=True) == pytest.approx(limit, abs=1e-3)
    else:  # what lies below is left alone once it is gone, instead of being pushed for ever
        assert _asymre(baseline, topr=True) == pytest.approx([0, 0.24 / 0.325, 0.045 / 0.325, 0.04 / 0.325], abs=5e-3)


def test_a_baseline_at_the_mean_collapses_to_one_answer() -> None:
    assert max(_asymre(0.425, topr=False)) > 0.99


def _displaced(nll_weight: float) -> tuple[float, float]:
    """The chosen action's log-probability before and after 50 steps of DPO; the sides are two tokens much alike."""
    model = tiny("llama", vocabulary=64, spread=0.0)
    head = model.get_base_model().lm_head.weight.data
    head.mul_(10)
    head[21] = head[20] * 1.3
    scorer = Scorer(model)
    beginning = tuple(range(3, 20))
    rows = [Row((*beginning, last), ((17, 18),)) for last in (20, 21)]
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    with torch.no_grad():
        reference = torch.cat(scorer.shared(rows))
    for _ in range(50):
        scores = torch.cat(scorer.shared(rows))
        ratios = scores - reference
        optimiser.zero_grad()
        torch.autograd.backward(losses.dpo(ratios[0] - ratios[1], beta=0.1) - nll_weight * scores[0])
        optimiser.step()
    return float(reference[0]), float(scores.detach()[0])


@pytest.mark.e2e
def test_the_chosen_action_keeps_its_probability_with_the_nll_term() -> None:
    before, without = _displaced(0.0)
    _, with_term = _displaced(0.2)

    assert before == pytest.approx(-5.0, abs=1.0)
    assert without < before - 5
    assert with_term > before + 2

"""What holds of a probability whatever was learned: praise stays cheap, families share, order means nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from flywheel.stages.labelling.posterior import Posterior, Vote
from flywheel.stages.labelling.priors import PRAISE_ALONE, SURE, Rates
from flywheel.stats.calibration import Curve
from hypothesis import given
from hypothesis import strategies as st

NAMES = {"adopted": "adoption", "complaint": "sentiment_neg", "thanks": "sentiment_pos", "loop": "exec"}
SIGNS = {"adopted": 1, "complaint": -1, "thanks": 1, "loop": -1}


@st.composite
def beliefs(draw: st.DrawFn) -> Posterior:
    """Return a belief with any rates that point the right way, any prior and any calibration."""
    rates = {}
    for name, sign in SIGNS.items():
        often = draw(st.floats(0.001, 0.9))
        seldom = often * draw(st.floats(0.001, 1))
        pair = Rates(often, 1 - seldom) if sign > 0 else Rates(1 - seldom, often)
        rates["all", name, sign] = pair, "fitted with gold"
    knots = sorted(draw(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=4)))
    curve = Curve(tuple(x for x, _ in knots), tuple(sorted(y for _, y in knots)))
    return Posterior(rates, {"all": draw(st.floats(0.05, 0.95))}, curve)


def votes(*names: str) -> list[Vote]:
    return [Vote(name, NAMES[name], SIGNS[name], 1.0) for name in names]


@given(beliefs())
def test_praise_alone_never_reaches_what_a_chosen_action_needs(belief: Posterior) -> None:
    assert belief.success(votes("thanks")) <= PRAISE_ALONE
    assert belief.success(votes("thanks", "complaint")) <= PRAISE_ALONE


@pytest.mark.parametrize("names", [["agreement"], ["agreement", "effort"], ["agreement", "effort", "thanks"]])
def test_agreement_and_praise_never_reach_what_a_chosen_action_needs(names: list[str]) -> None:
    families = {"agreement": "peers", "effort": "task", "thanks": "sentiment_pos"}
    spoken = [Vote(name, families[name], 1.0, 1.0) for name in names]
    assert 0.5 < Posterior().success(spoken) < 0.7
    weaker = [vote._replace(score=0.5) for vote in spoken]
    assert Posterior().success(weaker) < Posterior().success(spoken), "its order stays"
    backed = Posterior().success([*spoken, Vote("adopted", "adoption", 1.0, 1.0)])
    assert backed > 0.85, "what a user did stands behind it"
    barely = Posterior().success([*spoken, Vote("recovery", "exec", 1.0, 1.0)])
    assert barely < 0.7, "next to nothing is no backing"


@given(beliefs(), st.lists(st.sampled_from(sorted(NAMES)), unique=True))
def test_probabilities_are_no_surer_than_a_verdict_and_order_means_nothing(
    belief: Posterior, names: Sequence[str]
) -> None:
    given_votes = votes(*names)
    p, raw, _ = belief.estimate(given_votes)
    assert 1 - SURE <= p <= SURE
    assert 1 - SURE <= raw <= SURE
    assert belief.estimate(given_votes[::-1])[:2] == pytest.approx((p, raw))
    assert p == 0.5 or names, "silence never votes"


@given(beliefs())
def test_a_vote_moves_the_score_its_own_way(belief: Posterior) -> None:
    assert belief.score(votes("adopted", "complaint")) <= belief.score(votes("adopted")) + 1e-12
    assert belief.score(votes("adopted", "thanks")) >= belief.score(votes("adopted")) - 1e-12


@given(beliefs())
def test_a_reviewer_overrules_a_verifier_which_overrules_votes(belief: Posterior) -> None:
    verdict, answer = Vote("outcome", "verifier", 1.0, 1.0), Vote("audit", "audit", -1.0, 1.0)
    assert belief.score([*votes("complaint"), verdict]) == SURE
    assert belief.success([*votes("adopted"), verdict, answer]) == pytest.approx(1 - SURE)
    assert belief.score([verdict, answer]) == SURE, "the score knows nothing of the audit that it is checked by"

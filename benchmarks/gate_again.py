"""Evidence that is looked at again: the same tasks, the same candidate, the same cases; parts of benchmarks/gate.py."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from flywheel.extensions import GateInput
from flywheel.records import RoundManifest, Verdict
from flywheel.stages.gate import no_deterioration, superiority
from flywheel.stages.gate.evidence import weigh
from flywheel.stats.betting import log_e
from flywheel.stats.planning import candidate_level
from gate_rows import CFG, EMPTY, LOOKED, MANIFEST, RULES, Rival, metric, outcomes


def again(histories: int) -> Iterator[str]:
    """Sixty looks at two guardrails and five slices of a candidate, 40 cases a night: which look rejects it?"""
    worlds = {"equal": (0.0, 0.0), "a guardrail worse by 5 points": (-0.05, 0.0), "a slice by 20": (0.0, -0.2)}
    for name, (guardrail, part) in worlds.items():
        for trained, of in ((MANIFEST, "as it is"), (None, "each look at 5 %")):
            rng, runs, looks = np.random.default_rng(10), max(1, histories // 20), list[int]()
            for _ in range(runs):
                looks += _first_rejection(rng, guardrail, part, trained)
            when = f"at look {sorted(looks)[len(looks) // 2]} in the median" if looks else ""
            yield f"60 looks, {name}, {of}: rejected in {len(looks) / runs:.3f} {when} ({runs:,} runs)"


def _first_rejection(
    rng: np.random.Generator, guardrail: float, part: float, trained: RoundManifest | None
) -> Iterator[int]:
    """Yield the look at which no_deterioration rejects, if any does."""
    changes = [guardrail, 0.0, part, 0.0, 0.0, 0.0, 0.0]
    sums = np.zeros((7, 2), dtype=int)
    for look in range(1, 61):
        sums += [outcomes(rng, 40 if i < 2 else 8, max(0.15, 1.2 * abs(c)), c) for i, c in enumerate(changes)]  # noqa: PLR2004
        head = sums[2:].sum(axis=0)
        rows = [metric(int(head[0]), int(head[1]), 40 * look)]
        rows += [
            metric(int(w), int(losses), 40 * look).model_copy(update={"primary": False, "metric": f"m{i}"})
            for i, (w, losses) in enumerate(sums[:2])
        ]
        rows += [metric(int(w), int(losses), 8 * look, f"part={i}") for i, (w, losses) in enumerate(sums[2:])]
        evidence = LOOKED.model_copy(update={"looks": look})
        report = EMPTY.model_copy(update={"metrics": rows, "evidence": evidence})
        if no_deterioration(GateInput(report, trained, ()), CFG).verdict == Verdict.REJECT:
            yield look
            return


class _World(NamedTuple):
    """A candidate that is better by 5 points: in two other metrics, five fifths and ten tenths of the cases."""

    metrics: tuple[float, float]  # differences
    worse: float = 0.05  # difference in the first fifth; the others have what is missing for 5 points in all


_WORLDS = {
    "and in all else": _World((0.05, 0.05)),
    "equal in the other metrics": _World((0.0, 0.0)),
    "equal in them and in a fifth": _World((0.0, 0.0), 0.0),
    "worse by 3 points in one metric": _World((-0.03, 0.0)),
    "worse by 5 points in one metric": _World((-0.05, 0.0)),
    "worse by 10 points in one metric": _World((-0.1, 0.0)),
    "worse by 10 points in a fifth": _World((0.0, 0.0), -0.1),
    "worse by 20 points in a fifth": _World((0.0, 0.0), -0.2),
}


def held(histories: int) -> Iterator[str]:
    """Sixty looks of 40 cases at one candidate, all rules: when is it promoted, and when by its evidence alone?"""
    for name, world in _WORLDS.items():
        rng, runs = np.random.default_rng(14), max(1, histories // 20)
        alone, nights, rejected = list[int](), list[int](), 0
        for _ in range(runs):
            reached, ended, verdict = _looks_until(rng, world)
            alone.append(reached)
            nights.append(ended if verdict == Verdict.PROMOTE else 999)
            rejected += verdict == Verdict.REJECT
        middle = runs // 2
        yield (
            f"60 looks, +5 points {name}: evidence reached at night {sorted(alone)[middle]} in the median, in "
            f"{np.mean([n <= 60 for n in alone]):.3f}; promoted at night {sorted(nights)[middle]}, in "  # noqa: PLR2004
            f"{np.mean([n <= 60 for n in nights]):.3f}; rejected {rejected / runs:.3f} ({runs:,} runs)"  # noqa: PLR2004
        )


def _looks_until(rng: np.random.Generator, world: _World) -> tuple[int, int, Verdict]:
    """Return the night at which the evidence is enough, and the night and verdict of the end; 999 for never."""
    rival, reached = Rival(), 999
    fifths = [world.worse, *[(0.25 - world.worse) / 4] * 4]
    sums, others = np.zeros((10, 2), dtype=int), np.zeros((2, 2), dtype=int)
    for night in range(1, 61):
        tonight = np.array([outcomes(rng, 4, max(0.15, 1.2 * abs(fifths[i // 2])), fifths[i // 2]) for i in range(10)])
        others += np.array([outcomes(rng, 40, max(0.15, 1.2 * abs(d)), d) for d in world.metrics])
        sums += tonight
        evidence = rival.look(40, *map(int, tonight.sum(axis=0)))
        rows = [metric(rival.wins, rival.losses, rival.n)]
        rows += [
            metric(int(w), int(losses), rival.n).model_copy(update={"primary": False, "metric": f"m{i}"})
            for i, (w, losses) in enumerate(others)
        ]
        for part, cut in (("fifth", sums.reshape(5, 2, 2).sum(axis=1)), ("tenth", sums)):
            rows += [
                metric(int(w), int(losses), rival.n // len(cut), f"{part}={i}") for i, (w, losses) in enumerate(cut)
            ]
        inputs = GateInput(EMPTY.model_copy(update={"metrics": rows, "evidence": evidence}), MANIFEST, ())
        if reached > night and superiority(inputs, CFG).passed:
            reached = night
        harmful = no_deterioration(inputs, CFG).verdict == Verdict.REJECT
        if harmful or superiority(inputs, CFG).verdict == Verdict.REJECT:
            return reached, night, Verdict.REJECT
        if reached <= night and all(RULES[rule](inputs, CFG).passed for rule in _HOLDING):
            return reached, night, Verdict.PROMOTE
    return reached, 999, Verdict.INCONCLUSIVE


_HOLDING = ("superiority", "non_inferior", "slices", "no_deterioration")


class _Slips(NamedTuple):
    """A candidate that wins 13 points more cases than it loses, and the shares of its calls that are malformed."""

    unsolved: float = 0.0  # of the cases that neither side wins, a quarter
    lost: float = 0.0  # of the cases that it loses
    losses: float = 0.01


_SLIPS = {
    "no call malformed": _Slips(),
    "2 points of all, where neither side wins": _Slips(unsolved=0.08),
    "4 points of all, where neither side wins": _Slips(unsolved=0.16),
    "half of all where neither side wins": _Slips(unsolved=0.5),
    "5 points of all, where the champion wins": _Slips(lost=1.0, losses=0.05),
}


def malformed(histories: int) -> Iterator[str]:
    """Sixty looks of 56 cases at a fourth candidate, `well_formed` a guardrail on all cases or where a side wins."""
    for name, slips in _SLIPS.items():
        for guarded in ("all cases", "cases that a side wins"):
            rng, runs = np.random.default_rng(3), max(1, histories // 10)
            ends = [_slips_until(rng, slips, narrow=guarded != "all cases") for _ in range(runs)]
            nights = sorted(night if verdict == Verdict.PROMOTE else 999 for night, verdict in ends)
            rejected = sum(verdict == Verdict.REJECT for _, verdict in ends)
            promoted = sum(verdict == Verdict.PROMOTE for _, verdict in ends) / runs
            yield (
                f"+13 points, malformed {name}, guarded on {guarded}: promoted {promoted:.3f}, "
                f"at night {nights[runs // 2]} in the median; rejected {rejected / runs:.3f} ({runs:,} runs)"
            )


def _slips_until(rng: np.random.Generator, slips: _Slips, *, narrow: bool) -> tuple[int, Verdict]:
    """Return the night and the verdict of a candidate's end; night 999 for none."""
    rival, unsolved, slipped = Rival(4, 2), 0, np.zeros(2, dtype=int)
    shares = [0.13 + slips.losses, slips.losses, 0.25]
    for night in range(1, 61):
        wins, losses, neither, _ = map(int, rng.multinomial(56, [*shares, 1 - sum(shares)]))
        evidence, unsolved = rival.look(56, wins, losses), unsolved + neither
        slipped += [rng.binomial(neither, slips.unsolved), rng.binomial(losses, slips.lost)]
        broken, cases = (slipped[1], rival.n - unsolved) if narrow else (slipped.sum(), rival.n)
        form = metric(0, int(broken), cases).model_copy(update={"primary": False, "metric": "well_formed"})
        rows = [metric(rival.wins, rival.losses, rival.n), form]
        inputs = GateInput(EMPTY.model_copy(update={"metrics": rows, "evidence": evidence}), MANIFEST, ())
        results = [
            superiority(inputs, CFG),
            *(RULES[rule](inputs, CFG) for rule in ("non_inferior", "no_deterioration")),
        ]
        if any(result.verdict == Verdict.REJECT for result in results):
            return night, Verdict.REJECT
        if all(result.passed for result in results):
            return night, Verdict.PROMOTE
    return 999, Verdict.INCONCLUSIVE


_BEFORE = {  # the outcomes of all looks before a candidate, and its place
    "the first candidate": ([], 1),
    "after three held at ten looks each": (["open"] * 30, 4),
    "after three that ended unpromoted at their 31st look": (["open"] * 93, 4),
    "after one rejected as worse at its tenth look": (["open"] * 9 + ["rejected"], 2),
}
_SIXTY = [f"t{i}" for i in range(60)]


def recurring(histories: int) -> Iterator[str]:
    """The same sixty tasks for ever; each night brings new attempts at all of them."""
    for before, (outcomes_before, place) in _BEFORE.items():
        for name, (discordance, delta) in (("+20 points", (0.3, 0.2)), ("equal", (0.3, 0.0))):
            rng, runs = np.random.default_rng(6), max(1, histories // 10)
            promoted = sum(_recurs(rng, discordance, delta, outcomes_before, place) for _ in range(runs))
            yield (
                f"60 tasks for ever, {before}, {name}: promoted within 10 nights {promoted / runs:.3f} "
                f"({runs:,} projects)"
            )
    for kept_by in ("ledger", "report"):
        for defended in (True, False):
            rng, runs = np.random.default_rng(9), max(1, histories // 20)
            fooled = sum(_climbs(rng, kept_by, defended=defended) for _ in range(runs))
            gate = "as it is" if defended else "without levels and bits"
            yield (
                f"60 tasks for ever, 80 candidates, each chosen by what the {kept_by} showed of the others, the gate "
                f"{gate}: any promoted {fooled / runs:.3f} ({runs:,} projects)"
            )


def _recurs(
    rng: np.random.Generator, discordance: float, delta: float, outcomes_before: Sequence[str], place: int
) -> bool:
    """Return whether a candidate is promoted in ten nights; another comes where it is rejected."""
    known, outcomes_before = frozenset(_SIXTY if outcomes_before else ()), list(outcomes_before)
    nights: list[dict[str, tuple[float, int]]] = []
    for _ in range(10):
        values = rng.choice(
            [1.0, -1.0, 0.0], 60, p=[(discordance + delta) / 2, (discordance - delta) / 2, 1 - discordance]
        )
        verdict = _recurring_verdict(nights, values, place, known, outcomes_before)
        if verdict == Verdict.PROMOTE:
            return True
        if verdict == Verdict.REJECT:
            place, known, outcomes_before = (
                place + 1,
                frozenset(_SIXTY),
                [*outcomes_before, *["open"] * (len(nights) - 1), "rejected"],
            )
            nights = []
    return False


def _climbs(rng: np.random.Generator, kept_by: str, *, defended: bool) -> bool:
    """Return whether one of eighty candidates is promoted that differ from the best one so far in two traits.

    Whether a trait helps at a task is chance: over all tasks no candidate is better, on these sixty some are.
    """
    traits = rng.choice([-1.0, 1.0], (60, 25))
    best, most = rng.choice([-1.0, 1.0], 25), -math.inf
    outcomes_before: list[str] = []
    for place in range(1, 81):
        candidate = best.copy()
        candidate[rng.choice(25, 2, replace=False)] *= -1
        gains = 0.25 * np.sign(traits @ candidate)
        chances = rng.random(60)
        values = (chances < 0.3 + gains / 2).astype(float) - (chances > 0.7 + gains / 2)
        known = frozenset(_SIXTY if outcomes_before and defended else ())
        verdict = _recurring_verdict([], values, place if defended else 1, known, outcomes_before)
        if verdict == Verdict.PROMOTE:
            return True
        rejected = verdict == Verdict.REJECT
        outcomes_before.append("rejected" if rejected else "open")
        score = -float(rejected) if kept_by == "ledger" else float(values.mean())
        if score >= most:
            best, most = candidate, score
    return False


def _recurring_verdict(
    nights: list[dict[str, tuple[float, int]]],
    values: npt.NDArray[np.float64],
    place: int,
    known: frozenset[str],
    outcomes_before: Sequence[str],
) -> Verdict:
    """Add a night of the sixty tasks, and return what the rule makes of all of them."""
    nights.append({task: (float(d), 1) for task, d in zip(_SIXTY, values, strict=True)})
    level = candidate_level(place, 0, alpha=CFG.alpha)
    evidence = weigh(nights, candidate=place, level=level, known=known, outcomes=outcomes_before)
    report = EMPTY.model_copy(update={"metrics": [metric(30, 30, 60)], "evidence": evidence})
    return superiority(GateInput(report, None, ()), CFG).verdict


_POOL, _SEEN, _A_NIGHT, _A_LOOK = 560, 361, 10, 204  # held-out tasks: at first, looked at, new a night, at most a look


def small(histories: int) -> Iterator[str]:
    """A log of 560 held-out tasks and ten more a night; the first candidate was promoted, the second rejected."""
    worlds = {"+3 points": (0.08, 0.03), "+5": (0.1, 0.05), "+7": (0.1, 0.07), "equal": (0.1, 0.0)}
    for name, (discordance, delta) in worlds.items():
        rng, runs = np.random.default_rng(12), max(1, histories // 10)
        nights = [n for _ in range(runs) if (n := _promoted_at(rng, discordance, delta)) is not None]
        when = f", night {sorted(nights)[len(nights) // 2]} in the median" if nights else ""
        yield (
            f"{_POOL} held-out tasks, {_A_NIGHT} more a night, a third candidate after a promotion and a rejection, "
            f"{name}: promoted within 10 nights {len(nights) / runs:.3f}{when} ({runs:,} projects)"
        )


def _promoted_at(rng: np.random.Generator, discordance: float, delta: float) -> int | None:
    """Return the night at which the third candidate is promoted; a look takes what no candidate had first."""
    known = [f"t{i}" for i in range(_SEEN)]
    waiting = [*(f"t{i}" for i in range(_SEEN, _POOL)), *known]
    chances = [(discordance + delta) / 2, (discordance - delta) / 2, 1 - discordance]
    looks: list[dict[str, tuple[float, int]]] = []
    for night in range(1, 11):
        taken, waiting = waiting[:_A_LOOK], waiting[_A_LOOK:]
        waiting = [*(f"new {night}, {i}" for i in range(_A_NIGHT)), *waiting]
        looks.append(
            {task: (float(d), 1) for task, d in zip(taken, rng.choice([1, -1, 0], len(taken), p=chances), strict=True)}
        )
        level = candidate_level(3, 1, alpha=CFG.alpha)
        evidence = weigh(looks, candidate=3, level=level, known=known, outcomes=["promoted", "rejected"])
        report = EMPTY.model_copy(update={"metrics": [metric(30, 30, 60)], "evidence": evidence})
        verdict = superiority(GateInput(report, None, ()), CFG).verdict
        if verdict != Verdict.INCONCLUSIVE:
            return night if verdict == Verdict.PROMOTE else None
    return None


def samples(histories: int) -> Iterator[str]:
    """40 fresh cases a night, better by 5 points on average; a case's score is the mean of so many attempts."""
    for attempts in (1, 2, 4, 8):
        rng, runs, nights, squares = np.random.default_rng(11), max(1, histories // 10), list[int](), list[float]()
        for _ in range(runs):
            differences = _sampled(rng, 60 * 40, attempts)
            reached = (n for n in range(1, 61) if log_e(differences[: 40 * n]) >= math.log(1 / 0.03))
            nights.append(next(reached, 61))
            squares.append(float(np.mean(differences**2)))
        half, most = sorted(nights)[runs // 2], sorted(nights)[runs * 9 // 10]
        yield (
            f"+5 points, {attempts} attempts a case: mean square of differences {np.mean(squares):.3f}, first level "
            f"reached at night {half} in the median, nine in ten by {most} ({runs:,} runs)"
        )


def _sampled(rng: np.random.Generator, n: int, attempts: int) -> npt.NDArray[np.float64]:
    """Return differences of n cases that succeed with different chances, and gain 15 points or lose 5."""
    old = rng.uniform(0.1, 0.85, n)
    new = old + rng.choice([-0.05, 0.15], n)
    return np.asarray((rng.binomial(attempts, new) - rng.binomial(attempts, old)) / attempts)


def covariate(histories: int) -> Iterator[str]:
    """What the champion's earlier success on a case, or on nine others of its intent, explains of the difference."""
    rng, n = np.random.default_rng(12), 50 * histories
    intents = np.repeat(rng.uniform(-0.2, 0.2, n // 10), 10)
    old = np.clip(rng.uniform(0.25, 0.7, n) + intents, 0.02, 0.98)
    successes = rng.binomial(10, old)
    by_case, by_intent = successes / 10, (successes.reshape(-1, 10).sum(axis=1).repeat(10) - successes) / 90
    gains = {"the same everywhere": np.full(n, 0.02), "larger where the champion fails": 0.3 * (0.6 - old)}
    for name, gain in gains.items():
        new = np.clip(old + gain, 0, 1)
        for attempts in (1, 8):
            differences = (rng.binomial(attempts, new) - rng.binomial(attempts, old)) / attempts
            shares = [np.corrcoef(differences, history)[0, 1] ** 2 for history in (by_case, by_intent)]
            yield (
                f"gain {name}, {attempts} attempts a case: variance explained by ten earlier attempts at the case "
                f"{shares[0]:.3f}, by its intent's {shares[1]:.3f}"
            )

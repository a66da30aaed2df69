"""One look at a candidate: which held-out tasks it scores, and the scores of all looks before it.

A look scores tasks that are new since the last one, or have new attempts; what was scored stays scored. Its scores are
written to the round's folder first and its line to the ledger second, so a killed look is made again and is the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from flywheel.extensions import CaseScore, Holdout
from flywheel.io import files
from flywheel.present import the_round
from flywheel.records import EvalReport, GateEvidence, LedgerEntry, content_id
from flywheel.registry.candidates import Candidate
from flywheel.registry.registry import Registry
from flywheel.stages.gate.evidence import weigh

CROWD = 0.5  # share of the held-out tasks above which one user's tasks do not make a unit

Scores = dict[str, list[CaseScore]]  # by suite


def task_rows(holdout: Holdout) -> dict[str, str]:
    """Return the hash of each held-out task's attempts, and of which of them have an outcome."""
    outcomes = holdout.returns.filter(pl.col("step").is_null() & pl.col("known")).select("episode_id", "known")
    rows = holdout.episodes.select("task_id", "episode_id").join(outcomes, on="episode_id", how="left")
    attempts: dict[str, list[tuple[str, bool]]] = {}
    for task_id, episode_id, known in rows.sort("task_id", "episode_id").iter_rows():
        attempts.setdefault(task_id, []).append((episode_id, bool(known)))
    return {task_id: content_id(found) for task_id, found in attempts.items()}


def of_tasks(holdout: Holdout, tasks: Collection[str]) -> Holdout:
    """Return the held-out tables with these tasks only."""
    wanted = pl.Series(sorted(tasks), dtype=pl.String)

    def kept(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.filter(pl.col("task_id").is_in(wanted.implode()))

    episodes = kept(holdout.episodes)
    return replace(
        holdout,
        episodes=episodes,
        steps=kept(holdout.steps),
        returns=holdout.returns.join(episodes.select("episode_id"), on="episode_id", how="semi"),
        pairs=kept(holdout.pairs),
        scenarios=kept(holdout.scenarios) if holdout.scenarios is not None else None,
        fixtures=kept(holdout.fixtures) if holdout.fixtures is not None else None,
    )


def units_of(episodes: pl.DataFrame) -> dict[str, str]:
    """Return the unit of each held-out task: its user, by a hash, where one alone is known; else the task itself.

    Where one user is behind more than half of the tasks, users say nothing and tasks are the units.
    """
    users = episodes.group_by("task_id").agg(pl.col("user").drop_nulls().unique().sort()).sort("task_id")
    alone = {task: names[0] for task, names in users.iter_rows() if len(names) == 1 and names[0]}
    most = max(Counter(alone.values()).values(), default=0)
    if most > CROWD * users.height:
        alone = {}
    return {task: content_id("unit", alone[task]) if task in alone else task for task in users["task_id"].to_list()}


def paired_units(candidate: Sequence[CaseScore], baseline: Sequence[CaseScore]) -> dict[str, tuple[float, int]]:
    """Return each unit's sum of differences and number of cases, on the suite's headline metric."""
    marked = sorted({s.metric for s in (*candidate, *baseline) if s.primary})
    headline = next(iter(marked or sorted({s.metric for s in (*candidate, *baseline) if not s.unit})), "")
    theirs = {s.case_id: s.score for s in baseline if s.metric == headline}
    units: dict[str, list[float]] = {}
    for score in sorted(candidate, key=lambda s: s.case_id):
        if score.metric == headline and math.isfinite(score.score + theirs.get(score.case_id, math.nan)):
            units.setdefault(score.cluster, []).append(score.score - theirs[score.case_id])
    return {unit: (math.fsum(values), len(values)) for unit, values in sorted(units.items())}


def scores_path(folder: Path, place: int, look: int) -> Path:
    """Return where a look's scores are kept, in the round's folder."""
    return folder / "eval" / "looks" / f"{place}-{look:04d}.json"


def save_scores(path: Path, scores: Mapping[str, Scores]) -> str:
    """Write both sides' scores of a look, by side and suite, and return the hash of the file."""
    files.write_json(path, {side: {name: _rows(s) for name, s in suites.items()} for side, suites in scores.items()})
    return files.hash_file(path)


def _rows(scores: Sequence[CaseScore]) -> list[dict[str, Any]]:
    return [{**asdict(s), "score": s.score if math.isfinite(s.score) else None} for s in scores]


def earlier_scores(folder: Path, candidate: Candidate) -> dict[str, Scores]:
    """Return the scores of a candidate's looks, by side and suite; a look whose file was removed is left out.

    The scores of forgotten users' tasks go with the files; what they added to the evidence is a sum of numbers.
    """
    sides: dict[str, Scores] = {"candidate": {}, "baseline": {}}
    for number, look in enumerate(candidate.looks, 1):
        path = scores_path(folder, candidate.place, number)
        if not _kept(path, look):
            continue
        for side, suites in files.read_json(path).items():
            for name, rows in suites.items():
                sides[side].setdefault(name, []).extend(
                    CaseScore(**{**row, "score": math.nan if row["score"] is None else row["score"]}) for row in rows
                )
    return sides


def acts(registry: Registry, report: EvalReport) -> dict[str, dict[str, str]]:
    """Return what the baseline and the round of a report did, by case and policy, where their evaluator has it.

    It is kept with the looks' scores and nowhere else: policies may repeat a user's words, and `forget` removes looks.
    """
    mine = [c for c in registry.candidates.candidates() if c.registered.round == report.round]
    looked = (c for c in mine if content_id([look.scores_sha256 for look in c.looks]) == report.cases_sha256)
    candidate = next(looked, None)
    scores = earlier_scores(registry.folder(report.round), candidate) if candidate is not None else {}
    found: dict[str, dict[str, str]] = {}
    for side, policy in (("baseline", report.baseline), ("candidate", report.round)):
        for score in chain.from_iterable(scores.get(side, {}).values()):
            if score.did:
                found.setdefault(score.case_id, {})[the_round(policy)] = score.did
    return found


def lost_looks(folder: Path, candidate: Candidate) -> list[LedgerEntry]:
    """Return the looks whose scores were removed: which cases of their tasks the evidence has is not known."""
    looks = enumerate(candidate.looks, 1)
    return [look for number, look in looks if not _kept(scores_path(folder, candidate.place, number), look)]


def _kept(path: Path, look: LedgerEntry) -> bool:
    return path.exists() and files.hash_file(path) == look.scores_sha256


def evidence_of(candidate: Candidate) -> GateEvidence | None:
    """Return the evidence of all looks at a candidate, as the ledger has them."""
    return weigh(
        [look.units for look in candidate.looks],
        candidate=candidate.place,
        level=candidate.registered.level,
        known=candidate.known,
        outcomes=candidate.outcomes,
    )


def new_scores(scores: Sequence[CaseScore], earlier: Sequence[CaseScore]) -> list[CaseScore]:
    """Return the scores of cases that no earlier look has."""
    known = {(s.metric, s.case_id) for s in earlier}
    return [s for s in scores if (s.metric, s.case_id) not in known]

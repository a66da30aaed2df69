"""A race of training methods on the development tasks, by successive halving within a budget of trained tokens.

In: the rows of each candidate's round. Out: a `Race`: who was raced and why others were not, what each scored in each
rung, and the winner. A candidate starts where the round does, trains on a part of its rows, and is scored on tasks that
no round trained on; the better half of a rung goes on to the next, with more rows. What a candidate scored is
remembered by everything that it depends on, so that a killed race goes on, and the same logs give the same winner.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from flywheel.config import EvalConfig, TrainConfig
from flywheel.errors import TrainError
from flywheel.extensions import CaseScore
from flywheel.funnel import Funnel
from flywheel.io import files
from flywheel.models.load import base_identity
from flywheel.pipeline.answering import policies
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.scorer import attempted_scores
from flywheel.pipeline.train.length import Fitted, dataset_text, trained_tokens, within_tokens
from flywheel.pipeline.train.race.development import Development, stored
from flywheel.pipeline.train.spec import train_spec
from flywheel.present import count, difference, interval, level, round_name, the_round
from flywheel.records import Method, MetricRow, Race, RaceCandidate, RaceHeat, canonical_json, content_id
from flywheel.registry.registry import ADAPTER_WEIGHTS, DATASET
from flywheel.stages.evaluate.rows import Label, Pair, row
from flywheel.stages.selection.halving import Rung, halve, sizes
from flywheel.stages.train.process.spec import launch

WORK = "race-work"  # in the cache: candidates while they are trained, with their rows

Watch = Callable[[dict[str, Any]], None]
Scores = dict[str, CaseScore]


class Entrant(NamedTuple):
    """A method with the rows of its round; `why` it is not raced, or ''."""

    method: Method
    rows: int
    fitted: Fitted | None
    why: str


class Standing(NamedTuple):
    """A race as far as it has come, and how long that took."""

    race: Race
    seconds: float


class _Heat(NamedTuple):
    """A candidate in a rung."""

    key: str
    method: Method
    rung: int
    rows: int
    tokens: int
    dataset: str  # JSONL


@dataclass(frozen=True)
class Racing:
    """A race and what it needs.

    Attributes:
        ctx: the project as the round sees it.
        number: of the round.
        parent: where it starts; None for the base.
        development: what candidates are scored on.
        entrants: simpler methods first.
        tokens: most trained tokens of all of them, in all rungs.
        config: what a round's result depends on.
    """

    ctx: Context
    number: int
    parent: int | None
    development: Development
    entrants: Sequence[Entrant]
    tokens: int
    config: Mapping[str, Any]

    @property
    def names(self) -> list[Method]:
        """The methods that are raced."""
        return [entrant.method for entrant in self.entrants if not entrant.why]

    def standing(self, *, remembered: bool = True) -> Standing:
        """Return the race as far as its scores are remembered."""
        heats: dict[Method, list[RaceHeat]] = {}
        seconds: dict[str, float] = {}
        parent = self._known(self._parent_key()) if remembered else None

        def scored(rung: Rung) -> dict[Method, float] | None:
            entries = [(heat, self._known(heat.key)) for heat in self._heats(rung)]
            if parent is None or any(entry is None for _, entry in entries):
                return None
            for heat, entry in entries:
                heats.setdefault(heat.method, []).append(self._result(heat, entry or {}, parent))
                seconds[heat.key] = (entry or {}).get("seconds", 0.0)
            return self._means(rung)

        ranked, development = halve(self.names, self.tokens, scored), self.development
        scores = _read(parent) if parent is not None else {}
        binary = all(score.binary for score in scores.values())
        race = Race(
            **_outcome(ranked, heats, self.parent, development, binary=binary),
            tasks=len(development.scored),
            known=len(development.known),
            suite=development.suite.name,
            metric=development.metric,
            cases=len(development.cases),
            binary=binary,
            tokens=self.tokens,
            rungs=len(sizes(len(self.names))),
            parent_score=_mean(scores) if scores else None,
            candidates=[
                RaceCandidate(method=e.method, rows=e.rows, why=e.why, heats=heats.get(e.method, []))
                for e in self.entrants
            ],
        )
        return Standing(race, sum(seconds.values()) + (parent or {}).get("seconds", 0.0))

    def run(self, on_metrics: Watch = lambda _: None) -> Race:
        """Train and score what is not remembered, rung by rung; return the finished race.

        Raises:
            TrainError: a trainer's process ended without a result.
        """
        rungs = len(sizes(len(self.names)))
        self.ctx.registry.sound_adapter(self.parent)  # before anything is trained on it

        def scored(rung: Rung) -> dict[Method, float]:
            missing = [heat for heat in self._heats(rung) if self._known(heat.key) is None]
            trained = {heat: self._train(heat, rungs, on_metrics) for heat in missing}
            self._score({heat: seconds for heat, seconds in trained.items() if seconds is not None})
            return self._means(rung)

        halve(self.names, self.tokens, scored)
        shutil.rmtree(self.ctx.store.root / "cache" / WORK, ignore_errors=True)
        return self.standing().race

    # --- what is remembered -------------------------------------------------------------------------------------------

    @cached_property
    def _prefix(self) -> str:
        """Return the beginning of the keys of this race."""
        adapter = self.ctx.registry.manifest(self.parent).adapter_sha256 if self.parent is not None else ""
        settings = [self.config, base_identity(self.ctx.config.model).sha256, adapter, self.development.sha256]
        return content_id("race", 1, canonical_json(settings), sorted(self.development.cases))

    def _parent_key(self) -> str:
        return f"{self._prefix}-parent"

    def _known(self, key: str) -> dict[str, Any] | None:
        entry: dict[str, Any] | None = self.ctx.store.cached("race", key)
        return entry

    def _heats(self, rung: Rung) -> list[_Heat]:
        train, heats = self.ctx.config.train, []
        for method, fitted in ((e.method, e.fitted) for e in self.entrants if e.fitted and e.method in rung.names):
            part = share_of(fitted, train, method, rung.tokens)
            text = dataset_text(part.rows)
            key = f"{self._prefix}-{content_id(method, files.hash_text(text))}"
            tokens = trained_tokens(part, train, method)
            heats.append(_Heat(key, method, rung.number, len(part.rows), tokens, text))
        return heats

    def _means(self, rung: Rung) -> dict[Method, float]:
        """Return the mean scores of a rung's candidates, less those that failed."""
        entries = {heat.method: self._known(heat.key) or {} for heat in self._heats(rung)}
        return {method: _mean(_read(entry)) for method, entry in entries.items() if not entry["error"]}

    def _result(self, heat: _Heat, entry: Mapping[str, Any], parent: Mapping[str, Any]) -> RaceHeat:
        shared = {"rung": heat.rung, "rows": heat.rows, "tokens": heat.tokens}
        if entry["error"]:
            return RaceHeat(**shared, error=entry["error"])
        compared = _compared(_read(entry), _read(parent), self.development, self.ctx.config.eval)
        return RaceHeat(**shared, score=compared.value, delta=compared.delta, low=compared.low, high=compared.high)

    # --- what is done -------------------------------------------------------------------------------------------------

    def _folder(self, heat: _Heat) -> Path:
        return self.ctx.store.root / "cache" / WORK / heat.key

    def _train(self, heat: _Heat, rungs: int, on_metrics: Watch) -> float | None:
        """Train a candidate; return the seconds. None: its trainer refuses it, and it is out."""
        folder, started = self._folder(heat), time.monotonic()
        shown = f"{heat.method} on {count(heat.rows, 'row')}, {heat.tokens:,} trained tokens"
        self.ctx.say(f"race, rung {heat.rung} of {rungs}: {shown}")
        files.atomic_write(folder / DATASET, heat.dataset)
        train = self.ctx.config.train.model_copy(update={"report_to": []})
        ctx = dataclasses.replace(self.ctx, config=self.ctx.config.model_copy(update={"train": train}))
        try:
            launch(train_spec(ctx, self.number, heat.method, self.parent, folder), on_metrics)
        except TrainError as error:
            if not (folder / "work" / "error.json").exists():  # crashed, or killed: it may well work next time
                raise
            self.ctx.store.cache("race", heat.key, {"error": error.message, "scores": []})
            shutil.rmtree(folder, ignore_errors=True)
            return None
        return time.monotonic() - started

    def _score(self, heats: Mapping[_Heat, float]) -> None:
        """Score candidates, trained in so many seconds, and the parent if it has no score yet.

        The base model is loaded once a rung, and not while one is trained.
        """
        waiting: dict[str, tuple[Path | None, float]]
        waiting = {heat.key: (self._folder(heat) / "adapter", seconds) for heat, seconds in heats.items()}
        if self._known(self._parent_key()) is None:
            waiting = {self._parent_key(): (self.ctx.registry.sound_adapter(self.parent), 0.0), **waiting}
        if not waiting:
            return
        development = self.development
        text = f"race: scoring on {len(development.cases):,} cases of {development.suite.name}"
        with policies(self.ctx) as owner:
            owner.watch = lambda done, of: self.ctx.progress(text, done, of)
            for key, (adapter, before) in waiting.items():
                started = time.monotonic()
                name = round_name(self.parent) if key == self._parent_key() else key
                sha256 = files.hash_file(adapter / ADAPTER_WEIGHTS) if adapter is not None else ""
                plain = owner.policy(adapter, name, sha256)
                scores = attempted_scores(plain, development.suite, development.holdout, development.cfg)
                seconds = round(before + time.monotonic() - started, 3)
                entry = {"error": "", "scores": stored(development.of(scores)), "seconds": seconds}
                self.ctx.store.cache("race", key, entry)
        for heat in heats:
            shutil.rmtree(self._folder(heat), ignore_errors=True)


def share_of(fitted: Fitted, train: TrainConfig, method: Method, tokens: int) -> Fitted:
    """Return the rows of a round that a candidate trains on with so many tokens."""
    return within_tokens(fitted, train.model_copy(update={"max_tokens": max(1, tokens)}), method, Funnel())


def _read(entry: Mapping[str, Any]) -> Scores:
    return {score["case_id"]: CaseScore(**score) for score in entry["scores"]}


def _mean(scores: Scores) -> float:
    """Return the mean score; a case that only the others could answer is a failure to none, as in an evaluation."""
    return math.fsum(s.score for s in scores.values()) / len(scores) if scores else 0.0


def _compared(scores: Scores, parent: Scores, development: Development, cfg: EvalConfig) -> MetricRow:
    pairs = [Pair(scores[case], parent[case]) for case in sorted(scores.keys() & parent.keys())]
    binary = all(s.binary for s in (*scores.values(), *parent.values()))
    return row(pairs, Label(development.suite.name, development.metric, binary, primary=True), cfg.seed)


def _outcome(
    ranked: list[Method] | None,
    heats: Mapping[Method, list[RaceHeat]],
    parent: int | None,
    development: Development,
    *,
    binary: bool,
) -> dict[str, Any]:
    """Return state, winner and reason.

    A round that starts from the base is trained whatever comes of it: the gate compares it with the champion.
    """
    tasks = f"{len(development.scored):,} development tasks ({development.suite.name}: {development.metric})"
    if ranked is None:
        return {"state": "planned", "reason": f"the race decides, on {tasks}"}
    if not ranked:
        return {"state": "failed", "reason": "no method could be trained in the race"}
    best = heats[ranked[0]][-1]
    lost = (best.delta or 0.0) < 0 and parent is not None
    change = f"{difference(best.delta, binary=binary)} {interval(best.low, best.high, binary=binary)}"
    shown = f"{level(best.score, binary=binary)} on {tasks}, {change} against {the_round(parent)}"
    reason = f"no method scores as much as {the_round(parent)}, the best" if lost else "won the race with"
    return {"state": "lost" if lost else "won", "winner": ranked[0], "reason": f"{reason} {shown}"}

"""Scores of policies, suite by suite, from the cache where nothing they depend on has changed.

The base model is loaded once, and only if a score is not cached. A suite whose cases never come from the logs (`fixed`)
is not scored again because new logs have come. Seconds are cached apart from the scores: they differ from run to run,
and no decision rests on them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flywheel.config import EvalConfig
from flywheel.config.evaluation import ASKED_BY
from flywheel.extensions import CaseScore, Holdout, Policy
from flywheel.models.load import base_identity, weights_type
from flywheel.models.scoring import Draw
from flywheel.models.served.server import adapter_name
from flywheel.pipeline.answering import answerer, policies
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.suites import Suite
from flywheel.present import round_name, the_round
from flywheel.records import content_id
from flywheel.stages.evaluate.cases import holdout_sha256
from flywheel.stages.evaluate.few_shot import FewShot
from flywheel.stages.evaluate.window import fits
from flywheel.stages.ingest.redaction.redact import Redactor

if TYPE_CHECKING:
    from flywheel.models.policy import PolicySet, TextPolicy
    from flywheel.models.served.policy import ServedSet
    from flywheel.stages.evaluate.window import Ask

_MOST_SHOWN = 2_000  # characters of what a policy did in a case
# Settings of what is scored, which do not change a score.
_NO_MATTER = {
    "suites", "slices", "user_tiers", "baselines", "baseline_cases", "few_shot", "off_policy_cases", *ASKED_BY,
}  # fmt: skip


class Side(NamedTuple):
    """A policy: a round, or None for the base; and what is shown to it before it is asked."""

    number: int | None
    examples: Sequence[Mapping[str, Any]] = ()

    @property
    def name(self) -> str:
        """Its name in reports."""
        shown = len(self.examples)
        policy = "base" if self.number is None else round_name(self.number)
        return f"{policy} + {shown} {'example' if shown == 1 else 'examples'}" if shown else policy


class PolicyScorer:
    """Scores policies on the held-out tables and on the project's own cases."""

    def __init__(self, ctx: Context, holdout: Holdout) -> None:
        self.holdout = holdout
        self.timings_s: dict[str, float] = {}
        self._ctx = ctx
        self._base_sha256 = base_identity(ctx.config.model).sha256
        self._task = ""
        self._policies: PolicySet | ServedSet | None = None
        self._adapters: dict[int | None, Path | None] = {}  # whose files were checked
        self._answerer = answerer(ctx)
        self._holdout_sha256 = holdout_sha256(holdout)

    def cases_sha256(self, suites: Sequence[Suite], cfg: EvalConfig | None = None) -> str:
        """Identify the cases and everything but the policy that their scores depend on."""
        section = cfg or self._ctx.config.eval
        settings = section.model_dump(mode="json", exclude=_NO_MATTER)
        evaluators = [(s.name, s.version, s.depends_on) for s in suites]
        held_out = "" if all(s.fixed for s in suites) else self._holdout_sha256
        replay = self._ctx.config.replay.model_dump(mode="json")
        answered_by = weights_type(self._ctx.config.model), *self._answerer
        return content_id(held_out, evaluators, settings, replay, *answered_by)

    def offer(self, holdout: Holdout) -> None:
        """Score on these held-out tables from now on."""
        self.holdout = holdout
        self._holdout_sha256 = holdout_sha256(holdout)

    def scores(self, number: int | None, suite: Suite) -> list[CaseScore]:
        """Return one policy's scores on one suite."""
        return self._scored(Side(number), suite, self._ctx.config.eval)

    def baseline_scores(self, side: Side, suite: Suite, most: int) -> list[CaseScore]:
        """Return the scores of a baseline for reference: all that are cached, else those of at most so many cases."""
        cfg = self._ctx.config.eval
        if not side.examples and self._ctx.store.cached("scores", self._key(side, suite, cfg)) is not None:
            return self._scored(side, suite, cfg)
        return self._scored(side, suite, cfg.model_copy(update={"max_cases": min(most, cfg.max_cases)}))

    def _key(self, side: Side, suite: Suite, cfg: EvalConfig) -> str:
        adapter = self._adapter_sha256(side.number)
        known = [] if suite.fixed else sorted(self.holdout.known)
        return content_id(
            self._base_sha256, adapter, self.cases_sha256([suite], cfg), known, [dict(e) for e in side.examples]
        )

    def _scored(self, side: Side, suite: Suite, cfg: EvalConfig) -> list[CaseScore]:
        key, name = self._key(side, suite, cfg), side.name
        cached = self._ctx.store.cached("scores", key)
        if cached is None:
            self._task = f"scoring {name} on {suite.name}"
            self._ctx.say(self._task)
            started = time.monotonic()
            scored = self._attempted(side, suite, cfg)
            cached = [
                {**asdict(s), "score": s.score if math.isfinite(s.score) else None, "did": did}
                for s, did in zip(scored, self._redacted([s.did if s.primary else "" for s in scored]), strict=True)
            ]
            self._ctx.store.cache("scores", key, cached)
            self._ctx.store.cache("seconds", key, round(time.monotonic() - started, 3))
        seconds = self._ctx.store.cached("seconds", key)
        cases = len({s["case_id"] for s in cached})
        if seconds is not None and cases:
            self.timings_s[f"{suite.name}: a case of {name}"] = round(seconds / cases, 4)
        return [CaseScore(**{**s, "score": math.nan if s["score"] is None else s["score"]}) for s in cached]

    def _redacted(self, texts: Sequence[str]) -> list[str]:
        """Return what policies did, redacted and cut: they may repeat what a tool has shown them."""
        if self._ctx.key is None or not any(texts):
            return [""] * len(texts)
        redactor = Redactor(self._ctx.config.ingest.redact, self._ctx.key())
        return [redactor.text(text)[:_MOST_SHOWN] for text in texts]

    def _attempted(self, side: Side, suite: Suite, cfg: EvalConfig) -> list[CaseScore]:
        def seen(drawing: Policy) -> Policy:
            return FewShot(drawing, side.name, side.examples) if side.examples else drawing

        return attempted_scores(self.policy(side.number), suite, self.holdout, cfg, seen)

    def log_probs(self, number: int | None, asks: Sequence[Ask], temperature: float) -> list[float | None]:
        """Return the log-probability of each completion to a round or the base, in nats; None where it is too long."""
        policy_sha256, batch_size = self._adapter_sha256(number), self._ctx.config.eval.batch_size
        key = content_id(*self._asks_id(asks), policy_sha256, batch_size, temperature)
        log_probs: list[float | None] | None = self._ctx.store.cached("log_probs", key)
        if log_probs is None:
            self._task = f"scoring {the_round(number)} on logged actions"
            self._ctx.say(self._task)
            policy = self.policy(number)
            able = fits(policy, asks, 0)
            fitting = [ask for ask, fit in zip(asks, able, strict=True) if fit]
            scores = iter(policy.log_prob(*_columns(fitting), temperature=temperature))
            log_probs = [next(scores)[0] if fit else None for fit in able]
            self._ctx.store.cache("log_probs", key, log_probs)
        return log_probs

    def tokens(self, asks: Sequence[Ask]) -> list[list[int]]:
        """Return the tokens of each completion, as `log_probs` scores them."""
        key = content_id(*self._asks_id(asks))
        tokens: list[list[int]] | None = self._ctx.store.cached("tokens", key)
        if tokens is None:
            tokens = self.policy(None).completion_ids(*_columns(asks))
            self._ctx.store.cache("tokens", key, tokens)
        return tokens

    def _asks_id(self, asks: Sequence[Ask]) -> tuple[object, ...]:
        weights = weights_type(self._ctx.config.model)
        return "asked", self._base_sha256, weights, [list(ask) for ask in asks], *self._answerer

    def _adapter_sha256(self, number: int | None) -> str:
        return self._ctx.registry.manifest(number).adapter_sha256 if number is not None else ""

    @property
    def identity(self) -> dict[str, str] | None:
        """Who answers, where it is a server."""
        return self._answerer[0] if self._answerer else None

    def name_on_server(self, number: int | None) -> str:
        """Return the name that a policy has, or had, on the server."""
        if number is None:
            return str(self._answerer[0]["model"])
        known = self._answerer[0].get(round_name(number))
        return known or adapter_name(self._adapter_sha256(number))

    def other_rendering(self, sides: Sequence[int | None]) -> bool:
        """Return whether the server's template ever made other tokens of a prompt of these policies."""
        store, otherwise = self._ctx.store, getattr(self._policies, "rendered_otherwise", ())
        noted = False
        for side in sides:
            sha256 = self._adapter_sha256(side) or self._base_sha256
            key = content_id("rendered otherwise", self._answerer, sha256)
            if sha256 in otherwise and store.cached("answers", key) is None:
                store.cache("answers", key, True)
            noted |= store.cached("answers", key) is not None
        return noted

    def close(self) -> None:
        """Give back what was taken, adapters that were loaded on a server among it."""
        if self._policies is not None:
            self._policies.close()

    def policy(self, number: int | None) -> TextPolicy:
        """Return a round, or the base."""
        if self._policies is None:
            self._policies = policies(self._ctx)
            self._policies.watch = lambda done, of: self._ctx.progress(self._task, done, of)
        if number not in self._adapters:
            self._adapters[number] = self._ctx.registry.sound_adapter(number)
        return self._policies.policy(self._adapters[number], round_name(number), self._adapter_sha256(number))


def attempted_scores(
    plain: TextPolicy, suite: Suite, holdout: Holdout, cfg: EvalConfig, seen: Callable[[Policy], Policy] = lambda p: p
) -> list[CaseScore]:
    """Return scores of greedy answers, or means of sampled ones; a suite that asks for no answer is run once.

    Args:
        plain: the policy, greedy.
        suite: the evaluator.
        holdout: its cases.
        cfg: how many answers, and their temperature.
        seen: what the evaluator is given instead of the policy.
    """
    attempts = list[Sequence[CaseScore]]()
    for number in range(cfg.samples):
        draw = Draw(cfg.temperature, cfg.seed + number, cfg.samples - 1 - number)
        drawing = plain.drawing(draw) if cfg.samples > 1 else plain
        attempts.append(suite.evaluator(seen(drawing), holdout, cfg))
        if not drawing.wrote:
            break
    return mean_scores(attempts)


def mean_scores(attempts: Sequence[Sequence[CaseScore]]) -> list[CaseScore]:
    """Return each case's mean over the attempts that have a score; its slices are those of the first."""
    if len(attempts) == 1:
        return list(attempts[0])
    cases: dict[tuple[str, str], list[CaseScore]] = {}
    for score in (score for attempt in attempts for score in attempt):
        cases.setdefault((score.metric, score.case_id), []).append(score)
    return [
        replace(scores[0], score=math.fsum(s.score for s in scores) / len(scores), binary=False)
        for scores in cases.values()
    ]


def _columns(asks: Sequence[Ask]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return prompts, tools and completions."""
    return [a.prompt for a in asks], [a.tools for a in asks], [a.completion for a in asks]

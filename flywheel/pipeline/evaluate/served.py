"""What a report states of the server that answered, and how far it answers as transformers does in this process.

In: the scorer and both sides. Out: a part of the report; none where no server answered. Agreement is measured in the
first `eval.server.agreement` held-out states with a known good action, by the candidate's greedy answers. The base
model is loaded here for it, so it is off where that model is too large for this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.extensions import Holdout
from flywheel.models.load import base_identity, weights_type
from flywheel.models.policy import PolicySet, TextPolicy
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.scorer import PolicyScorer
from flywheel.present import round_name
from flywheel.records import Agreement, ServedBy, content_id
from flywheel.stages.evaluate.cases import StateCase, state_cases
from flywheel.stages.evaluate.window import Ask, fits


def served_by(ctx: Context, scorer: PolicyScorer, holdout: Holdout, sides: tuple[int, int | None]) -> ServedBy | None:
    """Return the server that answered, both sides' names there and how far it agrees with this process.

    Args:
        ctx: the project.
        scorer: that scored both sides.
        holdout: all held-out tables.
        sides: the candidate's round, and the baseline's; None is the base.
    """
    if scorer.identity is None:
        return None
    cfg = ctx.config.eval
    sampled = cfg.samples > 1
    names = [scorer.name_on_server(side) for side in sides]
    return ServedBy(
        kind=scorer.identity["kind"],
        version=scorer.identity["version"],
        endpoint=cfg.endpoint,
        model=scorer.identity["model"],
        api=cfg.server.api,
        candidate=names[0],
        baseline=names[1],
        base_sha256=base_identity(ctx.config.model).sha256,
        samples=cfg.samples,
        temperature=cfg.temperature if sampled else 0.0,
        max_new_tokens=cfg.max_new_tokens,
        other_rendering=scorer.other_rendering(sides),
        agreement=_agreement(ctx, scorer, holdout, sides[0]) if cfg.server.agreement else None,
    )


def _agreement(ctx: Context, scorer: PolicyScorer, holdout: Holdout, number: int) -> Agreement | None:
    cfg, room = ctx.config.eval, ctx.config.eval.max_new_tokens
    cases = state_cases(holdout, cfg.server.agreement)
    if not cases:
        return None
    sha256 = ctx.registry.manifest(number).adapter_sha256
    shown = [[case.prompt, case.tools] for case in cases]
    key = content_id("agreement", 1, scorer.identity, weights_type(ctx.config.model), sha256, room, shown)
    cached = ctx.store.cached("agreement", key)
    if cached is None:
        ctx.say(f"comparing {len(cases)} greedy answers of the server with those of transformers here")
        served = scorer.policy(number)
        able = fits(served, [Ask(case.prompt, case.tools) for case in cases], room)
        cases = [case for case, fit in zip(cases, able, strict=True) if fit]
        with PolicySet(ctx.config.model, cfg) as here:
            local = here.policy(ctx.registry.sound_adapter(number), round_name(number), sha256)
            pairs = list(zip(_said(served, cases, room), _said(local, cases, room), strict=True))
        same_calls = sum(one.get("tool_calls") == other.get("tool_calls") for one, other in pairs)
        cached = {"prompts": len(pairs), "same": sum(one == other for one, other in pairs), "same_calls": same_calls}
        ctx.store.cache("agreement", key, cached)
    return Agreement.model_validate(cached)


def _said(policy: TextPolicy, cases: list[StateCase], room: int) -> list[Mapping[str, Any]]:
    """Return the policy's greedy messages, without what names a call."""
    answers = policy.generate([c.prompt for c in cases], [c.tools for c in cases], max_new_tokens=room)
    return [
        {**a.message, "tool_calls": [{**call, "id": ""} for call in a.message.get("tool_calls") or []]} for a in answers
    ]

"""Why a round is as it is, what the gate asks for and last said, and where a row to train on comes from.

In: the registry, or a row as `show` gives it. Out: lines for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import load_extension
from flywheel.pipeline.context import Context
from flywheel.present import metric_change
from flywheel.registry.registry import round_name
from flywheel.stages.gate import rule_names

__all__ = ["explain_gate", "explain_round", "explain_row"]

_ASKS = {  # the settings that a shipped rule reads
    "superiority": ("alpha", "initial_wealth", "min_cases"),
    "non_inferior": ("margin",),
    "slices": ("slice_margin", "found_margin", "found_share"),
    "validity": ("max_gap",),
}


def explain_round(ctx: Context, number: int) -> list[str]:
    """Return how a round was made and judged, what each rule said, and what became of it."""
    manifest = ctx.registry.manifest(number)
    lines = [
        f"round {number} is {manifest.state}: {manifest.method} from {round_name(manifest.parent)}.",
        f"Reference policy: {manifest.reference}.",
        f"Method: {manifest.method}: {manifest.method_reason}",
    ]
    if manifest.error:
        lines.append(f"It failed: {manifest.error}")
    lines += _since(ctx, number)
    report = ctx.registry.report(number)
    if report is not None:
        lines.append(
            f"Evaluated beside {report.baseline} on {report.n_cases} cases of {report.n_tasks} held-out tasks."
        )
        lines += [f"  {metric_change(m)}" for m in report.metrics if m.slice == "all"]
    for decision in (p for p in ctx.registry.promotions() if p.round == number):
        lines.append(f"{decision.decision} by `{decision.by}`: {decision.verdict or decision.reason}")
        lines += [f"  {'✓' if r.passed else '✗'} {r.rule}: {r.message}" for r in decision.rules]
    return lines


def _since(ctx: Context, number: int) -> Iterator[str]:
    """Yield what happened to a round after it was judged: forgotten users, a removed adapter."""
    for certificate in ctx.registry.certificates():
        yield from (
            f"Tainted since {certificate.at:%Y-%m-%d}: {one.why}; never champion or parent again."
            for one in certificate.tainted
            if one.round == number
        )
        if number in certificate.voided:
            share = f"{certificate.holdout_share:.0%}"
            yield f"Its evaluation is void: {share} of the held-out episodes were of a user who was forgotten since."
    if erased := ctx.registry.manifest(number).erased:
        yield f"Its adapter was removed: {erased}."


def explain_gate(ctx: Context, subject: str) -> list[str]:
    """Return what each rule asks for, with the project's numbers, and what it said of the round judged last."""
    names = rule_names(ctx.config.gate) if subject == "gate" else [subject]
    judged = [p for p in ctx.registry.promotions() if p.rules]
    last = judged[-1] if judged else None
    lines = []
    for name in names:
        asks = ", ".join(f"gate.{key} {getattr(ctx.config.gate, key)}" for key in _ASKS.get(name, ()))
        doc = (load_extension("gates", name, search=ctx.project).__doc__ or "").strip().splitlines()
        lines.append(f"{name}: {doc[0] if doc else 'says nothing of itself'}" + (f" ({asks})" if asks else ""))
        said = [rule for rule in (last.rules if last else ()) if rule.rule == name]
        lines += [f"  {'✓' if r.passed else '✗'} round {last.round}: {r.message}" for r in said if last is not None]
    if last is None:
        return [*lines, "No round was judged yet: flywheel eval --promote"]
    return [*lines, f"The gate said {last.verdict} of round {last.round}; the gravest word of any rule wins."]


def explain_row(kind: str, record: Mapping[str, Any]) -> list[str]:
    """Return where a pair, an example or a group comes from and what it is worth."""
    return {"pair": _pair, "example": _example, "group": _group}[kind](record)


def _pair(record: Mapping[str, Any]) -> list[str]:
    users = len(record["users"])
    return [
        f"pair {record['pair_id']} by builder {record['builder']}, split {record['split']}.",
        f"Margin {record['margin']:.2f}, P(chosen better) {record['p_better']:.2f}, weight {record['weight']:.2f}.",
        f"  chosen: step {record['chosen_step']} of episode {record['chosen_episode']}",
        f"  rejected: step {record['rejected_step']} of episode {record['rejected_episode']}",
        f"  both made the same calls for {record['same_prefix_until']} steps before.",
        f"  from {users} {'user' if users == 1 else 'users'}." if users else "  the log names no user.",
        "`flywheel explain pairs` counts what was dropped, by builder and reason.",
    ]


def _example(record: Mapping[str, Any]) -> list[str]:
    kind = "desirable" if record["label"] else "undesirable"
    why = {
        "outcome": f"its episode succeeded with probability {record['p_success']:.2f}",
        "correction": "a user corrected the step, and this is what it should have been",
    }[record["source"]]
    return [
        f"example {record['example_id']}, split {record['split']}: {kind}, as {why}.",
        f"Weight {record['weight']:.2f}; from step {record['step']} of episode {record['episode_id']}.",
        f"`flywheel explain {record['episode_id'][:12]}` says why the episode got its reward.",
    ]


def _group(record: Mapping[str, Any]) -> list[str]:
    members = zip(
        record["episodes_G"], record["policies_G"], record["rewards_G"], record["advantages_G"], record["behaviour_G"],
        strict=False,
    )  # fmt: skip
    lines = [
        f"group {record['group_id']}, split {record['split']}: {len(record['episodes_G'])} attempts at one task.",
        "Each one's advantage is its return less the mean of the others'; they sum to 0.",
    ]
    return lines + [
        f"  episode {episode[:12]} by {policy}: return {reward:+.3f}, advantage {advantage:+.3f}, "
        f"log-probabilities {behaviour}"
        for episode, policy, reward, advantage, behaviour in members
    ]

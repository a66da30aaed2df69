"""The gate's decision on a stored report, and everything else that moves the champion: promote, force, roll back.

A decision is one line in promotions.jsonl and one move of the pointer. The same report is decided on once; one that was
BLOCKED again where the reasons have changed. What was promoted or rejected is ended in the ledger of candidates; what
was held stays, and is decided on again after the next look.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Literal

from flywheel.errors import EvalError, UsageError
from flywheel.extensions import GateInput, load_extensions
from flywheel.pipeline.build.registry import stage_of
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.looks import evidence_of
from flywheel.pipeline.evaluate.protocol import as_registered, code_of, differences, protocol_of, registered, sha256_of
from flywheel.present import the_round
from flywheel.records import EvalReport, Promotion, RoundManifest, Verdict
from flywheel.registry.aliases import LOST
from flywheel.registry.candidates import Candidate
from flywheel.registry.registry import files_sha256
from flywheel.stages.gate import decide, rule_names


def decide_round(ctx: Context, number: int, *, by: str) -> Promotion:
    """Apply the gate to a round's stored report and move the champion if every rule passes.

    Raises:
        EvalError: the round has no evaluation.
    """
    manifest, report = ctx.registry.manifest(number), ctx.registry.report(number)
    if report is None:
        raise EvalError(f"round {number} has no evaluation", hint=f"flywheel eval --round {number}")
    history, _ = ctx.registry.readable()
    earlier = [p for p in history if p.report_sha256 == ctx.registry.report_sha256(number)]
    if earlier and earlier[-1].verdict != Verdict.BLOCKED:
        return earlier[-1]
    champion = ctx.registry.champion
    gate = registered(ctx, manifest).gate
    inputs = GateInput(report, manifest, history, _problems(ctx, report, manifest))
    names = rule_names(gate)
    names += ["validity"] if inputs.problems and "validity" not in names else []  # damage blocks under any rules
    decision = decide(inputs, load_extensions("gates", names, search=ctx.project), gate)
    if earlier and decision.rules == earlier[-1].rules:
        return earlier[-1]
    promoted = decision.verdict == Verdict.PROMOTE
    return _record(
        ctx,
        number,
        decision="promoted" if promoted else "held",
        champion_after=number if promoted else champion,
        by=by,
        extra={"verdict": decision.verdict, "rules": decision.rules},
    )


def _problems(ctx: Context, report: EvalReport, manifest: RoundManifest) -> list[str]:
    """Return why a report's comparison cannot be trusted, as far as the registry knows."""
    champion = ctx.registry.champion
    problems = ctx.registry.problems([n for n in (report.round, champion) if n is not None])
    if report.baseline != ("base" if champion is None else str(champion)):
        compared, current = the_round(report.baseline), the_round(champion)
        problems.append(f"the report compares with {compared}, but the champion is {current}")
    candidate = _candidate(ctx, report)
    if (
        candidate is None
        or report.evidence != evidence_of(candidate)
        or candidate.report != ctx.registry.report_sha256(report.round)
    ):
        problems.append(
            f"its report is not of the looks that the ledger of candidates has; run `flywheel eval --round "
            f"{report.round}` again"
        )
    trained_with = ctx.registry.candidates.protocol_of(manifest.adapter_sha256)
    if (trained_with or "") != sha256_of(manifest.protocol):
        problems.append(f"the protocol in the manifest of round {manifest.round} is not the one it was trained with")
    elif manifest.protocol and report.protocol_sha256 != sha256_of(manifest.protocol):
        problems.append(_other_protocol(ctx, report, manifest))
    rules = registered(ctx, manifest).gate.rules
    code = as_registered({"code": code_of(ctx, rules)}, manifest).get("code", {})
    modules = {name.partition(":")[0] for name in rules if ":" in name}
    were = {module: source for module, source in manifest.protocol.get("code", {}).items() if module in modules}
    if manifest.protocol and code != were:
        problems.append("a rule's code is not what the round was registered with when it was trained")
    retired = {p.round for p in ctx.registry.readable()[0] if p.decision == "rolled_back"}
    problems += [
        f"it descends from round {ancestor}, which was rolled back"
        for ancestor in ctx.registry.lineage(report.round)[2:]
        if ancestor in retired
    ]
    problems += [
        f"round {ancestor} was trained on data of a user who was forgotten"
        for ancestor in ctx.registry.lineage(report.round)
        if ancestor in ctx.registry.tainted
    ]
    return problems


def _other_protocol(ctx: Context, report: EvalReport, manifest: RoundManifest) -> str:
    """Return in which way a report was not made as the round was registered."""
    suites = [suite["name"] for suite in manifest.protocol["suites"]]
    looked_at = {name.partition(":")[0] for name in report.coverage}
    differing = (
        ["suites"]
        if looked_at != set(suites)
        else differences(manifest.protocol, as_registered(protocol_of(ctx), manifest))
    )
    what = f" ({', '.join(differing)})" if differing else ""
    return (
        f"it was evaluated by another protocol{what} than round {manifest.round} was registered with when it was "
        f"trained; run `flywheel eval --round {manifest.round}`, or train a new round"
    )


def _record(
    ctx: Context,
    number: int,
    *,
    decision: Literal["promoted", "held", "forced", "rolled_back", "forgotten"],
    champion_after: int | None,
    by: str,
    extra: dict[str, Any],
) -> Promotion:
    after = ctx.registry.manifest(champion_after) if champion_after is not None else None
    promotion = Promotion(
        round=number,
        decision=decision,
        champion_before=ctx.registry.champion,
        champion_after=champion_after,
        report_sha256=ctx.registry.report_sha256(number),
        adapter_sha256=after.adapter_sha256 if after is not None else "",
        files_sha256=files_sha256(after) if after is not None else "",
        ledger_sha256=_looked_at(ctx, number),
        by=by,
        at=ctx.clock(),
        log_end=_log_end(ctx),
        **extra,
    )
    decided = ctx.registry.decide(promotion)
    ctx.registry.settle()
    return decided


def _log_end(ctx: Context) -> datetime | None:
    """Return when the log ended that was built last, by its own times."""
    if ctx.store.current(stage_of("reliability")) is None:
        return None
    times = read_table(ctx.store, "reliability").filter(kind="time").select("value").collect()["value"]
    return datetime.fromtimestamp(times[0], UTC) if len(times) else None


def _candidate(ctx: Context, report: EvalReport) -> Candidate | None:
    hashes = report.candidate_adapter_sha256, report.baseline_adapter_sha256, report.protocol_sha256
    return ctx.registry.candidates.find(*hashes)


def _looked_at(ctx: Context, number: int) -> str:
    """Return the hash of the ledger's line with the look that a round's report ends with; '' without one."""
    report = ctx.registry.report(number)
    candidate = _candidate(ctx, report) if report is not None else None
    return candidate.last_look if candidate is not None else ""


def force(ctx: Context, number: int, *, reason: str, by: str) -> Promotion:
    """Make a trained round champion against or without the gate; the reason is recorded.

    The same command again, after a kill for example, is the same decision.

    Raises:
        UsageError: the round is not trained, was rolled back, or is damaged.
    """
    if number not in ctx.registry.trained():
        raise UsageError(f"round {number} is not trained", hint=f"flywheel train --round {number}")
    if number in {p.round for p in ctx.registry.promotions() if p.decision == "rolled_back"}:
        raise UsageError(
            f"round {number} was rolled back and never becomes champion again", hint="train a new round from its data"
        )
    _refuse_tainted(ctx, number)
    decisions = ctx.registry.promotions()
    if decisions and (decisions[-1].round, decisions[-1].decision, decisions[-1].reason) == (number, "forced", reason):
        return decisions[-1]
    problems = [problem for problem in ctx.registry.problems([number]) if problem != LOST]  # it is decided here
    if problems:
        raise UsageError("; ".join(problems), hint="a damaged round is never promoted, not even by force")
    return _record(ctx, number, decision="forced", champion_after=number, by=by, extra={"reason": reason})


def roll_back(ctx: Context, to: str | None, *, reason: str, by: str) -> Promotion:
    """Move the champion back to the previous one, or to a named earlier champion or the base.

    Raises:
        UsageError: there is no champion, or nothing to go back to.
        StoreError: the files of the round to go back to are damaged.
    """
    champion, target = rollback_target(ctx, to)
    return _record(ctx, champion, decision="rolled_back", champion_after=target, by=by, extra={"reason": reason})


def rollback_target(ctx: Context, to: str | None) -> tuple[int, int | None]:
    """Return the champion, and the round that would replace it; None: the base model.

    What was never champion does not become it by going back: the gate decides on it, or `promote --force`.

    Raises:
        UsageError: there is no champion, or nothing to go back to.
        StoreError: the files of the round to go back to are damaged.
    """
    champion = ctx.registry.champion
    if champion is None and ctx.registry.pointer_is_lost:
        champion = ctx.registry.promotions()[-1].round
    if champion is None:
        raise UsageError("there is no champion: the base model serves", hint="`flywheel log` shows the rounds")
    target = ctx.registry.resolve(to) if to is not None else ctx.registry.aliases()["previous"]
    if target == champion:
        raise UsageError(f"round {champion} is already champion", hint="name another with --to")
    retired = {p.round for p in ctx.registry.promotions() if p.decision == "rolled_back"}
    if target in retired:
        raise UsageError(f"round {target} was itself rolled back", hint="name another with --to, or `--to base`")
    if target is not None:
        _refuse_tainted(ctx, target)
        if target not in ctx.registry.champions():
            raise UsageError(f"round {target} was never champion", hint=f"flywheel promote {target}: the gate decides")
        ctx.registry.sound_adapter(target)
    return champion, target


def _refuse_tainted(ctx: Context, number: int) -> None:
    if number in ctx.registry.tainted:
        raise UsageError(
            f"round {number} was trained on data of a user who was forgotten and never becomes champion again",
            hint="train a new round; it starts from the base model",
        )


def newest_clean(ctx: Context, tainted: Collection[int]) -> int | None:
    """Return the round that became champion last and is neither tainted nor rolled back; None: the base model."""
    history = ctx.registry.promotions()
    excluded = {p.round for p in history if p.decision == "rolled_back"} | {*tainted, *ctx.registry.tainted}
    sound = [n for n in ctx.registry.champions() if n not in excluded and not ctx.registry.problems([n])]
    return sound[-1] if sound else None


def replace_tainted(ctx: Context, tainted: Collection[int], *, by: str) -> None:
    """Point no alias at a tainted round: the champion goes to the newest clean one, the others are cleared."""
    champion = ctx.registry.champion
    if champion in tainted and champion is not None:
        reason = "it was trained on data of a user who was forgotten"
        target = newest_clean(ctx, tainted)
        _record(ctx, champion, decision="forgotten", champion_after=target, by=by, extra={"reason": reason})
    aliases = ctx.registry.aliases()
    ctx.registry.point(**{name: None for name, at in aliases.items() if at in tainted and name != "champion"})

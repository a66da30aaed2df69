"""`flywheel explain`: why a stage, a round, the gate, an episode's reward or a row to train on is as it is.

In: a name or an id. Out: sentences with numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import polars as pl

from flywheel.extensions import load_extension
from flywheel.pipeline.build.registry import STAGES, stage_of
from flywheel.pipeline.build.run import explain_stage
from flywheel.pipeline.context import Context
from flywheel.pipeline.inspect.find import TRAINED_ROW
from flywheel.pipeline.inspect.show import show
from flywheel.pipeline.rewards.outcomes import recorded
from flywheel.present import (
    attempt_outcome,
    count,
    metric_change,
    outcome,
    percent,
    race_lines,
    rule_mark,
    the_round,
    training_end,
)
from flywheel.results.inspect import ExplainAnswer, ShowAnswer
from flywheel.stages.gate import rule_names
from flywheel.stages.labelling.posterior import Contribution, Posterior, Vote, scope_of
from flywheel.stages.labelling.priors import BACKS, PEERS_ALONE, PRAISE, PRAISE_ALONE, UNBACKED
from flywheel.stages.signals.cohorts import BURST, CROWD, DEEDS
from flywheel.stages.signals.crowds import ENOUGH_KNOWN, ENOUGH_OTHERS
from flywheel.stats.delays import late_after_silence

Record = Mapping[str, Any]
_MOST_ATTEMPTS = 12
_ARRIVED = 0.8  # share of late evidence after which an episode counts as mature
_RULE_SETTINGS = {
    "superiority": ("alpha", "min_effect", "horizon", "min_cases"),
    "non_inferior": ("margin",),
    "slices": ("slice_margin", "found_margin", "found_share"),
    "validity": ("max_gap",),
}


def explain(ctx: Context, subject: str) -> ExplainAnswer:
    """Explain a stage, a round, the gate or one of its rules, or any object that `show` knows.

    Raises:
        UsageError: no object has that name or id.
    """
    rules = rule_names(ctx.config.gate)
    if subject == "gate" or subject in rules:
        return ExplainAnswer(subject=subject, lines=_gate(ctx, rules if subject == "gate" else [subject]))
    if subject in {s.name for s in STAGES}:
        return ExplainAnswer(subject=subject, lines=explain_stage(ctx.store, ctx.config, subject))
    answer = show(ctx, subject)
    if answer.kind == "round":
        number = int(answer.record["round"])
        return ExplainAnswer(subject=subject, lines=_round(ctx, number), details=_rules(ctx, number))
    return ExplainAnswer(subject=subject, lines=_lines(ctx, answer))


def _lines(ctx: Context, answer: ShowAnswer) -> list[str]:
    if answer.kind == "episode":
        return _episode(ctx, answer.record)
    if answer.kind == "example":
        return _example(ctx, answer.record)
    told = {
        "pair": _pair, "group": _group, "fixture": _fixture, "scenario": _scenario, "step": _step,
        "task": _task, "case": _case, "event": _event, TRAINED_ROW: _trained,
    }  # fmt: skip
    return told[answer.kind](answer.record)


# --- gate and rounds --------------------------------------------------------------------------------------------------


def _gate(ctx: Context, names: list[str]) -> list[str]:
    """Return what each rule requires, with the project's settings, and its result in the newest decision."""
    decisions = [p for p in ctx.registry.promotions() if p.rules]
    last = decisions[-1] if decisions else None
    lines = [f"{name}: {text}" for name, text in outcome(last, ctx.registry.report(last.round))] if last else []
    for name in names:
        settings = ", ".join(f"gate.{key} {getattr(ctx.config.gate, key)}" for key in _RULE_SETTINGS.get(name, ()))
        doc = (load_extension("gates", name, search=ctx.project).__doc__ or "no description").strip().splitlines()[0]
        lines.append(f"{name}: {doc}" + (f" ({settings})" if settings else ""))
        if last is not None:
            results = [rule for rule in last.rules if rule.rule == name]
            lines += [f"  {rule_mark(r)} round {last.round}: {r.message}" for r in results]
    if last is None:
        return [*lines, "The gate has not decided on a round yet: flywheel eval --promote"]
    return [*lines, "The most severe rule's verdict is the gate's."]


def _round(ctx: Context, number: int) -> list[str]:
    """Return how a round was trained and evaluated, the result of each rule, and the decisions on it."""
    manifest = ctx.registry.manifest(number)
    lines = [
        f"round {number} is {manifest.state}: {manifest.method} from {the_round(manifest.parent)}.",
        f"Reference policy: {manifest.reference}.",
        f"Method: {manifest.method}: {manifest.method_reason}",
    ]
    if manifest.race is not None:
        lines += [
            f"Race: {line}" if place == 0 else f"- {line}" for place, line in enumerate(race_lines(manifest.race))
        ]
    if manifest.stopped:
        lines.append(f"Trained: {training_end(manifest)}.")
    if manifest.error:
        lines.append(f"It failed: {manifest.error}")
    lines += _withdrawn(ctx, number)
    report = ctx.registry.report(number)
    if report is not None:
        cases = f"{report.n_cases} cases of {report.n_tasks} held-out tasks"
        lines.append(f"Evaluated against {the_round(report.baseline)} on {cases}.")
        lines += [f"  {metric_change(m)}" for m in report.metrics if m.slice == "all"]
    for decision in (p for p in ctx.registry.promotions() if p.round == number):
        held = f"; {sum(r.passed for r in decision.rules)} of {count(len(decision.rules), 'rule')} of the gate hold"
        lines.append(
            f"{decision.decision} by `{decision.by}`: {decision.verdict or decision.reason}"
            + (f"{held} (-v: each of them)." if decision.rules else "")
        )
        lines += [f"  {rule_mark(r)} {r.rule}: {r.message}" for r in decision.rules if not r.passed]
    return lines


def _rules(ctx: Context, number: int) -> list[str]:
    """Return every rule of the decisions on a round, each with what it counts."""
    lines = []
    for decision in (p for p in ctx.registry.promotions() if p.round == number and p.rules):
        lines.append(f"The rules of this decision: {decision.decision}.")
        for r in decision.rules:
            lines += [f"  {rule_mark(r)} {r.rule}: {r.message}", *(f"      {d}" for d in r.details)]
    return lines


def _withdrawn(ctx: Context, number: int) -> Iterator[str]:
    """Yield what a round lost after its evaluation: to forgotten users, or by gc."""
    for certificate in ctx.registry.certificates():
        for taint in certificate.tainted:
            if taint.round == number:
                yield f"Tainted since {certificate.at:%Y-%m-%d}: {taint.why}; never champion or parent again."
        if number in certificate.voided:
            share = percent(certificate.holdout_share, 0)
            yield f"Its evaluation is void: {share} of its episodes were a forgotten user's."
    if reason := ctx.registry.manifest(number).erased:
        yield f"Its adapter was removed: {reason}."


# --- rows to train on -------------------------------------------------------------------------------------------------


def _pair(record: Record) -> list[str]:
    users = len(record["users"])
    return [
        f"pair {record['pair_id']} by builder {record['builder']}, split {record['split']}.",
        f"Margin {record['margin']:.2f}, P(chosen better) {record['p_better']:.2f}, weight {record['weight']:.2f}.",
        f"  chosen: step {record['chosen_step']} of episode {record['chosen_episode']}",
        f"  rejected: step {record['rejected_step']} of episode {record['rejected_episode']}",
        f"  both made the same calls in the {record['same_prefix_until']} steps before.",
        f"  from {users} {'user' if users == 1 else 'users'}." if users else "  the log names no user.",
        "`flywheel explain pairs` counts the dropped candidates by builder and reason.",
    ]


def _example(ctx: Context, record: Record) -> list[str]:
    kind = "desirable" if record["label"] else "undesirable"
    outcomes = recorded(ctx.store).filter(pl.col("episode_id") == record["episode_id"]).collect()["outcome"].to_list()
    ended = attempt_outcome(next(iter(outcomes), None), record["p_success"], known=True)
    reason = {
        "outcome": f"of its episode's outcome ({ended})",
        "correction": "a user corrected the step, and this is the correction",
    }[record["source"]]
    return [
        f"example {record['example_id']}, split {record['split']}: {kind}, because {reason}.",
        f"Weight {record['weight']:.2f}; from step {record['step']} of episode {record['episode_id']}.",
        f"`flywheel explain {record['episode_id'][:12]}` explains the episode's reward.",
    ]


def _group(record: Record) -> list[str]:
    members = zip(
        record["episodes_G"], record["policies_G"], record["rewards_G"], record["advantages_G"], record["behaviour_G"],
        strict=False,
    )  # fmt: skip
    return [
        f"group {record['group_id']}, split {record['split']}: {len(record['episodes_G'])} attempts at one task.",
        "An attempt's advantage is its return minus the mean of the others; advantages sum to 0.",
        *(
            f"  episode {episode[:12]} by {policy}: return {reward:+.3f}, advantage {advantage:+.3f}, "
            f"log-probabilities {behaviour}"
            for episode, policy, reward, advantage, behaviour in members
        ),
    ]


def _fixture(record: Record) -> list[str]:
    agree = f"{record['n_agree']:,} of {record['n_attempts']:,} attempts got this result"
    return [
        f"fixture {record['fixture_id']}, split {record['split']}: the recorded result of a call of {record['tool']}.",
        f"In the replay it answers this call, in this task and state only; the call ended {record['status']}.",
        f"  {agree}; first in episode {record['episodes'][0][:12]}.",
    ]


def _scenario(record: Record) -> list[str]:
    ends = zip(record["counts_E"], record["successes_E"], record["rewards_E"], strict=True)
    start = f"turn {record['turn']} of a task, from step {record['step']} of episode {record['episode_id'][:12]}"
    return [
        f"scenario {record['scenario_id']}, split {record['split']}: {start}.",
        f"{record['n_attempts']:,} recorded attempts came here; an end is known by its {record['judged_by']}.",
        *(f"  {n:,} ended with P(success) {p:.2f} and return {r:+.3f}" for n, p, r in ends),
    ]


# --- steps, tasks, cases and events -----------------------------------------------------------------------------------


def _step(record: Record) -> list[str]:
    """Return what a step did, how its calls ended, and its credit."""
    calls = zip(record["tool_names"], [*record["tool_status"], *["unknown"] * len(record["tool_names"])], strict=False)
    did = ", ".join(f"{name} ({status})" for name, status in calls) or "no call"
    lines = [f"step {record['index']} of episode {record['episode_id']}: {did}."]
    lines += ["A call's arguments did not parse."] if record["malformed"] else []
    for row in record["returns"]:
        where = {0: "at the same history", 1: "after the same calls", 2: "at the same place, with the same tool"}
        level = where.get(row["level"], "nowhere: no other attempt did the like")
        support = f"{row['n_support']:,} episodes through its action, compared {level}"
        lines.append(f"Credit {row['value']:+.3f}, luck {row['luck']:+.3f}: {support}.")
    lines += [f"  {r['signal']} votes {r['score']:+.2f}; evidence {_evidence([r])}" for r in record["rewards"]]
    return [*lines, f"`flywheel explain {record['episode_id'][:12]}` explains the episode's reward."]


def _task(record: Record) -> list[str]:
    """Return the attempts at a task, by policy, and what is known of them."""
    attempts = record["attempts"]
    named = f", in the log {', '.join(record['names'])}" if record["names"] else ""
    lines = [f"task {record['task_id']}{named}: {count(len(attempts), 'attempt')}, split {', '.join(record['split'])}."]
    for policy in sorted({a["policy"] for a in attempts}):
        of = [a for a in attempts if a["policy"] == policy]
        lines.append(f"  {policy}: {count(len(of), 'attempt')}{_outcomes(of)}")
    for one in attempts[:_MOST_ATTEMPTS]:
        ended = attempt_outcome(one["outcome"], one["p_success"], known=bool(one["known"]))
        lines.append(f"  episode {one['episode_id'][:12]} by {one['policy']}: {ended}")
    more = len(attempts) - _MOST_ATTEMPTS
    return [*lines, f"  and {more:,} more"] if more > 0 else lines


def _outcomes(attempts: Sequence[Record]) -> str:
    """Return what is known of attempts: recorded outcomes counted, estimates averaged, never both in one number."""
    outcomes = [a["outcome"] for a in attempts if a["outcome"] is not None]
    estimates = [a["p_success"] for a in attempts if a["known"] and a["outcome"] is None]
    graded = any(0 < outcome < 1 for outcome in outcomes)
    mean = f"mean score {math.fsum(outcomes) / len(outcomes):.2f}, recorded" if graded else ""
    counted = f"{sum(o == 1 for o in outcomes):,} of {len(outcomes):,} succeeded, recorded" if outcomes else ""
    likely = f"{len(estimates):,} with mean P(success) {math.fsum(estimates) / len(estimates):.2f}" if estimates else ""
    return "".join(f", {words}" for words in (mean or counted, likely) if words) or ", outcome unknown"


def _case(record: Record) -> list[str]:
    """Return what a case is made of, and which rounds won or lost it."""
    if "actions" in record:
        actions = record["actions"]
        lines = [
            f"case {record['case_id']}: a state of task {record['task_id'][:12]}, logged {count(len(actions), 'time')}."
        ]
        for one in actions[:_MOST_ATTEMPTS]:
            calls = ", ".join(str(c.get("name")) for c in one["action"].get("tool_calls") or ()) or "words"
            ended = attempt_outcome(one["outcome"], one["p_success"], known=bool(one["known"]))
            lines.append(f"  step {one['episode_id'][:12]}:{one['index']}: {calls}; its episode: {ended}")
    else:
        lines = [f"case {record['case_id']}: one of the project's own, in {record['file']}.jsonl."]
    lines += [f"Round {number}: {kinds}." for number, kinds in record["rounds"].items()]
    return lines if record["rounds"] else [*lines, "No evaluation lists it as a win, a regression or a failure."]


def _trained(record: Record) -> list[str]:
    """Return the rounds of a row that no table holds, and where it comes from."""
    rounds = record["rounds"]
    named = f"round {rounds[0]} was" if len(rounds) == 1 else f"rounds {', '.join(map(str, rounds))} were"
    why = "it is an attempt of the champion's, or its label, its credit or a filter has changed since"
    lines = [f"row {record['id']}: what {named} trained on. No table of today holds it: {why}."]
    return [*lines, *(f"  from episode {episode[:12]}" for episode in record["episodes"])]


def _event(record: Record) -> list[str]:
    """Return where an event comes from and what it is part of."""
    when = f" at {record['ts']}" if record["ts"] else ""
    place = f"{record['source_file']} line {record['source_line']} ({record['source_format']})"
    lines = [f"event {record['event_id']}: {record['kind']}{when}, from {place}."]
    lines += [f"  part of step {step[:12]}:{step.rpartition(':')[2]}" for step in record["steps"]]
    return [*lines, *(f"  in episode {episode[:12]}" for episode in record["episodes"])]


# --- an episode's reward ----------------------------------------------------------------------------------------------


def _episode(ctx: Context, record: Record) -> list[str]:
    """Return each vote with its worth, the missing evidence, and the resulting reward and weight.

    Args:
        ctx: the project.
        record: an episode with its `rewards` and `returns`, as `show` returns it.
    """
    table = ctx.store.table("reliability", stage_of("reliability")).collect()
    belief = Posterior.read(table)
    outcome = next((r for r in record["returns"] if r["step"] is None), None)
    policy = f"policy {record['policy']}, {record['stop_reason']}"
    lines = [f"episode {record['episode_id']}: {record['n_steps']} steps by {policy}."]
    if outcome is not None:
        lines += _value(ctx, outcome, record)
        lines += _probability(ctx, outcome, record, belief, table)
        lines += _waiting(record, belief)
        lines += _weight(outcome)
    lines += _costs_and_risks(record)
    lines += _crowd(ctx, record)
    return lines + _credits([r for r in record["returns"] if r["step"] is not None], outcome)


def _credits(returns: Sequence[Record], outcome: Record | None) -> list[str]:
    """Return the credit of each step, and whether its turn was rejected; equal neighbours are one line."""
    whole = outcome["p_success"] if outcome is not None else 0.0

    def text(row: Record) -> str:
        credit = f"credit {row['value']:+.3f}, luck {row['luck']:+.3f}, {count(row['n_support'], 'episode')}"
        return credit + ("; not imitated: the user rejected the turn" if row["p_success"] < whole else "")

    lines = []
    for credit, same in groupby(returns, text):
        steps = [r["step"] for r in same]
        name = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}, each"
        lines.append(f"  {name}: {credit}")
    return lines


def _value(ctx: Context, outcome: Record, record: Record) -> Iterator[str]:
    cfg = ctx.config.rewards
    if outcome["basis"] == "suspect":
        yield "Its reward is suspect: the recorded value is implausible. It has no weight and is not trained on."
    elif not outcome["known"]:
        yield "Its outcome is unknown: no signal voted. It is not trained on."
    elif cfg.scheme == "rules":
        yield f"R = {outcome['value']:+.3f} by [rewards.rules]: {record['n_steps']} steps, risk {outcome['risk']:.2f}."
    else:
        yield (
            f"R = {outcome['value']:+.3f} = {cfg.alpha:g} x (2 x {outcome['p_success']:.3f} - 1) - {cfg.beta:g} x cost "
            f"{outcome['cost']:.3f} - {cfg.gamma:g} x risk {outcome['risk']:.3f}."
        )


def _votes(record: Record, belief: Posterior) -> dict[tuple[str, str], tuple[Vote, list[Record]]]:
    """Return each signal's vote, averaged over its rows as `returns` does, with these rows."""
    by_signal: dict[tuple[str, str], list[Record]] = {}
    for row in record["rewards"]:
        if row["kind"] in {"outcome", "implicit"}:
            by_signal.setdefault((row["signal"], row["family"]), []).append(row)
    votes = {}
    for key, rows in sorted(by_signal.items()):
        weights = math.fsum(r["weight"] for r in rows)
        score = math.fsum(r["score"] * r["weight"] for r in rows) / weights if weights else 0.0
        (vote,) = belief.trusted([Vote(*key, score, weights / len(rows))], record["user"])
        votes[key] = vote, rows
    return votes


def _probability(
    ctx: Context, outcome: Record, record: Record, belief: Posterior, table: pl.DataFrame
) -> Iterator[str]:
    votes = _votes(record, belief)
    if not votes:
        return
    p_success, basis = outcome["p_success"], outcome["basis"]
    scope = scope_of(ctx.config.rewards.scope, _time(record["started"]), record["policy"], record["source_format"])
    contributions = belief.contributions([v for v, _ in votes.values()], scope)
    parts = {(part.vote.signal, part.vote.family): part for part in contributions}
    decider = {"audit": "a reviewer's answer", "verifier": "a recorded outcome, which decides alone"}.get(basis)
    signals = f"{outcome['n_support']} signal{'s' if outcome['n_support'] != 1 else ''}"
    prior = "" if decider else f", from {belief.prior(scope):.2f} before any vote"
    yield f"P(success) {p_success:.2f} by {decider or signals}{prior}:"
    for key, (vote, rows) in votes.items():
        if vote.family in {"audit", "verifier"}:
            agrees = (vote.score > 0) == (p_success > 0.5)  # noqa: PLR2004 (more likely than not)
            worth = "decides" if vote.family == basis else "agrees" if agrees else "is overruled"
        elif key in parts:
            worth = f"odds x {math.exp(parts[key].log_odds):.2f} ({parts[key].source})"
        else:
            worth = "no effect"
        yield f"{_vote(vote, rows)}: {worth}; evidence {_evidence(rows)}"
    if decider is None:
        yield from _held(contributions, outcome["p_raw"])
    calibration = table.filter((pl.col("kind") == "calibration") & (pl.col("name") == ""))
    if calibration.is_empty():
        yield "  Uncalibrated: too few episodes have been audited (flywheel audit)."
    elif basis != "audit":
        n, ece = calibration["n"][0], calibration["value"][0]
        change = f"from {outcome['p_raw']:.2f} to {p_success:.2f}"
        yield f"  Calibrated {change} by {n} audited episodes (ECE {ece:.3f}, cross-fitted)."


def _held(contributions: Sequence[Contribution], p_raw: float) -> Iterator[str]:
    speaks = {part.vote.family for part in contributions if part.log_odds >= BACKS}
    if p_raw == PRAISE_ALONE:
        yield f"  Capped at {PRAISE_ALONE}: positive feedback alone is weak evidence."
    elif {PRAISE} < speaks | {PRAISE} <= UNBACKED:
        yield f"  Held below {PEERS_ALONE}: agreement without other evidence makes no demonstration."


def _vote(vote: Vote, rows: Sequence[Record]) -> str:
    steps = [str(row["step"]) for row in rows if row["step"] is not None]
    less = f" x {vote.weight:.2f}" if vote.weight < 1 and vote.family in DEEDS else ""
    return f"  {vote.signal} ({vote.family}) votes {vote.score:+.2f}{less}" + (
        f" on step {', '.join(steps)}" if steps else ""
    )


def _waiting(record: Record, belief: Posterior) -> Iterator[str]:
    """Yield the evidence that may still arrive: the share of it that would have by now, and when 80 % will have."""
    ended = _time(record["ended"])
    age = belief.age(ended)
    voted = {r["signal"] for r in record["rewards"] if r["weight"] > 0}
    if age is None or ended is None:
        yield "Its log has no times: no late evidence is expected."
        return
    for late, share in belief.waiting(voted, age):
        ever = late.delays.at(late.horizon)
        p_later = late_after_silence(ever, share)
        if share < 1:
            due_s = next((t for t in late.delays.times if late.delays.at(t) >= _ARRIVED * ever), late.horizon)
            due = datetime.fromtimestamp(ended.timestamp() + due_s, UTC)
            yield (
                f"  {late.signal} has not voted, {age / 86400:.1f} d after the end: {percent(share, 0)} of its votes "
                f"arrive by then, P(a later vote) {p_later:.3f}; {percent(_ARRIVED, 0)} by {due:%Y-%m-%d %H:%M}"
            )


def _weight(outcome: Record) -> Iterator[str]:
    if not outcome["known"]:
        return
    decided = abs(2 * outcome["p_success"] - 1)
    yield (
        f"Weight {outcome['weight']:.2f} = decided {decided:.2f} x mature {outcome['maturity']:.2f}; "
        f"trust in the user's votes {outcome['trust']:.2f}."
    )
    if outcome["provisional"]:
        yield "It is not mature yet and not trained on: evidence may still arrive."


def _costs_and_risks(record: Record) -> Iterator[str]:
    for row in record["rewards"]:
        place = "episode" if row["step"] is None else f"step {row['step']}"
        evidence = _evidence([row])
        if row["kind"] == "cost":
            unit = row["family"].removesuffix("s") if row["score"] == 1 else row["family"]
            yield f"  cost: {row['score']:g} {unit}, before comparison with the task's other attempts"
        elif row["signal"] == BURST:
            n = round(1 / (1 - row["score"]))
            yield f"  burst: one of {n} accounts that did the same after the same action; they count as one"
        elif row["kind"] == "risk" and row["signal"] != CROWD:
            yield f"  {row['signal']}: severity {row['score']:.2f} at {place}; evidence {evidence}"


def _crowd(ctx: Context, record: Record) -> Iterator[str]:
    """Yield what is known of the crowd of accounts that an episode is part of."""
    crowds = ctx.store.table("crowds", stage_of("crowds")).filter(episode_id=record["episode_id"]).collect()
    for row in crowds.iter_rows(named=True):
        yield (
            f"  crowd: one of {row['accounts']:,} accounts that came at once to what was done here, at "
            f"{count(row['tasks'], 'task')}; {row['likes']:,} of their {row['opinions']:,} opinions are likes, "
            f"{row['others_like']:,} of {row['others']:,} of those before and after them (P {row['p']:.1g} by chance)"
        )
        if row["aside"]:
            yield (
                f"    Their votes are set aside, until {ENOUGH_OTHERS} accounts that come later mostly agree, or "
                f"{ENOUGH_KNOWN} of them are audited and most are right."
            )
        else:
            yield "    That may be chance, or too few can be compared with: their votes count. Look at some."


def _evidence(rows: Sequence[Record]) -> str:
    return ", ".join(event[:8] for row in rows for event in row["evidence"]) or "none"


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)

"""Numbers and decisions in words: the one place where rates, intervals, sizes and verdicts become text.

Rates are percentages and their differences percentage points (pp); other metrics are plain numbers. A missing number is
a "-". The text is plain; a page sets its minus signs and spaces itself (`flywheel.report.text.typeset`).

    metric_change    next_action_good 0.0% -> 75.9%, +75.9 pp [+55, +88], n 29
    decision         round 2 is held (INCONCLUSIVE); round 1 stays champion
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeGuard

from flywheel.records import (
    FRESH,
    EvalReport,
    MetricRow,
    Promotion,
    Race,
    RaceCandidate,
    RaceHeat,
    RoundManifest,
    RuleResult,
    ServedBy,
    Verdict,
)

MISSING = "-"
NAMED = 3  # names that a sentence holds; -v prints the others
_SLOW = 0.5  # a second, below which the time of one is shown instead of a rate
_SMALL, _LARGE = 1e-3, 1e5  # beyond these a plain number is written with an exponent
_WIDE = 0.1  # shares; an interval as wide carries no decimals of a percentage
_SHOWN_AS_ZERO = 0.005  # shares below this, written without decimals
_MINUTE_S = 60
_HOUR_S = 3600
_KILO = 1000


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


# --- counts and plain numbers ----------------------------------------------------------------------------------------


def count(value: float | None, noun: str = "") -> str:
    """Return a count with thousands, and with its noun if there is one: '1,200', '1 case', '1,200 cases'."""
    if not _known(value):
        return MISSING
    number_of = f"{value:,.0f}"
    return f"{number_of} {nouns(value, noun)}" if noun else number_of


def nouns(value: float, noun: str) -> str:
    """Return a noun as it follows a count: 'case' after 1, else 'cases'."""
    return noun if f"{value:,.0f}" == "1" else f"{noun}s"


def one_line(text: str, most: int = 0) -> str:
    """Return a text without line breaks, and with at most so many characters where that is not 0."""
    line = text.replace("\r", "").replace("\n", " ") if "\n" in text else text
    return f"{line[: most - 1]}…" if 0 < most < len(line) else line


def some(names: Sequence[str], most: int = NAMED, between: str = ", ") -> str:
    """Return the first names, and how many more there are: 'a, b, c and 4 more'."""
    shown = between.join(names[:most])
    return shown if len(names) <= most else f"{shown} and {count(len(names) - most)} more"


def table_counts(stage: str, rows: Mapping[str, int], funnel: Mapping[str, int]) -> str:
    """Return how many rows a stage's tables have: '402 episodes, 1,360 steps'; 'nothing' where they are empty."""
    if stage == "tasks" and "note: tasks" in funnel:
        return f"{count(funnel['note: tasks'])} tasks of {count(rows['tasks'])} episodes"  # a row is an episode's
    if stage == "crowds" and rows["crowds"]:
        return f"{count(rows['crowds'], 'episode')} in crowds"
    return ", ".join(_rows_of(table, n) for table, n in rows.items() if n) or "nothing"


def _rows_of(table: str, n: int) -> str:
    """Return a number of rows by what one of them is."""
    if not table.endswith("s"):
        return f"{count(n, 'row')} of {table}"
    one = f"{table[:-3]}y" if table.endswith("ies") else table[:-1]
    return f"{count(n)} {one if n == 1 else table}"


def number(value: float | None) -> str:
    """Return a plain number with about four significant digits."""
    if not _known(value):
        return MISSING
    return f"{value:,.4g}" if value == 0 or _SMALL <= abs(value) < _LARGE else f"{value:.2e}"


def amount(value: float) -> str:
    """Return a mean of tokens, seconds or dollars with three significant digits, whole ones at least."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004


def signed(value: float | None, digits: int = 2) -> str:
    """Return a number that always shows its sign."""
    return f"{value:+.{digits}f}" if _known(value) else MISSING


def size(n_bytes: float) -> str:
    """Return a number of bytes: '512 B', '9.4 MB'."""
    value, units = float(n_bytes), ["B", "kB", "MB", "GB", "TB"]
    while value >= _KILO and len(units) > 1:
        value, units = value / _KILO, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


def duration(seconds: float | None) -> str:
    """Return a span of time: '81.4 s', '9.5 min', '1.5 h'."""
    if not _known(seconds):
        return MISSING
    if 2 * _MINUTE_S <= seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.1f} min"
    return f"{seconds / _HOUR_S:,.1f} h" if seconds >= _HOUR_S else f"{seconds:,.1f} s"


def speed(done: int, seconds: float, unit: str = "") -> str:
    """Return how fast counted work goes: '3.2 cases/s', or '35.0 s each' where one takes long; '' before the first."""
    if done <= 0 or seconds <= 0:
        return ""
    if done / seconds < _SLOW:
        return f"{duration(seconds / done)} each"
    return f"{done / seconds:.1f}{f' {unit}' if unit else ''}/s"


# --- rates, differences, intervals -----------------------------------------------------------------------------------


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage: '75.9%'."""
    return f"{share:.{digits}%}" if _known(share) else MISSING


def points(difference: float | None, digits: int = 1) -> str:
    """Return a difference of shares in percentage points, with its sign: '+75.9 pp'."""
    return f"{100 * difference:+.{digits}f} pp" if _known(difference) else MISSING


def margin(share: float | None, digits: int = 1) -> str:
    """Return a margin or a loss in percentage points, without a sign: '3.0 pp'."""
    return f"{100 * share:.{digits}f} pp" if _known(share) else MISSING


def level(value: float | None, *, binary: bool = True) -> str:
    """Return a metric's mean: a percentage for a metric of zeros and ones."""
    if binary:
        return percent(value)
    return f"{value:.3f}" if _known(value) else MISSING


def difference(value: float | None, *, binary: bool = True) -> str:
    """Return a difference of means with its sign: percentage points for a metric of zeros and ones."""
    return points(value) if binary else signed(value, 3)


def interval(low: float | None, high: float | None, *, binary: bool = True, unit: bool = False) -> str:
    """Return the interval of a difference: '[+55, +88]', in percentage points for a metric of zeros and ones."""
    if not _known(low) or not _known(high):
        return MISSING
    scale, digits = (100, _carried(low, high)) if binary else (1, 3)
    ends = f"[{scale * low:+.{digits}f}, {scale * high:+.{digits}f}]"
    return f"{ends} pp" if binary and unit else ends


def _carried(low: float, high: float) -> int:
    """Return the decimals of percentages that an interval carries: none where it is wide, and no end becomes 0."""
    ends_at_zero = any(0 < abs(end) < _SHOWN_AS_ZERO for end in (low, high))
    return 1 if high - low < _WIDE or ends_at_zero else 0


def percent_interval(low: float | None, high: float | None) -> str:
    """Return the interval of a share: '[23%, 46%]'."""
    if not _known(low) or not _known(high):
        return MISSING
    digits = _carried(low, high)
    return f"[{percent(low, digits)}, {percent(high, digits)}]"


def plain_interval(low: float | None, high: float | None, digits: int = 2) -> str:
    """Return the interval of a plain number, a ratio say: '[0.95, 1.10]'."""
    return f"[{low:.{digits}f}, {high:.{digits}f}]" if _known(low) and _known(high) else MISSING


def p_value(p: float) -> str:
    """Return a p-value, or a test's level, with two significant digits."""
    return f"{p:.2g}"


def e_value(log_e: float) -> str:
    """Return an e-value from its logarithm, with two significant digits: '38', '1.2e+06'."""
    value = math.exp(min(log_e, 700.0))
    return f"{value:,.0f}" if 10 <= value < 1e5 else f"{value:.2g}"  # noqa: PLR2004 - readable as a plain number


def looks_needed(looks: Mapping[str, int]) -> str:
    """Return how long a decision takes: 'an improvement of 3 points in about 48 looks, 5 in 18, 10 in 5'."""
    first, *rest = looks.items()
    return ", ".join(
        [f"an improvement of {first[0]} points in about {count(first[1], 'look')}", *(f"{p} in {n:,}" for p, n in rest)]
    )


def attempt_outcome(recorded: float | None, p_success: float | None, *, known: bool) -> str:
    """Return how an attempt ended: by its recorded outcome, which is a fact, else by an estimate."""
    if recorded is not None:
        return {0.0: "failed, recorded", 1.0: "succeeded, recorded"}.get(recorded, f"score {recorded:.2f}, recorded")
    return f"P(success) {p_success:.2f}" if known and _known(p_success) else "outcome unknown"


# --- rounds and metrics ----------------------------------------------------------------------------------------------


def round_name(number: int | str | None) -> str:
    """Return the name of a round, or of a report's baseline: 'round 3', 'base model', a policy's own name."""
    if number is None or number == "base":
        return "base model"
    return f"round {number}" if isinstance(number, int) or number.isdigit() else number


def the_round(number: int | str | None) -> str:
    """Return the name of a round within a sentence: 'round 3', 'the base model'."""
    name = round_name(number)
    return f"the {name}" if name == "base model" else name


def served_by(served: ServedBy) -> list[str]:
    """Return sentences on the server that answered: which it is, and how far it answers as transformers does."""
    version = f" {served.version}" if served.version else ""
    lines = [f"{served.kind}{version} at {served.endpoint} answered, as {served.candidate} and {served.baseline}"]
    if served.kind == "openai":
        lines.append("this kind of server does not state which weights are behind a name: a change there is not seen")
    if found := served.agreement:
        lines.append(
            f"{found.same:,} of {count(found.prompts, 'greedy answer')} are those of transformers here, "
            f"{found.same_calls:,} have the same calls"
        )
    if served.other_rendering:
        lines.append("its chat template makes other tokens of a prompt than the one that rounds are trained with")
    return lines


def training_end(manifest: RoundManifest) -> str:
    """Return how far a round was trained and why no further; '' where its trainer does not say."""
    if not manifest.stopped:
        return ""
    taken = count(manifest.steps_taken, "optimiser step")
    where = f"{taken}, {number(manifest.kl)} nats a token from {the_round(manifest.parent)}"
    if manifest.stopped == "steps":
        return f"{where} (train.max_kl {number(manifest.max_kl)})"
    last = manifest.kl_curve[-1]
    return f"{where}; stopped by train.max_kl {number(manifest.max_kl)}: {number(last.kl)} at step {last.step:,}"


def race_lines(race: Race) -> list[str]:
    """Return a race: on what and within which budget, then a line a candidate; one line where none was held."""
    if race.state == "none" and not race.candidates:
        return [f"none: {race.reason}"]
    raced = [candidate for candidate in race.candidates if not candidate.why]
    cases = f"{count(race.tasks, 'development task')}, {count(race.cases, 'case')} of {race.suite}"
    known = f", {race.known:,} of them trained on before" if race.known else ""
    budget = f"at most {race.tokens:,} trained tokens in {count(race.rungs, 'rung')}"
    shown = f"{count(len(raced), 'method')} on {cases}{known}; {budget}"
    parent = f"; the parent has {level(race.parent_score, binary=race.binary)}" if race.parent_score is not None else ""
    first = f"none: {race.reason}" if race.state == "none" else f"{shown}{parent}"
    return [first, *(f"{one.method}: {_raced(one, race)}" for one in race.candidates)]


def _raced(candidate: RaceCandidate, race: Race) -> str:
    """Return what a candidate scored, rung by rung."""
    if candidate.why:
        return f"not raced: {candidate.why}"
    won = ["best"] if race.winner == candidate.method else []
    return "; ".join([*(_heat(heat, race) for heat in candidate.heats), *won]) or f"{candidate.rows:,} rows"


def _heat(heat: RaceHeat, race: Race) -> str:
    if heat.error:
        return f"rung {heat.rung}: not trained: {heat.error}"
    change = f"{difference(heat.delta, binary=race.binary)} {interval(heat.low, heat.high, binary=race.binary)}"
    return f"rung {heat.rung}, {heat.tokens:,} tokens: {level(heat.score, binary=race.binary)}, {change}"


def metric_name(row: MetricRow) -> str:
    """Return the metric, and its slice unless that is everything."""
    if row.slice == FRESH:
        return f"{row.metric} on fresh tasks"
    return row.metric if row.slice == "all" else f"{row.metric} where {row.slice}"


def metric_change(row: MetricRow) -> str:
    """Return a metric with both values, the difference, its 95% interval and n."""
    if row.n == 0 or row.baseline is None or row.value is None or row.delta is None:
        return f"{metric_name(row)}: no paired cases"
    before, after = (level(value, binary=row.binary) for value in (row.baseline, row.value))
    change = difference(row.delta, binary=row.binary)
    if _known(row.low) and _known(row.high):
        change += f" {interval(row.low, row.high, binary=row.binary)}"
    return f"{metric_name(row)} {before} -> {after}, {change}, n {count(row.n)}"


def metric_evidence(row: MetricRow) -> str:
    """Return a metric's change with the number of its tasks, and of the cases won and lost."""
    tasks = [count(row.n_tasks, row.unit)] if row.n_tasks else []
    tally = [f"+{row.wins}/-{row.losses}"] if row.binary else []
    counts = ", ".join([*tasks, *tally])
    return f"{metric_change(row)} ({counts})" if row.n and counts else metric_change(row)


def primary_row(report: EvalReport | None) -> MetricRow | None:
    """Return the primary metric over all cases."""
    rows = [row for row in (report.metrics if report else []) if row.slice == "all"]
    return next((row for row in rows if row.primary), rows[0] if rows else None)


# --- decisions -------------------------------------------------------------------------------------------------------


def decision(promotion: Promotion, *, became: str = "is") -> str:
    """Return what was decided on a round, and which round is champion now; a page that stays shows `became`."""
    name, champion = f"round {promotion.round}", the_round(promotion.champion_after)
    verdict = f" ({promotion.verdict})" if promotion.verdict else ""
    reason = f": {promotion.reason}" if promotion.reason else ""
    return {
        "promoted": f"{name} {became} champion{verdict}",
        "held": f"{name} is held{verdict}; {champion} stays champion",
        "forced": f"{name} {became} champion by force, without the gate{reason}",
        "rolled_back": f"{name} is rolled back; {champion} is champion{reason}",
        "forgotten": f"{name} is withdrawn; {champion} is champion{reason}",
    }[promotion.decision]


class Step(NamedTuple):
    """What to do next: a sentence, and the command to type; '' where there is none."""

    text: str
    command: str


def outcome(promotion: Promotion, report: EvalReport | None = None) -> list[tuple[str, str]]:
    """Return a decision in three lines, each with its name: the verdict, why, and what to do next."""
    row = primary_row(report)
    why = one_reason(reasons(promotion), otherwise=metric_change(row) if row else "every rule of the gate holds")
    reasoned = [("why", why)] if promotion.rules else []
    return [("verdict", decision(promotion)), *reasoned, ("next", next_line(promotion))]


def next_line(promotion: Promotion) -> str:
    """Return what to do first after a decision, with the command to type."""
    step = decided_steps(promotion)[0]
    return f"{step.text} {step.command}".strip()


def one_reason(messages: Sequence[str], *, otherwise: str) -> str:
    """Return the first of the messages of the rules that did not pass, and how many more there are."""
    if not messages:
        return otherwise
    return messages[0] + (f" (-v: {count(len(messages) - 1, 'more reason')})" if len(messages) > 1 else "")


def next_steps(manifest: RoundManifest, report: EvalReport | None, promotion: Promotion | None) -> list[Step]:
    """Return what to do about a round, the most useful first."""
    number = manifest.round
    if promotion is not None:
        return decided_steps(promotion)
    if report is not None:
        return [Step("Let the gate decide on it.", f"flywheel promote {number}")]
    if manifest.adapter_sha256:
        return [Step("Compare it with the champion on held-out tasks.", f"flywheel eval --round {number} --promote")]
    return [Step("Finish its training.", f"flywheel train --round {number}")]


def decided_steps(promotion: Promotion) -> list[Step]:
    """Return what to do after a decision, the most useful first."""
    if promotion.decision in {"promoted", "forced"}:
        return [
            Step("Serve it, to some users first.", "flywheel deploy vllm URL"),
            Step("Watch it there against the round before.", "flywheel canary"),
        ]
    if promotion.decision == "held":
        return [*_after_held(promotion), Step("See what the reasons rest on.", f"flywheel explain {promotion.round}")]
    return [Step("The next round starts from the champion.", "flywheel run nightly")]


def _after_held(promotion: Promotion) -> list[Step]:
    """Return what would decide a held round, or mend it."""
    if promotion.verdict == Verdict.BLOCKED:
        return [Step("Mend what blocks the comparison, then evaluate again.", "flywheel doctor")]
    if promotion.verdict == Verdict.REJECT:
        return [Step("Read the cases that it lost: is the reward wrong there, or the data?", "flywheel rewards")]
    rule = next((r for r in promotion.rules if r.rule == "superiority"), None)
    needed, n = (rule.numbers.get(key, 0.0) for key in ("needed_n", "n")) if rule is not None else (0.0, 0.0)
    if rule is not None and not rule.passed and rule.numbers.get("n") == 0:
        return [Step("Name a suite first in eval.suites that has cases in these logs.", "flywheel config")]
    if needed > n:
        more = count(needed - n, "more case")
        return [
            Step(f"Collect about {more} of new held-out tasks; the nightly job waits for them.", "flywheel run nightly")
        ]
    return [Step("Ingest more logs: the next round gets more rows and new held-out tasks.", "flywheel run nightly")]


_SHOWN = {  # what a rule shows, by its numbers
    "non_inferior": ("shown",),
    "slices": ("shown", "found"),
    "no_deterioration": ("tests", "limited"),
    "off_policy": ("n",),
}


def showed_nothing(rule: RuleResult) -> bool:
    """Return whether a rule passed only because there was nothing to show: no guardrail, no slice, no estimate."""
    counted = _SHOWN.get(rule.rule, ())
    return rule.passed and bool(counted) and not any(rule.numbers.get(name) for name in counted)


def rule_mark(rule: RuleResult) -> str:
    """Return a tick, a cross, or a dash where there was nothing to show."""
    return "-" if showed_nothing(rule) else "✓" if rule.passed else "✗"


def reasons(promotion: Promotion | None) -> list[str]:
    """Return the messages of the rules that did not pass, the verdict's own first."""
    failed = [rule for rule in (promotion.rules if promotion is not None else []) if not rule.passed]
    return [
        rule.message for rule in sorted(failed, key=lambda r: promotion is not None and r.verdict != promotion.verdict)
    ]


Tone = Literal["good", "bad", "unsure", "plain"]


class Headline(NamedTuple):
    """The state of a round as a label, a sentence, and a tone that picks its colour."""

    label: str
    sentence: str
    tone: Tone


_DECIDED: dict[str, tuple[str, Tone]] = {
    "promoted": ("Promoted", "good"),
    "forced": ("Forced", "unsure"),
    "rolled_back": ("Rolled back", "bad"),
    "forgotten": ("Withdrawn", "bad"),
    "held": ("Held", "unsure"),
}
_HELD: dict[Verdict, tuple[str, Tone]] = {
    Verdict.REJECT: ("Rejected", "bad"),
    Verdict.INCONCLUSIVE: ("Inconclusive", "unsure"),
    Verdict.BLOCKED: ("Blocked", "bad"),
}


def headline(
    manifest: RoundManifest, report: EvalReport | None, promotion: Promotion | None, *, numbers: bool = True
) -> Headline:
    """Return where a round is: the newest decision on it with its primary metric, or its state before one.

    Without `numbers` the metric is left out, for where the reasons follow.
    """
    row = primary_row(report)
    evidence = metric_change(row) if row else "no paired cases"
    if promotion is not None:
        words = decision(promotion, became="became")
        sentence = f"{words[0].upper()}{words[1:]}"
        if numbers and promotion.decision in {"promoted", "held"}:
            sentence += f": {evidence}"
        label, tone = _DECIDED[promotion.decision]
        if promotion.decision == "held" and promotion.verdict in _HELD:
            label, tone = _HELD[promotion.verdict]
        return Headline(label, f"{sentence}.", tone)
    name = f"Round {manifest.round}"
    if report is not None:
        return Headline("Evaluated", f"{name} is evaluated and not decided yet: {evidence}.", "plain")
    if manifest.state == "failed":
        return Headline("Failed", f"{name} failed: {manifest.error or 'no reason was recorded'}", "bad")
    return Headline(manifest.state.capitalize(), f"{name} has not been evaluated.", "plain")

"""What the templates lay out: the report's values brought into rows, links and marked texts.

Nothing here is HTML; escaping is the templates' business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from flywheel.messages import message_text
from flywheel.present import MISSING, count, number, the_round, training_end
from flywheel.records import BaselineRow, MetricRow, refused_alike
from flywheel.report.data import SCORE_EDGES, CaseRow, EpisodeView, PairView, ReportData, SignalRow
from flywheel.report.differing import Piece, differing, words
from flywheel.report.plots import CURVES
from flywheel.report.text import clean, clip

MOST_CASES, MOST_PAIRS, MOST_STEPS, LONGEST_TEXT = 60, 24, 24, 2000


@dataclass(frozen=True)
class Table:
    """A plain table of texts; `left_out` describes the omitted rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left_out: str = ""


@dataclass(frozen=True)
class FunnelRow:
    """One stage: what it considered, kept, dropped by reason, and its notes."""

    stage: str
    considered: int | None
    kept: int | None
    dropped: Mapping[str, int]
    notes: Mapping[str, int]


@dataclass(frozen=True)
class CaseList:
    """Cases with their episodes and whether each can be shown in the viewer; `more` are not listed."""

    rows: Sequence[tuple[CaseRow, Sequence[tuple[str, bool]]]]
    more: int


@dataclass(frozen=True)
class PairCard:
    """A pair as shown: what each side saw last, as (role, text), and both sides in pieces, token by token or word.

    `asked` is what a user asked last, `contexts` has one entry where both sides saw the same.
    """

    pair: PairView
    asked: str
    contexts: Mapping[str, Sequence[tuple[str, str]]]
    chosen: Sequence[Piece]
    rejected: Sequence[Piece]
    unit: str


def metric_rows(data: ReportData, *, slices: bool) -> list[MetricRow]:
    """Return the evaluation's rows over all cases, or those of slices."""
    rows = data.report.metrics if data.report else []
    return [row for row in rows if (row.slice != "all") == slices]


class Baselines:
    """Baselines for reference by name, in order, and their rows by metric."""

    def __init__(self, rows: Sequence[BaselineRow]) -> None:
        self.names = list(dict.fromkeys(row.rival for row in rows))
        self._rows = {(row.suite, row.metric, row.rival): row for row in rows if row.value is not None}

    def at(self, row: MetricRow, name: str) -> BaselineRow | None:
        """Return a baseline's row of a metric; None where it has none."""
        return self._rows.get((row.suite, row.metric, name))


def measure_table(data: ReportData) -> Table | None:
    """Return measures other than scores, and the seconds of a case."""
    if data.report is None or not data.report.measures:
        return None
    body = [
        [
            f"{m.measure} of {m.suite}, {m.unit}",
            count(m.n),
            *(number(v) for v in (m.baseline, m.value, m.ratio)),
            MISSING if m.low is None or m.high is None else f"{number(m.low)} to {number(m.high)}",
        ]
        for m in data.report.measures
    ]
    seconds = [
        [f"{name}, seconds", *[MISSING] * 2, number(value), *[MISSING] * 2]
        for name, value in sorted(data.report.timings_s.items())
        if ": a case of " in name
    ]
    return Table(["Measure", "n", data.baseline_name, f"Round {data.round}", "Ratio", "95% interval"], body + seconds)


def off_policy_table(data: ReportData) -> Table | None:
    """Return the off-policy estimates that may be believed."""
    estimates = [e for e in data.report.off_policy if e.value is not None] if data.report is not None else []
    overlap = ("ess", "mean_weight", "typicality", "max_share", "tail_index")
    body = [
        [
            f"{e.name} of {_target(data, e.target)}",
            count(e.n),
            *(number(value) for value in (e.value, e.low, e.high, *(e.certificate.get(name) for name in overlap))),
            e.state,
        ]
        for e in estimates
    ]
    head = ["Estimate", "n", "Value", "Low", "High", "Effective n", "Mean weight", "Typicality", "Largest share"]
    return Table([*head, "Tail index", "State"], body) if body else None


def off_policy_refused(data: ReportData) -> list[str]:
    """Return a sentence on estimates that are refused for the same reasons."""
    return [
        f"{', '.join(names)} of {', '.join(_target(data, target) for target in targets)} REFUSED: {why}"
        for names, targets, why in refused_alike(data.report.off_policy if data.report is not None else ())
    ]


def _target(data: ReportData, target: str) -> str:
    return data.baseline_name if target == "baseline" else the_round(data.round)


def funnels_of(data: ReportData) -> dict[str, Mapping[str, int]]:
    """Return the stages' funnels and, last, that of the round's own rows."""
    rows = {"rows of the round": data.manifest.counts} if data.manifest.counts else {}
    return {**data.funnels, **rows}


def funnel_rows(funnels: Mapping[str, Mapping[str, int]]) -> list[FunnelRow]:
    """Return the funnels with their counts sorted out by kind."""
    return [
        FunnelRow(
            stage, counts.get("considered"), counts.get("kept"), _named(counts, "dropped: "), _named(counts, "note: ")
        )
        for stage, counts in funnels.items()
    ]


def _named(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    named = {key.removeprefix(prefix): n for key, n in counts.items() if key.startswith(prefix)}
    return dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))


def case_list(cases: Sequence[CaseRow], ids: Sequence[str], shown: set[str]) -> CaseList:
    """Return the cases, or bare ids where nothing more is known, with links to the episodes in the viewer."""
    rows = list(cases) or [CaseRow(case_id) for case_id in ids]
    listed = [(row, [(episode, episode in shown) for episode in row.episodes]) for row in rows[:MOST_CASES]]
    return CaseList(listed, max(0, len(rows) - MOST_CASES))


def training_table(metrics: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return the logged numbers by step, evenly thinned out to a table that one can read."""
    columns = [key for key in CURVES if any(isinstance(row.get(key), (int, float)) for row in metrics)]
    rows = [row for row in metrics if any(key in row for key in columns)]
    if not rows:
        return None
    stride = -(-len(rows) // MOST_STEPS)
    kept = [row for i, row in enumerate(rows) if i % stride == 0 or i == len(rows) - 1]
    body = [[_cell(row.get("step")), *(_cell(row.get(key)) for key in columns)] for row in kept]
    note = f"{len(kept)} of {len(rows)} logged steps; all are in metrics.jsonl." if len(kept) < len(rows) else ""
    return Table(["Step", *(CURVES[key] for key in columns)], body, note)


def _cell(value: object) -> str:
    return number(value) if isinstance(value, (int, float)) else MISSING


def histogram_table(data: ReportData) -> Table | None:
    """Return the histogram's counts by bin and split."""
    if data.returns is None:
        return None
    splits, edges = sorted(data.returns.counts, reverse=True), list(data.returns.edges)
    bins = [f"{number(low)} to {number(high)}" for low, high in pairwise(edges)]
    rows = [[name, *(_at(data.returns.counts[split], i) for split in splits)] for i, name in enumerate(bins)]
    return Table(["Return", *splits], rows)


def signal_table(rows: Sequence[SignalRow]) -> Table | None:
    """Return how many opinions of each signal lie in each bin of scores."""
    known = [row for row in rows if row.counts]
    if not known:
        return None
    bins = [f"{number(low)} to {number(high)}" for low, high in pairwise(SCORE_EDGES)]
    return Table(["Signal", *bins], [[clip(row.signal, 60), *(count(n) for n in row.counts)] for row in known])


def _at(counts: Sequence[int], i: int) -> str:
    return count(counts[i]) if i < len(counts) else MISSING


def pair_cards(pairs: Sequence[PairView]) -> list[PairCard]:
    """Return the first pairs as cards."""
    return [_card(pair) for pair in pairs[:MOST_PAIRS]]


def _card(pair: PairView) -> PairCard:
    shared = _context(pair.get("prompt_tail"))
    sides = [_context(pair.get("chosen_context")) or shared, _context(pair.get("rejected_context")) or shared]
    same = {"Both sides saw": sides[0]} if sides[0] else {}
    contexts = same if sides[0] == sides[1] else {"Chosen saw": sides[0], "Rejected saw": sides[1]}
    asked = pair.get("asked", "")
    chosen, rejected = pair.get("chosen_tokens"), pair.get("rejected_tokens")
    if chosen and rejected:
        return PairCard(pair, asked, contexts, *differing(chosen, rejected), "tokens")
    return PairCard(
        pair, asked, contexts, *differing(words(_said(pair["chosen"])), words(_said(pair["rejected"]))), "words"
    )


def _context(messages: Sequence[Mapping[str, Any]] | None) -> list[tuple[str, str]]:
    """Return messages as (role, text)."""
    return [(clip(str(m.get("role", "")), 20), clip(message_text(m), LONGEST_TEXT)) for m in messages or ()]


def shown_pair(pair: PairView) -> dict[str, Any]:
    """Return a pair as the viewer draws it."""
    card = _card(pair)
    kept = ("id", "builder", "margin", "task", "trained", "chosen_episode", "chosen_step", "rejected_episode",
            "rejected_step")  # fmt: skip
    facts = {key: value for key, value in pair.items() if key in kept}
    sides = {"chosen": list(card.chosen), "rejected": list(card.rejected), "unit": card.unit}
    return {**facts, **sides, "contexts": card.contexts}


def shown_episode(episode: EpisodeView) -> dict[str, Any]:
    """Return an episode as the viewer draws it."""
    return {**episode, "pairs": [shown_pair(pair) for pair in episode.get("pairs") or ()]}


def _said(messages: Sequence[Mapping[str, Any]]) -> str:
    return clip("\n\n".join(message_text(m) for m in messages), LONGEST_TEXT)


def facts(data: ReportData) -> list[tuple[str, str]]:
    """Return what identifies the round and its evaluation, by name."""
    manifest, report = data.manifest, data.report
    rows = [
        ("State", manifest.state),
        ("Starts from", the_round(manifest.parent)),
        ("Reference policy", manifest.reference),
        *([("Training", training_end(manifest))] if manifest.stopped else []),
        ("Seed", str(manifest.seed)),
        ("Base model", manifest.base_model),
        ("Base model SHA-256", manifest.base_model_sha256),
        ("Adapter SHA-256", manifest.adapter_sha256 or "none yet"),
        ("Trained tasks SHA-256", manifest.train_tasks_sha256 or "none yet"),
    ]
    if report is not None:
        rows += [
            ("Baseline adapter SHA-256", report.baseline_adapter_sha256 or "none: the base model"),
            ("Held-out cases SHA-256", report.cases_sha256),
            ("Evaluation seed", str(report.seed)),
        ]
    return rows


def commands(data: ReportData) -> list[str]:
    """Return the commands that make this round again from the same store."""
    lines = [f"flywheel train --round {data.round}"]
    if data.report is not None:
        lines.append(f"flywheel eval --round {data.round} --against {clean(data.report.baseline)}")
    return lines

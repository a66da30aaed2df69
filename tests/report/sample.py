"""A round with plausible numbers, and the least that a round can be, as the report's tests see them."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from typing import Any

from flywheel import present
from flywheel.records import (
    EvalReport,
    FileHash,
    MetricRow,
    Need,
    Night,
    NightStage,
    Promotion,
    Race,
    RaceCandidate,
    RaceHeat,
    RoundManifest,
    RuleResult,
    content_id,
)
from flywheel.records import Verdict as Gate
from flywheel.report import (
    Agreement,
    CaseRow,
    EpisodeView,
    Histogram,
    HomeData,
    Mark,
    PairView,
    PastRound,
    Point,
    PolicyLine,
    Rate,
    ReportData,
    RoundRow,
    SignalRow,
    StepView,
    Verdict,
    Waiting,
)


def manifest(**changes: Any) -> RoundManifest:
    """Return a trained second round, with fields changed."""
    values: dict[str, Any] = {
        "round": 2,
        "state": "held",
        "method": "dpo",
        "method_reason": "8 of 8 probed prompts gave a well-formed call (threshold 0.50) and 122 pairs suffice",
        "parent": 1,
        "reference": "parent",
        "base_model": "embedded",
        "base_model_sha256": content_id("base") * 2,
        "inputs": {
            "episodes": {"snapshot": "7", "sha256": content_id("episodes") * 2},
            "pairs": {"snapshot": "5", "sha256": content_id("pairs") * 2},
        },
        "counts": {"considered": 164, "kept": 122, "dropped: holdout task": 31, "dropped: too long": 11},
        "dataset": [FileHash(path="data/pairs.jsonl", sha256=content_id("data") * 2, size_bytes=412_331)],
        "train_tasks_sha256": content_id("tasks") * 2,
        "config": {"train": {"method": "auto", "dpo_beta": 0.1, "lora": {"r": 16}}, "model": {"base": "embedded"}},
        "seed": 0,
        "versions": {"torch": "2.13.0", "transformers": "5.23.0", "trl": "1.16.0", "peft": "0.21.2"},
        "outputs": [
            FileHash(path="adapter/adapter_model.safetensors", sha256=content_id("a") * 2, size_bytes=9_437_184)
        ],
        "adapter_sha256": content_id("a") * 2,
        "checks": {"dpo_loss_at_step_0": 0.6931, "reference_max_abs_difference": 0.0},
        "timings_s": {"load": 17.2, "train": 81.4},
    }
    return RoundManifest(**{**values, **changes})


def _row(suite: str, metric: str, means: tuple[float, float], span: float, **changes: Any) -> MetricRow:
    before, after = means
    delta = after - before
    values: dict[str, Any] = {"suite": suite, "metric": metric, "n": 64, "baseline": before, "value": after}
    values |= {"delta": delta, "low": delta - span, "high": delta + span, "method": "Tango score, clustered by task"}
    return MetricRow(**{**values, **changes})


def _report() -> EvalReport:
    metrics = [
        _row("next_action", "executed_success", (0.5469, 0.6719), 0.141, primary=True, wins=12, losses=4),
        _row("next_action", "well_formed_call", (0.9688, 0.9844), 0.047, wins=1),
        _row("next_action", "same_tool", (0.7031, 0.8594), 0.118, wins=13, losses=3),
        _row("next_action", "no_tool_error", (0.8281, 0.7656), 0.058, wins=1, losses=5),
        _row("preference", "pair_accuracy", (0.5938, 0.7188), 0.093, n=96, wins=17, losses=5),
        _row("preference", "log_ratio_margin", (0.0, 0.412), 0.231, n=96, binary=False, method="paired t by task"),
        *[
            _row("next_action", "executed_success", (b, a), s, slice=f"tool={t}", n=n, wins=w, losses=x)
            for t, b, a, s, n, w, x in [
                ("run_sql", 0.5, 0.7059, 0.165, 34, 9, 2),
                ("describe_table", 0.6667, 0.7222, 0.24, 18, 2, 1),
                ("answer", 0.5, 0.5, 0.33, 12, 1, 1),
            ]
        ],
    ]
    return EvalReport(
        round=2,
        baseline="1",
        candidate_adapter_sha256=content_id("a") * 2,
        baseline_adapter_sha256=content_id("b") * 2,
        cases_sha256=content_id("cases") * 2,
        n_cases=64,
        n_tasks=13,
        leaked_tasks=0,
        metrics=metrics,
        coverage={
            "next_action offered": 64,
            "next_action scored": 64,
            "preference offered": 98,
            "preference scored": 96,
        },
        wins=[content_id("win", i) for i in range(12)],
        regressions=[content_id("loss", i) for i in range(4)],
    )


def _promotion() -> Promotion:
    rules = [
        RuleResult(rule="validity", passed=True, verdict=Gate.PROMOTE, message="No leaked task; the chain is whole."),
        RuleResult(
            rule="superiority",
            passed=False,
            verdict=Gate.INCONCLUSIVE,
            message="executed_success +12.5 pp on 64 cases of 13 tasks: p = 0.038 is above the level 0.022; "
            "about 41 more cases are needed.",
            numbers={"p": 0.0384, "level": 0.0217, "n": 64, "needed_n": 105},
        ),
        RuleResult(rule="non_inferior", passed=True, verdict=Gate.PROMOTE, message="No guardrail is worse by 3 pp."),
        RuleResult(rule="no_deterioration", passed=True, verdict=Gate.PROMOTE, message="No slice is surely worse."),
    ]
    return Promotion(
        round=2,
        decision="held",
        verdict=Gate.INCONCLUSIVE,
        champion_before=1,
        champion_after=1,
        rules=rules,
        by="flywheel eval --round 2 --promote",
        at=datetime(2026, 3, 14, 3, 12, 7, tzinfo=UTC),
    )


SYSTEM = "You answer business questions over a DuckDB warehouse. Look at the tables before you query them."
QUESTIONS = [
    "How many orders were returned in March?",
    "Which region had the highest revenue?",
    "List overdue invoices.",
]


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "name": name, "arguments": arguments}]}


def _result(name: str, content: str, status: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "name": name, "tool_call_id": "c1", "content": content, "status": status}


def _episode(i: int) -> EpisodeView:
    good = i % 3 != 1
    question = QUESTIONS[i % 3]
    table = "orders" if good else "order"
    sql = f"SELECT count(*) FROM {table} WHERE status = 'returned' AND month(shipped_at) = 3"
    steps: list[StepView] = [
        {
            "observation": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
            "action": _call("list_tables"),
            "status": ["ok"],
            "credit": 0.02,
        },
        {
            "observation": [_result("list_tables", "customers\ninvoices\norders\nregions")],
            "action": _call("run_sql", query=sql),
            "status": ["ok" if good else "failed"],
            "credit": 0.31 if good else -0.44,
            "trained": [{"side": "chosen", "row": content_id("pair", i), "text": f"{sql}<end>", "tokens": 21}]
            if i < 3
            else [],
            "signals": []
            if good
            else [
                {
                    "signal": "tool_error",
                    "score": -0.6,
                    "evidence": [content_id("e", i)],
                    "says": ["result of run_sql, failed: “Catalog Error”"],
                }
            ],
        },
        {
            "observation": [
                _result("run_sql", "count_star()\n128")
                if good
                else _result("run_sql", "Catalog Error: Table with name order does not exist!", "failed")
            ],
            "action": {
                "role": "assistant",
                "content": "128 orders were returned in March." if good else "I could not find any returned orders.",
                "reasoning": "The user wants a count." if good else None,
            },
            "credit": 0.05 if good else -0.1,
        },
    ]
    return {
        "id": content_id("episode", i),
        "task": f"warehouse/{'returns' if i % 2 else 'revenue'}-{i % 13:02d}",
        "alike": [f"warehouse/again-{i % 13:02d}"],
        "policy": "round-1" if i % 2 else "base",
        "split": "holdout" if i % 5 == 0 else "train",
        "p_success": 0.91 if good else 0.12,
        "value": 0.78 if good else -0.81,
        "signals": [
            {"signal": "thanks" if good else "complaint", "score": 0.5 if good else -0.7},
            {"signal": "cost", "family": "tokens", "kind": "cost", "score": 1020.0},
        ],
        "started": f"2026-03-{1 + i % 28:02d}T08:00:00+00:00",
        "steps": steps,
        "pairs": [_pair(i // 3)] if i % 3 < 2 and i < 12 else [],
        "tail": [
            {"role": "user", "content": "Thanks, exactly what I needed." if good else "That is wrong. Look again."}
        ],
    }


def _pair(i: int) -> PairView:
    where = "WHERE status = 'returned' AND month(shipped_at) = 3"
    return {
        "id": content_id("pair", i),
        "chosen_step": 1,
        "rejected_step": 1,
        "trained": i == 0,
        "chosen": [_call("run_sql", query=f"SELECT count(*) FROM orders {where}")],
        "rejected": [_call("run_sql", query=f"SELECT count(*) FROM order {where}")],
        "prompt_tail": [{"role": "user", "content": QUESTIONS[i % 3]}, _result("list_tables", "customers\norders")],
        "margin": 1.42 - i / 10,
        "builder": "sibling" if i % 2 else "retry_fixed",
        "task": f"warehouse/returns-{i:02d}",
        "chosen_episode": content_id("episode", 3 * i),
        "rejected_episode": content_id("episode", 3 * i + 1),
    }


def _funnels() -> dict[str, dict[str, int]]:
    quarantined = {"dropped: quarantined, bad_json": 3, "dropped: quarantined, truncated": 1}
    return {
        "ingest": {
            "considered": 4127,
            "kept": 4099,
            "dropped: duplicate": 24,
            **quarantined,
            "note: redacted email": 61,
        },
        "episodes": {"considered": 512, "kept": 506, "dropped: no action": 6, "note: truncated": 2},
        "rewards": {"considered": 506, "kept": 506},
        "pairs": {"considered": 1312, "kept": 164, "dropped: margin": 871, "dropped: same tool call": 277},
        "groups": {"considered": 61, "kept": 38, "dropped: no range": 23},
    }


def _training() -> list[dict[str, Any]]:
    return [
        {
            "step": s,
            "of": 31,
            "loss": 0.6931 * math.exp(-s / 18) + 0.02 * math.sin(2 * s),
            "rewards/margins": 0.9 * (1 - math.exp(-s / 12)),
            "rewards/accuracies": min(1.0, 0.5 + s / 50),
            "grad_norm": 2.4 * math.exp(-s / 25) + 0.2 * math.cos(s),
        }
        for s in range(1, 32)
    ]


def _signals() -> list[SignalRow]:
    rows: list[tuple[str, str, str, int, float, float, tuple[int, ...]]] = [
        ("outcome", "outcome", "outcome", 84, 0.19, 0.595, (34, 0, 0, 0, 50)),
        ("tool_error", "tools", "implicit", 506, -0.11, 0.0, (20, 86, 400, 0, 0)),
        ("thumbs", "explicit", "implicit", 31, 0.42, 0.742, (8, 0, 0, 0, 23)),
        ("thanks", "words", "implicit", 188, 0.5, 1.0, (0, 0, 0, 188, 0)),
        ("complaint", "words", "implicit", 97, -0.7, 0.0, (97, 0, 0, 0, 0)),
        ("abandon", "leaving", "implicit", 44, -0.3, 0.0, (0, 44, 0, 0, 0)),
        ("risk", "safety", "risk", 12, 0.4, 1.0, (0, 0, 0, 9, 3)),
        ("latency", "seconds", "cost", 506, 2.94, 0.91, ()),
    ]
    return [SignalRow(*row) for row in rows]


def full_data(**changes: Any) -> ReportData:
    """Return a round with everything that a page can show."""
    values: dict[str, Any] = {
        "project": "support-agent",
        "manifest": manifest(),
        "report": _report(),
        "promotion": _promotion(),
        "baseline": "round 1",
        "funnels": _funnels(),
        "signals": _signals(),
        "agreements": [
            Agreement("complaint", "tool_error", 41, 0.878, 0.744, 0.947),
            Agreement("outcome", "thanks", 33, 0.606, 0.437, 0.753),
            Agreement("adopted", "complaint", 12, 0.083, 0.015, 0.354),
        ],
        "returns": Histogram(
            edges=[-1 + i / 5 for i in range(11)],
            counts={"train": [22, 48, 61, 30, 18, 24, 41, 66, 72, 23], "holdout": [5, 11, 17, 8, 6, 5, 9, 17, 19, 4]},
        ),
        "training": _training(),
        "wins": [CaseRow(content_id("win", i), (content_id("episode", i),)) for i in range(5)],
        "regressions": [
            CaseRow(
                content_id("loss", i),
                (content_id("episode", 3 * i + 1), content_id("not shown", i)),
            )
            for i in range(3)
        ],
        "episodes": [_episode(i) for i in range(24)],
        "pairs": [_pair(i) for i in range(4)],
        "history": [
            PastRound(1, "sft", "promoted", "executed_success", 0.5469, 0.426, 0.663, 64),
            PastRound(2, "dpo", "inconclusive", "executed_success", 0.6719, 0.550, 0.774, 64),
        ],
    }
    return ReportData(**{**values, **changes})


def minimal_data(**changes: Any) -> ReportData:
    """Return the least that a round can be: planned and nothing more."""
    bare: dict[str, Any] = {
        "inputs": {},
        "counts": {},
        "dataset": [],
        "outputs": [],
        "versions": {},
        "checks": {},
        "timings_s": {},
    }
    blank = manifest(state="planned", parent=None, adapter_sha256="", train_tasks_sha256="", **bare)
    return ReportData(**{"project": "demo", "manifest": blank, **changes})


def parse_svg(svg: str) -> ET.Element:
    """Return the root of an SVG text, which must be XML."""
    return ET.fromstring(svg)  # noqa: S314 - the very point: what we wrote is well-formed


def hostile_data(text: str) -> ReportData:
    """Return a full round in which every text that could come from a log is `text`."""
    message = {"role": "user", "content": text}
    call = {"id": text, "name": text, "arguments": {text: [text, {text: text}]}}
    action = {"role": "assistant", "content": text, "reasoning": text, "tool_calls": [call]}
    broken = {"role": "assistant", "tool_calls": [{"name": text, "arguments": None, "arguments_raw": text}]}
    chip: Any = {"signal": text, "score": -1.0, "family": text, "kind": text, "evidence": [text], "says": [text]}
    step: StepView = {
        "observation": [message, {"role": text, "content": text}, {"role": "tool", "name": text, "status": text}],
        "action": action,
        "status": [text],
        "credit": math.nan,
        "signals": [chip],
        "trained": [{"side": text, "row": text, "text": text, "tokens": 3}],
    }
    episode: EpisodeView = {
        "id": text, "task": text, "alike": [text, text], "policy": text, "split": text, "p_success": math.inf,
        "signals": [chip], "steps": [step, {**step, "action": broken}], "tail": [message],
    }  # fmt: skip
    pair: PairView = {
        "chosen": [action], "rejected": [broken], "prompt_tail": [message, {"role": text}], "margin": math.nan,
        "chosen_tokens": [text, " ", text], "rejected_tokens": [text, text + " "], "id": text,
        "builder": text, "task": text, "chosen_episode": text, "rejected_episode": "elsewhere" + text,
    }  # fmt: skip
    report = _report().model_copy(
        update={
            "metrics": [
                _row(text, text, (0.5, 0.6), 0.2, primary=True, method=text),
                _row(text, text, (0.5, math.nan), 0.2, slice="x=" + text, method=text),
                _row(text, text, (0.5, 0.7), 0.1, binary=False),
            ],
            "coverage": {text: 3},
            "baseline": text,
        }
    )
    rule = RuleResult(rule=text, passed=False, verdict=Gate.REJECT, message=text, numbers={text: math.nan})
    return ReportData(
        project=text,
        manifest=manifest(
            method_reason=text,
            race=Race(
                state="won",
                reason=text,
                suite=text,
                metric=text,
                candidates=[
                    RaceCandidate(method="sft", rows=1, heats=[RaceHeat(rung=1, rows=1, tokens=1, error=text)])
                ],
            ),
            counts={"considered": 2, "kept": 1, "dropped: " + text: 1, "note: " + text: 1},
            config={text: text},
            base_model=text,
            versions={text: text},
            error=text,
            inputs={text: {"snapshot": text, "sha256": text}},
        ),
        report=report,
        promotion=_promotion().model_copy(update={"rules": [rule], "reason": text, "by": text}),
        funnels={text: {"considered": 3, "kept": 1, "dropped: " + text: 2}},
        signals=[
            SignalRow(text, text, text, 3, math.nan, None),
            SignalRow(text, text, "implicit", 3, 0.5, 0.5, (0, 1, 1, 1, 0)),
        ],
        agreements=[Agreement(text, text, 5, 0.5, 0.2, 0.8)],
        returns=Histogram([0, 0.5, 1], {text: [1, 2], "train": [0, 0]}),
        training=[{"step": 1, "loss": 0.5, text: text}, {"step": 2, "loss": math.inf}, {"loss": text}, {"loss": 0.4}],
        wins=[CaseRow(text, (text, "elsewhere" + text))],
        regressions=[CaseRow(text, (text,))],
        episodes=[episode],
        pairs=[pair],
        history=[PastRound(1, text, text, text, math.nan), PastRound(2, text, text, text, 0.5, 0.4, 0.6, 9)],
    )


# --- the home page ----------------------------------------------------------------------------------------------------


def _rate(rate: float, n: int) -> Rate:
    half = 1.96 * math.sqrt(rate * (1 - rate) / n)
    return Rate(n, n // 3, rate, max(0.0, rate - half), min(1.0, rate + half))


def _policy(name: str, first: int, rates: list[float], n: int) -> PolicyLine:
    start = datetime(2026, 1, 5, tzinfo=UTC)
    points = [Point(start + timedelta(weeks=first + i), _rate(rate, n)) for i, rate in enumerate(rates)]
    return PolicyLine(name, n * len(rates), _rate(sum(rates) / len(rates), n * len(rates)), points)


def full_home(name: str = "warehouse agent", text: str = "agent-v1") -> HomeData:
    """Return a home page with everything on it; `text` is whatever a log calls a policy."""
    made, decision = manifest(), _promotion()
    steps = [
        NightStage(stage="ingest", state="done", outcome="412 records, 3 in quarantine", seconds=3.1),
        NightStage(stage="build", state="done", outcome="11 tables", seconds=9.4),
        NightStage(stage="train", state="done", outcome="round 2, 122 rows", seconds=81.4),
        NightStage(stage="gate", state="done", outcome="held (INCONCLUSIVE)", seconds=0.2),
    ]
    night = Night(
        night="n1", project=name, pipeline="nightly", began_at=datetime(2026, 3, 14, 2, 30, tzinfo=UTC), outcome="held",
        stages=steps, missing=[Need(what="held-out tasks with a known outcome", have=13, need=24)], round=2,
        next="flywheel explain 2",
    )  # fmt: skip
    return HomeData(
        project=name,
        until=datetime(2026, 3, 13, 22, 4, tzinfo=UTC),
        span="week",
        lines=[
            _policy(text, 0, [0.55, 0.57, 0.52, 0.58, 0.56], 210),
            _policy("round-1", 4, [0.66, 0.71, 0.68, 0.73, 0.72, 0.74], 180),
            _policy("round-2 (canary)", 8, [0.7, 0.78], 40),
        ],
        left_out=2,
        marks=[
            Mark(datetime(2026, 2, 3, 3, tzinfo=UTC), "round 1 promoted"),
            Mark(datetime(2026, 3, 14, 3, 12, tzinfo=UTC), "round 2 promoted"),
        ],
        week=_rate(0.742, 220),
        week_before=_rate(0.72, 210),
        all_time=_rate(0.66, 2210),
        episodes=2210,
        cost_usd=0.0132,
        champion="round 1",
        waiting=[
            Waiting(1, "round to be evaluated (3)", "flywheel eval --round 3 --promote"),
            Waiting(3, "records in quarantine", "flywheel quarantine"),
            Waiting(38, "episodes to be audited by a person", "flywheel audit"),
            Waiting(412, "episodes since the newest round", "flywheel plan"),
        ],
        night=night,
        verdict=Verdict(
            2, present.headline(made, _report(), decision), present.reasons(decision),
            present.next_steps(made, _report(), decision), "report.html",
        ),
        rounds=[
            RoundRow(2, "Inconclusive", "unsure", "dpo", 122, "executed_success 54.7% -> 67.2%", "report.html"),
            RoundRow(1, "Promoted", "good", "sft", 96, "executed_success 0.0% -> 54.7%, +54.7 pp", "", champion=True),
        ],
        links=[("Episodes", "episodes.html")],
    )  # fmt: skip

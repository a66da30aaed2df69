"""How well the implicit reward knows what happened, on real logs whose recorded outcome is hidden from it.

`python benchmarks/rewards.py --data ../shared/data`: each source is read and built by flywheel's own commands into a
store of its own, with everything that records the outcome (events of the kind `outcome`, and STAR's questionnaire)
taken out before a signal sees it. Then `p_success` is compared with the hidden outcome on the tasks whose hash gives
"report" (about half; constants were looked at on the other half only): AUC, Spearman's correlation, and ECE in ten
bins, with 95 % intervals from a bootstrap over tasks, and the share of episodes on which the reward abstains. Three
baselines: the last tool call succeeded; the sentiment of the last user turn by VADER's lexicon
(`pip install vaderSentiment`; left out where it is not installed); the number of the agent's turns, fewer is better.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import polars as pl
from flywheel import Project
from flywheel.pipeline.build.registry import STAGES

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {
    "tau-bench airline": "tau-bench/gpt-4o-airline.json.gz",
    "tau2 airline": "tau2-bench/airline",
    "wiki-search": "verifiers-wiki-search",
    "MINT": "mint",
    "STAR": "star",
    "mini-swe": "mini-swe-agent-deepseek",
}
ASKED_AFTERWARDS = {"STAR": "feedback"}  # the questionnaire is the outcome, asked when all was over
BINS = 10
UNSURE = 0.1


@dataclass(frozen=True)
class Case:
    """One episode of the report half: what happened, and what each predictor gives."""

    task: str
    outcome: float
    said: Mapping[str, float]
    known: bool


def half(task: str) -> str:
    """Return which half a task belongs to: "look" or "report"."""
    return ("look", "report")[hashlib.sha256(f"rewards-bench:{task}".encode()).digest()[-1] % 2]


def cases(source: str, path: Path, folder: Path, halves: Sequence[str]) -> list[Case]:
    """Ingest and build a source without its outcomes; return its episodes with the outcomes put back."""
    project = Project(folder)
    project.ingest([path])
    hidden = _hide(project, ASKED_AFTERWARDS.get(source))
    until = [stage.name for stage in STAGES]
    for name in until[: until.index("returns") + 1]:
        project.build(select=name)
    episodes, steps = (_table(project, name, "episodes") for name in ("episodes", "steps"))
    returns = _table(project, "returns", "returns").filter(pl.col("step").is_null())
    judged = {r["episode_id"]: r for r in returns.iter_rows(named=True)}
    baselines = _baselines(episodes, steps)
    found = []
    for episode, conversation, task in (
        episodes.select("episode_id", "conversation_id", "task_id").sort("episode_id").rows()
    ):
        if conversation in hidden and half(task) in halves and episode in baselines:
            one = judged[episode]
            said = {"flywheel": one["p_success"], **baselines[episode]}
            found.append(Case(task, hidden[conversation], said, one["known"]))
    return found


def _table(project: Project, table: str, stage: str) -> pl.DataFrame:
    return project.store.table(table, stage).collect()


def _hide(project: Project, asked_afterwards: str | None) -> dict[str, float]:
    """Take the outcomes out of the store's events; return each conversation's mean outcome in [0, 1]."""
    events = _table(project, "events", "ingest")
    told: dict[str, list[float]] = {}
    outcomes = events.filter(pl.col("kind") == "outcome").sort("conversation_id", "event_id")
    for conversation, payload in outcomes.select("conversation_id", "payload").iter_rows():
        value = orjson.loads(payload)
        low, high = value.get("scale") or (0.0, 1.0)
        told.setdefault(conversation, []).append((value["value"] - low) / (high - low))
    secret = {"outcome", asked_afterwards}
    before = project.store.current("ingest")
    if before is None:
        raise SystemExit("nothing was read")
    parts = []
    for part in before.parts:
        if part.table != "events":
            parts.append(part)
            continue
        left = project.store.read([part], "events").collect().filter(~pl.col("kind").is_in(list(secret - {None})))
        written = project.store.write("events", left, partition=part.partition)
        parts += [written] if written else []
    project.store.commit("ingest", fingerprint=before.fingerprint, parts=parts, funnel=before.funnel)
    return {conversation: sum(values) / len(values) for conversation, values in told.items()}


def _baselines(episodes: pl.DataFrame, steps: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Return what anybody could take instead, for each episode that acted; higher is better."""
    sentiment = _vader()
    last_turn = dict(episodes.select("episode_id", "tail").iter_rows())
    found: dict[str, dict[str, float]] = {}
    turns: dict[str, str] = {}
    for row in steps.sort("episode_id", "index").iter_rows(named=True):
        one = found.setdefault(row["episode_id"], {"last call": 0.5, "turns": 0.0})
        one["turns"] -= 1
        if row["tool_status"]:
            one["last call"] = {"ok": 1.0, "failed": 0.0}.get(row["tool_status"][-1], 0.5)
        turns[row["episode_id"]] = _last_user(row["observation"]) or turns.get(row["episode_id"], "")
    for episode, one in found.items():
        if sentiment:
            one["VADER"] = sentiment(_last_user(last_turn[episode]) or turns.get(episode, ""))
    return found


def _last_user(messages: str) -> str:
    said = [m.get("content") for m in orjson.loads(messages) if m.get("role") == "user"]
    return next((text for text in reversed(said) if isinstance(text, str) and text.strip()), "")


def _vader() -> Callable[[str], float] | None:
    try:
        analyzer = importlib.import_module("vaderSentiment.vaderSentiment").SentimentIntensityAnalyzer()
    except ImportError:
        return None
    return lambda text: float(analyzer.polarity_scores(text)["compound"])


def ranks(values: Sequence[float]) -> np.ndarray:
    """Return ranks from 1; ties share their mean rank."""
    _, place, count = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    return (ends - (count - 1) / 2)[place]


def auc(said: Sequence[float], outcome: Sequence[float]) -> float:
    """Return the share of (good, bad) pairs in the right order, ties counted half; NaN without both kinds."""
    good = np.asarray(outcome) > 0.5  # noqa: PLR2004 (more success than failure)
    n, m = int(good.sum()), int((~good).sum())
    return (ranks(said)[good].sum() - n * (n + 1) / 2) / (n * m) if n and m else math.nan


def spearman(said: Sequence[float], outcome: Sequence[float]) -> float:
    """Return the rank correlation; 0 where a side is constant."""
    one, other = ranks(said), ranks(outcome)
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def ece(said: Sequence[float], outcome: Sequence[float]) -> float:
    """Return the expected calibration error in ten equal bins."""
    p, y = np.asarray(said), np.asarray(outcome)
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    return float(sum(abs(y[bins == b].mean() - p[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)))


Measure = Callable[[Sequence[float], Sequence[float]], float]


def interval(measure: Measure, rows: Sequence[Case], name: str, times: int) -> tuple[float, float, float]:
    """Return a measure with its 95 % interval from drawing tasks with replacement."""
    by_task: dict[str, list[Case]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    tasks, draw = sorted(by_task), np.random.default_rng(0)

    def of(chosen: Sequence[Case]) -> float:
        return measure([c.said[name] for c in chosen], [c.outcome for c in chosen])

    samples = [
        of([case for n in draw.integers(len(tasks), size=len(tasks)) for case in by_task[tasks[n]]])
        for _ in range(times)
    ]
    low, high = np.nanquantile(samples, [0.025, 0.975])
    return of(rows), float(low), float(high)


def show(source: str, rows: Sequence[Case], times: int) -> None:
    """Print a source's rows of the table."""
    names = [n for n in ("flywheel", "last call", "VADER", "turns") if n in rows[0].said]
    tasks, base = len({row.task for row in rows}), sum(row.outcome for row in rows) / len(rows)
    abstains = sum(not row.known for row in rows) / len(rows)
    error = ece([row.said["flywheel"] for row in rows], [row.outcome for row in rows])
    unsure = sum(abs(row.said["flywheel"] - 0.5) < UNSURE for row in rows) / len(rows)
    print(f"{source}: {len(rows)} episodes, {tasks} tasks, success {base:.2f}, ECE {error:.2f}")
    print(f"  no vote on {abstains:.0%}, p within {UNSURE} of a half on {unsure:.0%}")
    for name in names:
        a, r = (interval(m, rows, name, times) for m in (auc, spearman))
        print(
            f"  {name:10} AUC {a[0]:.2f} [{a[1]:.2f}, {a[2]:.2f}]  Spearman {r[0]:+.2f} [{r[1]:+.2f}, {r[2]:+.2f}]",
            flush=True,
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--half", choices=["look", "report", "both"], default="report")
    parser.add_argument("--bootstrap", type=int, default=1000)
    chosen = parser.parse_args()
    os.environ.setdefault("FLYWHEEL_KEY", "benchmark")
    for source in chosen.sources:
        path = chosen.data / SOURCES[source]
        if not path.exists():
            print(f"{source}: {path.name} is not there")
            continue
        with tempfile.TemporaryDirectory() as folder:
            halves = ["look", "report"] if chosen.half == "both" else [chosen.half]
            show(source, cases(source, path, Path(folder), halves), chosen.bootstrap)


if __name__ == "__main__":
    main()

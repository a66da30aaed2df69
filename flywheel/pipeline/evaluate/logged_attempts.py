"""One side of a comparison from logs: log files → attempts, through a temporary store.

The same readers, the same redaction and the same stages as everywhere; nothing is written into the project. Each side
has its own store, because two policies' logs often use the same conversation ids.
"""

from __future__ import annotations

import csv
import io
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from flywheel.config import Config
from flywheel.errors import ConfigError, EvalError, UsageError
from flywheel.io.user_files import read_text
from flywheel.pipeline.build.registry import stages_for
from flywheel.pipeline.build.run import build
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.ingest.run import ingest_logs
from flywheel.present import percent
from flywheel.stages.common.canonical import normal_text
from flywheel.stages.evaluate.attempt import Act, Attempt
from flywheel.stages.ingest.redaction.redact import Redactor
from flywheel.store import Store

_RECORDED = 0.5  # share of attempts with a recorded outcome, on both sides, from which on it is the outcome
_SMALL = 2 << 20  # bytes of logs
_AMOUNTS = ("cost_usd", "latency_s", "input_tokens", "output_tokens", "n_steps", "n_tool_errors")


@dataclass(frozen=True)
class Log:
    """One side's attempts, with their recorded outcome as score, and what else is known of each."""

    attempts: list[Attempt]
    p_success: Callable[[], Mapping[str, float]]  # by episode, where any signal has a vote; computed when asked for
    names: dict[str, frozenset[str]]  # episode → policy and model, as the log names them
    read: int
    quarantined: int
    set_aside: list[str] = field(default_factory=list)  # files that could not be read

    def policies(self) -> dict[str, int]:
        """Return how many attempts each policy made."""
        return dict(sorted(Counter(name for names in self.names.values() for name in names).items()))


def read_attempts(paths: Sequence[Path], config: Config, project: Path, key: bytes, *, believed: bool = False) -> Log:
    """Return the attempts in log files.

    What signals believe is computed now where it is asked for or some attempt has no recorded outcome; otherwise the
    files are read again should anybody ask.

    Raises:
        IngestError: nothing was found, or too much is unreadable.
        EvalError: there is no conversation in them.
    """
    here = config.build.model_copy(update={"engine": "processes"})  # no other machine sees the folder
    config = config.model_copy(update={"build": here})
    with tempfile.TemporaryDirectory(prefix="flywheel-") as folder:
        store = Store(Path(folder) / "store")
        store.partitions = 1 if _are_small(paths) else store.partitions
        store.create()
        ingested = ingest_logs(store, config, project, paths, key=key)
        build(store, config, project, stages=stages_for("rewards"))
        log = _log(_tables(store), _tiers(config, project, key))
        if believed or any(attempt.score is None for attempt in log.attempts):
            build(store, config, project, stages=stages_for("returns"))
            beliefs = _beliefs(_tables(store), log.attempts)
            log = replace(log, p_success=lambda: beliefs)
        else:
            again = partial(read_attempts, paths, config, project, key, believed=True)
            log = replace(log, p_success=lambda: again().p_success())
    if not log.attempts:
        where = ", ".join(f"`{path}`" for path in paths)
        raise EvalError(f"no conversation in {where}", hint="`flywheel readers FILE` shows a file's format")
    bad = sum(ingested.quarantined.values())
    return replace(log, read=ingested.read, quarantined=bad, set_aside=[one.file for one in ingested.set_aside])


def _are_small(paths: Sequence[Path]) -> bool:
    """Whether logs are of a size at which partitions cost more than they share out; globs are not looked through."""
    logs = [file for path in paths for file in (path, *path.rglob("*")) if file.is_file()]
    return bool(logs) and sum(file.stat().st_size for file in logs) < _SMALL


def read_store(ctx: Context) -> Log:
    """Return the attempts of the project's own tables, which are brought up to date first."""
    build(ctx.store, ctx.config, ctx.project, stages=stages_for("returns"))
    return _log(_tables(ctx.store), {})


def held_out(ctx: Context, episodes: pl.DataFrame) -> Log:
    """Return the logged attempts at the held-out tasks of a round, from which its slices are made.

    Args:
        ctx: the project.
        episodes: the held-out rows of the table.
    """
    ids = episodes.lazy().select("episode_id")
    conversations = episodes.lazy().select("conversation_id")
    tables = _tables(ctx.store)
    held = {t: table.join(ids, on="episode_id", how="semi") for t, table in tables.items() if t != "events"}
    events = tables["events"].join(conversations, on="conversation_id", how="semi")
    tiers = _tiers(ctx.config, ctx.project, ctx.key()) if ctx.key is not None else {}
    return _log(held | {"events": events}, tiers)


def _tables(store: Store) -> dict[str, pl.LazyFrame]:
    return {t: read_table(store, t) for t in ("events", "episodes", "steps", "rewards", "returns")}


def policy_of(log: Log) -> str | None:
    """Return a side's name, where all its attempts have the same."""
    named = (log.names[a.episode_id] - {"unknown"} for a in log.attempts)
    names = {max(both, key=lambda n: (len(n), n)) for both in named if both}
    return names.pop() if len(names) == 1 else None


def _log(tables: Mapping[str, pl.LazyFrame], tiers: Mapping[str, str]) -> Log:
    episodes = tables["episodes"].sort("episode_id").collect()
    known = _known(tables)
    attempts, names = [], {}
    for row in episodes.iter_rows(named=True):
        episode = row["episode_id"]
        steps = known["steps"].get(episode, _NO_STEPS)
        attempts.append(
            Attempt(
                episode_id=episode,
                task_id=row["task_id"],
                request=_request(steps["observation"] or row["tail"]),
                score=known["outcome"].get(episode),
                name=known["task"].get(row["conversation_id"], ""),
                user=row["user"],
                tier=tiers.get(row["user"] or ""),
                tools=frozenset(steps["tools"]),
                tags=frozenset(row["tags"]),
                well_formed=not steps["malformed"],
                acts=tuple(
                    Act(key or TEXT, action_kind(action), known["chance"].get(event))
                    for key, action, event in zip(steps["keys"], steps["actions"], steps["events"], strict=True)
                ),
                columns=_columns(row),
                amounts={name: float(row[name]) for name in _AMOUNTS if row[name] is not None},
            )
        )
        names[episode] = frozenset(n for n in (row["policy"], row["model"]) if n)
    return Log(attempts, partial(_beliefs, tables, attempts), names, 0, 0)


def _beliefs(tables: Mapping[str, pl.LazyFrame], attempts: Sequence[Attempt]) -> dict[str, float]:
    returns = tables["returns"].filter(pl.col("step").is_null() & pl.col("known"))
    p_success = dict(returns.select("episode_id", "p_success").collect().iter_rows())
    recorded = {a.episode_id: a.score for a in attempts if a.score is not None and a.episode_id in p_success}
    return p_success | recorded  # not capped by SURE


_COLUMNS = ("policy", "model", "user", "source_format", "tool_signature")


def _columns(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that declared slices may use: what was known of an episode before its policy acted."""
    started = {"started": row["started"].isoformat()} if row["started"] is not None else {}
    return {name: str(row[name]) for name in _COLUMNS if row[name] is not None} | started


_NO_STEPS: dict[str, Any] = {
    "observation": None,
    "tools": [],
    "malformed": False,
    "keys": [],
    "actions": [],
    "events": [],
}
TEXT = "text"  # an action that calls no tool


def action_kind(action: str) -> str:
    """Return the tools that an action calls, each with the names of its arguments."""
    calls = orjson.loads(action).get("tool_calls") or []
    return " + ".join(sorted(f"{c['name']}({', '.join(sorted(c.get('arguments') or ()))})" for c in calls)) or TEXT


def _known(tables: Mapping[str, pl.LazyFrame]) -> dict[str, dict[str, Any]]:
    """Return what other tables know of an episode: its recorded outcome, its task's name, its first words and tools."""
    outcome = (
        tables["rewards"]
        .filter((pl.col("kind") == "outcome") & pl.col("step").is_null())
        .group_by("episode_id")
        .agg(score=((pl.col("score").mean() + 1) / 2).clip(0, 1))
    )
    task = (
        tables["events"]
        .filter(pl.col("task_key").is_not_null())
        .group_by("conversation_id")
        .agg(pl.col("task_key").min())
    )
    steps = (
        tables["steps"]
        .group_by("episode_id")
        .agg(
            observation=pl.col("observation").sort_by("index").first(),
            tools=pl.col("tool_names").list.explode(keep_nulls=False, empty_as_null=False).unique().sort(),
            malformed=pl.col("malformed").any(),
            keys=pl.col("action_key").sort_by("index"),
            actions=pl.col("action").sort_by("index"),
            events=pl.col("event_id").sort_by("index"),
        )
    )
    chances = tables["events"].filter(pl.col("payload").str.contains_any([*_CHANCES])).select("event_id", "payload")
    return {
        "chance": {event: _chance(payload) for event, payload in chances.collect().iter_rows()},
        "outcome": dict(outcome.collect().iter_rows()),
        "task": dict(task.collect().iter_rows()),
        "steps": {row["episode_id"]: row for row in steps.collect().iter_rows(named=True)},
    }


_CHANCES = ('"propensity":', '"completion_logprobs":[')  # as canonical JSON writes them


def _chance(payload: str) -> float | None:
    """Return an action's log-probability as its call was logged: its propensity, else the sum over its tokens."""
    call = orjson.loads(payload)
    propensity, tokens = call.get("propensity"), call.get("completion_logprobs")
    if isinstance(propensity, int | float) and not isinstance(propensity, bool) and 0 < propensity <= 1:
        return math.log(propensity)
    if not isinstance(tokens, list) or not tokens or not all(isinstance(t, int | float) and t <= 0 for t in tokens):
        return None
    return math.fsum(tokens)


def _request(observation: str) -> str:
    requests = (m.get("content") for m in orjson.loads(observation) if m.get("role") == "user")
    return next((normal_text(text) for text in requests if isinstance(text, str) and text.strip()), "")


def choose(log: Log, name: str | None, side: str) -> Log:
    """Return one policy's attempts of a log, by the name of the policy or the model; all without a name.

    A name means all policies that begin with it and a slash: an agent's or a model's, in all its settings.

    Raises:
        UsageError: no policy in the log has that name.
    """
    if name is None:
        return log
    episodes = {e for e, names in log.names.items() if name in names or any(n.startswith(f"{name}/") for n in names)}
    if not episodes:
        known = ", ".join(log.policies()) or "none"
        raise UsageError(f"no {side} policy named `{name}` in the logs", hint=f"policies and models in them: {known}")
    return replace(log, attempts=[a for a in log.attempts if a.episode_id in episodes])


def _tiers(config: Config, project: Path, key: bytes) -> dict[str, str]:
    """Return each user's tier, by the pseudonym that the user has in the tables."""
    if not config.eval.user_tiers:
        return {}
    path = project / config.eval.user_tiers
    if not path.is_file():
        raise ConfigError(f"eval.user_tiers: `{path}` is not a file", hint="a CSV file with the columns user and tier")
    redactor = Redactor(config.ingest.redact, key)
    table = csv.DictReader(io.StringIO(read_text(path, ConfigError), newline=""))
    try:
        rows = [(row.get("user"), row.get("tier")) for row in table]
    except csv.Error as error:
        raise ConfigError(f"`{path}` line {table.line_num}: not CSV", hint="its first line: user,tier") from error
    if any(not user or not tier for user, tier in rows):
        raise ConfigError(f"`{path}` has a line without user or tier", hint="its first line must be: user,tier")
    return {redactor.user(user): tier for user, tier in rows if user and tier}


def scored_sides(sides: tuple[Log, Log]) -> tuple[tuple[Log, Log], str, list[str]]:
    """Return both sides scored by one outcome (the recorded one if both have it), the outcome's name, and notes."""
    shares = [sum(a.score is not None for a in log.attempts) / max(1, len(log.attempts)) for log in sides]
    if min(shares) >= _RECORDED:
        return sides, "recorded", []
    old, new = (by_probability(log) for log in sides)
    note = (
        f"outcomes are recorded for {percent(shares[0], 0)} of the old and {percent(shares[1], 0)} of the new "
        "attempts, so the score is P(success) from the reward signals"
    )
    return (old, new), "p_success", [note]


def by_probability(log: Log) -> Log:
    """Return a side scored by the success probability from the reward signals."""
    p_success = log.p_success()
    return replace(log, attempts=[replace(a, score=p_success.get(a.episode_id)) for a in log.attempts])

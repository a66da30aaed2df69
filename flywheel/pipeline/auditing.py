"""An audit: episodes drawn by strata, shown to a reviewer, and the answers brought back as events.

In: the tables as they stand. Out: `audits/.draws/NNNN.json` (who was drawn, how likely), questions, and
`audits/NNNN.answers.jsonl`, which ingest reads like any log, redaction included. Answers to what was not drawn are
refused: only a drawn sample says something of the others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel import files
from flywheel.answers import AuditAnswer, AuditQuestion, AuditTurn
from flywheel.errors import UsageError
from flywheel.pipeline.context import Context
from flywheel.pipeline.intake import ingest_logs
from flywheel.pipeline.tables import read_table
from flywheel.records import canonical_json
from flywheel.stages.ingest.redact import Redactor
from flywheel.stages.rewards.audit import AUDITS
from flywheel.stats.sampling import draw

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "Draw",
    "ask_all",
    "audit_answer",
    "intents",
    "latest_draw",
    "open_draw",
    "questions",
    "read_answers",
    "record",
    "write_questions",
]

P_BINS = 5
SHOWN_CHARS = 4000  # of one message
TALK = "(no tool)"


@dataclass(frozen=True)
class Draw:
    """One drawn sample: episode id → conversation id and inclusion probability, in the order of asking."""

    number: int
    rows: Mapping[str, tuple[str, float]]
    strata: int
    eligible: int
    answered: frozenset[str]

    @property
    def waiting(self) -> list[str]:
        """Episodes that nobody has answered for yet."""
        return [episode for episode in self.rows if episode not in self.answered]


def open_draw(ctx: Context, n: int, *, new: bool = False) -> Draw:
    """Return the newest draw if it still waits for answers, else a new one of n episodes.

    Raises:
        UsageError: no episode is left to be judged, or none was built.
    """
    numbers = _numbers(ctx)
    if numbers and not new:
        found = _stored(ctx, numbers[-1])
        if found.waiting:
            return found
    return _drawn(ctx, n, (numbers or [0])[-1] + 1, numbers)


def latest_draw(ctx: Context) -> Draw:
    """Return the newest draw as it stands; there must be one."""
    return _stored(ctx, _numbers(ctx)[-1])


def _numbers(ctx: Context) -> list[int]:
    return sorted(int(p.stem) for p in (ctx.project / AUDITS / ".draws").glob("*.json"))


def _path(ctx: Context, number: int) -> Path:
    return ctx.project / AUDITS / ".draws" / f"{number:04d}.json"


def _answers_path(ctx: Context, number: int) -> Path:
    return ctx.project / AUDITS / f"{number:04d}.answers.jsonl"


def _stored(ctx: Context, number: int) -> Draw:
    raw = files.read_json(_path(ctx, number))
    rows = {row["episode_id"]: (row["conversation_id"], float(row["inclusion"])) for row in raw["rows"]}
    by_conversation = {conversation: episode for episode, (conversation, _) in rows.items()}
    path = _answers_path(ctx, number)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    done = frozenset(by_conversation.get(json.loads(line)["conversation_id"], "") for line in lines)
    return Draw(number, rows, raw["strata"], raw["eligible"], done)


def _drawn(ctx: Context, n: int, number: int, before: list[int]) -> Draw:
    import polars as pl

    asked = {episode for earlier in before for episode in _stored(ctx, earlier).rows}
    frame = _eligible(ctx).filter(~pl.col("episode_id").is_in(sorted(asked)))
    if frame.is_empty():
        hint = "every episode was drawn before" if asked else "flywheel ingest, then flywheel build"
        raise UsageError("there is no episode to audit", hint=hint)
    strata = _strata(frame, n)
    chosen = draw(strata, n, seed=f"audit {number}")
    conversation = dict(frame.select("episode_id", "conversation_id").iter_rows())
    order = sorted(chosen, key=lambda episode: files.hash_text(f"{number} {episode}"))
    rows = [{"episode_id": e, "conversation_id": conversation[e], "inclusion": chosen[e]} for e in order]
    files.write_json(
        _path(ctx, number), {"draw": number, "eligible": frame.height, "strata": len(strata), "rows": rows}
    )
    return _stored(ctx, number)


def _eligible(ctx: Context) -> pl.DataFrame:
    """Return the episodes that may be drawn, with what they are stratified by."""
    import polars as pl

    whole = read_table(ctx.store, "returns").filter(pl.col("step").is_null())
    spoken = (
        read_table(ctx.store, "rewards")
        .filter(pl.col("kind").is_in(["outcome", "implicit"]) & (pl.col("weight") > 0))
        .group_by("episode_id")
        .agg(pattern=pl.col("family").unique().sort().str.join("+"))
    )
    return (
        read_table(ctx.store, "episodes")
        .filter(pl.col("n_steps") > 0)
        .select("episode_id", "conversation_id")
        .join(whole.select("episode_id", "p_raw", "basis"), on="episode_id")
        .filter(~pl.col("basis").is_in(["suspect", "audit"]))
        .join(spoken, on="episode_id", how="left")
        .join(intents(ctx), on="episode_id", how="left")
        .with_columns(pl.col("pattern").fill_null("silent"), pl.col("intent").fill_null(TALK))
        .sort("episode_id")
        .collect()
    )


def intents(ctx: Context) -> pl.LazyFrame:
    """Return (episode_id, intent): the last tool an episode called, which is mostly the one that settles the matter."""
    import polars as pl

    return (
        read_table(ctx.store, "steps")
        .select("episode_id", "index", "tool_names")
        .filter(pl.col("tool_names").list.len() > 0)
        .group_by("episode_id")
        .agg(intent=pl.col("tool_names").sort_by("index").last().list.last())
    )


def _strata(frame: pl.DataFrame, n: int) -> dict[str, list[str]]:
    """Return the episodes by score, intent and pattern of signals; fewer of these where n could not cover them."""
    rows = frame.with_columns(score=(frame["p_raw"] * P_BINS).floor().clip(0, P_BINS - 1).cast(int))
    for by in (("score", "intent", "pattern"), ("score", "pattern"), ("score",)):
        strata: dict[str, list[str]] = {}
        for episode, *key in rows.select("episode_id", *by).iter_rows():
            strata.setdefault(" | ".join(map(str, key)), []).append(episode)
        if 2 * len(strata) <= n:
            return strata
    return {"all": frame["episode_id"].to_list()}


# --- questions ------------------------------------------------------------------------------------------------------


def questions(ctx: Context, drawn: Draw) -> Iterator[AuditQuestion]:
    """Yield what a reviewer must see of each episode that waits: never its score, which would lead them."""
    import polars as pl

    steps = read_table(ctx.store, "steps").filter(pl.col("episode_id").is_in(drawn.waiting))
    tails = read_table(ctx.store, "episodes").filter(pl.col("episode_id").is_in(drawn.waiting))
    rows = steps.select("episode_id", "index", "observation", "resets_context", "action")
    of: dict[str, list[Any]] = {}
    for episode, _, observation, resets, action in rows.sort("episode_id", "index").collect().iter_rows():
        if resets:
            of[episode] = []
        of.setdefault(episode, []).extend([*json.loads(observation), json.loads(action)])
    left = dict(tails.select("episode_id", "tail").collect().iter_rows())
    for episode in drawn.waiting:
        messages = [*of.get(episode, []), *json.loads(left.get(episode, "[]"))]
        yield AuditQuestion(draw=drawn.number, episode_id=episode, conversation=list(_turns(messages)))


def _turns(messages: Iterable[Mapping[str, Any]]) -> Iterator[AuditTurn]:
    for message in messages:
        if message["role"] != "system":
            calls = [f"{c['name']}({canonical_json(c.get('arguments'))})" for c in message.get("tool_calls") or []]
            text = "\n".join([str(message.get("content") or ""), *calls]).strip()
            if text:
                yield AuditTurn(role=message["role"], text=_cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]} ... ({len(text) - SHOWN_CHARS:,} more)"


# --- answers --------------------------------------------------------------------------------------------------------


def read_answers(ctx: Context, path: Path) -> tuple[dict[str, tuple[float, str]], Counter[str]]:
    """Return the answers of a file (episode → value, comment), and why lines were left out.

    Raises:
        UsageError: the file cannot be read, or there is no draw.
    """
    numbers = _numbers(ctx)
    if not numbers:
        raise UsageError("nothing was drawn yet", hint="flywheel audit --out questions.jsonl")
    if not path.is_file():
        raise UsageError(f"`{path}` is no file", hint="give the file of `flywheel audit --out`, with its answers")
    drawn = {episode for number in numbers for episode in _stored(ctx, number).rows}
    found: dict[str, tuple[float, str]] = {}
    left: Counter[str] = Counter()
    for line in path.read_text(encoding="utf-8").splitlines():
        reason, episode, value, comment = _read(line, drawn)
        if reason:
            left[reason] += 1
        else:
            found[episode] = value, comment
    return found, left


def _read(line: str, drawn: set[str]) -> tuple[str, str, float, str]:
    try:
        row = json.loads(line)
    except ValueError:
        return ("not JSON" if line.strip() else "empty line"), "", 0.0, ""
    row = row if isinstance(row, dict) else {}
    episode, success = str(row.get("episode_id")), row.get("success")
    if episode not in drawn:
        return "not drawn", "", 0.0, ""
    if success is None:
        return "not answered", "", 0.0, ""
    if not isinstance(success, bool | int | float) or not 0 <= success <= 1:
        return "`success` is not true, false, or a number from 0 to 1", "", 0.0, ""
    return "", episode, float(success), str(row.get("comment") or "")


def ask_all(
    ctx: Context,
    drawn: Draw,
    ask: Callable[[AuditQuestion], tuple[float, str] | None],
    *,
    reviewer: str,
    key: bytes,
) -> int:
    """Ask what waits until all is answered or Ctrl-C ends it, and record the answers; what was answered is kept."""
    answers: dict[str, tuple[float, str]] = {}
    try:
        for question in questions(ctx, drawn):
            answer = ask(question)
            if answer is not None:
                answers[question.episode_id] = answer
    except KeyboardInterrupt:
        ctx.say("stopped; the same command goes on from here")
    return record(ctx, answers, reviewer=reviewer, key=key)


def write_questions(ctx: Context, drawn: Draw, path: Path) -> None:
    """Write what waits as JSON lines, for `read_answers`."""
    files.atomic_write(path, "".join(f"{question.model_dump_json()}\n" for question in questions(ctx, drawn)))


def audit_answer(drawn: Draw, recorded: int, left: Mapping[str, int], out: Path | None) -> AuditAnswer:
    """Return the command's answer."""
    return AuditAnswer(
        draw=drawn.number,
        eligible=drawn.eligible,
        strata=drawn.strata,
        drawn=len(drawn.rows),
        answered=len(drawn.answered),
        recorded=recorded,
        left_out=dict(sorted(left.items())),
        file="" if out is None else str(out),
    )


def record(ctx: Context, answers: Mapping[str, tuple[float, str]], *, reviewer: str, key: bytes) -> int:
    """Append answers to their draws' files and ingest them; return how many were new events.

    Args:
        ctx: the project, locked.
        answers: episode → value in [0, 1], comment.
        reviewer: whose they are; a second answer of one reviewer replaces the first.
        key: the project's redaction key.
    """
    who, touched = Redactor(ctx.config.ingest.redact, key).user(reviewer), []
    for number in _numbers(ctx):
        drawn = _stored(ctx, number)
        lines = [
            _event(drawn, episode, *answers[episode], reviewer=who) for episode in drawn.rows if episode in answers
        ]
        if lines:
            target = _answers_path(ctx, drawn.number)
            before = target.read_text(encoding="utf-8") if target.exists() else ""
            files.atomic_write(target, before + "".join(lines))
            touched.append(target)
    if not touched:
        return 0
    return ingest_logs(ctx.store, ctx.config, ctx.project, touched, key=key).events


def _event(drawn: Draw, episode: str, value: float, comment: str, *, reviewer: str) -> str:
    conversation, inclusion = drawn.rows[episode]
    payload = {
        "name": "audit", "value": value, "target": "session", "annotator": "human",
        "inclusion": inclusion, "draw": drawn.number,
    }  # fmt: skip
    event = {
        "kind": "feedback", "conversation_id": conversation, "ts": datetime.now(UTC).isoformat(),
        "payload": payload | {"reviewer": reviewer} | ({"comment": comment} if comment else {}),
    }  # fmt: skip
    return canonical_json(event) + "\n"

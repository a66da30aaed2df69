"""`flywheel audit`: sampled episodes shown to a reviewer, and the answers recorded as events.

In: a sample (`flywheel.pipeline.rewards.sample`). Out: questions, and `audits/NNNN.answers.jsonl`, which ingest reads
and redacts like any log. Answers for episodes outside the samples are refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from flywheel.errors import UsageError
from flywheel.io import files
from flywheel.io.user_files import read_text
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.ingest.run import ingest_logs
from flywheel.pipeline.rewards.sample import Draw, answers_path, draws, latest_draw, open_draw
from flywheel.records import canonical_json
from flywheel.results.rewards import AuditAnswer, AuditQuestion, AuditTurn
from flywheel.stages.ingest.redaction.redact import Redactor

SHOWN_CHARS = 4000  # of one message
Ask = Callable[[AuditQuestion], tuple[float, str] | None]


def audit(  # noqa: PLR0913 - the command's options
    ctx: Context, n: int, key: bytes, *, new: bool, out: Path | None, ask: Ask | None, reviewer: str
) -> AuditAnswer:
    """Draw a sample or continue with an unfinished one; write its questions, or ask them and record the answers.

    Raises:
        UsageError: there is no episode to audit, or the file for the questions is in use.
    """
    if out is not None:
        _refuse_used(out)
    if ask is not None:
        _ingest(ctx, [answers_path(ctx, drawn.number) for drawn in draws(ctx)], key)  # of a session that was killed
    draw = open_draw(ctx, n, new=new)
    if out is not None:
        files.atomic_write(out, "".join(f"{question.model_dump_json()}\n" for question in questions(ctx, draw)))
    recorded = _ask_all(ctx, draw, ask, reviewer=reviewer, key=key) if ask is not None else 0
    return _answer(latest_draw(ctx), recorded, {}, out)


def record_file(ctx: Context, path: Path, key: bytes, *, reviewer: str) -> AuditAnswer:
    """Record a file of answered questions.

    Raises:
        UsageError: there is no sample, or the file cannot be read.
    """
    answers, skipped = read_answers(ctx, path)
    recorded = record(ctx, answers, reviewer=reviewer, key=key)
    return _answer(latest_draw(ctx), recorded, skipped, None)


def _refuse_used(out: Path) -> None:
    """Refuse to write questions over a person's answers, or over anything but questions."""
    if not out.exists():
        return
    try:
        asked = [AuditQuestion.model_validate_json(line) for line in files.lines(read_text(out, UsageError))]
    except ValueError:
        raise UsageError(f"`{out}` is not a file of questions", hint="name a new file with --out") from None
    if any(question.success is not None or question.comment for question in asked):
        hint = f"flywheel audit --answers {out} records them; or name a new file with --out"
        raise UsageError(f"`{out}` holds answers", hint=hint)


# --- questions ------------------------------------------------------------------------------------------------------


def questions(ctx: Context, drawn: Draw) -> Iterator[AuditQuestion]:
    """Yield the conversation of each open episode, without its score, which would bias the reviewer."""
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
    """Return a file's answers (episode → value, comment), and the skipped lines by reason.

    Raises:
        UsageError: the file cannot be read or has no answer, or there is no sample.
    """
    drawn = {episode for before in draws(ctx) for episode in before.rows}
    if not drawn:
        raise UsageError("there is no sample yet", hint="flywheel audit --out questions.jsonl")
    answers: dict[str, tuple[float, str]] = {}
    skipped: Counter[str] = Counter()
    first: dict[str, int] = {}
    for number, line in enumerate(files.lines(read_text(path, UsageError)), 1):
        reason, episode, value, comment = _read(line, drawn)
        if reason:
            skipped[reason] += 1
            first.setdefault(reason, number)
        else:
            answers[episode] = value, comment
    if not answers:
        why = ", ".join(f"line {number}: {reason}" for reason, number in first.items()) or "it is empty"
        hint = "flywheel audit --out FILE writes the questions; set `success` in them"
        raise UsageError(f"`{path}` has no answer to record: {why}", hint=hint)
    return answers, skipped


def _read(line: str, drawn: set[str]) -> tuple[str, str, float, str]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return ("not JSON" if line.strip() else "empty line"), "", 0.0, ""
    row = row if isinstance(row, dict) else {}
    episode, success = str(row.get("episode_id")), row.get("success")
    if episode not in drawn:
        return "not in a sample", "", 0.0, ""
    if success is None:
        return "not answered", "", 0.0, ""
    if not isinstance(success, bool | int | float) or not 0 <= success <= 1:
        return "`success` is not true, false, or a number from 0 to 1", "", 0.0, ""
    return "", episode, float(success), files.encodable(str(row.get("comment") or ""))


def _ask_all(ctx: Context, draw: Draw, ask: Ask, *, reviewer: str, key: bytes) -> int:
    """Ask the open questions; each answer is kept when it is given, and Ctrl-C ends. Return the number recorded."""
    touched: list[Path] = []
    try:
        for question in questions(ctx, draw):
            answer = ask(question)
            if answer is not None:
                touched = _keep(ctx, {question.episode_id: answer}, reviewer=reviewer, key=key) or touched
    except KeyboardInterrupt:
        ctx.say("stopped; the same command continues from here")
    return _ingest(ctx, touched, key)


def _answer(draw: Draw, recorded: int, skipped: Mapping[str, int], out: Path | None) -> AuditAnswer:
    return AuditAnswer(
        draw=draw.number,
        eligible=draw.eligible,
        strata=draw.strata,
        drawn=len(draw.rows),
        answered=len(draw.answered),
        recorded=recorded,
        left_out=dict(sorted(skipped.items())),
        file="" if out is None else str(out),
    )


def record(ctx: Context, answers: Mapping[str, tuple[float, str]], *, reviewer: str, key: bytes) -> int:
    """Append answers to the files of their samples and ingest them; return the number of new events.

    Args:
        ctx: the project, locked.
        answers: episode → value in [0, 1], comment.
        reviewer: stored as a pseudonym; a reviewer's second answer replaces the first.
        key: the project's redaction key.
    """
    return _ingest(ctx, _keep(ctx, answers, reviewer=reviewer, key=key), key)


def _keep(ctx: Context, answers: Mapping[str, tuple[float, str]], *, reviewer: str, key: bytes) -> list[Path]:
    """Append answers to the files of their samples; return these."""
    who, touched = Redactor(ctx.config.ingest.redact, key).user(reviewer), list[Path]()
    for drawn in draws(ctx):
        lines = [
            _event(drawn, episode, *answers[episode], reviewer=who) for episode in drawn.rows if episode in answers
        ]
        if lines:
            target = answers_path(ctx, drawn.number)
            before = target.read_text(encoding="utf-8") if target.exists() else ""
            files.atomic_write(target, before + "".join(lines))
            touched.append(target)
    return touched


def _ingest(ctx: Context, kept: Sequence[Path], key: bytes) -> int:
    there = [path for path in kept if path.exists()]
    return ingest_logs(ctx.store, ctx.config, ctx.project, there, key=key).events if there else 0


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

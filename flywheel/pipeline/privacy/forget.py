"""`flywheel forget`: delete a user's data, withdraw adapters that were trained on it, and write a certificate.

In: a user's id or pseudonym. Out: one line in rounds/forgotten.jsonl. The intent is written first, to `forgetting.json`
in the store, and removed last: after a kill, the next command of any kind resumes before it reads other files.

    champion to the newest clean round → events → rebuilt tables → old snapshots → rounds → caches, audits → pages →
    certificate

A round is tainted if it was trained on one of the user's rows, or descends from such a round. The user may also have
influenced the worth of other users' rows. So the next round starts from the base model, on tables built without the
user: it is the round that would have been trained had the user never existed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flywheel.errors import StoreError, UsageError
from flywheel.io import files
from flywheel.pipeline.build.registry import STAGE_NAMES, STAGES
from flywheel.pipeline.context import Context
from flywheel.pipeline.copies import left_elsewhere
from flywheel.pipeline.privacy import erase
from flywheel.pipeline.privacy.find import Belongings, belongings
from flywheel.pipeline.promote.promotion import newest_clean, replace_tainted
from flywheel.records import Certificate, TaintedRound
from flywheel.results.operations import ForgetAnswer
from flywheel.stages.ingest.forgotten import user_mark
from flywheel.stages.ingest.redaction.redact import Redactor
from flywheel.store import FORGETTING

VOID = 0.05  # an evaluation is void where the user has a larger share of the held-out episodes


def forget(ctx: Context, user: str, *, key: bytes, dry_run: bool = False) -> ForgetAnswer:
    """Delete a user's data, or count it.

    Args:
        ctx: the project, locked.
        user: the id as logs write it, or the pseudonym as the tables show it.
        key: the project's redaction key.
        dry_run: change nothing.

    Raises:
        UsageError: the project has never had data of this user.
    """
    names = Redactor(ctx.config.ingest.redact, key).users.pseudonyms(user)
    known = [mine for name in names if (mine := belongings(ctx, name)).counts]
    if not known:
        answer = _nothing(ctx, names)
        if not dry_run and user_mark(names[0]) not in {c.user_sha256 for c in ctx.registry.certificates()}:
            _intend(ctx, names[0], [], key)  # forgotten under an earlier version's pseudonym only
            resume(ctx)
        return answer
    if dry_run:
        plans = [_planned(ctx, mine, erase.audit_lines(ctx, mine, key)) for mine in known]
    else:
        # The present pseudonym is refused from now on also where only an earlier version's has data.
        first, *others = dict.fromkeys([*(mine.user for mine in known), names[0]])
        _intend(ctx, first, others, key)
        plans = resume(ctx)
    certificate = _together(ctx, plans, dry_run=dry_run)
    return ForgetAnswer(user=known[0].user, dry_run=dry_run, already=False, certificate=certificate)


def _together(ctx: Context, plans: Sequence[Certificate], *, dry_run: bool) -> Certificate:
    """Return what all pseudonyms of a user had as one certificate, to be shown."""
    removed: Counter[str] = sum((Counter(plan.removed) for plan in plans), Counter())
    tainted = {taint.round: taint for plan in reversed(plans) for taint in plan.tainted}
    champion, withdrawn = plans[0].champion_before, set(tainted)
    planned = newest_clean(ctx, withdrawn) if champion in withdrawn else champion
    together = {
        "removed": dict(removed),
        "tainted": [tainted[number] for number in sorted(tainted)],
        "champion_after": planned if dry_run else plans[-1].champion_after,
        "rebase_round": plans[-1].rebase_round,
        "holdout_share": math.fsum(plan.holdout_share for plan in plans),
        "voided": sorted({number for plan in plans for number in plan.voided}),
        "notes": list(dict.fromkeys(note for plan in plans for note in plan.notes)),
    }
    return plans[0].model_copy(update=together)


def _intend(ctx: Context, user: str, others: Sequence[str], key: bytes) -> None:
    """Record that a pseudonym is to be forgotten, and then others of the same user."""
    mine = belongings(ctx, user)
    lines = erase.audit_lines(ctx, mine, key)
    certificate = _planned(ctx, mine, lines).model_dump(mode="json")
    intent = {"belongings": mine.as_dict(), "audits": lines, "certificate": certificate, "others": list(others)}
    files.write_json(ctx.store.root / FORGETTING, intent)


def _nothing(ctx: Context, names: Sequence[str]) -> ForgetAnswer:
    """Return the certificate of a user who was forgotten before."""
    marks = {user_mark(name): name for name in names}
    earlier = [c for c in ctx.registry.certificates() if c.user_sha256 in marks]
    if not earlier:
        hint = "pass an id as in the logs, or a pseudonym: flywheel query 'SELECT DISTINCT user FROM episodes'"
        if not ctx.store.key_fingerprint:
            hint = f"this store does not know its redaction key yet: is it the right one? Else {hint}"
        raise UsageError("the store has no data of this user", hint=hint)
    user = marks[earlier[-1].user_sha256]
    return ForgetAnswer(user=user, dry_run=False, already=True, certificate=earlier[-1])


def _planned(ctx: Context, mine: Belongings, lines: Mapping[str, Sequence[str]]) -> Certificate:
    audits = sum(map(len, lines.values()))
    tainted = _tainted(ctx, mine)
    champion = ctx.registry.champion
    withdrawn = {taint.round for taint in tainted}
    evaluated = [n for n in ctx.registry.numbers() if ctx.registry.report(n) is not None]
    return Certificate(
        user_sha256=user_mark(mine.user),
        at=ctx.clock(),
        by="forget",
        removed={
            **mine.counts,
            **{f"round {number}": len(rows) for number, rows in mine.rounds.items()},
            **({"audits": audits} if audits else {}),
        },
        before=_hashes(ctx),
        after={},
        tainted=tainted,
        champion_before=champion,
        champion_after=newest_clean(ctx, withdrawn) if champion in withdrawn else champion,
        rebase_round=_next(ctx, mine, withdrawn),
        holdout_share=mine.holdout_share,
        voided=evaluated if mine.holdout_share > VOID else [],
        notes=[
            f"round {number}: {count:,} rows of unknown owner are removed too"
            for number, count in sorted(mine.unknown.items())
        ]
        + left_elsewhere(ctx, withdrawn),
    )


def _next(ctx: Context, mine: Belongings, tainted: set[int]) -> int:
    """Return the next round to train: an unfinished one on the user's rows starts again."""
    trained = [n for n in ctx.registry.numbers() if ctx.registry.manifest(n).adapter_sha256]
    unfinished = [n for n in ctx.registry.numbers() if n not in trained]
    clean = [n for n in unfinished if str(n) not in mine.rounds and n not in tainted]
    return clean[0] if clean else max([*trained, *ctx.registry.shared.taken()], default=0) + 1


def _tainted(ctx: Context, mine: Belongings) -> list[TaintedRound]:
    tainted = []
    for number in ctx.registry.numbers():
        rows = len(mine.rounds.get(str(number), ()))
        parents = [n for n in ctx.registry.lineage(number)[1:] if str(n) in mine.rounds]
        if rows or parents:
            why = f"trained on {rows:,} of the user's rows" if rows else f"descends from round {parents[0]}"
            adapter = ctx.registry.manifest(number).adapter_sha256
            tainted.append(TaintedRound(round=number, adapter_sha256=adapter, rows=rows, why=why))
    return tainted


def _hashes(ctx: Context) -> dict[str, str]:
    """Return the hash of every table and of every round's dataset."""
    hashes: dict[str, str] = {}
    for stage, tables in (("ingest", ("events",)), *((s.name, s.makes) for s in STAGES)):
        snapshot = ctx.store.current(stage)
        if snapshot is not None:
            hashes |= {table: snapshot.table_sha256(table) for table in tables}
    for number in ctx.registry.numbers():
        hashes |= {f"round {number}": file.sha256 for file in ctx.registry.manifest(number).dataset}
    return hashes


def resume(ctx: Context) -> list[Certificate]:
    """Carry out the recorded intent, from any interruption; return a certificate for each pseudonym of the user.

    Raises:
        StoreError: a write to the disk failed.
    """
    path, certificates = ctx.store.root / FORGETTING, list[Certificate]()
    with ctx.store.place.alone("forget", STAGE_NAMES, all_parts=True):
        ctx.registry.refresh(alone=True)  # under the lease: rounds that came since the command began
        while path.exists():
            mine, planned, audits, others = _intent(path)
            certificates.append(_certified(ctx, planned) or _carry_out(ctx, mine, planned, audits))
            if not others:
                path.unlink()
            elif ctx.key is not None:
                _intend(ctx, others[0], others[1:], ctx.key())
            else:
                raise RuntimeError("an opened project has a key")
    return certificates


def _intent(path: Path) -> tuple[Belongings, Certificate, dict[str, list[str]], list[str]]:
    """Return the recorded intent; a file of answers that it names lies in the folder of the audits.

    Raises:
        StoreError: it is damaged.
    """
    intent = files.read_json(path)
    try:
        mine, planned = Belongings(**intent["belongings"]), Certificate.model_validate(intent["certificate"])
        audits: dict[str, list[str]] = dict(intent["audits"])
        others = [str(name) for name in intent.get("others", [])]
        sound = all(erase.is_answers(name) for name in audits) and all(number.isdigit() for number in mine.rounds)
    except (TypeError, KeyError, ValueError, AttributeError):
        sound = False
    if not sound:
        hint = "restore it from a backup; or remove it, and type `flywheel forget` again"
        raise StoreError(f"`{path}` is damaged: not the intent of `flywheel forget`", hint=hint)
    return mine, planned, audits, others


def _certified(ctx: Context, planned: Certificate) -> Certificate | None:
    same = [c for c in ctx.registry.certificates() if (c.user_sha256, c.at) == (planned.user_sha256, planned.at)]
    return same[-1] if same else None


def _carry_out(ctx: Context, mine: Belongings, planned: Certificate, audits: dict[str, Any]) -> Certificate:
    tainted = {taint.round for taint in planned.tainted}
    replace_tainted(ctx, tainted, by="forget")
    ctx.say("deleting the user's events")
    erase.purge(ctx, mine)
    ctx.say("rebuilding the tables")
    notes = erase.rebuild(ctx, mine)
    for number in sorted({*tainted, *map(int, mine.rounds)}):
        erase.cleanse_round(ctx, number, mine.rounds.get(str(number), []), tainted=number in tainted)
    erase.empty_cache(ctx)
    erase.cleanse_audits(ctx, mine, audits)
    notes += erase.cleanse_pages(ctx)
    after = {name: _hashes(ctx).get(name, "") for name in planned.before}
    ctx.registry.share(forgetting=True)
    final = {"after": after, "champion_after": ctx.registry.champion, "notes": [*planned.notes, *notes]}
    ctx.registry.certify(planned.model_copy(update=final))
    return ctx.registry.certificates()[-1]

"""`flywheel forget`: everything of a user out, adapters that learnt from them out of service, and a certificate.

In: a user's id or pseudonym. Out: one line in rounds/forgotten.jsonl. What is to go is written down first, in
`forgetting.json` in the store, and removed last: whoever is killed in between goes on with the next command, whichever
it is, before that command looks at anything.

    champion to the newest clean round → events → tables anew → old snapshots → rounds → caches, audits → pages →
    certificate

A round is tainted if it was trained on a row of the user's, or descends from one that was. What other people's rows are
worth may also have depended on the user; so the next round starts from the base, on tables made without them, and is
then the round that would have been trained had the user never been there.
"""

from __future__ import annotations

from typing import Any

from flywheel.errors import UsageError
from flywheel.io import files
from flywheel.pipeline.build.registry import STAGES
from flywheel.pipeline.context import Context
from flywheel.pipeline.privacy import erase
from flywheel.pipeline.privacy.find import Belongings, belongings
from flywheel.pipeline.promote.promotion import newest_clean, replace_tainted
from flywheel.pipeline.serve.deploy import deployments
from flywheel.records import Certificate, TaintedRound
from flywheel.results.operations import ForgetAnswer
from flywheel.stages.ingest.forgotten import user_mark
from flywheel.stages.ingest.redact import Redactor
from flywheel.store import FORGETTING

__all__ = ["forget", "resume"]

VOID = 0.05  # share of the held-out episodes from which evaluations on them are void


def forget(ctx: Context, user: str, *, key: bytes, dry_run: bool = False) -> ForgetAnswer:
    """Forget a user, or say what would go.

    Args:
        ctx: the project, locked.
        user: the id as logs write it, or the pseudonym as the tables show it.
        key: the project's redaction key, under which pseudonyms are made.
        dry_run: change nothing.

    Raises:
        UsageError: nothing is theirs, and nothing ever was.
    """
    mine = belongings(ctx, Redactor(ctx.config.ingest.redact, key).user(user))
    if not mine.counts:
        return _nothing(ctx, mine.user)
    lines = erase.audit_lines(ctx, mine, key)
    certificate = _planned(ctx, mine, audits=sum(map(len, lines.values())))
    if not dry_run:
        intent = {"belongings": mine.as_dict(), "audits": lines, "certificate": certificate.model_dump(mode="json")}
        files.write_json(ctx.store.root / FORGETTING, intent)
        found = resume(ctx)
        certificate = found if found is not None else certificate
    return ForgetAnswer(user=mine.user, dry_run=dry_run, already=False, certificate=certificate)


def _nothing(ctx: Context, user: str) -> ForgetAnswer:
    """Return the certificate of a user who was forgotten before."""
    earlier = [c for c in ctx.registry.certificates() if c.user_sha256 == user_mark(user)]
    if not earlier:
        raise UsageError(
            "nothing in the store is of this user",
            hint="an id as the logs write it, or a pseudonym: flywheel query 'SELECT DISTINCT user FROM episodes'",
        )
    return ForgetAnswer(user=user, dry_run=False, already=True, certificate=earlier[-1])


def _planned(ctx: Context, mine: Belongings, *, audits: int) -> Certificate:
    tainted = _tainted(ctx, mine)
    champion = ctx.registry.champion
    out = {one.round for one in tainted}
    judged = [n for n in ctx.registry.numbers() if ctx.registry.report(n) is not None]
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
        champion_after=newest_clean(ctx, out) if champion in out else champion,
        rebase_round=_next(ctx, mine, out),
        holdout_share=mine.holdout_share,
        voided=judged if mine.holdout_share > VOID else [],
        notes=[
            f"round {number}: nobody can tell any more whose {count:,} of its rows are; they went too"
            for number, count in sorted(mine.unknown.items())
        ]
        + _still_served(ctx, out),
    )


def _still_served(ctx: Context, tainted: set[int]) -> list[str]:
    """Return which servers were last told to serve a tainted round."""
    last = {one["url"]: one for one in deployments(ctx)}
    return [
        f"{url} was told to serve round {one['round']}: flywheel deploy vllm --url {url}"
        for url, one in sorted(last.items())
        if one["round"] in tainted
    ]


def _next(ctx: Context, mine: Belongings, tainted: set[int]) -> int:
    """Return the round that will be trained next: one that was begun on the user's rows is begun anew."""
    stays = [n for n in ctx.registry.numbers() if ctx.registry.manifest(n).adapter_sha256]
    begun = [n for n in ctx.registry.numbers() if n not in stays]
    clean = [n for n in begun if str(n) not in mine.rounds and n not in tainted]
    return clean[0] if clean else (stays or [0])[-1] + 1


def _tainted(ctx: Context, mine: Belongings) -> list[TaintedRound]:
    found = []
    for number in ctx.registry.numbers():
        rows = len(mine.rounds.get(str(number), ()))
        parents = [n for n in ctx.registry.lineage(number)[1:] if str(n) in mine.rounds]
        if rows or parents:
            why = f"trained on {rows:,} of the user's rows" if rows else f"descends from round {parents[0]}"
            adapter = ctx.registry.manifest(number).adapter_sha256
            found.append(TaintedRound(round=number, adapter_sha256=adapter, rows=rows, why=why))
    return found


def _hashes(ctx: Context) -> dict[str, str]:
    """Return the hash of every table and of every round's dataset."""
    found: dict[str, str] = {}
    for stage, tables in (("ingest", ("events",)), *((s.name, s.makes) for s in STAGES)):
        snapshot = ctx.store.current(stage)
        if snapshot is not None:
            found |= {table: snapshot.table_sha256(table) for table in tables}
    for number in ctx.registry.numbers():
        found |= {f"round {number}": one.sha256 for one in ctx.registry.manifest(number).dataset}
    return found


def resume(ctx: Context) -> Certificate | None:
    """Do what is written down to be forgotten, from wherever it was cut off; None where nothing is.

    Raises:
        StoreError: the disk refuses.
    """
    path = ctx.store.root / FORGETTING
    if not path.exists():
        return None
    intent = files.read_json(path)
    mine = Belongings(**intent["belongings"])
    planned = Certificate.model_validate(intent["certificate"])
    certificate = _done_before(ctx, planned) or _carry_out(ctx, mine, planned, intent["audits"])
    path.unlink()
    return certificate


def _done_before(ctx: Context, planned: Certificate) -> Certificate | None:
    same = [c for c in ctx.registry.certificates() if (c.user_sha256, c.at) == (planned.user_sha256, planned.at)]
    return same[-1] if same else None


def _carry_out(ctx: Context, mine: Belongings, planned: Certificate, audits: dict[str, Any]) -> Certificate:
    tainted = {one.round for one in planned.tainted}
    replace_tainted(ctx, tainted, by="forget")
    ctx.say("taking the user's events out")
    erase.purge(ctx, mine)
    ctx.say("building the tables without them")
    notes = erase.rebuild(ctx, mine)
    for number in sorted({*tainted, *map(int, mine.rounds)}):
        erase.cleanse_round(ctx, number, mine.rounds.get(str(number), []), tainted=number in tainted)
    erase.empty_cache(ctx)
    erase.cleanse_audits(ctx, mine, audits)
    notes += erase.cleanse_pages(ctx)
    after = {name: _hashes(ctx).get(name, "") for name in planned.before}
    made = planned.model_copy(
        update={"after": after, "champion_after": ctx.registry.champion, "notes": [*planned.notes, *notes]}
    )
    ctx.registry.certify(made)
    return ctx.registry.certificates()[-1]

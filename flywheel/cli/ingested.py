"""What `flywheel ingest` prints: what was read, kept, refused and lost, and of which policies.

In: the command's answer. Out: lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flywheel import present
from flywheel.cli.render import columns

if TYPE_CHECKING:
    from flywheel.results.data import IngestAnswer, PolicyRow

_MOST_FILES = 5  # of those set aside, without -v


def ingest_lines(a: IngestAnswer, *, verbose: bool, named: str | None = None) -> list[str]:
    """Return the funnel of what was read, what was refused and lost, and what to do next.

    Args:
        a: what was ingested.
        verbose: whether each file and field is named.
        named: the reader that the command named.
    """
    formats = ", ".join(f"{n} {name}" for name, n in a.formats.items()) or "none new"
    files = f"{present.nouns(a.read, 'record')} in {present.count(a.files, 'file')}"
    rows = [["read", f"{a.read:,}", f"{files} ({formats}; {a.unchanged:,} unchanged)"]]
    rows += [["kept", f"{a.kept:,}", f"records → {a.events:,} events"], ["duplicate", f"{a.duplicate:,}", ""]]
    rows += [["replaced", f"{a.replaced:,}", "stored events by those read again"]] if a.replaced else []
    rows += [["forgotten", f"{a.forgotten:,}", "of forgotten users"]] if a.forgotten else []
    rows += [["ignored", f"{n:,}", reason] for reason, n in a.ignored.items()]
    rows += [["quarantined", f"{n:,}", reason] for reason, n in a.quarantined.items()] or [["quarantined", "0", ""]]
    rows += [["redacted", f"{n:,}", kind] for kind, n in a.redacted.items()]
    rows += [
        [
            "lost",
            f"{n:,}",
            f"field{'s' * (n > 1)} of {lost.format} records not kept (ingest -v --reread PATH lists them)",
        ]
        for lost in a.lost
        if (n := len(lost.fields)) and not verbose
    ]
    whole = {f"{one.file}:0: " for one in a.set_aside}
    shown = [record for record in a.first_quarantined if not record.startswith(tuple(whole))]
    lines = columns(rows, right=(1,)) + [f"  {record}" for record in shown]
    lines += policy_lines(a.policies, verbose=verbose)
    lines += refusal_lines(a, verbose=verbose)
    lines += [
        f"older readers  version {o.read_with} of {o.reader} read {present.count(o.files, 'file')}; it is {o.now} now: "
        "flywheel ingest --reread"
        for o in a.older
    ]
    for lost in a.lost if verbose else ():
        lines.append(f"fields of {lost.format} that no event holds, in {lost.sampled:,} sampled records:")
        fields = sorted(((n, path) for path, n in lost.fields.items()), reverse=True)
        lines += [f"  {present.percent(n / lost.sampled, 0):>4}  {path}" for n, path in fields]
    is_nothing = a.read > 0 and sum(a.ignored.values()) == a.read
    after = "next  flywheel build" if a.events or a.replaced else "next  flywheel status"
    if is_nothing and named:
        after = f"no record is {named}'s; next  flywheel ingest --reread PATH, without --format or with another"
    elif is_nothing:
        after = "nothing to build: no record is of an agent's step"
    return [*lines, "dry run: nothing was stored" if a.dry_run else after]


_RULES = {
    "log": "named by the log or --policy", "model": "by its model", "file": "by the file", "folder": "by the folder",
    "settings": "by settings next to it", "none": "nothing names it: flywheel ingest --policy NAME",
}  # fmt: skip


def policy_lines(policies: Sequence[PolicyRow], *, verbose: bool) -> list[str]:
    """Return which policies acted, and why they are called so."""
    most = len(policies) if verbose else _MOST_FILES
    rows = [
        [
            "policy",
            p.policy,
            f"{p.conversations:,}",
            f"{present.nouns(p.conversations, 'conversation')} in {present.count(p.files, 'file')}, {_RULES[p.rule]}",
        ]
        for p in policies[:most]
    ]
    more = [f"and {len(policies) - most:,} more policies; -v lists them"] if len(policies) > most else []
    return columns(rows, right=(2,)) + more


def refusal_lines(a: IngestAnswer, *, verbose: bool) -> list[str]:
    """Return what was not stored as a whole, or not read."""
    most = len(a.set_aside) + len(a.not_read) if verbose else _MOST_FILES
    lines = [f"set aside  {one.file}: {one.detail}" for one in a.set_aside[:most]]
    lines += [f"and {len(a.set_aside) - most:,} more files set aside; -v lists them"] if len(a.set_aside) > most else []
    lines += [f"not read   {one.path}: {one.why}" for one in a.not_read[:most]]
    lines += [f"and {len(a.not_read) - most:,} more not read; -v lists them"] if len(a.not_read) > most else []
    lines += [f"refused    {one.source}: nothing of it is stored: {one.reason}" for one in a.refused]
    if a.set_aside:
        lines.append("           tried again when they, the readers or --max-quarantine change: flywheel readers FILE")
    if any("no reader knows its records" in one.detail for one in a.set_aside):
        lines.append("           a reader of your own begins with: flywheel readers FILE --sketch")
    return lines

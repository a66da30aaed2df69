"""The registry of rounds: folders, aliases, and hash-chained logs of decisions, candidates and forgotten users.

    rounds/aliases.json        {"champion": 11, "challenger": 12, "previous": 9, "decisions_sha256": "..."}
    rounds/promotions.jsonl    one decision a line, each with the hash of the line before
    rounds/candidates.jsonl    every candidate, the looks at it and how it ended, chained in the same way
    rounds/champion            link to the champion's adapter; none while the base model serves
    rounds/forgotten.jsonl     certificates of forgotten users, chained too; canary/ the looks at canaries
    rounds/0012/               manifest.json config.toml data/ adapter/ eval/ metrics.jsonl train.log report.html

Of a store in a bucket this folder is a copy of what is there (`flywheel.registry.shared`).

A decision is written first and the alias moves second; `recover` finishes a move that a kill cut off: at every instant
the champion is the old round or the new one. The pointer keeps the hash of the decision that moved it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flywheel.errors import StoreError, UsageError
from flywheel.io import files, hash_chain
from flywheel.io.places import Folder, InBucket
from flywheel.records import Certificate, EvalReport, Promotion, RoundManifest, Verdict, canonical_json
from flywheel.registry.aliases import (
    ALIASES,
    COMING,
    HEAD,
    LOST,
    Aliases,
    decided,
    differences,
    moved,
    replayed,
    stamp,
    written,
)
from flywheel.registry.candidates import Candidate, CandidateLedger
from flywheel.registry.round_files import other_problems, weights_problem
from flywheel.registry.shared import RoundsHere, SharedRounds

ADAPTER_WEIGHTS = "adapter_model.safetensors"
DATASET = "data/train.jsonl"  # a round's training rows
LINK = "champion"


def files_sha256(manifest: RoundManifest) -> str:
    """Return the hash over an adapter's files and their names, as a manifest has them; '' where it lists none."""
    listed = sorted([file.path, file.sha256] for file in manifest.outputs)
    return files.hash_text(canonical_json(listed)) if listed else ""


class Registry:
    """A project's rounds.

    Args:
        root: the rounds folder.
        place: where the store is; in a bucket, rounds and ledgers are there too.
    """

    def __init__(self, root: Path, place: Folder | None = None) -> None:
        self.root = root
        self.shared = SharedRounds(root, place) if isinstance(place, InBucket) else RoundsHere()
        self.candidates = CandidateLedger(root, self.record)
        self._known: tuple[object, Aliases] | None = None

    def refresh(self, *, alone: bool) -> bool:
        """Bring what other machines have done; return whether a user was forgotten there."""
        before = len(hash_chain.lines_of(self._forgotten))
        if self.shared.bring(alone=alone):
            self._known = None
        return len(hash_chain.lines_of(self._forgotten)) > before

    def share(self, *, forgetting: bool = False) -> None:
        """Let other machines have what was done here; in a bucket under the lease, also remove what is no longer named.

        Raises:
            BusyError: another machine has changed the same round.
        """
        if not self.shared.elsewhere:
            return
        lines, kept = hash_chain.lines_of(self._decisions), self._pointer().get(HEAD)
        counted = [number for number, line in enumerate(lines, 1) if files.hash_text(line) == kept]
        finished = [manifest for n in self.numbers() if (manifest := self.manifest(n)).adapter_sha256]
        self.shared.send(finished, {self._decisions.stem: counted[-1] if counted else 0})
        self.shared.tidy(forgetting=forgetting)

    def record(self, ledger: str, entry: Mapping[str, Any], *, head: str | None = None) -> str:
        """Append an entry to a ledger's file, chained to the line before or to the kept `head`; return the line's hash.

        Raises:
            BusyError: the store is in a bucket, and another machine was first.
        """
        path = self.root / ledger
        line = hash_chain.line_of(path, entry, head=head)
        self.shared.add(ledger.removesuffix(".jsonl"), line)
        files.append_line(path, line)
        return files.hash_text(line)

    def _at(self, number: int) -> Path:
        return self.root / f"{number:04d}"

    def folder(self, number: int) -> Path:
        """Return a round's folder, with all but the adapter in it."""
        self.shared.fetch(number, adapter=False)
        return self._at(number)

    def numbers(self) -> list[int]:
        """Return the rounds that have a manifest, in order."""
        if not self.root.exists():
            return []
        return sorted(int(p.name) for p in self.root.iterdir() if p.name.isdigit() and (p / "manifest.json").exists())

    def lineage(self, number: int | None) -> list[int]:
        """Return a round and its ancestors, youngest first; an empty list for the base model."""
        rounds: list[int] = []
        while number is not None:
            rounds.append(number)
            number = self.manifest(number).parent
        return rounds

    def manifest(self, number: int) -> RoundManifest:
        """Return a round's manifest.

        Raises:
            UsageError: there is no such round.
            StoreError: its manifest is damaged.
        """
        path = self._at(number) / "manifest.json"
        if not path.exists():
            known = self.numbers()
            hint = f"rounds: {', '.join(map(str, known))}" if known else "`flywheel train` makes the first one"
            raise UsageError(f"there is no round {number}", hint=hint)
        hint = "was it edited by hand? restore it from git or a backup"
        try:
            manifest = RoundManifest.model_validate(files.read_json(path))
        except ValidationError as error:
            problems = f"does not fit its schema ({error.error_count()} problems)"
            raise StoreError(f"`{path}` {problems}", hint=hint) from None
        if manifest.round != number or (manifest.parent or 0) >= number:
            raise StoreError(f"`{path}` is not of round {number}, or names a later round as its parent", hint=hint)
        return manifest

    def save(self, manifest: RoundManifest) -> RoundManifest:
        """Write a round's manifest, atomically, and return it."""
        files.write_json(self._at(manifest.round) / "manifest.json", manifest.model_dump(mode="json"))
        return manifest

    def trained(self) -> list[int]:
        """Return the rounds that have an adapter, in order; those whose adapter was removed are left out."""
        return [n for n in self.numbers() if (m := self.manifest(n)).adapter_sha256 and not m.erased]

    def next_number(self) -> int:
        """Return the round that `train` makes next: the first unfinished one, else a new one."""
        numbers = self.numbers()
        unfinished = [n for n in numbers if not self.manifest(n).adapter_sha256]
        return unfinished[0] if unfinished else max([*numbers, *self.shared.taken()], default=0) + 1

    def adapter(self, number: int | None) -> Path | None:
        """Return the adapter folder of a round, or None for the base model."""
        if number is None:
            return None
        self.shared.fetch(number, adapter=True)
        return self._at(number) / "adapter"

    def sound_adapter(self, number: int | None) -> Path | None:
        """Return the adapter folder, as `adapter` does, after checking its files against the round's manifest.

        Raises:
            StoreError: a file is missing or changed.
        """
        problems = [] if number is None else self._file_problems(number)
        if problems:
            hint = "restore it from a backup, or go back to an intact round: flywheel rollback"
            raise StoreError("; ".join(problems), hint=hint)
        return self.adapter(number)

    # --- aliases --------------------------------------------------------------------------------------------------

    def _pointer(self) -> dict[str, int | str | None]:
        return dict(files.read_json(self._pointer_file)) if self._pointer_file.exists() else {}

    def aliases(self) -> Aliases:
        """Return the round of each alias, or None, as the decisions have it; no alias names a tainted round.

        Where the pointer's last decision is not in the file, which `problems` reports, it is what the pointer names.
        """
        stamps = [stamp(path) for path in (self._pointer_file, self._decisions, self._forgotten)]
        if self._known is None or self._known[0] != stamps:
            decisions = decided(hash_chain.lines_of(self._decisions), self._head())
            aliases = replayed(decisions) if decisions is not None else written(self._pointer())
            tainted = self.tainted
            self._known = stamps, {k: n if k == "champion" or n not in tainted else None for k, n in aliases.items()}
        return dict(self._known[1])

    @property
    def _pointer_file(self) -> Path:
        return self.root / "aliases.json"

    def _head(self) -> str | None:
        """Return the hash of the decision that set the aliases, or None."""
        head = self._pointer().get(HEAD)
        if self.shared.elsewhere:  # where others decide too: the last line that follows from the one known here
            hashes = [files.hash_text(line) for line in hash_chain.lines_of(self._decisions)]
            head = hashes[-1] if hashes and head in {*hashes, None} else head
        return head if isinstance(head, str) else None

    @property
    def head(self) -> str:
        """The hash of the last decision, which covers all before it; '' before the first."""
        return self._head() or ""

    def _coming(self) -> bool:
        """Return whether the last line is a decision that a kill kept from moving the aliases."""
        last, coming = hash_chain.head_of(self._decisions), self._pointer().get(COMING)
        return bool(last) and last == coming != self._head()

    def point(self, *, decided: str | None = None, **moves: int | None) -> None:
        """Move aliases, all in one atomic write.

        Args:
            decided: hash of the decision's line; None keeps the current one.
            moves: alias → round.
        """
        before = self._pointer()
        after = {**before, **self.aliases(), **moves}
        if decided is not None:
            after = {**after, HEAD: decided}
            after.pop(COMING, None)
        if after != before:
            files.write_json(self._pointer_file, after)
        self._link(moves.get("champion", self.champion))

    def _link(self, champion: int | None) -> None:
        """Keep `rounds/champion` a link to the champion's adapter; no link while the base model serves."""
        files.point_to(self.root / LINK, self._link_target(champion))

    def _link_target(self, champion: int | None) -> Path | None:
        return self._at(champion).relative_to(self.root) / "adapter" if champion is not None else None

    def misplaced(self) -> list[str]:
        """Return where the pointer's file and the champion's link differ from the decisions; `recover` mends it."""
        if self.shared.elsewhere and self._pointer().get(HEAD) != self._head():
            return []  # another machine has decided since
        link, target = self.root / LINK, self._link_target(self.champion)
        leads = link.readlink() if link.is_symlink() else None
        elsewhere = leads != target if leads is not None else link.exists()
        wrong = [f"`{link.name}` in the rounds does not lead to the champion's adapter"] if elsewhere else []
        pointer = self._pointer()
        return (differences(pointer, self.aliases()) if pointer else []) + wrong

    @property
    def champion(self) -> int | None:
        """The champion's round, or None while the base model serves."""
        return self.aliases()["champion"]

    def champions(self) -> list[int]:
        """Return the rounds that became champion, oldest first: by decisions that moved the pointer, if it is whole."""
        lines = hash_chain.lines_of(self._decisions)
        decisions = decided(lines, self._head()) or decided(lines, None) or []
        return [champion for d in decisions if (champion := d.get("champion_after")) is not None]

    def resolve(self, name: str) -> int | None:
        """Return the round behind a number, `latest`, or an alias like `@champion`; None means the base model.

        Raises:
            UsageError: no round has that name.
        """
        text = name.lower()
        if text == "base":
            return None
        if text in {"latest", "@latest"}:
            trained = self.trained()
            if not trained:
                raise UsageError("no round has been trained yet", hint="`flywheel train` makes the first one")
            return trained[-1]
        if text.removeprefix("@") in ALIASES:
            return self._aliased(text.removeprefix("@"))
        if not text.isdigit():
            raise UsageError(
                f"`{name}` is not a round", hint="a number, latest, base, @champion, @challenger or @previous"
            )
        return self.manifest(int(text)).round

    def _aliased(self, alias: str) -> int | None:
        number = self.aliases()[alias]
        if number is None and alias != "champion":
            raise UsageError(f"there is no @{alias} yet", hint="`flywheel log` shows the rounds")
        return number

    # --- evaluation reports ---------------------------------------------------------------------------------------

    def report(self, number: int) -> EvalReport | None:
        """Return the stored evaluation of a round, or None."""
        path = self.folder(number) / "eval" / "report.json"
        return EvalReport.model_validate(files.read_json(path)) if path.exists() else None

    def save_report(self, report: EvalReport) -> str:
        """Store an evaluation and return the hash of its file."""
        path = self.folder(report.round) / "eval" / "report.json"
        files.write_json(path, report.model_dump(mode="json"))
        return files.hash_file(path)

    def report_sha256(self, number: int) -> str:
        """Return the hash of a stored evaluation's file; '' when there is none."""
        path = self.folder(number) / "eval" / "report.json"
        return files.hash_file(path) if path.exists() else ""

    # --- decisions ------------------------------------------------------------------------------------------------

    @property
    def _decisions(self) -> Path:
        return self.root / "promotions.jsonl"

    def promotions(self) -> list[Promotion]:
        """Return all decisions, oldest first.

        Raises:
            StoreError: a line does not fit the schema.
        """
        decisions, bad = self.readable()
        if bad:
            raise StoreError(
                f"`{self._decisions}` line {bad[0]} does not fit its schema",
                hint="was it edited by hand? restore it from git or a backup",
            )
        return decisions

    def readable(self) -> tuple[list[Promotion], list[int]]:
        """Return the decisions that can be read, and the numbers of the lines that cannot."""
        decisions, bad = [], []
        for number, line in enumerate(hash_chain.lines_of(self._decisions), 1):
            try:
                decisions.append(Promotion.model_validate_json(line))
            except ValidationError:
                bad.append(number)
        return decisions, bad

    def decide(self, promotion: Promotion) -> Promotion:
        """Append a decision, chained to the one before, then set its round's state and move the aliases it implies.

        The pointer first takes down which line is coming, so that only a line of ours is ever carried out.
        """
        entry, head = promotion.model_dump(mode="json"), self._head()
        coming = files.hash_text(hash_chain.line_of(self._decisions, entry, head=head))
        files.write_json(self._pointer_file, {**self.aliases(), **self._pointer(), COMING: coming})
        self.share()  # a decision names nothing that others do not have
        head = self.record(self._decisions.name, entry, head=head)
        chained = Promotion.model_validate_json(hash_chain.lines_of(self._decisions)[-1])
        self._apply(chained, head)
        return chained

    def _apply(self, promotion: Promotion, head: str) -> None:
        states = {"promoted": "promoted", "forced": "promoted", "held": "held"}
        if promotion.round in self.numbers():  # its folder may be gone; the decision is not
            manifest, state = self.manifest(promotion.round), states.get(promotion.decision, "retired")
            if manifest.state != state:
                self.save(manifest.model_copy(update={"state": state}))
        self.point(decided=head, **moved(self.aliases(), promotion.model_dump()))

    def recover(self) -> bool:
        """Finish what a kill left undone after a decision, the pointer last; return whether there was any.

        Only the decision that the pointer announced moves the aliases: one changed or added by hand does not. A pointer
        or a link that was edited is set again from the decisions.
        """
        decisions, bad = self.readable()
        if self.shared.elsewhere and decisions and not bad:
            return self._recover_shared(decisions)
        if decisions and not bad and self._coming() and not hash_chain.breaks(self._decisions, head=None):
            self._apply(decisions[-1], hash_chain.head_of(self._decisions))
            return True
        if self._pointer():
            self.point()
        return False

    def _recover_shared(self, decisions: Sequence[Promotion]) -> bool:
        """Carry out all decisions here since the one that the pointer knows, of whatever machine."""
        hashes = [files.hash_text(line) for line in hash_chain.lines_of(self._decisions)]
        kept = self._pointer().get(HEAD)
        known = hashes.index(str(kept)) + 1 if kept in hashes else 0
        if (kept is not None and not known) or hash_chain.breaks(self._decisions, head=None):
            return False  # which `problems` reports
        for decision, sha256 in zip(decisions[known:], hashes[known:], strict=True):
            self._apply(decision, sha256)
        if known:
            self.point()
        return known < len(hashes)

    # --- candidates -----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """End the candidates that were decided, and those whose baseline is no longer the champion."""
        champion, ledger = self.champion, self.candidates
        serving = self.manifest(champion).adapter_sha256 if champion is not None else ""
        decisions = {p.ledger_sha256: p for p in self.readable()[0] if p.decision in {"promoted", "held"}}
        for candidate in ledger.open():
            decision = decisions.get(candidate.last_look)
            if decision is not None and decision.decision == "promoted":
                ledger.end(candidate, "promoted")
            elif decision is not None and decision.verdict == Verdict.REJECT:
                ledger.end(candidate, "rejected")
            elif candidate.registered.baseline_sha256 != serving:
                ledger.end(candidate, "replaced")

    def waiting(self, horizon: int) -> Candidate | None:
        """Return the newest candidate that another look can decide; None where no round waits for one.

        It was held for want of evidence, by the protocol that it was trained with, and has had fewer looks than that
        protocol's horizon (`horizon` where it has none: a round of an older version). A blocked round waits for a
        person, and what was evaluated by other suites decides nothing.
        """
        decisions = list(reversed(self.readable()[0]))
        for candidate in reversed(self.candidates.open()):
            trained_with = self.candidates.protocol_of(candidate.registered.candidate_sha256)
            lasting = len(candidate.looks) < self._horizon(candidate.registered.round, horizon)
            lasting &= trained_with in {None, candidate.registered.protocol_sha256}
            verdict = next((p.verdict for p in decisions if p.ledger_sha256 in candidate.lines), None)
            if lasting and verdict == Verdict.INCONCLUSIVE:
                return candidate
        return None

    def _horizon(self, number: int, otherwise: int) -> int:
        """Return the looks that a round was given when it was trained."""
        protocol = self.manifest(number).protocol if number in self.numbers() else {}
        return int(protocol["gate"]["horizon"]) if protocol else otherwise

    # --- forgotten users ------------------------------------------------------------------------------------------

    def certificates(self) -> list[Certificate]:
        """Return the certificates of forgotten users, oldest first."""
        return [Certificate.model_validate_json(line) for line in hash_chain.lines_of(self._forgotten)]

    def certify(self, certificate: Certificate) -> None:
        """Append a certificate, chained to the one before."""
        self.record(self._forgotten.name, certificate.model_dump(mode="json"))

    @property
    def _forgotten(self) -> Path:
        return self.root / "forgotten.jsonl"

    @property
    def tainted(self) -> frozenset[int]:
        """Rounds trained on a forgotten user's rows: never champion, never a parent again."""
        return frozenset(tainted.round for certificate in self.certificates() for tainted in certificate.tainted)

    # --- integrity ------------------------------------------------------------------------------------------------

    def problems(self, rounds: Sequence[int]) -> list[str]:
        """Return the problems of the chained logs and of the given rounds' files, in words; empty if there are none."""
        _, bad = self.readable()
        problems = [f"{self._decisions.name} line {number} does not fit its schema" for number in bad]
        breaks = hash_chain.breaks(self._decisions, head=None if self._coming() else self._head())
        if self.pointer_is_lost:
            problems.append(LOST)
        problems += [b for b in breaks if not bad or hash_chain.NOT_AN_ENTRY not in b]
        problems += self.candidates.problems(p.ledger_sha256 for p in self.readable()[0])
        problems += [f"candidates.jsonl lacks a candidate that round {number} was" for number in self._cut_off()]
        problems += hash_chain.breaks(self._forgotten, head=None)
        return problems + [problem for number in rounds for problem in self._file_problems(number)]

    def _cut_off(self) -> list[int]:
        """Return the rounds that were looked at as a candidate that the ledger does not have: lines were cut off.

        A chain cannot show that its end is missing; but whoever is looked at was registered before.
        """
        registered = self.candidates.registered()
        looks = {n: self.folder(n).glob("eval/looks/[0-9]*-*.json") for n in self.numbers()}
        places = {(n, int(path.name.partition("-")[0])) for n, scores in looks.items() for path in scores}
        return sorted({number for number, _ in places - registered})

    @property
    def pointer_is_lost(self) -> bool:
        """Whether there are decisions, and nothing that shows which was the last."""
        return self._head() is None and bool(hash_chain.lines_of(self._decisions)) and not self._coming()

    def _file_problems(self, number: int) -> list[str]:
        manifest = self.manifest(number)
        self.shared.fetch(number, adapter=not manifest.erased)
        weights = self.folder(number) / "adapter" / ADAPTER_WEIGHTS
        if problem := weights_problem(weights, manifest):
            return [problem]
        return [*other_problems(self.folder(number), weights, manifest), *self._manifest_problems(manifest)]

    def _manifest_problems(self, manifest: RoundManifest) -> list[str]:
        """Return whether a manifest names other files than were trained, or decided on."""
        mine = manifest.adapter_sha256, files_sha256(manifest)
        lines = hash_chain.lines_of(self._decisions)
        decisions = decided(lines, self._head()) or decided(lines, None) or []
        chosen = [d for d in decisions if d.get("champion_after") == manifest.round and d.get("adapter_sha256")]
        known = [("was decided on", (d["adapter_sha256"], d.get("files_sha256", ""))) for d in chosen[-1:]]
        known += [("training left", hashes) for hashes in self.candidates.left_by_training(manifest.round)[-1:]]
        return [
            f"round {manifest.round}: its manifest names other files than {what}; restore the round from a backup"
            for what, hashes in known
            if any(there and there != here for there, here in zip(hashes, mine, strict=True))
        ]

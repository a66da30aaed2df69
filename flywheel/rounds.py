"""The registry of rounds: folders, aliases, and the append-only log of decisions.

    rounds/aliases.json        {"champion": 11, "challenger": 12, "previous": 9}
    rounds/promotions.jsonl    one decision a line, each with the hash of the line before
    rounds/0012/               manifest.json config.toml data/ adapter/ eval/ metrics.jsonl train.log report.html

A decision is written to promotions.jsonl first and the alias moves second; `recover` finishes a move that a kill cut
off. The champion alias is therefore valid at every instant: it names the old round or the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from flywheel import files
from flywheel.errors import StoreError, UsageError
from flywheel.records import EvalReport, Promotion, RoundManifest, canonical_json

__all__ = ["ALIASES", "Registry", "round_name"]

ALIASES = ("champion", "challenger", "previous")
ADAPTER_WEIGHTS = "adapter_model.safetensors"


def round_name(number: int | None) -> str:
    """Return how people name a round: 'round 3', or 'base'."""
    return "base" if number is None else f"round {number}"


class Registry:
    """A project's rounds.

    Args:
        root: the rounds folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, number: int) -> Path:
        """Return a round's folder."""
        return self.root / f"{number:04d}"

    def numbers(self) -> list[int]:
        """Return the rounds that have a manifest, in order."""
        if not self.root.exists():
            return []
        found = [int(p.name) for p in self.root.iterdir() if p.name.isdigit() and (p / "manifest.json").exists()]
        return sorted(found)

    def manifest(self, number: int) -> RoundManifest:
        """Return a round's manifest.

        Raises:
            UsageError: there is no such round.
            StoreError: its manifest is damaged.
        """
        path = self.folder(number) / "manifest.json"
        if not path.exists():
            known = self.numbers()
            hint = f"rounds: {', '.join(map(str, known))}" if known else "`flywheel train` makes the first one"
            raise UsageError(f"there is no round {number}", hint=hint)
        try:
            return RoundManifest.model_validate(files.read_json(path))
        except ValidationError as error:
            raise StoreError(
                f"`{path}` does not fit its schema ({error.error_count()} problems)",
                hint="was it edited by hand? restore it from git or a backup",
            ) from None

    def save(self, manifest: RoundManifest) -> RoundManifest:
        """Write a round's manifest, atomically, and return it."""
        files.write_json(self.folder(manifest.round) / "manifest.json", manifest.model_dump(mode="json"))
        return manifest

    def trained(self) -> list[int]:
        """Return the rounds that have an adapter, in order."""
        return [n for n in self.numbers() if self.manifest(n).adapter_sha256]

    def next_number(self) -> int:
        """Return the round that `train` makes next: the first one that was begun and not finished, else a new one."""
        numbers = self.numbers()
        open_ones = [n for n in numbers if not self.manifest(n).adapter_sha256]
        return open_ones[0] if open_ones else (numbers or [0])[-1] + 1

    def adapter(self, number: int | None) -> Path | None:
        """Return the adapter folder of a round, or None for the base model."""
        return None if number is None else self.folder(number) / "adapter"

    # --- aliases --------------------------------------------------------------------------------------------------

    def aliases(self) -> dict[str, int | None]:
        """Return what each alias names; None where it names nothing yet."""
        path = self.root / "aliases.json"
        found = files.read_json(path) if path.exists() else {}
        return {name: found.get(name) for name in ALIASES}

    def point(self, **moves: int | None) -> None:
        """Move aliases, all in one atomic write."""
        now = self.aliases()
        wanted = {**now, **moves}
        if wanted != now:
            files.write_json(self.root / "aliases.json", wanted)

    @property
    def champion(self) -> int | None:
        """The champion's round, or None while the base model serves."""
        return self.aliases()["champion"]

    def resolve(self, name: str) -> int | None:
        """Return the round behind a number, `latest`, or an alias like `@champion`; None means the base model.

        Raises:
            UsageError: nothing has that name.
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
                f"`{name}` is no round", hint="a number, latest, base, @champion, @challenger or @previous"
            )
        return self.manifest(int(text)).round

    def _aliased(self, alias: str) -> int | None:
        number = self.aliases()[alias]
        if number is None and alias != "champion":
            raise UsageError(f"@{alias} names no round yet", hint="`flywheel log` shows the rounds")
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

    def _lines(self) -> list[str]:
        path = self.root / "promotions.jsonl"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def promotions(self) -> list[Promotion]:
        """Return all decisions, oldest first.

        Raises:
            StoreError: a line does not fit the schema.
        """
        found = []
        for number, line in enumerate(self._lines(), 1):
            try:
                found.append(Promotion.model_validate_json(line))
            except ValidationError:
                raise StoreError(
                    f"`{self.root / 'promotions.jsonl'}` line {number} does not fit its schema",
                    hint="was it edited by hand? restore it from git or a backup",
                ) from None
        return found

    def decide(self, promotion: Promotion) -> Promotion:
        """Append a decision, chained to the one before, then move the aliases it implies."""
        lines = self._lines()
        chained = promotion.model_copy(update={"previous_sha256": files.hash_text(lines[-1]) if lines else ""})
        files.append_line(self.root / "promotions.jsonl", canonical_json(chained.model_dump(mode="json")))
        self._apply(chained)
        return chained

    def _apply(self, promotion: Promotion) -> None:
        moves: dict[str, int | None] = {"champion": promotion.champion_after}
        if promotion.champion_after != promotion.champion_before:
            moves["previous"] = promotion.champion_before
        challenger = self.aliases()["challenger"]
        if promotion.decision == "held":
            moves["challenger"] = promotion.round
        elif challenger == promotion.champion_after:
            moves["challenger"] = None
        self.point(**moves)

    def recover(self) -> bool:
        """Finish an alias move that was cut off between the decision and the pointer; return whether one was."""
        decisions = self.promotions()
        if not decisions or self.champion == decisions[-1].champion_after:
            return False
        self._apply(decisions[-1])
        return True

    def problems(self, rounds: Sequence[int]) -> list[str]:
        """Return what is wrong with the decisions' chain and the given rounds' files; empty when all is well."""
        found = self._chain_problems()
        for number in rounds:
            manifest, weights = self.manifest(number), self.folder(number) / "adapter" / ADAPTER_WEIGHTS
            if not weights.exists():
                found.append(f"round {number} has no adapter file")
            elif files.hash_file(weights) != manifest.adapter_sha256:
                found.append(f"round {number}: the adapter file is not the one its manifest names")
        return found

    def _chain_problems(self) -> list[str]:
        before, found = "", []
        for number, (line, entry) in enumerate(zip(self._lines(), self.promotions(), strict=True), 1):
            if entry.previous_sha256 != before:
                found.append(f"promotions.jsonl line {number} does not follow from the line before")
            before = files.hash_text(line)
        return found

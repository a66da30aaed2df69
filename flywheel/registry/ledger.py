"""What the rounds folder remembers for ever: which held-out tasks decisions have used, and who was forgotten.

In and out: append-only files beside the rounds, chained by hash; see `flywheel.registry.registry` for the layout.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from flywheel.io import hash_chain
from flywheel.records import Certificate


class Ledgers:
    """The chained files of a rounds folder, other than its decisions.

    Args:
        root: the rounds folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    # --- spent tasks ----------------------------------------------------------------------------------------------

    @property
    def _spent(self) -> Path:
        return self.root / "spent.jsonl"

    def spent(self, look: str) -> frozenset[str]:
        """Return the held-out tasks that decisions before this look have used up.

        Args:
            look: identifies an evaluation: candidate, baseline and cases. Its own line and later ones do not count, so
                that a repeated evaluation is the same evaluation.
        """
        tasks: set[str] = set()
        for line in hash_chain.lines_of(self._spent):
            entry = json.loads(line)
            if entry["look"] == look:
                break
            tasks.update(entry["tasks"])
        return frozenset(tasks)

    def spend(self, look: str, number: int, tasks: Sequence[str]) -> str:
        """Write down that a decision uses these tasks, once a look; return the hash of the last line."""
        if any(json.loads(line)["look"] == look for line in hash_chain.lines_of(self._spent)):
            return hash_chain.head_of(self._spent)
        return hash_chain.append(self._spent, {"look": look, "round": number, "tasks": sorted(tasks)}, head=None)

    # --- forgotten users ------------------------------------------------------------------------------------------

    def certificates(self) -> list[Certificate]:
        """Return what was written down when users were forgotten, oldest first."""
        return [Certificate.model_validate_json(line) for line in hash_chain.lines_of(self._forgotten)]

    def certify(self, certificate: Certificate) -> None:
        """Append a certificate, chained to the one before."""
        hash_chain.append(self._forgotten, certificate.model_dump(mode="json"), head=None)

    @property
    def _forgotten(self) -> Path:
        return self.root / "forgotten.jsonl"

    @property
    def tainted(self) -> frozenset[int]:
        """The rounds that learnt from a user who was forgotten: never champion, never a parent again."""
        return frozenset(one.round for certificate in self.certificates() for one in certificate.tainted)

"""What personal data and secrets look like in text, and what only looks like them.

Each kind has a pattern for candidates, a check that decides (a checksum, a known prefix, enough entropy), and a normal
form, so that the same value written differently gets the same pseudonym. Precision first: dates, prices, order and
flight numbers, versions and tool-call ids stay as they are, because agents need them.
"""

from __future__ import annotations

from flywheel.stages.ingest.redaction.patterns.beside import ACCOUNT, ANNOUNCED, HARDWARE, KEYED, PHONED
from flywheel.stages.ingest.redaction.patterns.credentials import MARKED, PARTED, SENT
from flywheel.stages.ingest.redaction.patterns.entropy import RANDOM
from flywheel.stages.ingest.redaction.patterns.kinds import GIVEN, PLACEHOLDER, Find, Kind, Scan
from flywheel.stages.ingest.redaction.patterns.national import FISCAL, SAID, SHAPED
from flywheel.stages.ingest.redaction.patterns.numbers import NAMED, UNNAMED
from flywheel.stages.ingest.redaction.patterns.personal import CARD, EMAIL, HIDDEN, IBAN, IP, MAC, PHONE, READ, SPOKEN
from flywheel.stages.ingest.redaction.patterns.places import FORMED, PLACED
from flywheel.stages.ingest.redaction.patterns.spoken import SAID_CARD, SAID_PHONE
from flywheel.stages.ingest.redaction.patterns.wallets import PRINTED, SEED

__all__ = ["GIVEN", "KINDS", "PLACED", "PLACEHOLDER", "Find", "Kind", "Scan"]

# In the order in which they are replaced. Some are found in more than one way: a secret by a mark, by the name next to
# it, by its entropy.
KINDS: tuple[Kind | Scan, ...] = (
    MARKED, PARTED, SENT, FORMED, PLACED, EMAIL, HIDDEN, SPOKEN, IBAN, READ, SAID_CARD, CARD, SAID_PHONE, PHONE, IP, MAC, HARDWARE, SAID, NAMED, ANNOUNCED, ACCOUNT, PHONED, SHAPED, UNNAMED, FISCAL, KEYED, SEED, PRINTED, RANDOM,
)  # fmt: skip

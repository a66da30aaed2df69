"""Needles for redaction: secrets and personal data as logs carry them, by a seed, none of them real.

A family makes texts or JSON values around needles, which must not be found again. `FAMILIES` were used to write the
patterns. `HELD_OUT` and `THIRD` were written apart from them; what the first look at these gave is in docs/figures.md,
after which they were looked at too. `FIFTH` to `TENTH` were written before anyone looked at the patterns for them;
`TENTH` was only measured until others' rule sets were used. `ELEVENTH` and `TWELFTH` are made of what others keep.
`THIRTEENTH` is what logs of production hold, `FOURTEENTH` other software and countries, looked at once.
`FIFTEENTH` has the forms in which secrets pass one after another, in many natural variants. `EIGHTEENTH` are forms that
the 18th and 19th sets showed to pass; these two were written apart and not kept.
"""

from __future__ import annotations

from .blind import EIGHTEENTH
from .carried import Recall, recall
from .encoded import ENCODED
from .enumerated_people import FIFTEENTH, stays
from .held_out import FIRST
from .made import Family, Made
from .more import MORE
from .personal import PERSONAL
from .places import PLACES
from .production import THIRTEENTH
from .published import ELEVENTH
from .real import FOURTH, THIRD
from .recognised import TWELFTH
from .unfamiliar import FOURTEENTH
from .unheard import EIGHTH, SEVENTH
from .unlike import harmless
from .unseen import FIFTH, SIXTH
from .untried import NINTH, TENTH
from .vendors import VENDORS

__all__ = [
    "EIGHTEENTH",
    "EIGHTH",
    "ELEVENTH",
    "FAMILIES",
    "FIFTEENTH",
    "FIFTH",
    "FOURTEENTH",
    "FOURTH",
    "HELD_OUT",
    "NINTH",
    "SEVENTH",
    "SIXTH",
    "TENTH",
    "THIRD",
    "THIRTEENTH",
    "TWELFTH",
    "Family",
    "Made",
    "Recall",
    "harmless",
    "recall",
    "stays",
]

HELD_OUT: tuple[Family, ...] = (*FIRST, *MORE)
FAMILIES: tuple[Family, ...] = (*VENDORS, *PLACES, *ENCODED, *PERSONAL)

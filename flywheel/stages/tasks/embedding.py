"""Requests with the same meaning in other words, by an optional plugin's vectors; verbs must agree too.

In: texts and a function from texts to vectors. Out: pairs of positions whose vectors are close. Vectors of *delete X*
and *restore X* are close, so two requests are joined only if they name the same deeds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from flywheel.extensions import Embedding

_DEEDS = re.compile(
    r"\b(add|approve|archive|block|book|buy|cancel|change|close|compare|copy|create|deactivate|decline|delete|deny|disable"
    r"|downgrade|download|enable|exchange|export|find|fix|grant|import|install|keep|list|lock|merge|modify|move|open|pay"
    r"|publish|refund|reject|remove|rename|renew|replace|reset|restore|return|revert|revoke|search|sell|send|show|split"
    r"|start|stop|subscribe|summari[sz]e|swap|translate|undo|unlock|unsubscribe|update|upgrade|upload|write|no|not|without)"
    r"(?:e?s|l?e?d|l?ing)?\b"
)
_BLOCK = 1024  # rows compared at a time


def deeds(text: str) -> frozenset[str]:
    """Return the deeds that a request names, and whether it denies any."""
    return frozenset(_DEEDS.findall(text.lower()))


def close(texts: Sequence[str], embed: Embedding, min_cosine: float) -> Iterator[tuple[int, int]]:
    """Yield (later, earlier) positions of requests that name the same deeds and whose vectors are close.

    Every request is compared with every other of the same deeds: fit for some ten thousand of them.
    """
    groups: dict[frozenset[str], list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        groups[deeds(text)].append(place)
    vectors = np.asarray(embed(texts), dtype=np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    for members in groups.values():
        own = vectors[members]
        for start in range(0, len(members), _BLOCK):
            near = own[start : start + _BLOCK] @ own[: start + _BLOCK].T >= min_cosine
            for row, column in np.argwhere(near).tolist():
                if column < start + row:
                    yield members[start + row], members[column]

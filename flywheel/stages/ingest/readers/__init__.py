"""One module a log format: each exposes `READER`, which turns one record into events.

Readers (`flywheel.extensions.Reader`) keep no state and trust nothing: any field may be missing, null or of another
type. What they share, from the meaning of a time stamp to the normal form of a message, stands in `_values`,
`_messages`, `_status` and `_events`.
"""

from __future__ import annotations

__all__: list[str] = []

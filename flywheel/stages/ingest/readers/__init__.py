"""One module a log format: each exposes `READER`, which turns one record into events.

Readers (`flywheel.extensions.Reader`) keep no state and trust nothing: any field may be missing, null or of another
type. What they share begins with `_`:

- `_values`, `_status`, `_messages`, `_memo`: scalars, how a tool call ended, messages in normal form.
- `_events`, `_opinions`: events of transcripts, feedback.
- `_shapes`: inputs and outputs of model calls, as any framework writes them.
- `_api`, `_pairs`: logged requests and responses of model APIs.
- `_otel`, `_aliases`: spans of OpenTelemetry; `_runs`: spans of other tracers.
- the rest helps the readers of one product: `_langfuse`, `_litellm`, `_mlflow`, `_mini_swe`, `_swe`, `_agl_spans`.
"""

from __future__ import annotations

__all__: list[str] = []

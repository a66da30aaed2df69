"""One module a log format: each has a `READER`, made by `flywheel.reading.reader` of functions.

Readers keep no state and trust nothing: any field may be missing, null or of another type. They are grouped by source:
`apis` (calls of model APIs and gateways), `tracers` (spans), `agents` (sessions that agents keep), `benchmarks`
(rollouts with rewards); `native` is flywheel's own form. Modules that begin with `_` belong to the readers next to
them; `flywheel.reading` has what all share.
"""

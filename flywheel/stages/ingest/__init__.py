"""From log files to events: found, decompressed, framed, detected, read, redacted, in bounded batches.

In: files in any format for which a reader is installed. Out: `Batch`es of events without anything that the redaction
should have removed, refusals with their reasons, and what is needed to continue a growing file. Nothing is written
here, and no content of a file can stop the others from being read.

A record passes: sources → archives → opening → framing (documents, jsontext) → detect → batches → workers (readers,
normalize, lost, redact). `events.ingest` runs them; detection alone loads nothing heavy.
"""

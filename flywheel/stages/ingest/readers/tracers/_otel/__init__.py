"""OpenTelemetry's spans and log records: from OTLP or single spans (`otlp`, `attributes`) to events.

`genai` says what the attributes of a model call mean, `spans` what the spans of a record say of each other; `calls` and
`judged` make the events.
"""

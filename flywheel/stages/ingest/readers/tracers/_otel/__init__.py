"""OpenTelemetry's spans and log records: from OTLP or single spans (`otlp`, `attributes`) to events.

`genai` reads the attributes of a model call, `spans` relates the spans of a record to each other; `calls` and
`judged` make the events.
"""

"""The kit that readers of log formats are made of: values, messages, calls, spans, feedback, events."""

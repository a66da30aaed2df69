"""Readers of traces: spans of OpenTelemetry and of other tracers."""

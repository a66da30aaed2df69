"""Checks of a proposed action: calls, SQL results, JSON Schemas, patterns."""

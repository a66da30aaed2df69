"""Recorded tool results as an environment: fixtures and scenarios."""

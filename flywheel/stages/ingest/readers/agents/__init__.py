"""Readers of sessions that agents and chat applications keep themselves."""

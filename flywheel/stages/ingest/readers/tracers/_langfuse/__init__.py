"""Langfuse's exports: `rows` of any naming and the events of one observation, a whole `trace`, `scores`."""

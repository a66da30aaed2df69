"""Decide on a round and move the champion pointer; watch a canary."""

"""Rounds, aliases, decisions and the hash-chained ledgers."""

"""Results: what each command prints with `--json`, one file a group of commands.

A result that names its `document` is published under that name, as `flywheel schema` lists it. The terminal's tables
show the same values, so a script never has to parse them.
"""

from __future__ import annotations

from flywheel.results import data, deploy, inspect, operations, rewards, rounds, setup

__all__ = ["data", "deploy", "inspect", "operations", "rewards", "rounds", "setup"]

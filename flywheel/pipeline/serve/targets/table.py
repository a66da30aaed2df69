"""The one table of targets."""

from __future__ import annotations

from collections.abc import Sequence

from flywheel.errors import UsageError
from flywheel.pipeline.serve.targets.agent_lightning import AGENT_LIGHTNING
from flywheel.pipeline.serve.targets.agentfly import AGENTFLY
from flywheel.pipeline.serve.targets.areal import AREAL
from flywheel.pipeline.serve.targets.art import ART
from flywheel.pipeline.serve.targets.jsonl import JSONL
from flywheel.pipeline.serve.targets.openrlhf import OPENRLHF
from flywheel.pipeline.serve.targets.skyrl import SKYRL
from flywheel.pipeline.serve.targets.swift import SWIFT
from flywheel.pipeline.serve.targets.tabular import RLLIB, TIANSHOU
from flywheel.pipeline.serve.targets.target import Target
from flywheel.pipeline.serve.targets.trl import TRL
from flywheel.pipeline.serve.targets.verl import VERL

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        TRL, VERL, SWIFT, ART, AGENT_LIGHTNING, SKYRL, AREAL, AGENTFLY, OPENRLHF, RLLIB, TIANSHOU, JSONL,
    )
}  # fmt: skip


def target_of(name: str, forms: Sequence[str]) -> Target:
    """Return a target by its name.

    Raises:
        UsageError: there is none of that name, or it has no place for one of the forms.
    """
    if name not in TARGETS:
        raise UsageError(f"unknown target `{name}`", hint=f"targets: {', '.join(TARGETS)}")
    target = TARGETS[name]
    if strange := sorted(set(forms) - set(target.forms)):
        raise UsageError(
            f"{target.title} has no place for `{strange[0]}`", hint=f"--to {name} takes {', '.join(target.forms)}"
        )
    return target

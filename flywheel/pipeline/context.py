"""What every pipeline action gets: the project's folder, configuration, store and registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from flywheel.config import Config
from flywheel.registry.registry import Registry
from flywheel.store import Store

__all__ = ["Context", "served_name", "utc_now"]


def utc_now() -> datetime:
    """Return the time that decisions are stamped with."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Context:
    """A project, opened."""

    project: Path
    config: Config
    store: Store
    registry: Registry
    say: Callable[[str], None] = lambda _: None  # progress, for people
    clock: Callable[[], datetime] = utc_now
    key: Callable[[], bytes] | None = None  # gives the redaction key, by which users' pseudonyms are made


def served_name(ctx: Context, number: int | None) -> str:
    """Return what a server calls a round, and what logs then say as the policy; 'base' for the base model."""
    return "base" if number is None else f"{ctx.config.name or ctx.project.name}-round-{number}"

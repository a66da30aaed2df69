"""What every pipeline action gets: the project's folder, configuration, store and registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from flywheel.config import Config
from flywheel.registry.registry import Registry, round_name
from flywheel.store import Store

__all__ = ["Context", "served_name", "served_rounds", "utc_now"]


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


def served_rounds(ctx: Context) -> dict[str, int]:
    """Return the rounds whose probabilities can be computed again, by the names that logs may give them."""
    clean = [n for n in ctx.registry.trained() if n not in ctx.registry.tainted]
    return {name: n for n in clean for name in (round_name(n), served_name(ctx, n))}

"""What every pipeline function takes: the project's folder, configuration, store and registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from flywheel.config import Config
from flywheel.errors import UsageError
from flywheel.present import round_name
from flywheel.records import METHODS
from flywheel.registry.registry import Registry
from flywheel.store import Store


def utc_now() -> datetime:
    """Return the time for timestamps of decisions."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Context:
    """An open project."""

    project: Path
    config: Config
    store: Store
    registry: Registry
    say: Callable[[str], None] = lambda _: None  # progress, for people
    progress: Callable[[str, int, int], None] = lambda _text, _done, _of: None  # what is done, how much, of how much
    clock: Callable[[], datetime] = utc_now
    key: Callable[[], bytes] | None = None  # gives the redaction key, by which users' pseudonyms are made

    def with_method(self, method: str | None) -> Context:
        """Return the project as if `train.method` were the given one.

        Raises:
            UsageError: there is no such method.
        """
        if method is None:
            return self
        methods = ("auto", *METHODS)
        if method not in methods:
            raise UsageError(f"unknown training method `{method}`", hint=f"methods: {', '.join(methods)}")
        settings = self.config.model_dump()
        settings["train"]["method"] = method
        return self.with_config(Config.model_validate(settings))

    def with_config(self, config: Config) -> Context:
        """Return the project with another configuration."""
        return replace(self, config=config.placed_in(self.project))


def served_name(ctx: Context, number: int | None) -> str:
    """Return a round's name on a server, which logs give as the policy; 'base' for the base model."""
    return "base" if number is None else f"{ctx.config.name or ctx.project.name}-round-{number}"


def served_rounds(ctx: Context) -> dict[str, int]:
    """Return the rounds whose token probabilities can be recomputed, by the names that logs may give them."""
    clean = [n for n in ctx.registry.trained() if n not in ctx.registry.tainted]
    return {name: n for n in clean for name in (round_name(n), served_name(ctx, n))}

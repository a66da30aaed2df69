"""Shell completion of stages, rounds, aliases and pipelines; imports little, because it runs on every Tab.

In: the beginning of a word. Out: the words that begin so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def rounds(incomplete: str) -> list[str]:
    """Complete a round's number or alias."""
    return [name for name in _rounds() if name.startswith(incomplete)]


def stages(incomplete: str) -> list[str]:
    """Complete a stage of `build --select`."""
    return [name for name in _stages() if name.startswith(incomplete)]


def subjects(incomplete: str) -> list[str]:
    """Complete a subject of `explain`: a stage, the gate, a round."""
    return [name for name in (*_stages(), "gate", *_rounds()) if name.startswith(incomplete)]


def pipelines(incomplete: str) -> list[str]:
    """Complete a pipeline's name."""
    from flywheel.pipeline.nightly.pipelines import recipe_names

    return [name for name in recipe_names(_folder()) if name.startswith(incomplete)]


def _folder() -> Path:
    from flywheel.project import find_project

    return find_project(Path.cwd())


def _stages() -> Iterator[str]:
    from flywheel.pipeline.build.registry import STAGES

    yield from (stage.name for stage in STAGES)


def _rounds() -> Iterator[str]:
    from flywheel.config import CONFIG_FILE, load_config
    from flywheel.errors import FlywheelError
    from flywheel.registry.aliases import ALIASES
    from flywheel.registry.registry import Registry

    folder = _folder()
    try:
        registry = Registry(folder / load_config(folder / CONFIG_FILE).rounds)
        yield from (str(number) for number in registry.numbers())
    except FlywheelError:  # a broken flywheel.toml completes nothing
        return
    yield from ("latest", *(f"@{alias}" for alias in ALIASES))

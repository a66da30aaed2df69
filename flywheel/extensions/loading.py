"""Finds the extensions that are installed, by the entry points of all distributions, and loads those that are named."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from typing import Any

from flywheel.errors import ExtensionError
from flywheel.io import safe_path

GROUPS = ("readers", "embeddings", "rewards", "pairs", "trainers", "evaluators", "gates", "checks", "worlds")


@dataclass(frozen=True)
class Extension:
    """One installed extension, not yet loaded."""

    group: str
    name: str
    target: str
    source: Distribution | None = field(default=None, repr=False, compare=False)

    @property
    def distribution(self) -> str:
        """The name of the distribution that declares it; "?" where that is unknown."""
        return _name_and_version(self.source)[0]

    @property
    def version(self) -> str:
        """That distribution's version."""
        return _name_and_version(self.source)[1]


@cache  # parses METADATA, readme included, and importlib parses it again at every access
def _name_and_version(source: Distribution | None) -> tuple[str, str]:
    if source is None:
        return "?", "?"
    metadata = source.metadata
    return metadata["Name"], metadata["Version"]


def _entries(group: str) -> dict[str, EntryPoint]:
    return _installed(safe_path.installed_path()).get(group, {})


@cache  # reads entry_points.txt of every installed distribution: stages ask hundreds of times in a build
def _installed(path: tuple[str, ...]) -> dict[str, dict[str, EntryPoint]]:
    installed: dict[str, dict[str, EntryPoint]] = {group: {} for group in GROUPS}
    for entry in (entry for source in distributions(path=list(path)) for entry in source.entry_points):
        of, _, group = entry.group.partition(".")
        if of == "flywheel" and group in installed:
            installed[group].setdefault(entry.name, entry)
    return installed


def list_extensions(group: str | None = None) -> list[Extension]:
    """Return the installed extensions, sorted by group and name, without importing them."""
    groups = GROUPS if group is None else (group,)
    return [Extension(g, name, entry.value, entry.dist) for g in groups for name, entry in sorted(_entries(g).items())]


def load_extension(group: str, name: str, *, search: Path | None = None) -> Any:
    """Return the object behind an extension's name, or behind `module:function`.

    Args:
        group: one of `GROUPS`.
        name: an entry-point name or "module:attribute".
        search: folder that is searched for the module too, after all that is installed (the project's).

    Raises:
        ExtensionError: nothing has that name, or importing it fails.
        ConfigError: a module:attribute was not approved on this machine.
    """
    if ":" in name:
        module, _, attribute = name.partition(":")
        if search is not None:
            from flywheel.config.approval import refuse_code

            refuse_code(search, name)
            safe_path.search(search)
        return _resolve(group, name, module, attribute)
    return _from_entries(group, name, _entries(group))


def load_extensions(group: str, names: Iterable[str], *, search: Path | None = None) -> dict[str, Any]:
    """Return each named extension, as `load_extension` does; what is installed is looked up once.

    Raises:
        ExtensionError: as `load_extension`.
    """
    entries = _entries(group)
    return {
        name: load_extension(group, name, search=search) if ":" in name else _from_entries(group, name, entries)
        for name in names
    }


def _from_entries(group: str, name: str, entries: Mapping[str, EntryPoint]) -> Any:
    if name not in entries:
        names = ", ".join(sorted(entries)) or "none"
        raise ExtensionError(
            f"no {group} extension named `{name}`", hint=f"installed: {names}; or name module:function"
        )
    module, _, attribute = entries[name].value.partition(":")
    return _resolve(group, name, module, attribute)


def _resolve(group: str, name: str, module: str, attribute: str) -> Any:
    try:
        target: Any = importlib.import_module(module)
        for part in attribute.split("."):
            target = getattr(target, part)
    except Exception as error:
        raise ExtensionError(
            f"{group} extension `{name}` does not load: {type(error).__name__}: {error}",
            hint=f"python -c 'import {module}' shows where it fails",
        ) from error
    return target

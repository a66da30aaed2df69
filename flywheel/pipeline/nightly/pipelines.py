"""Pipeline files by name: the project's own, else the shipped ones."""

from __future__ import annotations

from pathlib import Path

from flywheel.config import Pipeline, load_pipeline
from flywheel.errors import ConfigError
from flywheel.io import files
from flywheel.io.user_files import read_text
from flywheel.pipeline.build.registry import check_order

# Shipped file for a name of which the project has no file.
_DEFAULTS = {"nightly": "dpo_nightly"}


def recipe_names(project: Path) -> list[str]:
    """Return the names that `flywheel run` knows here."""
    folders = (project / "pipelines", files.shipped("pipelines"))
    return sorted({*_DEFAULTS, *(p.stem for f in folders if f.is_dir() for p in f.glob("*.toml"))})


def find_recipe(project: Path, name: str) -> Pipeline:
    """Return a pipeline by name: the project's file, else the shipped one; checked for order.

    Raises:
        ConfigError: there is none, or it does not fit.
    """
    shipped = files.shipped("pipelines")
    candidates = (
        project / "pipelines" / f"{name}.toml",
        shipped / f"{name}.toml",
        shipped / f"{_DEFAULTS.get(name)}.toml",
    )
    path = next((p for p in candidates if p.is_file()), None)
    if path is None:
        raise ConfigError(f"no pipeline named `{name}`", hint=f"known here: {', '.join(recipe_names(project))}")
    pipeline = load_pipeline(read_text(path, ConfigError), path.name)
    check_order(pipeline.stages, path.name)
    return pipeline

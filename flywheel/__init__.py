"""flywheel: a command-line data flywheel that learns continuously from an agent's production logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flywheel.config import Config as Config
    from flywheel.errors import FlywheelError as FlywheelError
    from flywheel.project import Project as Project

__version__ = "0.1.0"
__all__ = ["Config", "FlywheelError", "Project", "__version__"]

_HOMES = {"Config": "flywheel.config", "FlywheelError": "flywheel.errors", "Project": "flywheel.project"}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import flywheel` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'flywheel' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)

"""Writing a round's report page."""

from __future__ import annotations

from pathlib import Path

from flywheel.pipeline.context import Context

__all__ = ["write_page"]


def write_page(ctx: Context, number: int) -> Path:
    """Write `rounds/NNNN/report.html` and return its path."""
    return ctx.registry.folder(number) / "report.html"

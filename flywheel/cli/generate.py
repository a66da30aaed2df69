"""`python -m flywheel.cli.generate`: writes what is generated (schemas/, docs/reference/) in a checkout."""

from __future__ import annotations

from pathlib import Path

from flywheel.pipeline.schemas import write_schemas

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Write every generated file."""
    write_schemas(ROOT / "schemas")


if __name__ == "__main__":
    main()

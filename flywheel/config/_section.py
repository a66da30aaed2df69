"""What every section of a configuration has in common: frozen, no unknown key, no value echoed in an error."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of flywheel.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

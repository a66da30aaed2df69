"""The replay environment, carried into an export: our own modules, in which nothing of flywheel must be installed.

In: the modules of `flywheel.replay`, and those that render and read a model's calls. Out: a package `flywheel_replay`
with the same source, that needs a tokenizer of transformers and the standard library.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import flywheel
from flywheel.config import ReplayConfig
from flywheel.extensions import Generation
from flywheel.records import ID_HEX, plain_value

PACKAGE = "flywheel_replay"
_HOME = Path(flywheel.__file__).parent
_MODULES = {
    "errors.py": "errors.py",
    "calls.py": "models/calls.py",
    "calls.toml": "models/calls.toml",
    "chat.py": "models/chat.py",
    "rollout.py": "models/rollout.py",
    "prefixes.py": "models/prefixes.py",
    "thoughts.py": "models/thoughts.py",
    "environment.py": "replay/environment.py",
    "keys.py": "replay/keys.py",
    "scenario.py": "replay/scenario.py",
}
_RENAMED = {
    "from flywheel.config import": f"from {PACKAGE}.base import",
    "from flywheel.extensions import": f"from {PACKAGE}.base import",
    "from flywheel.records import": f"from {PACKAGE}.base import",
    "from flywheel.models.": f"from {PACKAGE}.",
    "from flywheel.replay.": f"from {PACKAGE}.",
    "from flywheel.errors import": f"from {PACKAGE}.errors import",
}
_LIMITS = ("min_alike", "max_calls")
_BASE = '''"""What the other modules need of flywheel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

ID_HEX = {id_hex}
_write = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class ReplayConfig(NamedTuple):
    """Limits of an attempt."""

    min_alike: float
    max_calls: int


{generation}

def canonical_json(value: object) -> str:
    """Return `value` as JSON text with sorted keys, no spaces and no NaN: equal values give equal text."""
    return _write(value)


{plain_value}'''
_FACE = '''"""Recorded results answer a policy's calls: flywheel's replay environment, without flywheel.

`Recorded(path, tokenizer)` reads scenarios.jsonl; `begin(id)` gives an attempt, which takes sampled tokens until it is
over. An attempt that leaves the log has no reward: None, not 0.
"""

from {package}.rollout import Attempt, Recorded

__all__ = ["Attempt", "Recorded"]
'''


def carried() -> Iterator[tuple[str, str]]:
    """Yield the package's files: path and text."""
    yield f"{PACKAGE}/__init__.py", _FACE.format(package=PACKAGE)
    yield (
        f"{PACKAGE}/base.py",
        _BASE.format(
            id_hex=ID_HEX,
            generation=inspect.getsource(Generation),
            plain_value=inspect.getsource(plain_value),
        ),
    )
    for name, source in _MODULES.items():
        text = (_HOME / source).read_text(encoding="utf-8")
        for ours, carried_as in _RENAMED.items():
            text = text.replace(ours, carried_as)
        yield f"{PACKAGE}/{name}", text


def limits(cfg: ReplayConfig) -> dict[str, float]:
    """Return what an attempt's environment needs of the configuration."""
    return {name: getattr(cfg, name) for name in _LIMITS}

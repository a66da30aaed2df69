"""A project, opened: its folder, configuration, store and rounds, the lock, and the key of its pseudonyms."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flywheel.config import CONFIG_FILE, Config, load_config
from flywheel.errors import UsageError
from flywheel.io import files
from flywheel.pipeline.context import Context
from flywheel.registry.registry import Registry
from flywheel.store import FORGETTING, Store

__all__ = ["KEY_FILE", "Opened", "find_project"]

KEY_FILE = ".flywheel.key"


def find_project(start: Path) -> Path:
    """Return the nearest folder at or above `start` that has a flywheel.toml, else `start` itself."""
    start = start.resolve()
    return next((f for f in (start, *start.parents) if (f / CONFIG_FILE).exists()), start)


class Opened:
    """A folder with logs, a store and rounds.

    Args:
        folder: the project's folder; no configuration file is needed.
        config: configuration to use instead of the folder's flywheel.toml.
        say: gets progress, in sentences for people.

    Raises:
        ConfigError: flywheel.toml does not fit.
        StoreError: the store has another layout.
    """

    def __init__(
        self, folder: Path | str = ".", *, config: Config | None = None, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise UsageError(f"`{folder}` is no folder", hint="give the project's folder with -C")
        self.config = config if config is not None else load_config(self.folder / CONFIG_FILE)
        self.store = Store(self.folder / self.config.store)
        self.registry = Registry(self.folder / self.config.rounds)
        self._say = say

    @property
    def context(self) -> Context:
        """The project as pipeline actions get it."""
        return Context(self.folder, self.config, self.store, self.registry, self._say, key=self._passing_key)

    @contextmanager
    def locked(self, command: str) -> Iterator[Context]:
        """Hold the project's lock; on entry, sweep what an interrupted run left and finish a cut-off alias move.

        Raises:
            BusyError: another process holds it.
        """
        with files.ProjectLock(self.store.root, command):
            self.store.create()
            files.remove_partials(self.registry.root)
            self.registry.recover()
            self._finish_forgetting()
            yield self.context

    def _finish_forgetting(self) -> None:
        """Go on with a `forget` that was cut off, before any command looks at what is to be forgotten."""
        if (self.store.root / FORGETTING).exists():
            from flywheel.pipeline.privacy.forget import resume

            resume(self.context)

    def _tell(self) -> None:
        """Write rounds down elsewhere too, where the project asks for it; nothing that goes wrong there counts."""
        if self.config.mlflow.tracking_uri:
            from flywheel.pipeline.serve.mlflow import tell_mlflow

            tell_mlflow(self.context)

    def key(self) -> bytes:
        """Return the redaction key: FLYWHEEL_KEY, else the project's key file, made on first use outside the store."""
        given = os.environ.get("FLYWHEEL_KEY")
        if given:
            return given.encode()
        path = self.folder / KEY_FILE
        if not path.exists():
            files.atomic_write(path, secrets.token_hex(32) + "\n")
            path.chmod(0o600)
        return path.read_text(encoding="ascii").strip().encode()

    def _passing_key(self) -> bytes:
        """Return the redaction key if the project has one, else one for this time: looking leaves no file behind."""
        has_one = os.environ.get("FLYWHEEL_KEY") or (self.folder / KEY_FILE).exists()
        return self.key() if has_one else secrets.token_hex(32).encode()

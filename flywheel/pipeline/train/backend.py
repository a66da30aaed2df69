"""A round in another system: whether it can be trained there, what is lost on the way, and the files it gets.

In: `[train] backend`, the table of backends, a round's rows. Out: what the plan shows of it, and a folder with the rows
in the system's own form (`flywheel export --to`) and their tokens, which the worker scores itself.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np

from flywheel.config import BackendConfig, TrainConfig
from flywheel.errors import ConfigError, TemplateError, UsageError
from flywheel.extensions import TrainSpec
from flywheel.io import files
from flywheel.models.chat import ChatFormat
from flywheel.models.load import base_identity, load_tokenizer
from flywheel.models.token_rows import token_rows
from flywheel.pipeline.context import Context
from flywheel.pipeline.serve.targets.table import TARGETS
from flywheel.pipeline.serve.targets.target import Mined
from flywheel.records import METHODS, BackendRun, Method, TokenRow
from flywheel.records.backends import BACKENDS, FORM_OF, NOT_FOLLOWED, OWN, TRL, Backend
from flywheel.stages.train.backends.job import FILES, TOKENS, environment, placed

_PROBE = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {"python": sys.version.split()[0]}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_SECONDS = 60
_MAY_NAME_CODE = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
_LIBRARIES = ("torch", "transformers", "peft", "trl")
_EPISODES = {"chosen_episode": "", "rejected_episode": "", "episode_id": ""}  # the way back is in data/origins.jsonl

Row = dict[str, Any]


@dataclass(frozen=True)
class OtherSystem:
    """The backend that the configuration names."""

    name: str
    backend: Backend
    command: list[str]
    versions: dict[str, str]
    train: TrainConfig

    def run(self, method: Method, rows: Sequence[Mapping[str, Any]]) -> BackendRun:
        """Return what a plan shows of a round that is trained here.

        Raises:
            UsageError: the system does not train this method, or not in so small steps.
        """
        form = FORM_OF.get(METHODS[method].dataset.name, "")
        if form not in self.backend.forms:
            able = [name for name, m in METHODS.items() if FORM_OF.get(m.dataset.name) in self.backend.forms]
            raise UsageError(
                f"`{method}` cannot be trained in {self.backend.title}",
                hint=f'methods there: {", ".join(able)}; `[train] backend = "{TRL}"` trains all',
            )
        step = self.train.batch_size * self.train.accumulation
        if step < self.backend.least.get(form, 1):
            least = self.backend.least[form]
            raise UsageError(
                f"`{method}` in {self.backend.title} needs {least} rows a step", hint=f"set train.batch_size = {least}"
            )
        lost = [
            f"{words} of {with_it:,} rows"
            for field, words in self.backend.lost.get(form, {}).items()
            if (with_it := sum(row.get(field) not in (None, 0.0 if field == "nll_weight" else 1.0) for row in rows))
        ]
        return BackendRun(
            name=self.name, title=self.backend.title, command=self.command, versions=self.versions, lost=lost
        )


def find_backend(ctx: Context) -> OtherSystem | None:
    """Return the other system that rounds are trained in, with what its interpreter has; None: TRL, here.

    Raises:
        ConfigError: there is no such system, it cannot be started, or a setting asks for what it does not do.
    """
    train = ctx.config.train
    if train.backend == TRL:
        return None
    own = train.backends.get(train.backend)
    backend = BACKENDS.get(train.backend, OWN)
    if backend.refused:
        raise ConfigError(f"no round is trained in {backend.title} here: {backend.refused}", hint=_choice(train))
    if own is None or bool(own.command) == bool(own.python) or (own.python and not backend.package):
        wanted = 'python = ".../bin/python"' if backend.package else 'command = ["...", "..."]'
        raise ConfigError(
            f"train.backend = `{train.backend}` needs `[train.backends.{train.backend}]` with {wanted} alone",
            hint=_choice(train),
        )
    defaults = TrainConfig()
    for name, neutral in NOT_FOLLOWED.items():
        if getattr(train, name) not in (getattr(defaults, name), *neutral):
            raise ConfigError(
                f"{backend.title} does not follow train.{name}", hint=f'remove it, or set `[train] backend = "{TRL}"`'
            )
    if ctx.config.model.quantise != "none":
        raise ConfigError(
            f"{backend.title} does not follow model.quantise",
            hint=f'pass a setting of its own as [train.backends.{train.backend}.arguments], or set backend = "{TRL}"',
        )
    if backend.runs_code:
        _refuse_code(base_identity(ctx.config.model).path, backend)
    return OtherSystem(train.backend, backend, own.command or [own.python], _versions(ctx, backend, own), train)


def _refuse_code(base: Path, backend: Backend) -> None:
    """Refuse a base model that names code of its own: transformers runs it only where that is switched on."""
    named = [name for name in _MAY_NAME_CODE if (base / name).is_file() and "auto_map" in files.read_json(base / name)]
    if named:
        raise ConfigError(
            f"the base model's {named[0]} names code of its own (`auto_map`), which {backend.title} would run",
            hint=f'remove auto_map if transformers has that architecture itself, or set `[train] backend = "{TRL}"`',
        )


def _choice(train: TrainConfig) -> str:
    ready = [TRL, *(name for name, backend in BACKENDS.items() if not backend.refused), *train.backends]
    return f"backends: {', '.join(dict.fromkeys(ready))}; see docs/backends.md"


def _versions(ctx: Context, backend: Backend, own: BackendConfig) -> dict[str, str]:
    """Return the versions of a system's packages, asked of its own interpreter; none of a command of the user's.

    Raises:
        ConfigError: it cannot be started, or lacks the system.
    """
    key = f"train.backends.{ctx.config.train.backend}"
    program = str(own.python or own.command[0])
    if not which(placed(ctx.project, program)):
        raise ConfigError(f"{key}: `{program}` cannot be started", hint=f"check {key} in flywheel.toml")
    if not backend.package:
        return {}
    call = [placed(ctx.project, program), "-I", "-c", _PROBE, backend.package, *_LIBRARIES]
    try:
        done = subprocess.run(
            call,
            capture_output=True,
            check=True,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
            env=environment(ctx.config),
        )
        versions: dict[str, str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ConfigError(
            f"{key}: `{program}` does not give the versions of its packages ({type(error).__name__})",
            hint=f"name the interpreter of the environment in which {backend.title} is installed",
        ) from error
    if backend.package not in versions:
        raise ConfigError(
            f"{key}: {backend.title} is not installed for `{program}`",
            hint=f"`{program} -m pip install {backend.package}=={backend.shown}`",
        )
    return versions


def write_files(ctx: Context, spec: TrainSpec) -> None:
    """Write a round's rows for the other system, in the order in which it is to train them, and their tokens."""
    backend = BACKENDS.get(spec.config.train.backend, OWN)
    form = FORM_OF[METHODS[spec.method].dataset.name]
    raw: list[Row] = files.read_rows(spec.data)
    random.Random(spec.seed).shuffle(raw)  # noqa: S311 - reproducible
    chat = ChatFormat(load_tokenizer(spec.config.model))
    rows = [{**_EPISODES, **row, "id": f"{place:06d}"} for place, row in enumerate(raw)]
    tokens = [part for row in rows for part in _tokens(form, row, chat)]
    kept = {token.row for token in tokens}
    rows = [row for row in rows if row["id"] in kept]
    if form in backend.shuffles:
        rows = _unshuffled(rows, spec.seed)
    folder = spec.work_dir / FILES
    folder.mkdir(parents=True, exist_ok=True)
    contents = Mined({form: rows}, {form: tokens}, chat, spec.base_model, "", ctx.config.name)
    for file in TARGETS[backend.target].data(contents) if backend.target else ():
        with files.atomic_path(folder / file.path) as path:
            path.write_bytes(file.content)
    lines = "".join(token.model_dump_json() + "\n" for token in tokens)
    files.atomic_write(folder / TOKENS, lines)


def _tokens(form: str, row: Row, chat: ChatFormat) -> list[TokenRow]:
    """Return the tokens of a row; none where its text as a whole has others than its parts: what is trained is one."""
    try:
        return token_rows(form, row, chat, {})
    except TemplateError:
        return []


def _unshuffled(rows: Sequence[Row], seed: int) -> list[Row]:
    """Return rows in an order that a shuffle by numpy's generator (`datasets.Dataset.shuffle`) turns into theirs."""
    places = np.random.default_rng(seed).permutation(len(rows))
    order = dict(zip(places.tolist(), rows, strict=True))
    return [order[place] for place in range(len(rows))]

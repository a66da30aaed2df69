"""Projects that tests make: a tiny random model, a small configuration, a digest of everything that must be equal."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from filelock import FileLock
from flywheel.pipeline.build.registry import STAGES
from flywheel.records import RoundManifest, content_id
from flywheel.registry.registry import Registry
from flywheel.store import Store
from tests.commands import FLYWHEEL, REAL, flywheel

if TYPE_CHECKING:
    from flywheel.project import Project

__all__ = [
    "FLYWHEEL",
    "HELD",
    "REAL",
    "TINY_CONFIG",
    "Projects",
    "champion_is_valid",
    "digest",
    "flywheel",
    "make_tiny_model",
    "train",
    "write_config",
]

HELD = 3  # the exit code of a gate that did not promote
TINY_CONFIG = """
[model]
base = "{model}"
dtype = "float32"

[train]
method = "sft"
max_steps = 4
checkpoint_every = 1
max_rows = 12
min_rows = 4
batch_size = 2
threads = 1

[eval]
suites = ["next_action"]
max_cases = 5
max_new_tokens = 4
"""


def make_tiny_model(folder: Path, *, hidden: int = 32, sharpness: float = 1.0, tokens: int = 0) -> Path:
    """Write a two-layer Llama with random weights (seed 0) and the embedded model's tokenizer; return its folder.

    With the commonest `tokens` alone it is read and runs several times faster. It can be sure of nothing, for its
    logits are too small: with a `sharpness` of 20 an adapter can learn.
    """
    import torch
    from flywheel.config import ModelConfig
    from flywheel.models.load import load_tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = load_tokenizer(ModelConfig())
    config = LlamaConfig(
        vocab_size=tokens or len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    model.lm_head.weight.data *= sharpness
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if tokens:
        _keep_commonest(folder / "tokenizer.json", tokens)
    return folder


def _keep_commonest(path: Path, tokens: int) -> None:
    """Leave the special tokens, the bytes and the first merges of a tokenizer's file, whose ids are in this order."""
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    bpe = tokenizer["model"]
    bpe["merges"] = bpe["merges"][: tokens - len(bpe["vocab"])]
    bpe["vocab"] = {token: number for token, number in bpe["vocab"].items() if number < tokens}
    path.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


class Projects:
    """Projects on sample_logs/ with the tiny model, each a command further than the one before; made when asked for.

    Args:
        folder: where they are kept, which workers of pytest-xdist share.
    """

    COMMANDS: ClassVar[dict[str, tuple[str, ...]]] = {
        "logs": (),
        "ingested": ("ingest",),
        "built": ("build",),
        "trained": ("train",),
        "evaluated": ("eval", "--promote"),
        "promoted": ("promote", "1", "--force", "--yes", "--reason", "rehearsal"),
    }

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def model(self) -> Path:
        """The tiny model."""
        return self.once("tiny", lambda folder: make_tiny_model(folder, tokens=4096))

    def copy(self, name: str, to: Path) -> Path:
        """Return a copy of a project, which may be changed."""
        return shutil.copytree(self.made(name), to, symlinks=True)

    def made(self, name: str) -> Path:
        """Return a project, which must stay as it is."""
        names = list(self.COMMANDS)
        if name == names[0]:
            return self.once(name, self._with_logs)
        return self.once(name, lambda folder: self._after(names[names.index(name) - 1], name, folder))

    def _with_logs(self, folder: Path) -> None:
        (folder / "logs").mkdir(parents=True)
        for log in (Path(__file__).parents[1] / "sample_logs").glob("*.jsonl*"):
            shutil.copy(log, folder / "logs")
        write_config(folder, self.model)

    def _after(self, before: str, name: str, folder: Path) -> None:
        self.copy(before, folder)
        command = [FLYWHEEL, *self.COMMANDS[name]]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode in {0, HELD}, done.stderr
        text = f"exit {done.returncode}\n{done.stdout}--- stderr\n{done.stderr}"
        self._printed(name).write_text(text.replace(str(folder), "PROJECT"), encoding="utf-8")

    def _printed(self, name: str) -> Path:
        return self._folder / f"{name}.printed"

    def printed(self, name: str) -> str:
        """Return the exit code of the command that made a project, and what it printed there."""
        self.made(name)
        return self._printed(name).read_text(encoding="utf-8")

    def once(self, name: str, make: Callable[[Path], object]) -> Path:
        """Return what `make` writes to a path, made by the first worker that asks."""
        self._folder.mkdir(exist_ok=True)
        folder, partial = self._folder / name, self._folder / f"{name}.partial"
        with FileLock(self._folder / f"{name}.lock"):
            if not folder.exists():
                make(partial)
                partial.rename(folder)
        return folder


def train(project: Project, *arguments: str) -> RoundManifest:
    """Train the next round by the command line, whose processes are forked; return its manifest."""
    flywheel(project.folder, "train", *arguments)
    return project.registry.manifest(project.registry.numbers()[-1])


_TIMES = {"timings_s", "at", "versions"}


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_times(v) for k, v in value.items() if k not in _TIMES}
    return [_without_times(v) for v in value] if isinstance(value, list) else value


def digest(project: Path) -> dict[str, Any]:
    """Return everything about a project that must be equal after any number of kills; times are left out."""
    store, registry = Store(project / ".flywheel"), Registry(project / "rounds")
    stages = ["ingest", *(stage.name for stage in STAGES)]
    current = {name: store.current(name) for name in stages}
    return {
        "tables": {n: {"content": s.sha256, "funnel": dict(s.funnel)} for n, s in current.items() if s},
        "sources": dict(current["ingest"].extra["sources"]) if current["ingest"] else {},
        "rounds": [_without_times(registry.manifest(n).model_dump(mode="json")) for n in registry.numbers()],
        "reports": [
            _without_times(report.model_dump(mode="json")) for n in registry.numbers() if (report := registry.report(n))
        ],
        "aliases": registry.aliases(),
        "decisions": [
            content_id(_without_times({**p.model_dump(mode="json"), "previous_sha256": "", "report_sha256": ""}))
            for p in registry.promotions()
        ],
    }


def champion_is_valid(project: Path) -> bool:
    """Return whether the champion alias, at this instant, names nothing or a whole round."""
    registry = Registry(project / "rounds")
    champion = registry.champion
    return champion is None or registry.problems([champion]) == []


def write_config(project: Path, model: Path) -> None:
    """Write the small configuration into a project."""
    (project / "flywheel.toml").write_text(TINY_CONFIG.format(model=json.dumps(str(model))[1:-1]), encoding="utf-8")

"""`flywheel deploy merge`: a round as one plain model in safetensors, and optionally in GGUF.

In: a trained round. Out: a folder, written completely or not at all; `flywheel.json` in it describes the model and its
name for logs. GGUF is written by llama.cpp's own converter, which the user installs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from flywheel.errors import FlywheelError, UsageError
from flywheel.io import files
from flywheel.io.safe_path import users_environment
from flywheel.models.load import base_identity
from flywheel.models.merge import merge
from flywheel.pipeline.context import Context, served_name
from flywheel.pipeline.copies import ABOUT, note_copy
from flywheel.pipeline.serve.deploy import refuse_unsound
from flywheel.results.deploy import DeployMergeAnswer

CONVERTERS = ("convert_hf_to_gguf.py", "convert_hf_to_gguf", "convert-hf-to-gguf")
PLACE = "LLAMA_CPP"  # environment variable: llama.cpp's checkout


def merge_round(ctx: Context, number: int | None, folder: Path, *, gguf: bool = False) -> DeployMergeAnswer:
    """Merge a round into its base model and write it.

    Args:
        ctx: the project, locked.
        number: the round.
        folder: new, empty, or written by an earlier merge.
        gguf: also write `model.gguf`.

    Raises:
        UsageError: the folder holds other files, the round may not serve, or the converter is missing.
        FlywheelError: the base model has changed since training, or the logits differ.
    """
    if number is None:
        raise UsageError("the base model is champion: there is no adapter to merge", hint="name a round with --round")
    refuse_unsound(ctx, number)
    if folder.exists() and any(folder.iterdir()) and not (folder / ABOUT).exists():
        raise UsageError(f"`{folder}` is not empty and not a merged model", hint="pass an empty folder with --to")
    converter = find_converter() if gguf else None
    manifest, cfg = ctx.registry.manifest(number), ctx.config.model
    base = cfg.model_copy(update={"base": manifest.base_model})
    if base_identity(base).sha256 != manifest.base_model_sha256:
        raise FlywheelError(f"round {number} was trained on another base model", hint="set [model] base to that model")
    with files.atomic_folder(folder) as partial:
        difference = merge(base, ctx.registry.folder(number) / "adapter", partial)
        weights = sorted(partial.glob("*.safetensors"))
        if converter is not None:
            _convert(converter, partial, partial / "model.gguf")
        answer = DeployMergeAnswer(
            folder=str(folder),
            round=number,
            name=served_name(ctx, number),
            base_model=manifest.base_model,
            adapter_sha256=manifest.adapter_sha256,
            weights_sha256=files.hash_text("".join(files.hash_file(path) for path in weights)),
            size_bytes=sum(path.stat().st_size for path in weights),
            largest_difference=difference,
            gguf=str(folder / "model.gguf") if gguf else "",
        )
        about = answer.model_dump(mode="json", exclude={"folder", "gguf"})
        files.write_json(partial / ABOUT, about)
        note_copy(ctx, "merged into", str(folder.resolve()), about)
    return answer


def find_converter() -> Path:
    """Return llama.cpp's converter: from the folder in LLAMA_CPP, else from the PATH.

    Raises:
        UsageError: it is not installed.
    """
    checkout = os.environ.get(PLACE)
    inside = [Path(checkout) / name for name in CONVERTERS] if checkout else []
    on_path = [Path(program) for name in CONVERTERS if (program := shutil.which(name))]
    for path in (*inside, *on_path):
        if path.is_file():
            return path
    raise UsageError(
        f"llama.cpp's converter ({CONVERTERS[0]}) is not installed",
        hint=f"clone https://github.com/ggml-org/llama.cpp and set {PLACE} to its folder; or drop --gguf",
    )


def _convert(converter: Path, model: Path, out: Path) -> None:
    command = [sys.executable] if converter.suffix == ".py" else []
    done = subprocess.run(
        [*command, str(converter), str(model), "--outfile", str(out), "--outtype", "auto"],
        capture_output=True, text=True, check=False, errors="replace", env=users_environment(),
    )  # fmt: skip
    if done.returncode != 0 or not out.is_file():
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise FlywheelError(
            f"{converter.name} ended with {done.returncode}: {last[:300]}",
            hint="does this llama.cpp know the model's architecture? update it; the merged safetensors need no GGUF",
        )

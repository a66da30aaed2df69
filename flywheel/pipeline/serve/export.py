"""`flywheel export`: datasets for other trainers, as a folder that `datasets.load_dataset` opens.

In: the current tables. Out: one JSONL file a form, a card and hashes, written completely or not at all; the same tables
give the same bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from flywheel.errors import UsageError
from flywheel.funnel import Funnel
from flywheel.io import files
from flywheel.pipeline.context import Context
from flywheel.pipeline.serve.targets.export import export_to
from flywheel.pipeline.serve.targets.mined import inputs_of, rows_of
from flywheel.pipeline.serve.targets.table import target_of
from flywheel.pipeline.serve.targets.target import PINNED
from flywheel.records import Split, canonical_json
from flywheel.results.data import ExportAnswer, ExportFile
from flywheel.stages.datasets.export import FORMS, trl_row

MANIFEST = "dataset.json"
_INTO = f"--local-dir {PINNED}"
_BY_SCRIPTS = {
    "__pycache__",
    "asked",
    "scenarios.parquet",
    "scenario_prompts.jsonl",
}  # what exported scripts leave, and make again

_CARD = """---
configs:
{configs}
---
# {name}

Training data mined from production logs by flywheel, in TRL's dataset forms. Split: {split}.

| file | for | rows | sha256 |
|---|---|---|---|
{rows}

```python
from datasets import load_dataset
dataset = load_dataset(".", "{first}", split="train")
```

Made from {inputs}. Personal data were replaced by pseudonyms before anything was stored; what no pattern knows may
still be there. `tools` is a JSON text, which TRL's trainers read as it is.

Rows are whole: an export knows no tokenizer and cuts nothing, so a trainer with a short context has to refuse or to
window the longest ones itself (the longest has {longest:,} characters).
"""


def check_forms(forms: Sequence[str], split: str, to: str = "") -> None:
    """Refuse an unknown form, split or target, before any table is built.

    Raises:
        UsageError: there is no such form, split or target, or the target has no place for the form.
    """
    if unknown := sorted(set(forms) - FORMS.keys()):
        raise UsageError(f"unknown form `{unknown[0]}`", hint=f"forms: {', '.join(FORMS)}")
    if split not in tuple(Split):
        raise UsageError(f"unknown split `{split}`", hint=f"splits: {', '.join(Split)}")
    if to:
        target_of(to, forms)


def export(ctx: Context, folder: Path, forms: Sequence[str], split: str, to: str = "") -> ExportAnswer:
    """Write the named forms, or all of them where none is named; `to`: as the files of that system.

    Raises:
        UsageError: a folder that holds what flywheel did not write.
        FlywheelError: a target needs tokens, and the base model has no tokenizer or no chat template.
    """
    if folder.exists():
        _require_own(folder)
    with files.atomic_folder(folder) as partial:
        if to:
            answer = export_to(ctx, folder, partial, target_of(to, forms), forms, Split(split))
        else:
            datasets = [_write(ctx, partial, form, Split(split)) for form in FORMS if form in forms or not forms]
            answer = ExportAnswer(
                folder=str(folder), split=split, files=datasets, inputs=inputs_of(ctx, forms or FORMS)
            )
            files.atomic_write(partial / "README.md", _card(ctx, answer))
        files.write_json(partial / MANIFEST, answer.model_dump(mode="json", exclude={"folder"}))
        if _downloaded(folder) in answer.command:
            shutil.copytree(folder / PINNED, partial / PINNED, symlinks=True, copy_function=_link)
    return answer


def _downloaded(folder: Path) -> str | None:
    """Return the command that downloaded the pinned base which lies in an earlier export; None where none does."""
    if not (folder / PINNED).is_dir() or not (folder / MANIFEST).is_file():
        return None
    return next((line for line in files.read_json(folder / MANIFEST).get("command", []) if line.endswith(_INTO)), None)


def _link(source: str, target: str) -> None:
    """Give a file a second name, so that gigabytes are neither copied nor lost."""
    try:
        os.link(source, target)
    except OSError:  # a file system without such names
        shutil.copy2(source, target)


def _require_own(folder: Path) -> None:
    """Refuse a folder with anything but an earlier export: all of it is replaced, adapters trained there too."""
    names = {path.name for path in folder.iterdir()} - _BY_SCRIPTS - ({PINNED} if _downloaded(folder) else set())
    if not (folder / MANIFEST).is_file():
        if names:
            raise UsageError(f"`{folder}` was not written by `flywheel export`", hint="choose a new or empty folder")
        return
    earlier = files.read_json(folder / MANIFEST)
    own = {MANIFEST, "README.md", *earlier.get("launch", []), *(Path(f["path"]).parts[0] for f in earlier["files"])}
    if others := sorted(names - own):
        raise UsageError(
            f"`{folder}` holds `{others[0]}`, which `flywheel export` did not write",
            hint="an export replaces its whole folder: move this out first, or choose another folder",
        )


def _write(ctx: Context, folder: Path, kind: str, split: Split) -> ExportFile:
    form, funnel = FORMS[kind], Funnel()
    rows = [trl_row(row, form) for row in rows_of(ctx, kind, split, funnel)]
    text = "".join(canonical_json(row) + "\n" for row in rows)
    files.atomic_write(folder / f"{kind}.jsonl", text)
    return ExportFile(
        path=f"{kind}.jsonl",
        form=kind,
        trainers=form.trainers,
        rows=funnel.kept,
        longest=max(map(len, files.lines(text)), default=0),
        sha256=files.hash_text(text),
        counts=funnel.as_dict(),
    )


def _card(ctx: Context, answer: ExportAnswer) -> str:
    configs = [f"- config_name: {file.form}\n  data_files: {file.path}" for file in answer.files if file.rows]
    rows = [f"| `{f.path}` | {f.trainers} | {f.rows:,} | `{f.sha256[:16]}` |" for f in answer.files]
    inputs = ", ".join(f"{table} `{sha256[:16]}`" for table, sha256 in answer.inputs.items())
    return _CARD.format(
        configs="\n".join(configs) or "[]",
        name=ctx.config.name or "flywheel dataset",
        split=answer.split,
        rows="\n".join(rows),
        first=next((file.form for file in answer.files if file.rows), answer.files[0].form),
        inputs=inputs or "empty tables",
        longest=max((file.longest for file in answer.files), default=0),
    )

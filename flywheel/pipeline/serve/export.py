"""`flywheel export`: datasets for other trainers, as a folder that `datasets.load_dataset` opens.

In: the current tables. Out: one JSONL file a form, a card and hashes, written completely or not at all; the same tables
give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flywheel.errors import UsageError
from flywheel.funnel import Funnel
from flywheel.io import files
from flywheel.pipeline.build.registry import stage_of
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.holdout import evaluation_texts
from flywheel.records import Split, canonical_json
from flywheel.records.methods import ACTIONS
from flywheel.results.data import ExportAnswer, ExportFile
from flywheel.stages.datasets.export import FORMS, export_rows
from flywheel.stages.datasets.unpaired import unpaired, weighed
from flywheel.stages.selection.decontaminate import clear

MANIFEST = "dataset.json"

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


def check_forms(forms: Sequence[str], split: str) -> None:
    """Refuse an unknown form or split, before any table is built.

    Raises:
        UsageError: there is no such form or split.
    """
    if unknown := sorted(set(forms) - FORMS.keys()):
        raise UsageError(f"unknown form `{unknown[0]}`", hint=f"forms: {', '.join(FORMS)}")
    if split not in tuple(Split):
        raise UsageError(f"unknown split `{split}`", hint=f"splits: {', '.join(Split)}")


def export(ctx: Context, folder: Path, forms: Sequence[str], split: str) -> ExportAnswer:
    """Write the named forms, or all of them where none is named.

    Raises:
        UsageError: a folder that flywheel did not write.
    """
    if folder.exists() and not (folder / MANIFEST).is_file() and any(folder.iterdir()):
        raise UsageError(f"`{folder}` was not written by `flywheel export`", hint="choose a new or empty folder")
    with files.atomic_folder(folder) as partial:
        datasets = [_write(ctx, partial, form, Split(split)) for form in FORMS if form in forms or not forms]
        answer = ExportAnswer(folder=str(folder), split=split, files=datasets, inputs=_inputs(ctx, datasets))
        files.write_json(partial / MANIFEST, answer.model_dump(mode="json", exclude={"folder"}))
        files.atomic_write(partial / "README.md", _card(ctx, answer))
    return answer


def _write(ctx: Context, folder: Path, kind: str, split: Split) -> ExportFile:
    form, funnel = FORMS[kind], Funnel()
    table = read_table(ctx.store, form.dataset.table.name).collect()
    if form.dataset is ACTIONS:  # as a KTO round reads it
        table = weighed(unpaired(table, read_table(ctx.store, "pairs").collect(), funnel, split))
    rows = export_rows(table, form, split, funnel)
    if split == Split.TRAIN:
        rows = clear(rows, evaluation_texts(ctx), funnel)
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


def _inputs(ctx: Context, datasets: list[ExportFile]) -> dict[str, str]:
    stages = {stage_of(FORMS[file.form].dataset.table.name) for file in datasets}
    stages |= (
        {"pairs"} if any(FORMS[file.form].dataset is ACTIONS for file in datasets) else set()
    )  # paired actions are left out
    snapshots = ((stage, ctx.store.current(stage)) for stage in sorted(stages))
    return {stage: snapshot.table_sha256(stage) for stage, snapshot in snapshots if snapshot is not None}


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

"""`flywheel export --to`: the files of one system, its launch files, and a README with the commands.

In: mined rows with their tokens. Out: the folder's files; what the system has no place for is listed with its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flywheel.funnel import Funnel
from flywheel.io import files
from flywheel.models.lint import rendering
from flywheel.models.rollout import TEMPLATE
from flywheel.pipeline.context import Context
from flywheel.pipeline.serve.targets.carried import carried
from flywheel.pipeline.serve.targets.mined import inputs_of, mined
from flywheel.pipeline.serve.targets.target import ENVIRONMENT, DataFile, Mined, Target
from flywheel.records import Split, canonical_json
from flywheel.results.data import ExportAnswer, ExportFile, ExportLoss
from flywheel.stages.datasets.export import FORMS

_USUAL = {"weight": 1.0, "part": 0, "temperature": 1.0}  # what a row has where there is nothing to lose
_OF_MESSAGES = {"tools", "completions"}
_OF_ROWS = {*_OF_MESSAGES, "log_probs"}  # of targets that read no tokens
_README = """# {name}

Mined from production logs by flywheel, for {title}. Split: {split}.

```sh
{command}
```

| file | for | rows | sha256 |
|---|---|---|---|
{files}

Launch files: {launch}.

## What is lost

{lost}

## What to know

{notes}- Personal data were replaced by pseudonyms before anything was stored; what no pattern knows may still be there.

Made from {inputs}.
"""

_TOKENS = (
    "Tokens and texts are those of `{model}` ({rendering}). Train that model: the masks are for its tokens.",
    "Commands and launch files, run in this folder, load it from `{weights}`.",
    "Nothing is cut: the longest row has {longest:,} tokens, and the launch files allow as many.",
)
HELD_OUT = (
    "These rows are of held-out tasks, on which the gate compares rounds: what trains on them cannot be evaluated. "
    "Without `--split holdout` the training tasks are exported."
)


def export_to(
    ctx: Context, folder: Path, partial: Path, target: Target, forms: Sequence[str], split: Split
) -> ExportAnswer:
    """Write the files of a target into a partial folder.

    Raises:
        FlywheelError: the base model has no tokenizer, or no chat template.
    """
    funnels = dict[str, Funnel]()
    wanted = [form for form in target.forms if form in forms or not forms]
    contents = mined(ctx, folder, wanted, split, funnels, tokens=target.tokens)
    data, launch = write_files(target, contents, partial)
    written = [
        ExportFile(
            path=file.path,
            form=file.form,
            trainers=(target.trains or FORMS[file.form].trainers) if file.rows is not None else "",
            rows=file.rows or 0,
            longest=max(map(len, map(canonical_json, contents.rows[file.form])), default=0),
            sha256=files.hash_file(partial / file.path),
            counts=funnels[file.form].as_dict(),
        )
        for file in data
    ]
    answer = ExportAnswer(
        folder=str(folder),
        split=split,
        to=target.name,
        files=written,
        launch=launch,
        command=target.commands(contents),
        lost=_lost(target, contents),
        warnings=[HELD_OUT] if split == Split.HOLDOUT else [],
        inputs=inputs_of(ctx, contents.rows),
    )
    files.atomic_write(partial / "README.md", _readme(target, contents, answer))
    return answer


def write_files(target: Target, contents: Mined, folder: Path) -> tuple[list[DataFile], list[str]]:
    """Write a target's files of rows and its launch files; return the former and the names of the latter."""
    data = list(target.data(contents))
    for file in data:
        with files.atomic_path(folder / file.path) as path:
            path.write_bytes(file.content)
    launch = dict(target.launch_files(contents))
    if target.environment and contents.scenarios:
        launch["scenarios.jsonl"] = "".join(canonical_json(row) + "\n" for row in contents.scenarios)
        launch |= dict(carried())
    if contents.template:
        launch[TEMPLATE] = contents.template
    for name, text in launch.items():
        files.atomic_write(folder / name, text)
    return data, sorted({Path(name).parts[0] for name in launch})


def _lost(target: Target, contents: Mined) -> list[ExportLoss]:
    """Return what the system has no place for, as far as rows have it."""
    losses, of_rows = [], _OF_MESSAGES if target.tokens else _OF_ROWS
    for lost in target.lost:
        if lost.partly and contents.corrected:
            continue
        with_it = {row.row for form in lost.forms for row in contents.tokens.get(form, ()) if _has(row, lost.field)} | {
            row["id"]
            for form in lost.forms
            for row in contents.rows.get(form, ())
            if lost.field in of_rows and any(row.get(lost.field) or ())
        }
        if with_it:
            losses.append(ExportLoss(field=lost.field, rows=len(with_it), why=lost.why))
    return losses


def _has(row: object, field: str) -> bool:
    return getattr(row, field, None) not in (None, _USUAL.get(field))


def _readme(target: Target, contents: Mined, answer: ExportAnswer) -> str:
    rows = [f"| `{f.path}` | {f.trainers} | {f.rows:,} | `{f.sha256[:16]}` |" for f in answer.row_files]
    lost = [f"- `{loss.field}` of {loss.rows:,} rows: {loss.why}." for loss in answer.lost]
    told = [line.format(**_told(contents)) for line in _TOKENS] if target.tokens else []
    notes = [note for note in target.notes if contents.scenarios or ENVIRONMENT not in note]
    notes += [f"Rendered with `{TEMPLATE}`, which is not the model's own: serve with it too."] * bool(contents.template)
    return _README.format(
        name=contents.name or "flywheel dataset",
        title=target.title,
        split=answer.split,
        command="\n".join(answer.command) or "# no rows",
        files="\n".join(rows),
        launch=", ".join(f"`{name}`" for name in answer.launch) or "none",
        lost="\n".join(lost) or "Nothing.",
        notes="".join(f"- {note}\n" for note in (*answer.warnings, *told, *notes)),
        inputs=", ".join(f"{table} `{sha256[:16]}`" for table, sha256 in answer.inputs.items()) or "empty tables",
    )


def _told(contents: Mined) -> dict[str, object]:
    return {
        "model": contents.model,
        "rendering": rendering(contents.chat),
        "weights": contents.weights,
        "longest": contents.longest,
    }

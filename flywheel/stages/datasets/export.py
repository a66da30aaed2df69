"""Datasets in the forms that trainers read, so that rows mined here can be trained on anywhere.

In: the tables pairs, examples and groups. Out: mined rows with their messages as recorded, and the same as plain JSON
in TRL's forms (preference, unpaired, prompt with groups, prompt and completion):
https://huggingface.co/docs/trl/dataset_formats. Messages are those of chat templates: arguments are objects, a tool's
result carries its tool's name, and content is a text, never null. Tool schemas are a JSON text, which TRL reads as well
as a list: as a list, Arrow would give every schema the fields of every other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from flywheel.funnel import Funnel
from flywheel.models.chat import native_message
from flywheel.records import Split, canonical_json
from flywheel.records.methods import ACTIONS, EXAMPLES, GROUPS, PAIRS, Dataset

Row = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """One form of dataset: what it is made of, and what of a row it shows besides messages and tools."""

    dataset: Dataset
    trainers: str
    facts: tuple[str, ...]
    wanted: str = ""  # a boolean column that must hold

    @property
    def messages(self) -> tuple[str, ...]:
        """The fields of a mined row with messages after the prompt."""
        return self.dataset.sides or ("completions",)


FORMS: dict[str, Form] = {
    form.dataset.exported: form
    for form in (
        Form(PAIRS, "DPO, reward models", ("margin", "p_better", "weight", "builder")),
        Form(ACTIONS, "KTO", ("label", "p_success", "weight")),
        Form(EXAMPLES, "SFT", ("p_success", "weight"), wanted="label"),
        Form(GROUPS, "GRPO on logged attempts", ("rewards", "advantages", "policies", "episodes")),
    )
}
_BY_MEMBER = ("log_probs", "prompts")  # JSON texts, one an attempt


def mined_rows(table: pl.DataFrame, form: Form, split: Split, funnel: Funnel) -> list[Row]:
    """Return the rows of one form with parsed messages, in the order of their ids; counts what is left out.

    Columns of groups have their names without `_G`.

    Args:
        table: the form's table.
        form: one of `FORMS`.
        split: training or holdout.
        funnel: counts rows.
    """
    funnel.considered += table.height
    other = "holdout" if split == Split.TRAIN else "training split"
    table = funnel.drop(table, pl.col("split") != split.value, other)
    if "weight" in table.columns:
        table = funnel.drop(table, pl.col("weight") <= 0, "no weight")
    if form.wanted:
        table = funnel.drop(table, ~pl.col(form.wanted), "undesirable")
    funnel.kept += table.height
    return sorted((_mined(row, form) for row in table.iter_rows(named=True)), key=lambda row: str(row["id"]))


def _mined(row: Mapping[str, Any], form: Form) -> Row:
    plain = {name.removesuffix("_G"): value for name, value in row.items()}
    plain |= {"id": row[form.dataset.table.key], "prompt": json.loads(row["prompt"])}
    plain["tools"] = json.loads(row["tools"]) if row["tools"] is not None else None
    for name in (*form.messages, *_BY_MEMBER):
        value = plain.get(name)
        if isinstance(value, list):
            plain[name] = [json.loads(text) if text is not None else None for text in value]
        elif value is not None:
            plain[name] = json.loads(value)
    return plain


def trl_row(row: Mapping[str, Any], form: Form) -> Row:
    """Return a mined row in TRL's form; attempts that were asked in other words have their own `prompts`."""
    own = any(prompt != row["prompt"] for prompt in row.get("prompts") or ())
    by_member = () if form.dataset.sides else ("prompts", "completions") if own else ("completions",)
    return {
        "prompt": native(row["prompt"]),
        "tools": canonical_json(row["tools"]) if row["tools"] is not None else None,
        "id": row["id"],
        "task_id": row["task_id"],
        **{name: native(row[name]) for name in form.dataset.sides},
        **{name: [native(messages) for messages in row[name]] for name in by_member},
        **{name: row[name] for name in form.facts},
    }


def native(messages: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return messages in the form that chat templates take."""
    return [native_message(message) for message in messages]

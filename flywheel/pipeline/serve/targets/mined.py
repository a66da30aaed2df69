"""What is exported: the mined rows of the current tables, and their tokens under the base model's template."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flywheel.errors import TemplateError
from flywheel.funnel import Funnel
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer, seen_from
from flywheel.models.token_rows import token_rows
from flywheel.pipeline.build.registry import stage_of
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.holdout import evaluation_texts
from flywheel.pipeline.serve.targets.target import Mined
from flywheel.records import Split
from flywheel.records.methods import ACTIONS
from flywheel.records.token_rows import TokenRow
from flywheel.stages.datasets.export import FORMS, mined_rows
from flywheel.stages.datasets.unpaired import unpaired, weighed
from flywheel.stages.selection.decontaminate import CROSSES, clear

NOT_RENDERED = "the base model's template cannot render it"
NOT_SHOWN = "a malformed call that the template cannot show"

Row = dict[str, Any]


def rows_of(ctx: Context, kind: str, split: Split, funnel: Funnel) -> list[Row]:
    """Return the mined rows of a form; training rows that share words with an evaluation are dropped."""
    form = FORMS[kind]
    table = read_table(ctx.store, form.dataset.table.name).collect()
    if form.dataset is ACTIONS:  # as a KTO round reads it
        table = weighed(unpaired(table, read_table(ctx.store, "pairs").collect(), funnel, split))
    rows = mined_rows(table, form, split, funnel)
    if split != Split.TRAIN:
        return rows
    kept = clear(rows, evaluation_texts(ctx), funnel)
    funnel.dropped[CROSSES] += len(rows) - len(kept)
    funnel.kept -= len(rows) - len(kept)
    return kept


def inputs_of(ctx: Context, forms: Iterable[str]) -> dict[str, str]:
    """Return the hash of each table that the forms are made from."""
    datasets = [FORMS[form].dataset for form in forms]
    stages = {stage_of(dataset.table.name) for dataset in datasets}
    stages |= {"pairs"} if ACTIONS in datasets else set()  # paired actions are left out
    snapshots = ((stage, ctx.store.current(stage)) for stage in sorted(stages))
    return {stage: snapshot.table_sha256(stage) for stage, snapshot in snapshots if snapshot is not None}


def mined(ctx: Context, folder: Path, forms: Sequence[str], split: Split, funnels: dict[str, Funnel]) -> Mined:
    """Return the rows of forms with their tokens; a row that the template cannot render is dropped and counted.

    Args:
        ctx: the project.
        folder: where the files will lie, from which the base model is loaded.
        forms: of rows.
        split: training or holdout.
        funnels: count the rows of each form.

    Raises:
        FlywheelError: the base model has no tokenizer, or no chat template.
    """
    chat = ChatFormat(load_tokenizer(ctx.config.model))
    episodes = read_table(ctx.store, "episodes").select("episode_id", "policy").collect()
    policies = dict(episodes.iter_rows())
    rows, tokens = dict[str, list[Row]](), dict[str, list[TokenRow]]()
    for kind in forms:
        funnel = funnels.setdefault(kind, Funnel())
        rows[kind], tokens[kind] = [], []
        for row in rows_of(ctx, kind, split, funnel):
            parts = _tokens(kind, row, chat, policies, funnel)
            rows[kind] += [row] if parts else []
            tokens[kind] += parts
    return Mined(rows, tokens, chat, ctx.config.model.base, seen_from(ctx.config.model, folder), ctx.config.name)


def _tokens(kind: str, row: Row, chat: ChatFormat, policies: dict[str, str | None], funnel: Funnel) -> list[TokenRow]:
    answers = row["completions"] if "completions" in row else [row[side] for side in FORMS[kind].messages]
    actions = [message for messages in answers for message in messages if message["role"] == "assistant"]
    try:
        parts = token_rows(kind, row, chat, policies) if all(map(chat.shows, actions)) else []
        reason = NOT_SHOWN
    except TemplateError:
        parts, reason = [], NOT_RENDERED
    if not parts:
        funnel.dropped[reason] += 1
        funnel.kept -= 1
    return parts

"""What is exported: the mined rows of the current tables, and their tokens under the base model's template."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from flywheel.errors import SeamError, TemplateError
from flywheel.funnel import Funnel
from flywheel.models.chat import ChatFormat
from flywheel.models.load import is_of_hub, load_tokenizer, seen_from
from flywheel.models.token_rows import token_rows
from flywheel.pipeline.build.registry import stage_of
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.holdout import evaluation_texts
from flywheel.pipeline.serve.targets.carried import limits
from flywheel.pipeline.serve.targets.target import PINNED, Mined
from flywheel.records import Split
from flywheel.records.methods import ACTIONS, GROUPS
from flywheel.records.token_rows import TokenRow
from flywheel.stages.datasets.export import FORMS, mined_rows
from flywheel.stages.datasets.unpaired import unpaired, weighed
from flywheel.stages.selection.decontaminate import CROSSES, clear
from flywheel.stages.selection.groups import select_scenarios

NOT_RENDERED = "the base model's template cannot render it"
NOT_SHOWN = "a malformed call that the template cannot show"
OTHER_TOKENS = "prompt and action have other tokens in one text"
TOO_FEW = "fewer than two attempts that can be rendered"

_FEWEST = 2  # attempts that can be compared

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


def mined(
    ctx: Context, folder: Path, forms: Sequence[str], split: Split, funnels: dict[str, Funnel], *, tokens: bool = True
) -> Mined:
    """Return the rows of forms with their tokens; what the template cannot render is dropped and counted.

    Args:
        ctx: the project.
        folder: where the files will lie, from which the base model is loaded.
        forms: of rows.
        split: training or holdout.
        funnels: count the rows of each form.
        tokens: False for targets that read none: they need no base model.

    Raises:
        FlywheelError: the base model has no tokenizer, or no chat template.
    """
    rows = {kind: rows_of(ctx, kind, split, funnels.setdefault(kind, Funnel())) for kind in forms}
    model = ctx.config.model
    if not tokens:
        return Mined(rows, {}, cast("ChatFormat", None), model.base, "", ctx.config.name)
    chat = ChatFormat(load_tokenizer(model))
    episodes = read_table(ctx.store, "episodes").select("episode_id", "policy").collect()
    how = _How(chat, dict(episodes.iter_rows()), thoughts=ctx.config.train.thoughts == "keep")
    rendered = {kind: [_rendered(kind, row, how, funnels[kind]) for row in some] for kind, some in rows.items()}
    pinned = model.revision if is_of_hub(model) else ""
    return Mined(
        rows={kind: [row for row, parts in some if parts] for kind, some in rendered.items()},
        tokens={kind: [part for _, parts in some for part in parts] for kind, some in rendered.items()},
        chat=chat,
        model=model.base,
        weights=PINNED if pinned else seen_from(model, folder),
        name=ctx.config.name,
        revision=pinned,
        base=None if is_of_hub(model) else (folder.resolve() / seen_from(model, folder)).resolve(),
        template=str(chat.tokenizer.chat_template) if model.chat_template or model.template_arguments else "",
        scenarios=_scenarios(ctx, chat, forms, split, funnels),
    )


def _scenarios(
    ctx: Context, chat: ChatFormat, forms: Sequence[str], split: Split, funnels: dict[str, Funnel]
) -> list[Row]:
    """Return the scenarios of a `grpo-replay` round, where groups are exported: held-out ones are attempted nowhere."""
    if GROUPS.exported not in forms or split != Split.TRAIN:
        return []
    starts, fixtures = (read_table(ctx.store, name).collect() for name in ("scenarios", "fixtures"))
    funnel, least = funnels.setdefault("scenarios", Funnel()), ctx.config.groups.min_range
    rows = select_scenarios(starts, fixtures, ctx.config.train, least, funnel, evaluation_texts(ctx))
    told = {"limits": limits(ctx.config.replay), "end": str(chat.tokenizer.eos_token)}
    return [{**row, **told} for row in rows]


class _How(NamedTuple):
    """How rows become tokens: by which format, whose actions they are, and whether logged thoughts are trained."""

    chat: ChatFormat
    policies: dict[str, str | None]
    thoughts: bool


def _rendered(kind: str, row: Row, how: _How, funnel: Funnel) -> tuple[Row, list[TokenRow]]:
    """Return a row with its tokens, none if it is dropped; of a group, the attempts that can be rendered."""
    parts, reason = _tokens(kind, row, how)
    if reason and "completions" in row:
        reasons = [_tokens(kind, only(row, [n]), how)[1] for n in range(len(row["completions"]))]
        row = only(row, [n for n, why in enumerate(reasons) if not why])
        for why in filter(None, reasons):
            funnel.note(f"attempts left out: {why}", 1)
        parts, reason = _tokens(kind, row, how) if len(row["completions"]) >= _FEWEST else ([], TOO_FEW)
    if reason:
        funnel.dropped[reason] += 1
        funnel.kept -= 1
    return row, parts


def only(group: Row, members: Sequence[int]) -> Row:
    """Return a group with some of its attempts, each with the advantage that it had among all."""
    size = len(group["completions"])
    by_member = {name.removesuffix("_G") for name in GROUPS.table.record.model_fields if name.endswith("_G")}
    return {
        name: [value[n] for n in members] if name in by_member and value and len(value) == size else value
        for name, value in group.items()
    }


def _tokens(kind: str, row: Row, how: _How) -> tuple[list[TokenRow], str]:
    """Return the tokens of a row, or why it has none."""
    answers = row["completions"] if "completions" in row else [row[side] for side in FORMS[kind].messages]
    actions = [message for messages in answers for message in messages if message["role"] == "assistant"]
    if not all(map(how.chat.shows, actions)):
        return [], NOT_SHOWN
    try:
        parts = token_rows(kind, row, how.chat, how.policies, thoughts=how.thoughts)
    except SeamError:
        return [], OTHER_TOKENS
    except TemplateError:
        return [], NOT_RENDERED
    return parts, "" if parts else NOT_RENDERED

"""Making a round's rows fit into its longest row: which fit, which become a window, and which are refused, counted.

In: the rows chosen for a round. Out: the rows that it trains on, with their tokens. Every row is rendered by the base
model's template and checked on the way (`models.lint`). What a window leaves out may be what its action came from: a
chosen action, or a demonstration, that names what only the whole conversation showed is refused as a pair would be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flywheel.errors import TrainError
from flywheel.funnel import Funnel
from flywheel.io import files
from flywheel.models.chat import ChatFormat
from flywheel.models.lint import lint_row
from flywheel.models.load import base_identity, load_tokenizer
from flywheel.models.windows import open_window
from flywheel.pipeline.context import Context
from flywheel.records import canonical_json, content_id
from flywheel.stages.datasets.grounding import ungrounded
from flywheel.stages.train.rows import sides_of

if TYPE_CHECKING:
    from flywheel.models.lint import Measured

__all__ = ["SIDES", "Fitted", "dataset_text", "fit_rows"]

SIDES: dict[str, tuple[str, ...]] = {"sft": ("completion",), "dpo": ("chosen", "rejected"), "kto": ("completion",)}
_SHOWN = 3  # findings told in an error
_ATTEMPTS = {"grpo", "grpo-replay"}  # what is trained is a whole conversation
TOO_LONG = "too long for train.max_length"
LOST = "not grounded in what fits"

Row = dict[str, Any]


@dataclass(frozen=True)
class Fitted:
    """A round's rows as they are trained.

    `tokens` are [prompt, side, ...] of each row (of GRPO: of each attempt).
    """

    rows: list[Row]
    tokens: list[list[int]]
    rendering: str
    windowed: int = 0
    refused: int = 0


def _sides(row: Row, method: str) -> tuple[str, ...]:
    return sides_of(row, SIDES.get(method, ("completion",)))


def dataset_text(rows: Sequence[Row]) -> str:
    """Return rows as the JSON lines of a dataset file."""
    return "".join(canonical_json(row) + "\n" for row in rows)


def fit_rows(ctx: Context, rows: Sequence[Row], method: str, funnel: Funnel) -> Fitted:
    """Return what a round trains of the rows chosen for it; refusals are moved from kept to dropped in the funnel.

    Attempts of GRPO are whole conversations, whose steps share what they have seen: they stay as they are, and the
    trainer refuses those that are too long.

    Raises:
        TrainError: the base model's template garbles a row (names the row and what to do), or more rows are refused
            than `train.max_refused` allows.
    """
    found = _measured(ctx, rows, method)
    limit = ctx.config.train.max_length
    if method in _ATTEMPTS or all(prompt + max(sides) <= limit for prompt, *sides in found.tokens):
        return found
    made = _windowed(ctx, found, method, funnel)
    funnel.kept -= made.refused
    if rows and made.refused / len(rows) > ctx.config.train.max_refused:
        raise TrainError(
            f"{made.refused:,} of {len(rows):,} rows do not fit into train.max_length = {limit:,} tokens",
            hint="raise train.max_length (memory grows with it) or train.max_refused",
        )
    return made


def _windowed(ctx: Context, found: Fitted, method: str, funnel: Funnel) -> Fitted:
    """Return the rows that fit and windows on those that do not, in order of content."""
    chat, limit = ChatFormat(load_tokenizer(ctx.config.model)), ctx.config.train.max_length
    kept, windows, seen = list[tuple[Row, list[int]]](), 0, set[str]()
    for row, tokens in zip(found.rows, found.tokens, strict=True):
        if tokens[0] + max(tokens[1:]) <= limit:
            kept.append((row, tokens))
            continue
        window = _open(chat, row, method, limit) if ctx.config.train.long_rows == "window" else TOO_LONG
        if not isinstance(window, str) and (same := _identity(window, method)) in seen:
            window = "its window is another row's"
        if isinstance(window, str):
            funnel.dropped[window] += 1
            continue
        seen.add(same)
        measured = _lint(chat, window, method)
        _refuse([measured])
        kept.append((window, [measured.prompt, *measured.sides]))
        windows += 1
    kept.sort(key=lambda one: content_id(one[0]))
    funnel.note("windows on longer conversations", windows)
    refused = len(found.rows) - len(kept)
    return Fitted([row for row, _ in kept], [t for _, t in kept], found.rendering, windows, refused)


def _open(chat: ChatFormat, row: Row, method: str, limit: int) -> Row | str:
    """Return a row with a window as its prompt, or why there is none."""
    window = open_window(chat, row["prompt"], row["tools"], [row[side][0] for side in _sides(row, method)], limit)
    if window is None:
        return TOO_LONG
    made = {**row, "prompt": window.prompt, "left_out": window.left_out, "characters_cut": window.cut}
    return LOST if _loses_ground(row, made, method) else made


def _identity(row: Row, method: str) -> str:
    return content_id(row["prompt"], row["tools"], *(row[side] for side in _sides(row, method)))


def _loses_ground(row: Row, made: Row, method: str) -> bool:
    """Return whether what the round is to learn names something that the row showed and its window does not."""
    if row.get("label") is False:  # KTO's undesirable action: nobody is to learn it
        return False
    better, worse = row[_sides(row, method)[0]][0], row.get("rejected", [{"role": "assistant"}])[0]
    tools = canonical_json(row["tools"]) if row["tools"] is not None else None
    whole, left = (canonical_json(one["prompt"]) for one in (row, made))
    return bool(ungrounded(better, worse, left, tools) - ungrounded(better, worse, whole, tools))


# --- tokens, and what a template does to a row --------------------------------------------------------------------


def _measured(ctx: Context, rows: Sequence[Row], method: str) -> Fitted:
    """Return the rows with their tokens; rendered once for a dataset and a base model."""
    from flywheel.models.lint import rendering

    dataset = files.hash_text(dataset_text(rows))
    room = ctx.config.train.replay_tokens if method == "grpo-replay" else 0
    key = content_id("tokens", 1, dataset, base_identity(ctx.config.model).sha256, method, room)
    known = ctx.store.cached("tokens", key)
    if known is None:
        chat = ChatFormat(load_tokenizer(ctx.config.model))
        if method == "grpo":
            attempts = [[_lint(chat, row, method) for row in _actions(one)] for one in _attempts(rows)]
            _refuse([action for actions in attempts for action in actions])
            tokens = [_whole(actions) for actions in attempts if actions]
        elif method == "grpo-replay":
            measured = [_lint(chat, _first_call(row), method) for row in rows]
            _refuse(measured)
            tokens = [[m.prompt, room] for m in measured]
        else:
            measured = [_lint(chat, row, method) for row in rows]
            _refuse(measured)
            tokens = [[m.prompt, *m.sides] for m in measured]
        known = {"rendering": rendering(chat), "tokens": tokens}
        ctx.store.cache("tokens", key, known)
    return Fitted(list(rows), known["tokens"], known["rendering"])


def _lint(chat: ChatFormat, row: Row, method: str) -> Measured:
    return lint_row(chat, row, _sides(row, method))


def _first_call(scenario: Row) -> Row:
    """Return a scenario as a row whose action is a recorded call: what an attempt will look like."""
    first = next((call[1] for call in scenario["calls"] if call[0] == scenario["state"]), "")
    tool, _, arguments = first.partition(" ")
    given = json.loads(arguments or "{}")
    call = {"id": "call00000", "name": tool or "none", "arguments": given if isinstance(given, dict) else {}}
    return {**scenario, "completion": [{"role": "assistant", "tool_calls": [call]}]}


def _attempts(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the logged attempts of all groups."""
    return ({**row, "messages": messages} for row in rows for messages in row["completions"])


def _actions(attempt: Row) -> list[Row]:
    """Return each action of an attempt as a row with the messages before it as its prompt."""
    messages, base = attempt["messages"], {"id": attempt["id"], "tools": attempt["tools"]}
    return [
        {**base, "prompt": [*attempt["prompt"], *messages[:i]], "completion": [message]}
        for i, message in enumerate(messages)
        if message["role"] == "assistant"
    ]


def _whole(actions: Sequence[Measured]) -> list[int]:
    """Return an attempt's tokens that are context, and those that are trained."""
    trained = sum(sum(action.sides) for action in actions)
    return [max(actions[-1].prompt + sum(actions[-1].sides) - trained, 0), trained]


def _refuse(measured: Sequence[Measured]) -> None:
    found = [finding for one in measured for finding in one.findings]
    if found:
        told = "; ".join(f"row {f.row[:12]}: {f.problem}" for f in found[:_SHOWN])
        rows = len({f.row for f in found})
        raise TrainError(
            f"the base model's chat template garbles {rows:,} of {len(measured):,} rows: {told}",
            hint=f"{found[0].fix}; `flywheel show {found[0].row[:12]}` shows what would be trained",
        )

"""Which rows of a round fit into its longest row, which are cut to a window, and which are refused; all counted.

In: the rows selected for a round. Out: the rows that it trains on, with their tokens. Every row is rendered by the base
model's template and checked on the way (`models.lint`). A window may leave out what its action rests on: a chosen
action, or a demonstration, that names what only the full conversation showed is refused, as a pair would be.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import Any

from flywheel.config import TrainConfig
from flywheel.errors import TrainError
from flywheel.funnel import Funnel
from flywheel.io import files
from flywheel.models.chat import ChatFormat
from flywheel.models.lint import Measured, lint_row, rendering
from flywheel.models.load import base_identity, load_tokenizer
from flywheel.models.token_rows import prompts_of
from flywheel.models.windows import open_window
from flywheel.pipeline.context import Context
from flywheel.records import METHODS, Method, canonical_json, content_id
from flywheel.records.methods import GROUPS, SCENARIOS
from flywheel.stages.datasets.grounding import ungrounded
from flywheel.stages.train.rows import sides_of

TOO_LONG = "too long for train.max_length"
UNGROUNDED = "not grounded in what fits"
DUPLICATE = "its window is another row's"
OVER_BUDGET = "over train.max_tokens"
NOT_SHOWN = "a malformed call that the template cannot show"
_SHOWN = 3  # findings in an error

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


def dataset_text(rows: Sequence[Row]) -> str:
    """Return rows as the JSON lines of a dataset file."""
    return "".join(canonical_json(row) + "\n" for row in rows)


def fit_rows(ctx: Context, rows: Sequence[Row], method: Method, funnel: Funnel) -> Fitted:
    """Return what a round trains of the rows selected for it; refusals are moved from kept to dropped in the funnel.

    Attempts of GRPO are whole conversations, whose steps share what they have seen: they are not cut, and the trainer
    refuses those that are too long.

    Raises:
        TrainError: the base model's template garbles a row (names the row and what to do), or more rows are refused
            than `train.max_refused` allows.
    """
    rows = _shown(ctx, rows, METHODS[method].dataset.sides, funnel)
    measured, train = _measured(ctx, rows, method), ctx.config.train
    fits = all(prompt + max(sides) <= train.max_length for prompt, *sides in measured.tokens)
    if fits or METHODS[method].dataset in {GROUPS, SCENARIOS}:
        return measured
    fitted = _windowed(ctx, measured, method, funnel)
    funnel.kept -= fitted.refused
    if rows and fitted.refused / len(rows) > train.max_refused:
        raise TrainError(
            f"{fitted.refused:,} of {len(rows):,} rows do not fit into train.max_length = {train.max_length:,} tokens",
            hint="raise train.max_length (memory grows with it) or train.max_refused",
        )
    return fitted


def trained_tokens(fitted: Fitted, train: TrainConfig, method: Method) -> int:
    """Return the tokens in the loss of all passes over a round's rows."""
    return round(train.epochs(method) * sum(_in_a_pass(fitted)))


def _in_a_pass(fitted: Fitted) -> list[int]:
    """Return the tokens in the loss of each row in a pass, which may train it several times."""
    return [
        row.get("times", 1) * sum(sum(sides) for _, *sides in tokens)
        for row, tokens in zip(fitted.rows, by_row(fitted), strict=True)
    ]


def within_tokens(fitted: Fitted, train: TrainConfig, method: Method, funnel: Funnel) -> Fitted:
    """Return as many rows, in their order of content, as `train.max_tokens` allows in all passes, at least one.

    Pairs and the demonstrations in addition to them keep their proportion, and a pair comes first.
    """
    if not train.max_tokens or not fitted.rows:
        return fitted
    limit, tokens = train.max_tokens / train.epochs(method), by_row(fitted)
    order = _proportionate(fitted.rows)
    in_a_pass = _in_a_pass(fitted)
    totals = accumulate(in_a_pass[i] for i in order)
    kept = max(1, sum(total <= limit for total in totals))
    funnel.dropped[OVER_BUDGET] += len(order) - kept
    funnel.kept -= len(order) - kept
    places = sorted(order[:kept])
    rows = [fitted.rows[i] for i in places]
    return replace(fitted, rows=rows, tokens=[one for i in places for one in tokens[i]])


def by_row(fitted: Fitted) -> list[list[list[int]]]:
    """Return the tokens of each row: one entry, or of a group one for each attempt with an action."""
    every = iter(fitted.tokens)
    return [list(islice(every, _entries(row))) for row in fitted.rows]


def _entries(row: Row) -> int:
    if "completions" not in row:
        return 1
    return sum(any(message["role"] == "assistant" for message in attempt) for attempt in row["completions"])


def _proportionate(rows: Sequence[Row]) -> list[int]:
    """Return the places of rows by content, so that every beginning has the whole's mix of pairs and demonstrations."""
    kinds: dict[bool, list[int]] = {False: [], True: []}
    for place in sorted(range(len(rows)), key=lambda i: content_id(rows[i])):
        kinds["completion" in rows[place]].append(place)
    turns = [(turn / len(places), alone, i) for alone, places in kinds.items() for turn, i in enumerate(places)]
    return [i for _, _, i in sorted(turns, key=lambda one: one[:2])]


def _shown(ctx: Context, rows: Sequence[Row], sides: tuple[str, ...], funnel: Funnel) -> list[Row]:
    """Return the rows whose trained actions the base model's template can show as they were written."""

    def actions(row: Row) -> list[dict[str, Any]]:
        attempts = row.get("completions") or [row.get(side) or [] for side in sides_of(row, sides)]
        return [message for messages in attempts for message in messages if message["role"] == "assistant"]

    broken = [any(c.get("arguments") is None for m in actions(row) for c in m.get("tool_calls") or ()) for row in rows]
    if not any(broken):
        return list(rows)
    chat = ChatFormat(load_tokenizer(ctx.config.model))
    kept = [row for row, odd in zip(rows, broken, strict=True) if not odd or all(map(chat.shows, actions(row)))]
    funnel.dropped[NOT_SHOWN] += len(rows) - len(kept)
    funnel.kept -= len(rows) - len(kept)
    return kept


def _windowed(ctx: Context, measured: Fitted, method: Method, funnel: Funnel) -> Fitted:
    """Return the rows that fit and windows on those that do not, in order of content."""
    chat, train = ChatFormat(load_tokenizer(ctx.config.model)), ctx.config.train
    kept, windows, seen = list[tuple[Row, list[int]]](), 0, set[str]()
    for row, tokens in zip(measured.rows, measured.tokens, strict=True):
        if tokens[0] + max(tokens[1:]) <= train.max_length:
            kept.append((row, tokens))
            continue
        sides = sides_of(row, METHODS[method].dataset.sides)
        window = _window(chat, row, sides, train.max_length) if train.long_rows == "window" else TOO_LONG
        if not isinstance(window, str):
            identity = content_id(window["prompt"], window["tools"], *(window[side] for side in sides))
            window = DUPLICATE if identity in seen else window
        if isinstance(window, str):
            funnel.dropped[window] += 1
            continue
        seen.add(identity)
        size = lint_row(chat, window, sides)
        _refuse_garbled([size])
        kept.append((window, [size.prompt, *size.sides]))
        windows += 1
    kept.sort(key=lambda fit: content_id(fit[0]))
    funnel.note("windows on longer conversations", windows)
    refused = len(measured.rows) - len(kept)
    return Fitted([row for row, _ in kept], [tokens for _, tokens in kept], measured.rendering, windows, refused)


def _window(chat: ChatFormat, row: Row, sides: tuple[str, ...], limit: int) -> Row | str:
    """Return a row with a window as its prompt, or why it is refused."""
    window = open_window(chat, row["prompt"], row["tools"], [row[side][0] for side in sides], limit)
    if window is None:
        return TOO_LONG
    cut = {**row, "prompt": window.prompt, "left_out": window.left_out, "characters_cut": window.cut}
    if row.get("label") is False:  # KTO's undesirable action is not to be learned
        return cut
    better, worse = row[sides[0]][0], row.get("rejected", [{"role": "assistant"}])[0]
    tools = canonical_json(row["tools"]) if row["tools"] is not None else None
    before, after = (ungrounded(better, worse, canonical_json(one["prompt"]), tools) for one in (row, cut))
    return UNGROUNDED if after - before else cut


# --- tokens, and what a template does to a row ------------------------------------------------------------------------


def _measured(ctx: Context, rows: Sequence[Row], method: Method) -> Fitted:
    """Return the rows with their tokens; rendered once for a dataset and a base model."""
    dataset = METHODS[method].dataset
    replay_tokens = ctx.config.train.replay_tokens if dataset is SCENARIOS else 0
    text_sha256 = files.hash_text(dataset_text(rows))
    key = content_id("tokens", 2, text_sha256, base_identity(ctx.config.model).sha256, method, replay_tokens)
    cached = ctx.store.cached("tokens", key)
    if cached is None:
        chat = ChatFormat(load_tokenizer(ctx.config.model))
        if dataset is GROUPS:
            tokens = _attempt_tokens(chat, rows)
        elif dataset is SCENARIOS:
            sizes = [lint_row(chat, _with_first_call(row), ("completion",)) for row in rows]
            _refuse_garbled(sizes)
            tokens = [[size.prompt, replay_tokens] for size in sizes]
        else:
            sizes = [lint_row(chat, row, sides_of(row, dataset.sides)) for row in rows]
            _refuse_garbled(sizes)
            tokens = [[size.prompt, *size.sides] for size in sizes]
        cached = {"rendering": rendering(chat), "tokens": tokens}
        ctx.store.cache("tokens", key, cached)
    return Fitted(list(rows), cached["tokens"], cached["rendering"])


def _attempt_tokens(chat: ChatFormat, groups: Sequence[Row]) -> list[list[int]]:
    """Return for each attempt of all groups its tokens that are context, and those that are trained."""
    attempts = [
        [
            lint_row(
                chat,
                {**group, "prompt": [*prompt, *messages[:place]], "completion": [message]},
                ("completion",),
            )
            for place, message in enumerate(messages)
            if message["role"] == "assistant"
        ]
        for group in groups
        for messages, prompt in zip(group["completions"], prompts_of(group), strict=True)
    ]
    _refuse_garbled([action for actions in attempts for action in actions])
    tokens = []
    for actions in filter(None, attempts):
        trained = sum(sum(action.sides) for action in actions)
        tokens.append([max(actions[-1].prompt + sum(actions[-1].sides) - trained, 0), trained])
    return tokens


def _with_first_call(scenario: Row) -> Row:
    """Return a scenario as a row whose action is a recorded call: what an attempt will look like."""
    first = next((call[1] for call in scenario["calls"] if call[0] == scenario["state"]), "")
    tool, _, text = first.partition(" ")
    arguments = json.loads(text or "{}")
    call = {
        "id": "call00000",
        "name": tool or "none",
        "arguments": arguments if isinstance(arguments, dict) else {},
    }
    return {**scenario, "completion": [{"role": "assistant", "tool_calls": [call]}]}


def _refuse_garbled(measured: Sequence[Measured]) -> None:
    findings = [finding for row in measured for finding in row.findings]
    if findings:
        shown = "; ".join(f"row {f.row[:12]}: {f.problem}" for f in findings[:_SHOWN])
        rows = len({f.row for f in findings})
        raise TrainError(
            f"the base model's chat template garbles {rows:,} of {len(measured):,} rows: {shown}",
            hint=f"{findings[0].fix}; `flywheel show {findings[0].row[:12]}` shows what would be trained",
        )

"""Which tokens of a pair, an example or a group would be trained, as `flywheel show` prints it.

In: a table row with its JSON columns parsed. Out: each side's segments under the base model's tokenizer and template.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.errors import FlywheelError
from flywheel.models.chat import ChatFormat
from flywheel.models.lint import rendering
from flywheel.models.load import load_tokenizer
from flywheel.models.preview import segments
from flywheel.models.windows import open_window, tokens_of
from flywheel.pipeline.context import Context
from flywheel.records.methods import TrainedTable
from flywheel.results.inspect import Preview, PreviewSegment


def preview(ctx: Context, table: TrainedTable, record: Mapping[str, Any]) -> tuple[list[Preview], str]:
    """Return the sides of a row and how they are rendered; without a tokenizer, no sides and the reason."""
    try:
        chat = ChatFormat(load_tokenizer(ctx.config.model))
        prompt, note = _as_trained(ctx, chat, table, record)
        learns = ctx.config.train.thoughts == "keep"
        sides = []
        for member, (name, answer) in enumerate(_sides(table, record)):
            asked = prompt if table.sides or not record["prompts_G"] else json.loads(record["prompts_G"][member])
            parts = segments(chat, asked, record["tools"], answer, thoughts=learns)
            sides.append(Preview(side=name, segments=[PreviewSegment(**part._asdict()) for part in parts]))
    except FlywheelError as error:
        return [], f"no preview: {error.message}"
    return sides, rendering(chat) + note


def _as_trained(
    ctx: Context, chat: ChatFormat, table: TrainedTable, record: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], str]:
    """Return the prompt that a round would train on, and a note where the row is too long."""
    prompt, train = list(record["prompt"]), ctx.config.train
    if not table.sides:
        return prompt, ""
    actions = [answer[0] for _, answer in _sides(table, record)]
    tokens = tokens_of(chat, prompt, record["tools"], actions)
    if tokens <= train.max_length:
        return prompt, ""
    long = f"; {tokens:,} tokens, train.max_length is {train.max_length:,}"
    window = open_window(chat, prompt, record["tools"], actions, train.max_length)
    if window is None or train.long_rows == "refuse":
        return prompt, f"{long}: a round leaves it out"
    return window.prompt, f"{long}: {window.told()}"


def _sides(table: TrainedTable, record: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    if table.sides:
        yield from ((side, record[side]) for side in table.sides)
    else:
        for number, answer in enumerate(record["completions_G"]):
            advantage, policy = record["advantages_G"][number], record["policies_G"][number]
            yield f"member {number + 1} of {len(record['completions_G'])}, {policy}, advantage {advantage:+.3f}", answer

"""From mined rows to rows of tokens: every action a window, everything else context.

In: rows of a dataset with their messages, and the base model's chat format. Out: `TokenRow`s, the one form from which
trainers here and elsewhere are given tokens. Masks are made here, so nothing but actions is ever trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.errors import SeamError
from flywheel.models.chat import ChatFormat
from flywheel.records.methods import ACTIONS, EXAMPLES, GROUPS, PAIRS
from flywheel.records.token_rows import TokenRow

Row = Mapping[str, Any]
_EPISODES = {  # of each side: the column with its episode
    PAIRS.exported: {"chosen": "chosen_episode", "rejected": "rejected_episode"},
    ACTIONS.exported: {"completion": "episode_id"},
    EXAMPLES.exported: {"completion": "episode_id"},
}


class Rendered(NamedTuple):
    """Tokens of a sequence, the windows [start, end) of it that are trained, and where the action of each begins.

    An action begins before its window where its thought is context.
    """

    ids: tuple[int, ...]
    windows: tuple[tuple[int, int], ...]
    begins: tuple[int, ...]


def prompts_of(group: Row) -> Sequence[Sequence[dict[str, Any]]]:
    """Return the messages before each attempt of a group: its own, for one task is asked for in many words."""
    return group.get("prompts") or [group["prompt"]] * len(group["completions"])


def attempt_rows(
    messages: Sequence[Mapping[str, Any]],
    prompt: Sequence[Mapping[str, Any]],
    tools: Any,
    chat: ChatFormat,
    *,
    one_text: bool = False,
    thoughts: bool = True,
) -> list[Rendered]:
    """Return a conversation's actions as sequences; steps that continue one another are one with several windows.

    Args:
        messages: of the conversation, after the prompt.
        prompt: messages before.
        tools: that were offered.
        chat: how the base model reads and writes.
        one_text: whether prompt and action must have the same tokens in one text, as systems read them that take texts.
        thoughts: whether logged thoughts are trained.

    Raises:
        TemplateError: the template raises, or rewrites what precedes an action; or (`SeamError`) the tokenizer joins
            the end of a prompt with the beginning of an action.
    """
    rows: list[Rendered] = []
    before = list(prompt)
    for message in messages:
        if message["role"] == "assistant":
            shown = chat.prompt(before, tools)
            start = chat.ids(shown)
            context, learned = chat.parts(before, tools, message, thoughts=thoughts)
            action, read = chat.part_ids(context, learned)
            ids = (*start, *action)
            if one_text and chat.ids(shown + context + learned) != list(ids):
                raise SeamError("the tokenizer joins the end of a prompt with the beginning of an action")
            row = Rendered(ids, ((len(start) + read, len(ids)),), (len(start),))
            if rows and ids[: len(rows[-1].ids)] == rows[-1].ids:
                earlier = rows.pop()
                row = Rendered(ids, (*earlier.windows, *row.windows), (*earlier.begins, *row.begins))
            rows.append(row)
        before.append(message)
    return rows


def logged(log_probs: Sequence[Mapping[str, Any]] | None, rows: Sequence[Rendered]) -> list[list[float]] | None:
    """Return the logged log-probabilities of each action's trained tokens, if those logged are exactly the action's.

    Args:
        log_probs: {ids, log_probs} of each action, as logged; None where they were not.
        rows: of the attempt.
    """
    actions = [(row.ids[begin:b], b - a) for row in rows for begin, (a, b) in zip(row.begins, row.windows, strict=True)]
    if log_probs is None or len(log_probs) != len(actions):
        return None
    known = []
    for (ids, trained), one in zip(actions, log_probs, strict=True):
        if list(ids) != list(one["ids"]) or len(one["log_probs"]) != len(ids):
            return None
        known.append([float(x) for x in one["log_probs"][len(ids) - trained :]])
    return known


def token_rows(
    form: str, row: Row, chat: ChatFormat, policies: Mapping[str, str | None], *, thoughts: bool = True
) -> list[TokenRow]:
    """Return the token rows of one mined row, side by side, or member by member.

    Args:
        form: of `flywheel export`: preference, unpaired, sft or groups.
        row: as `flywheel.stages.datasets.export.mined_rows` returns it.
        chat: how the base model reads and writes.
        policies: what acted in each episode; groups know it themselves.
        thoughts: whether logged thoughts are trained.

    Raises:
        TemplateError: the template cannot render it.
    """

    def rendered(messages: Sequence[Mapping[str, Any]], prompt: Sequence[Mapping[str, Any]]) -> list[Rendered]:
        return attempt_rows(messages, prompt, row["tools"], chat, one_text=True, thoughts=thoughts)

    if form == GROUPS.exported:
        attempts = [rendered(*attempt) for attempt in zip(row["completions"], prompts_of(row), strict=True)]
        return [part for i, attempt in enumerate(attempts) for part in _member(row, i, attempt)]
    sides = {side: rendered(row[side], row["prompt"]) for side in _EPISODES[form]}
    return [part for side, action in sides.items() for part in _action(form, row, side, action, policies)]


def _action(
    form: str, row: Row, side: str, rendered: Sequence[Rendered], policies: Mapping[str, str | None]
) -> Iterator[TokenRow]:
    episode = row[_EPISODES[form][side]]
    facts = {name: row[name] for name in ("label", "margin", "weight") if name in row}
    yield from _parts(form, row, side, rendered, episode=episode, policy=policies.get(episode), **facts)


def _member(row: Row, i: int, rendered: Sequence[Rendered]) -> Iterator[TokenRow]:
    known = logged(row["log_probs"][i] if row["log_probs"] else None, rendered)
    steps = row["step_advantages"][i] if row["step_advantages"] else []
    actions, at = sum(len(part.windows) for part in rendered), 0
    facts = {
        "episode": row["episodes"][i],
        "policy": row["policies"][i],
        "temperature": row["temperatures"][i] if row["temperatures"] else None,
        "reward": row["rewards"][i],
        "advantage": row["advantages"][i],
    }
    for part in _parts(GROUPS.exported, row, str(i), rendered, **facts):
        here = slice(at, at := at + len(part.windows))
        by_action = [x for action in known[here] for x in action] if known else None
        by_step = list(steps[here]) if len(steps) == actions else None
        yield part.model_copy(update={"log_probs": by_action, "step_advantages": by_step})


def _parts(form: str, row: Row, side: str, rendered: Sequence[Rendered], **facts: Any) -> Iterator[TokenRow]:
    for part, (ids, windows, begins) in enumerate(rendered):
        start = begins[0]
        yield TokenRow(
            id=f"{row['id']}/{side}/{part}",
            form=form,
            row=row["id"],
            side=side,
            part=part,
            task_id=row["task_id"],
            prompt_ids=list(ids[:start]),
            completion_ids=list(ids[start:]),
            windows=[(a - start, b - start) for a, b in windows],
            **facts,
        )

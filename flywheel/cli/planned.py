"""What a round would contain, as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flywheel.cli.render import columns, funnel_lines, monitor_lines, size

if TYPE_CHECKING:
    from flywheel.records import DataCard, Plan

__all__ = ["plan_lines"]

_MOST_NAMES = 4


def _card_rows(card: DataCard) -> list[list[str]]:
    """Return a dataset's card as labelled sentences."""
    windowed = f", {card.windowed:,} of them without their oldest turns" if card.windowed else ""
    refused = f", {card.too_long:,} longer and refused whole" if card.too_long else ""
    longer_rows = windowed + refused or ", none longer"
    sides = " and ".join(f"{mean:,.0f}" for mean in card.mean_trained)
    longer = f"; the longer side is chosen in {card.longer_wins:.0%}" if card.longer_wins is not None else ""
    share = f", the most frequent behind {card.largest_user_share:.0%}" if card.largest_user_share else ""
    made = f"by {_told(card.builders)}; " if card.builders else ""
    loss = f"in the loss {card.trained_tokens:,}, on average {sides} a row{longer}"
    users = f"{card.users:,} users{share}" if card.users else "users unknown"
    return [
        ["fit", f"{card.fitting:,} rows in train.max_length {card.max_length:,}{longer_rows}"],
        ["tokens", f"median row {card.median_tokens:,}, longest {card.longest_tokens:,}; {loss}"],
        ["from", f"{made}logs {_told(card.sources)}; policies {_told(card.policies)}; {users}"],
        ["template", card.rendering],
    ]


def _mix(card: DataCard) -> str:
    """Return what a round's rows are where they are not all new."""
    return ": " + ", ".join(f"{n:,} {kind}" for kind, n in card.mix.items()) if len(card.mix) > 1 else ""


def _told(counts: dict[str, int]) -> str:
    """Return the commonest values with their counts."""
    names = list(counts.items())
    rest = len(names) - _MOST_NAMES
    return ", ".join(f"{name} {n:,}" for name, n in names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def plan_lines(p: Plan, options: str, *, verbose: bool) -> list[str]:
    """Return a plan as lines; `options` are those that its training takes too."""
    parent = "the base model" if p.parent is None else f"round {p.parent}"
    rows = [
        [f"round {p.round}", f"from {parent} ({p.start_reason})"],
        ["base", f"{p.base_model} @ {p.base_model_sha256[:12]}"],
        ["method", f"{p.method}: {p.method_reason}"],
        ["reference", p.reference],
        ["rows", f"{p.rows:,} of {p.tasks:,} tasks{_mix(p.card)}, dataset {p.dataset_sha256[:12]}"],
        ["budget", f"at most {p.steps:,} optimiser steps over {p.card.tokens:,} tokens ({size(p.characters)} of text)"],
        *_card_rows(p.card),
    ]
    lines = columns(rows) + funnel_lines(p.counts) + monitor_lines(p.monitors, verbose=verbose)
    if p.same_as is not None:
        return [*lines, f"nothing new: it would repeat round {p.same_as}"]
    if any(row.level == "red" for row in p.monitors):
        return [*lines, "red blocks training; by force: flywheel train --force --reason WHY"]
    return [*lines, f"next  flywheel train --round {p.round}{options}"]

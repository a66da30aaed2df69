"""Which rows make a round, and by which method it is trained.

In: the examples and pairs tables. Out: JSON-ready rows for the trainer, in an order that depends on nothing but their
content, and a choice of method with the numbers that decided.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from flywheel.errors import EvidenceError
from flywheel.records import Method, Split, canonical_json, content_id
from flywheel.stages.selection.mix import NOTHING_BEFORE, OLDER, Before, by_task, drawn, new_first, take
from flywheel.stages.selection.overlap import answers_shared, too_long_winded
from flywheel.stages.selection.user_caps import direction, rows_allowed, user_weights

if TYPE_CHECKING:
    from flywheel.config import TrainConfig
    from flywheel.funnel import Funnel

__all__ = [
    "GOOD_ENOUGH_TO_COPY",
    "MethodChoice",
    "beside_pairs",
    "choose_method",
    "known_users",
    "select_rows",
    "share_out",
]


SAME_ACTION_ROWS = 3  # demonstrations of one action in one state: some wordings help, fifty crowd out others
SAME_PROMPT_ROWS = 8  # demonstrations that answer the very same prompt


SHARED = "13 words of a held-out answer"
GOOD_ENOUGH_TO_COPY = 0.7  # P(success) of a chosen action from which its own likelihood is raised too
CHEAPER_ONE_IN = 9  # pairs on other grounds for each that only says which way is cheaper: a tenth of all


@dataclass(frozen=True)
class MethodChoice:
    """What a round trains, and a sentence that says why."""

    method: Method
    reason: str


def choose_method(  # noqa: PLR0913 - one count a method
    n_examples: int,
    n_pairs: int,
    well_formed_rate: float | None,
    cfg: TrainConfig,
    *,
    n_actions: int = 0,
    n_groups: int = 0,
    n_scenarios: int = 0,
) -> MethodChoice:
    """Choose SFT or DPO; KTO and GRPO only where they are asked for.

    DPO cannot teach a format that the start policy never produces, so a low rate of well-formed calls means SFT first.

    Args:
        n_examples: demonstrations that would be trained on.
        n_pairs: preference pairs that would be trained on.
        well_formed_rate: of the start policy; None when it was not measured, which does not argue for a cold start.
        cfg: the method asked for and the thresholds.
        n_actions: single actions, good and bad, that KTO would train on.
        n_groups: groups of attempts that GRPO would train on.
        n_scenarios: scenarios that GRPO in the replay environment would attempt.

    Raises:
        EvidenceError: too few rows for any method that fits.
    """
    rows = {"sft": (n_examples, "examples"), "dpo": (n_pairs, "pairs")}
    rows |= {"kto": (n_actions, "actions"), "grpo": (n_groups, "groups"), "grpo-replay": (n_scenarios, "scenarios")}
    cold = well_formed_rate is not None and well_formed_rate < cfg.cold_start_below
    wishes: list[Method] = [cfg.method] if cfg.method != "auto" else ["sft"] if cold else ["dpo", "sft"]
    rate = _rate(well_formed_rate, cfg)
    for method in wishes:
        have, name = rows[method]
        if have >= cfg.min_rows:
            why = "train.method asks for it" if cfg.method != "auto" else rate
            other = f"; pairs: {n_pairs:,}, too few" if wishes[0] != method else ""
            return MethodChoice(method, f"{why}; {name}: {have:,}, train.min_rows {cfg.min_rows:,}{other}")
    found = " and ".join(f"{rows[m][0]:,} {rows[m][1]}" for m in wishes)
    raise EvidenceError(
        f"too little to train on: {found}, train.min_rows is {cfg.min_rows:,} ({rate})",
        hint="ingest more logs or feedback; `flywheel explain examples` and `... pairs` say what was dropped",
        have=max(rows[m][0] for m in wishes),
        need=cfg.min_rows,
    )


def _rate(rate: float | None, cfg: TrainConfig) -> str:
    if rate is None:
        return "rate of well-formed calls not measured"
    side = "under" if rate < cfg.cold_start_below else "not under"
    return (
        f"the start policy makes {rate:.0%} well-formed calls, {side} train.cold_start_below {cfg.cold_start_below:.0%}"
    )


def select_rows(  # noqa: PLR0913 - tables, settings, and what is known of the episodes
    examples: pl.DataFrame,
    pairs: pl.DataFrame,
    cfg: TrainConfig,
    method: Method,
    funnel: Funnel,
    *,
    users: Mapping[str, str | None] | None = None,
    verified: Collection[str] = (),
    before: Before = NOTHING_BEFORE,
) -> list[dict[str, Any]]:
    """Return a round's rows, sorted by the hash of their content; of the training split only.

    `users` names the user of each episode; of one user's rows only so many are taken, the surest first, and each counts
    less the more there are. For DPO, a choice that two users make one way and the other must outlive any one of them.
    `verified` names the episodes whose success a verifier or an audit vouches for. `before` says what the start policy
    was trained on: such rows have {mix: older}, and only so many are taken.

    SFT gets {prompt, completion, tools, weight, id, task_id}: successes. DPO gets {prompt, chosen, rejected, tools,
    p_better, weight, nll_weight, id, task_id}.
    """
    table, key = (examples, "example_id") if method == "sft" else (pairs, "pair_id")
    funnel.considered += table.height
    texts = "completion" if method == "sft" else "chosen"
    answers = table.filter(pl.col("split") == Split.HOLDOUT.value)[texts].to_list()
    table = funnel.drop(table, pl.col("split") != Split.TRAIN.value, "held out")
    table = funnel.drop(table, pl.col("weight") <= 0, "no weight")
    shared = pl.Series(answers_shared(table[texts].to_list(), answers), dtype=pl.Boolean)
    table = funnel.drop(table.with_columns(_shared=shared), pl.col("_shared"), SHARED).drop("_shared")
    if method == "dpo":
        table = _balanced(table, funnel)
    if method == "sft":
        table = _demonstrations(table, funnel)
    table = _nobody_decides(table, users or {}, cfg, method, funnel, before)
    columns = ("completion",) if method == "sft" else ("chosen", "rejected")
    if method == "dpo":
        edited = pl.col("builder") == "user_edit"
        table = table.with_columns(nll_weight=_nll_weight(cfg, verified, "chosen_episode", "p_chosen", edited))
    numbers = ("weight",) if method == "sft" else ("p_better", "weight", "nll_weight")
    # steps of a conversation share their weight, so the surest would be few conversations told to their end
    table = by_task(table, key, drawn(table, key, cfg.seed) if method == "sft" else table["weight"])
    table = take(table, key, cfg, before, funnel)
    funnel.kept += table.height
    rows = [_row(row, columns, numbers, row[key]) for row in table.iter_rows(named=True)]
    return sorted(rows, key=content_id)


def _balanced(pairs: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Drop pairs so that the longer side does not tell the better one; what one says is cheaper is a tenth at most."""
    pairs = pairs.sort("margin", "pair_id", descending=[True, False])
    cheaper = pl.col("builder") == "efficiency"
    most = pairs.filter(~cheaper).height // CHEAPER_ONE_IN
    pairs = funnel.drop(pairs, cheaper & (cheaper.cast(pl.Int64).cum_sum() > most), "over the share of cheaper ways")
    lengths = list(zip(pairs["chosen"].str.len_bytes(), pairs["rejected"].str.len_bytes(), strict=True))
    out = pl.Series("_long", too_long_winded(lengths, pairs["pair_id"].to_list()), dtype=pl.Boolean)
    return funnel.drop(pairs.with_columns(out), pl.col("_long"), "explained by length").drop("_long")


def beside_pairs(
    pairs: Sequence[Mapping[str, Any]],
    demonstrations: Sequence[dict[str, Any]],
    examples: pl.DataFrame,
    cfg: TrainConfig,
    *,
    verified: Collection[str] = (),
    before: Before = NOTHING_BEFORE,
) -> list[dict[str, Any]]:
    """Return demonstrations for a round of pairs, `train.dpo_demonstrations` for each, of actions that no pair prefers.

    One of every task before a second of any. Each has the `nll_weight` that it would have as a chosen action; one that
    would not be copied there is not here either.

    Args:
        pairs: the round's pairs.
        demonstrations: what SFT would train, as `select_rows` gives it.
        examples: the table they come from.
        cfg: how many.
        verified: the episodes whose success a verifier or an audit vouches for.
        before: what the start policy was trained on; what is drawn depends on the start.
    """
    chosen = {canonical_json([row["prompt"], row["chosen"]]) for row in pairs}
    free = [r["id"] for r in demonstrations if canonical_json([r["prompt"], r["completion"]]) not in chosen]
    weight = _nll_weight(cfg, verified, "episode_id", "p_success", pl.col("source") == "correction")
    table = examples.filter(pl.col("example_id").is_in(free)).with_columns(nll_weight=weight)
    table = table.filter(pl.col("nll_weight") > 0)
    most = min(math.ceil(cfg.dpo_demonstrations * len(pairs)), max(0, cfg.max_rows - len(pairs)))
    table = by_task(table, "example_id", drawn(table, "example_id", cfg.seed, before.start, "beside")).head(most)
    weights = dict(table.select("example_id", "nll_weight").iter_rows())
    return [{**row, "nll_weight": weights[row["id"]]} for row in demonstrations if row["id"] in weights]


def _nll_weight(cfg: TrainConfig, verified: Collection[str], episode: str, p: str, edited: pl.Expr) -> pl.Expr:
    """Return how much an action is copied in a round of pairs: not at all if it may well be bad.

    A verifier saw what the agent did in an episode, not what a user made of it (`edited`).
    """
    vouched = pl.col(episode).is_in(list(verified)) & ~edited
    weight = pl.when(vouched).then(cfg.dpo_verified_sft_weight).otherwise(cfg.dpo_sft_weight)
    return pl.when(pl.col(p) >= GOOD_ENOUGH_TO_COPY).then(weight).otherwise(0.0)


def _nobody_decides(
    table: pl.DataFrame,
    users: Mapping[str, str | None],
    cfg: TrainConfig,
    method: Method,
    funnel: Funnel,
    before: Before,
) -> pl.DataFrame:
    """Cap and weigh each user's rows; drop contested choices that rest on one user."""
    episode, key = ("episode_id", "example_id") if method == "sft" else ("chosen_episode", "pair_id")
    table = table.with_columns(pl.Series("_user", [users.get(e) for e in table[episode]], dtype=pl.String))
    counts = known_users(table, funnel)
    if method == "dpo":
        table = funnel.drop(table, _contested(table), "one user decides a contested choice")
    table = new_first(table.sort("weight", key, descending=[True, False]), key, before)
    table = share_out(table, counts, cfg, funnel)
    weights = pl.Series("_by_user", user_weights(table["_user"].to_list()), dtype=pl.Float64)
    return table.with_columns(weight=pl.col("weight") * weights).drop("_user")


def known_users(table: pl.DataFrame, funnel: Funnel) -> dict[str, int]:
    """Return the rows of each user in the column `_user`; rows without one are noted."""
    funnel.note("users unknown: rows that no cap holds for", table["_user"].null_count())
    return {user: n for user, n in table.group_by("_user").len().iter_rows() if user is not None}


def share_out(table: pl.DataFrame, counts: Mapping[str, int], cfg: TrainConfig, funnel: Funnel) -> pl.DataFrame:
    """Keep the first rows of each user in `_user`, as many as one may have of all that `counts` says."""
    allowed = rows_allowed(counts, cfg.max_rows_per_user, cfg.max_user_share)
    place = pl.int_range(pl.len()).over("_user")
    return funnel.drop(table, pl.col("_user").is_not_null() & (place >= allowed), "over a user's share")


def _contested(table: pl.DataFrame) -> pl.Expr:
    """Return which pairs stand for a choice that others made the other way round and that one user decides."""
    votes: dict[tuple[str, frozenset[str]], list[tuple[str, str]]] = {}
    rows = [
        (pair, state, _action(chosen), _action(rejected), user or f"unknown {pair}")
        for pair, state, chosen, rejected, user in table.select(
            "pair_id", "state_key", "chosen", "rejected", "_user"
        ).iter_rows()
    ]
    for _, state, chosen, rejected, user in rows:
        votes.setdefault((state, frozenset((chosen, rejected))), []).append((user, chosen))
    decided = {choice: direction(cast) for choice, cast in votes.items() if len({c for _, c in cast}) > 1}
    fragile = [
        pair
        for pair, state, chosen, rejected, _ in rows
        if (found := decided.get((state, frozenset((chosen, rejected))))) is not None and found.choice != chosen
    ]
    return pl.col("pair_id").is_in(fragile)


def _demonstrations(table: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Keep successes, the surest first; of one prompt and of one action in a state so many that others have room.

    Where successes went different ways, each is shown: with one answer to a prompt, first requests, which attempts
    share, would be rarer in training than in use (decision 0026).
    """
    table = funnel.drop(table, ~pl.col("label"), "undesirable")
    actions = pl.Series("_action", [_action(text) for text in table["completion"]], dtype=pl.String)
    order = [pl.col("weight").max().over("episode_id"), "episode_id", "step", "example_id"]
    table = table.with_columns(actions).sort(order, descending=[True, False, False, False])
    place = pl.int_range(pl.len()).over("state_key", "_action")
    table = funnel.drop(table, place >= SAME_ACTION_ROWS, "action often shown").drop("_action")
    place = pl.int_range(pl.len()).over("prompt", "tools")
    return funnel.drop(table, place >= SAME_PROMPT_ROWS, "prompt often answered")


def _action(completion: str) -> str:
    """Return an action's identity: its calls without ids, or its text."""
    message = json.loads(completion)[0]
    calls = [(call["name"], call.get("arguments")) for call in message.get("tool_calls") or []]
    return canonical_json(calls or message.get("content"))


def _row(row: dict[str, Any], columns: tuple[str, ...], numbers: tuple[str, ...], key: str) -> dict[str, Any]:
    texts = {name: json.loads(row[name]) for name in ("prompt", *columns)}
    tools = json.loads(row["tools"]) if row["tools"] is not None else None
    made = {**texts, "tools": tools, **{n: row[n] for n in numbers}, "id": key, "task_id": row["task_id"]}
    return {**made, "mix": "older"} if row[OLDER] else made

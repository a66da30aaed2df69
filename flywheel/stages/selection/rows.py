"""Which demonstrations make a round of SFT, and which pairs one of DPO.

In: the examples and pairs tables. Out: JSON-ready rows for the trainer, in an order that depends on nothing but their
content.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import polars as pl

from flywheel.config import TrainConfig
from flywheel.funnel import Funnel
from flywheel.records import Split, canonical_json, content_id
from flywheel.records.methods import EXAMPLES, PAIRS, Dataset
from flywheel.stages.selection.decontaminate import NO_EVALUATION, EvaluationTexts, uncrossed
from flywheel.stages.selection.mix import ENOUGH, NOTHING_BEFORE, OLDER, Before, by_task, sampling_order, take
from flywheel.stages.selection.rehearsal import each_kind
from flywheel.stages.selection.user_caps import EDITOR, cap_users, direction, known_users, with_users

SAME_ACTION_ROWS = 3  # demonstrations of one action in one state: some wordings help, fifty crowd out others
SAME_PROMPT_ROWS = 8  # demonstrations that answer the very same prompt
GOOD_ENOUGH_TO_COPY = 0.7  # P(success) of a chosen action from which its own likelihood is raised too
CHEAPER_ONE_IN = 9  # pairs on other grounds for each that only shows which way is cheaper: a tenth of all
BALANCE = 0.1  # most difference of length between chosen and rejected sides, of the mean length


def select_demonstrations(
    examples: pl.DataFrame,
    cfg: TrainConfig,
    funnel: Funnel,
    *,
    users: Mapping[str, str | None] | None = None,
    before: Before = NOTHING_BEFORE,
    texts: EvaluationTexts = NO_EVALUATION,
) -> list[dict[str, Any]]:
    """Return a round's demonstrations: {prompt, completion, tools, weight, id, task_id}, of the training split only.

    Args:
        examples: the table.
        cfg: caps and the seed.
        funnel: counts rows.
        users: the user of each episode. Of one user's rows only so many are taken, and each counts less the more there
            are.
        before: what the start policy was trained on; such rows have {mix: older}, and only so many are taken.
        texts: of evaluations; no row that shares words with them is taken.
    """
    key = EXAMPLES.table.key
    table = _trainable(examples, EXAMPLES, texts, funnel)
    table = _various_successes(table, funnel)
    table = with_users(table, "episode_id", users or {}, EDITOR)
    table = cap_users(table, key, known_users(table, funnel), cfg, funnel, before)
    order = sampling_order(table, key, cfg.seed)
    order = order + _ends(table) if cfg.on_the_way else order  # what comes before an end is trained with it
    table = _each_kind(by_task(table, key, order), cfg)
    chosen = take(table, key, cfg, before, funnel, cfg.rehearse_to)
    chosen = _with_the_way(chosen, table, key, funnel) if cfg.on_the_way else chosen
    return _rows(chosen, EXAMPLES, ("weight",), funnel)


def with_fixes(examples: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the examples with what worked after a call had failed, shown in the place of the failed call.

    A policy that corrects itself shows the right call only behind a wrong one, and who copies that learns to mend what
    is there before its eyes. The pairs of `retry_fixed` have the same call where it is to be made, with all that had to
    be known for it (decision 0123). Their rows have the pair's id.

    Args:
        examples: the table.
        pairs: the table.
    """
    is_fix = (pl.col("builder") == "retry_fixed") & (pl.col("p_chosen") >= GOOD_ENOUGH_TO_COPY)
    fixes = pairs.filter(is_fix).select(
        "task_id", "split", "state_key", "prompt", "tools",
        example_id="pair_id", completion="chosen", label=pl.lit(value=True), p_success="p_chosen",
        weight=(2 * pl.col("p_chosen") - 1).round(12), episode_id="chosen_episode", step="chosen_step",
        source=pl.lit("outcome"), user=pl.lit(None, dtype=pl.String),
    )  # fmt: skip
    return pl.concat([examples, fixes.select(examples.columns).cast(examples.schema)])


def select_pairs(  # noqa: PLR0913 - what is known of the rows, by name
    pairs: pl.DataFrame,
    cfg: TrainConfig,
    funnel: Funnel,
    *,
    users: Mapping[str, str | None] | None = None,
    verified: Collection[str] = (),
    before: Before = NOTHING_BEFORE,
    texts: EvaluationTexts = NO_EVALUATION,
) -> list[dict[str, Any]]:
    """Return a round's pairs of the training split: {prompt, chosen, rejected, tools, p_better, weight, nll_weight}.

    A choice that two users make in opposite ways must not depend on any one of them.

    Args:
        pairs: the table.
        cfg: caps, the seed and the weights of the NLL term.
        funnel: counts rows.
        users: the user of each episode, as in `select_demonstrations`.
        verified: the episodes whose success a verifier or an audit confirms.
        before: as in `select_demonstrations`.
        texts: as well.
    """
    key = PAIRS.table.key
    table = _trainable(pairs, PAIRS, texts, funnel)
    table = _balanced(table, funnel)
    editor = pl.col("users").list.set_difference(pl.concat_list("_user")).list.first()
    table = with_users(table, "chosen_episode", users or {}, pl.when(builder="user_edit").then(editor))
    counts = known_users(table, funnel)
    table = funnel.drop(table, _contested(table), "one user decides a contested choice")
    table = cap_users(table, key, counts, cfg, funnel, before)
    edited = pl.col("builder").is_in(["user_edit", "pooled"])  # never taken there
    table = table.with_columns(nll_weight=_nll_weight(cfg, verified, "chosen_episode", "p_chosen", edited))
    table = take(by_task(table, key, table["p_better"]), key, cfg, before, funnel)
    return _rows(table, PAIRS, ("p_better", "weight", "nll_weight"), funnel)


def demonstrations_for_pairs(
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
        demonstrations: what SFT would train, as `select_demonstrations` returns it.
        examples: the table they come from.
        cfg: how many.
        verified: the episodes whose success a verifier or an audit confirms.
        before: what the start policy was trained on; the sample depends on the start.
    """
    chosen = {canonical_json([row["prompt"], row["chosen"]]) for row in pairs}
    free = [r["id"] for r in demonstrations if canonical_json([r["prompt"], r["completion"]]) not in chosen]
    weight = _nll_weight(cfg, verified, "episode_id", "p_success", pl.col("source") == "correction")
    table = examples.filter(pl.col("example_id").is_in(free)).with_columns(nll_weight=weight)
    table = table.filter(pl.col("nll_weight") > 0)
    most = min(math.ceil(cfg.dpo_demonstrations * len(pairs)), max(0, cfg.max_rows - len(pairs)))
    order = sampling_order(table, "example_id", cfg.seed, before.start, "beside")
    weights = dict(by_task(table, "example_id", order).head(most).select("example_id", "nll_weight").iter_rows())
    return [{**row, "nll_weight": weights[row["id"]]} for row in demonstrations if row["id"] in weights]


def _trainable(table: pl.DataFrame, dataset: Dataset, texts: EvaluationTexts, funnel: Funnel) -> pl.DataFrame:
    """Drop held-out rows, rows without weight, and rows that share words with an evaluation."""
    funnel.considered += table.height
    table = funnel.drop(table, pl.col("split") != Split.TRAIN.value, "held out")
    table = funnel.drop(table, pl.col("weight") <= 0, "no weight")
    return uncrossed(table, dataset.sides, texts, funnel)


def _rows(table: pl.DataFrame, dataset: Dataset, numbers: tuple[str, ...], funnel: Funnel) -> list[dict[str, Any]]:
    """Return the rows as the trainer reads them, in order of content."""
    funnel.kept += table.height
    rows = []
    for source in table.iter_rows(named=True):
        texts = {name: json.loads(source[name]) for name in ("prompt", *dataset.sides)}
        tools = json.loads(source["tools"]) if source["tools"] is not None else None
        row = {**texts, "tools": tools, **{n: source[n] for n in numbers}, "id": source[dataset.table.key]}
        rows.append({**row, "task_id": source["task_id"], **({"mix": "older"} if source[OLDER] else {})})
    return sorted(rows, key=content_id)


def _nll_weight(cfg: TrainConfig, verified: Collection[str], episode: str, p: str, edited: pl.Expr) -> pl.Expr:
    """Return how much an action is copied in a round of pairs: not at all if it may well be bad.

    A verifier saw what the agent did in an episode, not the user's edit of it (`edited`).
    """
    confirmed = pl.col(episode).is_in(list(verified)) & ~edited
    weight = pl.when(confirmed).then(cfg.dpo_verified_sft_weight).otherwise(cfg.dpo_sft_weight)
    return pl.when(pl.col(p) >= GOOD_ENOUGH_TO_COPY).then(weight).otherwise(0.0)


def _various_successes(examples: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Keep successes, the most certain first, and only so many of one prompt and of one action in a state.

    Where successes went different ways, each is shown: with one answer to a prompt, first requests, which attempts
    share, would be rarer in training than in use (decision 0026).
    """
    table = funnel.drop(examples, ~pl.col("label"), "undesirable")
    actions = pl.Series("_action", [_action(text) for text in table["completion"]], dtype=pl.String)
    order = [pl.col("weight").max().over("episode_id"), "episode_id", "step", "example_id"]
    table = table.with_columns(actions).sort(order, descending=[True, False, False, False])
    place = pl.int_range(pl.len()).over("state_key", "_action")
    table = funnel.drop(table, place >= SAME_ACTION_ROWS, "action often shown").drop("_action")
    place = pl.int_range(pl.len()).over("prompt", "tools")
    return funnel.drop(table, place >= SAME_PROMPT_ROWS, "prompt often answered")


def _ends(table: pl.DataFrame) -> pl.Series:
    """Return 1 for the last demonstration of an episode, 0 for the others."""
    is_last = pl.col("step") == pl.col("step").max().over("episode_id")
    return table.select(is_last.cast(pl.Float64)).to_series()


def _each_kind(table: pl.DataFrame, cfg: TrainConfig) -> pl.DataFrame:
    """Return rows of which not all can be taken, so that each kind of request is taken as often as any other.

    What is asked most is learned from a share of its rows; a kind of which a round has two is not (decision 0139).
    """
    if table.height <= cfg.max_rows:
        return table
    return pl.concat([each_kind(table.filter(~pl.col(OLDER)), cfg.max_rows), table.filter(pl.col(OLDER))])


def _with_the_way(chosen: pl.DataFrame, table: pl.DataFrame, key: str, funnel: Funnel) -> pl.DataFrame:
    """Return the chosen rows and those on the way to them: trained within their sequences, at no cost.

    A chosen row's prompt holds what its conversation did before. Where that is a demonstration too, the same pass
    trains it, so leaving it out would only waste it (decision 0048); one that an earlier round was trained on is so
    kept from being forgotten. A user's correction of it is not: the conversation went on from what was done.
    """
    ends = chosen.select("episode_id", _end="prompt")
    others = table.join(chosen, on=key, how="anti")
    done = pl.col("completion").str.strip_prefix("[").str.strip_suffix("]")
    held = pl.col("_end").str.starts_with(pl.concat_str(pl.col("prompt").str.strip_suffix("]"), pl.lit(","), done))
    on_the_way = others.join(ends, on="episode_id").filter(held)[key]
    way = others.filter(pl.col(key).is_in(on_the_way.to_list()))
    known = min(way.filter(pl.col(OLDER)).height, funnel.dropped[ENOUGH])
    funnel.dropped[ENOUGH] -= known
    funnel.dropped["over train.max_rows"] -= way.height - known
    funnel.note("steps on the way to others, trained with them", way.height)
    return pl.concat([chosen, way.select(chosen.columns)])


def _balanced(pairs: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Drop pairs until length does not predict the better side, and at most a tenth only shows which way is cheaper."""
    pairs = pairs.sort("margin", "pair_id", descending=[True, False])
    cheaper = pl.col("builder") == "efficiency"
    most = pairs.filter(~cheaper).height // CHEAPER_ONE_IN
    pairs = funnel.drop(pairs, cheaper & (cheaper.cast(pl.Int64).cum_sum() > most), "over the share of cheaper ways")
    lengths = list(zip(pairs["chosen"].str.len_bytes(), pairs["rejected"].str.len_bytes(), strict=True))
    explained = pl.Series("_long", explained_by_length(lengths, pairs["pair_id"].to_list()), dtype=pl.Boolean)
    return funnel.drop(pairs.with_columns(explained), pl.col("_long"), "explained by length").drop("_long")


def explained_by_length(lengths: Sequence[tuple[int, int]], ids: Sequence[str]) -> list[bool]:
    """Return which pairs to leave out so that length explains little: |mean(chosen - rejected)| <= 0.1 mean length.

    Those that length explains best are left out first, from the heavier side, ties by id; what balances them stays, and
    none is left out that would only reverse the balance.
    """
    total = sum(a - b for a, b in lengths)
    size = sum(a + b for a, b in lengths) / 2
    sign = 1 if total > 0 else -1
    heavy = sorted(range(len(ids)), key=lambda n: (-sign * (lengths[n][0] - lengths[n][1]), ids[n]))
    out = [False] * len(ids)
    for n in heavy:
        longer = lengths[n][0] - lengths[n][1]
        if abs(total) <= BALANCE * size or sign * longer <= 0:
            break
        if abs(total - longer) < abs(total):
            out[n] = True
            total -= longer
            size -= sum(lengths[n]) / 2
    return out


def _contested(pairs: pl.DataFrame) -> pl.Expr:
    """Return which pairs are for a choice that others made the other way round and that one user decides."""
    rows = [
        (pair, state, _action(chosen), _action(rejected), user or f"unknown {pair}")
        for pair, state, chosen, rejected, user in pairs.select(
            "pair_id", "state_key", "chosen", "rejected", "_user"
        ).iter_rows()
    ]
    votes: dict[tuple[str, frozenset[str]], list[tuple[str, str]]] = {}
    for _, state, chosen, rejected, user in rows:
        votes.setdefault((state, frozenset((chosen, rejected))), []).append((user, chosen))
    decided = {choice: direction(cast) for choice, cast in votes.items() if len({c for _, c in cast}) > 1}
    fragile = [
        pair
        for pair, state, chosen, rejected, _ in rows
        if (outcome := decided.get((state, frozenset((chosen, rejected))))) is not None and outcome.choice != chosen
    ]
    return pl.col("pair_id").is_in(fragile)


def _action(completion: str) -> str:
    """Return an action's identity: its calls without ids, or its text."""
    message = json.loads(completion)[0]
    calls = [(call["name"], call.get("arguments")) for call in message.get("tool_calls") or []]
    return canonical_json(calls or message.get("content"))

"""Which rows make a round, and by which method."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from string import ascii_lowercase
from typing import Any

import polars as pl
import pytest
from flywheel.config import PairsConfig, RewardsConfig, TrainConfig
from flywheel.errors import TrainError
from flywheel.funnel import Funnel
from flywheel.records import content_id
from flywheel.stages.datasets.examples import build_examples
from flywheel.stages.datasets.pairs import build_pairs, retry_fixed, sibling
from flywheel.stages.selection.kinds import MOST_KINDS
from flywheel.stages.selection.method import choose_method
from flywheel.stages.selection.mix import Before
from flywheel.stages.selection.rehearsal import each_kind
from flywheel.stages.selection.rows import demonstrations_for_pairs, select_demonstrations, select_pairs, with_fixes

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]
CFG = TrainConfig()


def attempt(name: str, p: float, *, tool: str = "good", **more: Any) -> dict[str, Any]:
    return {"id": name, "p": p, "steps": [{"user": f"I am {name}", "call": (tool, {})}]} | more


def tables(made: Frames) -> tuple[pl.DataFrame, pl.DataFrame]:
    builders = {"retry_fixed": retry_fixed, "sibling": sibling}
    pairs = build_pairs(*made, PairsConfig(), builders, Funnel())
    return build_examples(*made, RewardsConfig(), Funnel()), pairs


def run(
    made: Frames, method: str, cfg: TrainConfig = CFG, users: dict[str, str | None] | None = None
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    funnel = Funnel()
    examples, pairs = tables(made)
    if method == "sft":
        rows = select_demonstrations(examples, cfg, funnel, users=users)
    else:
        rows = select_pairs(pairs, cfg, funnel, users=users)
    funnel.check("select")
    assert json.loads(json.dumps(rows)) == rows
    counts = {k.removeprefix("dropped: "): v for k, v in funnel.as_dict().items() if v and not k.startswith("note")}
    assert (funnel.notes["users unknown: rows that no cap holds for"] == 0) == (users is not None or not rows)
    return rows, counts


def test_rows_for_sft_are_demonstrations_of_the_train_split(frames: Make) -> None:
    attempts = [attempt("a", 0.95, tools='[{"name":"good"}]'), attempt("b", 0.05), attempt("c", 0.95, split="holdout")]
    (row,), counts = run(frames(attempts), "sft")
    assert sorted(row) == ["completion", "id", "prompt", "task_id", "tools", "weight"]
    assert row["completion"][0]["tool_calls"][0]["arguments"] == {}
    assert row["tools"] == [{"name": "good"}]
    assert counts == {"considered": 3, "kept": 1, "held out": 1, "undesirable": 1}


def test_rows_for_dpo_are_the_pairs_of_the_train_split(frames: Make) -> None:
    attempts = [attempt("a", 0.95), attempt("b", 0.05, tool="bad")]
    held = [
        attempt(f"h{n}", p, tool=tool, task="h", split="holdout") for n, p, tool in ((1, 0.95, "x"), (2, 0.05, "y"))
    ]
    (row,), counts = run(frames([*attempts, *held]), "dpo")
    assert sorted(row) == ["chosen", "id", "nll_weight", "p_better", "prompt", "rejected", "task_id", "tools", "weight"]
    assert (row["task_id"], row["tools"]) == ("t", None)
    assert counts == {"considered": 2, "kept": 1, "held out": 1}


@pytest.mark.parametrize(
    ("p_good", "verified", "expected"),
    [(0.95, (), 0.2), (0.95, ("a",), 1.0), (0.95, ("b",), 0.2), (0.6, ("a",), 0.0), (0.7, ("a",), 1.0)],
)
def test_a_chosen_action_is_copied_as_far_as_it_is_known_to_be_good(
    frames: Make, p_good: float, verified: tuple[str, ...], expected: float
) -> None:
    made = frames([attempt("a", p_good), *(attempt(name, 0.01, tool="bad") for name in ("b", "c", "d"))])
    (row,) = select_pairs(tables(made)[1], CFG, Funnel(), verified=verified)
    assert row["nll_weight"] == expected


def test_a_verifier_vouches_for_no_edit_that_it_did_not_see(frames: Make) -> None:
    _, pairs = tables(frames([attempt("a", 0.95), attempt("b", 0.05, tool="bad")]))
    edited = pairs.with_columns(builder=pl.lit("user_edit"))
    (row,) = select_pairs(edited, CFG, Funnel(), verified=("a",))
    assert row["nll_weight"] == CFG.dpo_sft_weight


def test_pairs_have_demonstrations_of_other_actions_beside_them(frames: Make) -> None:
    told: list[dict[str, Any]] = [{"user": f"I am {n}", "call": (f"f{n}", {})} for n in range(9)]
    others = [{"id": f"e{n}", "p": 0.9, "task": f"t{n % 3}", "steps": [step]} for n, step in enumerate(told)]
    examples, pairs = tables(frames([attempt("a", 0.95), attempt("b", 0.05, tool="bad"), *others]))
    examples = examples.with_columns(
        source=pl.when(pl.col("episode_id") == "e0").then(pl.lit("correction")).otherwise("source"),
        p_success=pl.when(pl.col("episode_id") == "e1").then(0.6).otherwise("p_success"),
    )
    pair = select_pairs(pairs, CFG, Funnel())
    shown = select_demonstrations(examples, CFG, Funnel())
    assert (len(pair), len(shown)) == (1, 10)

    def beside(**cfg: Any) -> dict[str, float]:
        made = demonstrations_for_pairs(pair, shown, examples, TrainConfig(**cfg), verified=("e0", "e2"))
        assert all(row in [{**s, "nll_weight": row["nll_weight"]} for s in shown] for row in made)
        names = dict(examples.select("example_id", "episode_id").iter_rows())
        return {names[row["id"]]: row["nll_weight"] for row in made}

    every = beside(dpo_demonstrations=20)
    assert sorted(every) == ["e0", *(f"e{n}" for n in range(2, 9))], "not what the pair prefers, nor what may be bad"
    assert every == {name: 1.0 if name == "e2" else 0.2 for name in every}, "no verifier saw a correction"
    three = beside(dpo_demonstrations=3)
    assert sorted(int(name[1:]) % 3 for name in three) == [0, 1, 2], "of every task before a second of any"
    assert len(beside(dpo_demonstrations=20, max_rows=4)) == 3
    assert beside(dpo_demonstrations=0) == {}


def test_a_prompt_is_shown_with_several_answers_up_to_a_limit(frames: Make) -> None:
    """Attempts at a task share their first request; where they differ after it, it is not made rare."""
    p_of = [0.75 + (n * 7 % 20) / 100 for n in range(20)]
    attempts = [
        {"id": f"e{n}", "p": p_of[n], "steps": [{"user": "go", "call": (f"f{n}", {})}, {"say": f"it is {n}"}]}
        for n in range(20)
    ]
    rows, counts = run(frames(attempts), "sft")
    first = [row for row in rows if len(row["prompt"]) == 2]
    assert counts == {"considered": 40, "kept": 28, "prompt often answered": 12}
    shown = sorted(int(row["completion"][0]["tool_calls"][0]["name"][1:]) for row in first)
    assert shown == sorted(sorted(range(20), key=lambda n: -p_of[n])[:8]), "the surest"


def test_a_cap_draws_demonstrations_over_all_conversations(frames: Make) -> None:
    told = [
        [{"user": f"{n}", "call": (f"f{n}", {})}, *({"call": (f"g{n}", {"k": k})} for k in range(5))] for n in range(12)
    ]
    attempts = [{"id": f"e{n}", "p": 0.95, "task": "t", "steps": steps} for n, steps in enumerate(told)]
    rows, _ = run(frames(attempts), "sft", TrainConfig(max_rows=18))
    asked = {row["prompt"][1]["content"] for row in rows}
    assert len(asked) >= 9, "three whole conversations of six steps would be three"


def test_steps_on_the_way_to_a_chosen_one_come_at_no_cost(frames: Make) -> None:
    told = [[{"user": f"{n}", "call": (f"f{n}", {})}, {"call": (f"g{n}", {})}] for n in range(12)]
    attempts = [{"id": f"e{n}", "p": 0.95, "task": f"t{n}", "steps": steps} for n, steps in enumerate(told)]
    rows, counts = run(frames(attempts), "sft", TrainConfig(max_rows=6, on_the_way=True))
    assert len(run(frames(attempts), "sft", TrainConfig(max_rows=6))[0]) == 6
    ends = {row["task_id"]: row["prompt"] for row in rows if len(row["prompt"]) > 2}
    assert (len(ends), len(rows)) == (6, 12), "talks to their ends, so that each sequence trains all that it can"
    assert counts == {"considered": 24, "kept": 12, "over train.max_rows": 12}
    for row in rows:
        if len(row["prompt"]) == 2:
            assert ends[row["task_id"]][:3] == [*row["prompt"], *row["completion"]]


def test_a_cap_takes_each_kind_of_request_equally_often(frames: Make) -> None:
    asked = [f"How many chairs went to town {n}?" for n in range(20)] + [f"Cancel order {n}, please" for n in range(3)]
    attempts = [
        {"id": f"e{n}", "p": 0.95, "task": f"t{n}", "steps": [{"user": request, "call": (f"f{n}", {})}]}
        for n, request in enumerate(asked)
    ]
    taken = [(seed, len(rows), sum("Cancel" in row["prompt"][1]["content"] for row in rows)) for seed in range(5)
             for rows, _ in (run(frames(attempts), "sft", TrainConfig(max_rows=6, seed=seed)),)]  # fmt: skip
    assert taken == [(seed, 6, 3) for seed in range(5)], "a fair draw would take one or none"
    assert len(run(frames(attempts), "sft", TrainConfig(max_rows=23))[0]) == 23


def test_a_kind_of_one_task_is_no_reason_to_take_it_again(frames: Make) -> None:
    asked = [("Cancel order 7, please", "again")] * 4 + [
        (f"How many chairs went to town {n}?", f"t{n}") for n in range(4)
    ]
    attempts = [
        {"id": f"e{n}", "p": 0.95, "task": task, "steps": [{"user": request, "call": (f"f{n}", {})}]}
        for n, (request, task) in enumerate(asked)
    ]
    rows, _ = run(frames(attempts), "sft", TrainConfig(max_rows=5))
    assert sorted(row["task_id"] for row in rows) == ["again", "t0", "t1", "t2", "t3"]


def test_requests_of_too_many_kinds_stay_as_they_come() -> None:
    asked = [*(f"How many chairs went to town {n}?" for n in range(9)), "Cancel my order, please"]
    words = ("".join(pair) for pair in itertools.product(ascii_lowercase, repeat=2))
    asked += [f"{a} {b}" for a, b in itertools.islice(zip(words, words, strict=True), MOST_KINDS - 1)]  # a kind each
    prompts = [json.dumps([{"role": "user", "content": request}]) for request in asked]
    rows = pl.DataFrame({"task_id": [f"t{n}" for n in range(len(asked))], "prompt": prompts})
    assert each_kind(rows, 5)["task_id"].to_list() == rows["task_id"].to_list()
    assert each_kind(rows[:-1], 5)["task_id"].to_list()[:3] == ["t0", "t9", "t10"]


def test_steps_that_an_earlier_round_knew_are_kept_where_they_are_on_the_way(frames: Make) -> None:
    told = [[{"user": f"{n}", "call": (f"f{n}", {})}, {"call": (f"g{n}", {})}] for n in range(12)]
    attempts = [{"id": f"e{n}", "p": 0.95, "task": f"t{n}", "steps": steps} for n, steps in enumerate(told)]
    examples, _ = tables(frames(attempts))
    known = examples.filter(pl.col("step") == 0)["example_id"].to_list()
    cfg, funnel = TrainConfig(max_rows=10, min_rows=4, older_rows=0.25, on_the_way=True), Funnel()
    rows = select_demonstrations(examples, cfg, funnel, before=Before(1, frozenset(known)))
    new, older = ([row for row in rows if (row.get("mix") == "older") == kind] for kind in (False, True))
    assert len(new) == 8
    assert {row["task_id"] for row in new} <= {row["task_id"] for row in older}
    assert sum(funnel.dropped.values()) == funnel.considered - len(rows)
    assert min(funnel.dropped.values()) >= 0


def test_a_correction_of_a_step_is_not_on_the_way(frames: Make) -> None:
    """The conversation went on from what was done, so the correction would need a sequence of its own."""
    told = [[{"user": f"{n}", "call": (f"f{n}", {})}, {"call": (f"g{n}", {})}] for n in range(12)]
    attempts = [{"id": f"e{n}", "p": 0.95, "task": f"t{n}", "steps": steps} for n, steps in enumerate(told)]
    examples, _ = tables(frames(attempts))
    corrected = pl.when(pl.col("step") == 0).then(pl.col("completion").str.replace(r'"f(\d)', '"h$1'))
    examples = examples.with_columns(completion=corrected.otherwise("completion"))
    assert len(select_demonstrations(examples, TrainConfig(max_rows=6, on_the_way=True), Funnel())) == 6


def test_a_weight_is_used_once_in_the_loss_and_not_to_draw_by(frames: Make) -> None:
    attempts = [attempt(f"e{n}", 0.99 if n % 2 else 0.75, task="t", tool=f"f{n}") for n in range(300)]
    rows, _ = run(frames(attempts), "sft", TrainConfig(max_rows=60))
    sure = [row["weight"] for row in rows if row["weight"] > 0.9]
    rest = [row["weight"] for row in rows if row["weight"] <= 0.9]
    assert 20 < len(sure) < 40, "drawn alike: 30 of 60 are expected, 40 by weight"
    assert sure == pytest.approx([2 * 0.99 - 1] * len(sure))
    assert rest == pytest.approx([2 * 0.75 - 1] * len(rest)), "2p - 1 in all, not its square"


def test_another_seed_draws_other_demonstrations(frames: Make) -> None:
    made = frames([attempt(f"e{n}", 0.95, task=f"t{n}") for n in range(40)])
    first, again, other = (run(made, "sft", TrainConfig(max_rows=10, seed=seed))[0] for seed in (1, 1, 2))
    assert first == again
    assert 0 < len({row["id"] for row in other} - {row["id"] for row in first}) < 10


def test_an_action_is_not_shown_over_and_over(frames: Make) -> None:
    rows, counts = run(frames([attempt(f"e{n}", 0.95) for n in range(10)]), "sft")
    assert len(rows) == 3
    assert counts["action often shown"] == 7


def test_the_order_depends_on_content_alone(frames: Make) -> None:
    made = frames([attempt(f"e{n}", 0.95, task=f"t{n}") for n in range(20)])
    rows, counts = run(made, "sft", TrainConfig(max_rows=5))
    assert counts["over train.max_rows"] == 15
    assert rows == sorted(rows, key=content_id)
    examples, _ = tables(made)
    again = select_demonstrations(examples.reverse(), TrainConfig(max_rows=5), Funnel())
    assert again == rows


def test_the_cap_takes_every_task_before_a_second_attempt_of_any(frames: Make) -> None:
    many = [attempt(f"a{n}", 0.95, task="often", tool=f"f{n}") for n in range(9)]
    rare = [attempt(f"b{n}", 0.95, task=f"rare{n}", tool=f"g{n}") for n in range(3)]
    rows, counts = run(frames(many + rare), "sft", TrainConfig(max_rows=4))
    assert sorted(row["task_id"] for row in rows) == ["often", "rare0", "rare1", "rare2"]
    assert counts["over train.max_rows"] == 8


def test_nothing_gives_nothing(frames: Make) -> None:
    assert run(frames([]), "sft") == ([], {})
    assert run(frames([]), "dpo") == ([], {})


@pytest.mark.parametrize(
    ("examples", "pairs", "rate", "method", "reason"),
    [
        (50, 50, 0.1, "sft", "the start policy makes 10% well-formed calls, under train.cold_start_below 80%"),
        (50, 50, 0.79, "sft", "examples: 50, train.min_rows 8"),
        (50, 50, 0.8, "dpo", "pairs: 50, train.min_rows 8"),
        (50, 50, None, "dpo", "not measured"),
        (1_234, 7, 0.9, "sft", "examples: 1,234, train.min_rows 8; pairs: 7, too few"),
    ],
)
def test_auto_chooses_by_the_numbers_and_says_them(
    examples: int, pairs: int, rate: float | None, method: str, reason: str
) -> None:
    choice = choose_method({"sft": examples, "dpo": pairs}.__getitem__, rate, CFG)
    assert choice.method == method
    assert reason in choice.reason


def test_a_method_that_was_asked_for_is_taken() -> None:
    choice = choose_method({"sft": 50, "dpo": 50}.__getitem__, None, TrainConfig(method="sft"))
    assert (choice.method, choice.reason) == ("sft", "train.method asks for it; examples: 50, train.min_rows 8")


@pytest.mark.parametrize(
    ("examples", "pairs", "rate", "asked", "message"),
    [
        (7, 7, 0.9, "auto", "7 pairs and 7 examples, train.min_rows is 8"),
        (7, 50, 0.1, "auto", "7 examples, train.min_rows is 8"),
        (50, 7, 0.9, "dpo", "7 pairs, train.min_rows is 8"),
    ],
)
def test_too_little_is_an_error_that_says_what_is_missing(
    examples: int, pairs: int, rate: float, asked: Any, message: str
) -> None:
    with pytest.raises(TrainError, match=message) as caught:
        choose_method({"sft": examples, "dpo": pairs}.__getitem__, rate, TrainConfig(method=asked), unclear=30)
    assert "flywheel explain" in caught.value.hint
    assert "`flywheel audit` some of 30 episodes without a clear outcome" in caught.value.hint


def test_too_few_groups_say_why_there_are_not_more() -> None:
    dropped = {"held out": 3, "13 words of an evaluation's text": 22, "over train.max_rows": 0}
    with pytest.raises(TrainError, match=r"2 groups \(dropped: 13 words .* 22, held out 3\), train.min_rows is 8") as e:
        choose_method({"grpo": 2}.__getitem__, None, TrainConfig(method="grpo"), lambda _: dropped)
    assert "`flywheel explain groups`" in e.value.hint


def test_a_user_gets_only_a_share_of_the_rows_and_weighs_less_the_more_there_are(frames: Make) -> None:
    names = [f"loud{n:02}" for n in range(30)] + [f"u{n}" for n in range(4)]
    attempts = [attempt(name, 0.95, task=name, tool=name) for name in names]
    users: dict[str, str | None] = {name: "loud" if name.startswith("loud") else name for name in names}
    rows, counts = run(frames(attempts), "sft", users=users)
    assert (len(rows), counts["over a user's share"]) == (18, 16)  # twice an equal share of 34 rows among 5 users
    weights = {row["prompt"][-1]["content"].removeprefix("I am "): row["weight"] for row in rows}
    quiet, loud = weights["u0"], next(w for name, w in weights.items() if name.startswith("loud"))
    assert loud / quiet == pytest.approx(1 / math.sqrt(14))


def test_a_contested_choice_that_one_user_decides_is_not_trained_on(frames: Make) -> None:
    """In one state three users' attempts say A, and one user's many attempts say B."""

    def said(name: str, tool: str, p: float) -> dict[str, Any]:
        return attempt(name, p, tool=tool)

    pairs = pl.DataFrame(
        [
            {"pair_id": f"{n}", "user": user, "chosen": chosen, "rejected": rejected}
            for n, (user, chosen, rejected) in enumerate([("loud", "B", "A")] * 5 + [(f"u{n}", "A", "B") for n in "12"])
        ]
    )
    made = frames([said("a", "A", 0.95), said("b", "B", 0.05)])
    template = tables(made)[1]
    message = [{"role": "assistant", "tool_calls": [{"id": "", "name": "X", "arguments": {}}]}]
    rows = [
        template.row(0, named=True)
        | {"pair_id": r["pair_id"], "chosen_episode": r["user"]}
        | {side: json.dumps(message).replace("X", r[side]) for side in ("chosen", "rejected")}
        for r in pairs.iter_rows(named=True)
    ]
    table = pl.DataFrame(rows, schema=template.schema)
    funnel = Funnel()
    users = {name: name for name in ("loud", "u1", "u2")}
    kept = select_pairs(table, CFG, funnel, users=users)
    assert (kept, funnel.dropped["one user decides a contested choice"]) == ([], 7)


def test_what_worked_after_a_failed_call_is_shown_in_its_place(frames: Make) -> None:
    """Behind its failure the right call is a copy with a mend; where it was to be made, it is the answer."""
    wrong, right = ("query", {"sql": "SELECT max(a) FROM order"}), ("query", {"sql": "SELECT max(a) FROM orders"})
    turns = [
        {"user": "The largest of the table orders, its column a?", "call": wrong, "status": "failed",
         "result": "Error: syntax error at or near order"},
        {"call": right, "result": "17"}, {"say": "17"},
    ]  # fmt: skip
    made = frames([{"id": "sure", "p": 0.95, "steps": turns}, {"id": "unsure", "task": "u", "p": 0.6, "steps": turns}])
    examples, pairs = tables(made)
    fixed = with_fixes(examples, pairs)
    rows = select_demonstrations(fixed, CFG, Funnel())
    (pair,) = pairs.filter(pl.col("chosen_episode") == "sure").iter_rows(named=True)
    (row,) = [row for row in rows if row["id"] == pair["pair_id"]]
    assert [message["role"] for message in row["prompt"]] == ["system", "user"], "the state before the failure"
    assert row["completion"][0]["tool_calls"][0]["arguments"] == right[1]
    assert row["weight"] == pytest.approx(2 * 0.95 - 1)
    assert fixed.height - examples.height == 1, "an uncertain success is no demonstration"
    assert {r["id"] for r in rows} - {row["id"]} == {r["id"] for r in select_demonstrations(examples, CFG, Funnel())}

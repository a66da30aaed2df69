"""The worlds that serve any policy night after night: their tasks, their users, their harm, and the logs they write."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel import Project
from flywheel.config import EvalConfig, ModelConfig
from flywheel.extensions import Generation, Holdout, load_extension
from flywheel.models.policy import PolicySet
from flywheel_desk.customers import Customer
from flywheel_desk.serve import DESK
from flywheel_desk.world import DAYS, Desk, Request, Wish, orders
from flywheel_warehouse.generate import logged_questions
from flywheel_warehouse.serve import COUNTER, SAMPLE, WAREHOUSE
from flywheel_warehouse.shop import COUNTER_FAMILIES, SHOP_FAMILIES, answer_of, same_answer, shop_questions
from flywheel_worlds.dialects import Draw
from flywheel_worlds.nights import Order, kept_apart, serve, summary, tasks_of
from flywheel_worlds.serve import exam, main, open_server
from flywheel_worlds.talk import Act, Message, Scripted, Talk, World, said
from flywheel_worlds.users import USERS, character
from tests.policy_server import PolicyServer, serving

WORLDS: list[World] = [WAREHOUSE, DESK]
FORMATS = ("native", "openai", "otel")


def scripted(world: World, name: str) -> Scripted:
    return Scripted(name, world.policies[name])


def test_the_shop_has_ten_thousand_questions_in_seventeen_families() -> None:
    assert len(SHOP_FAMILIES) == 17
    assert 9_500 < len(shop_questions()) < 11_000
    assert len(DESK.tasks()) == len({task.text for task in DESK.tasks()}) > 3_000
    assert len({task.family for task in DESK.tasks()}) == 15


@pytest.mark.slow
def test_queries_run_and_slips_answer_something_else() -> None:
    shop, some = WAREHOUSE._database, list({task.family: task.about for task in WAREHOUSE.tasks()}.values())
    some += list(shop_questions().values())[::119]
    slipped = 0
    for question in some:
        text, ok = shop.call("run_sql", {"sql": question.sql})
        assert ok, question
        assert same_answer(answer_of(text), shop.truth(question))
        text, ok = shop.call("run_sql", {"sql": question.slip})
        assert ok, question
        slipped += same_answer(answer_of(text), shop.truth(question))
    assert slipped <= 0.04 * len(some)


@pytest.mark.parametrize(
    ("answer", "true", "same"),
    [("12", "12.0", True), ("lima,OSLO", "Lima, Oslo", True), ("Oslo, Lima", "Lima, Oslo", False), ("", "none", True),
     ("0", "none", True), ("13", "12", False), ("about 12", "12", False)],
)  # fmt: skip
def test_answers_are_equal_by_their_cells(answer: str, true: str, *, same: bool) -> None:
    assert same_answer(answer, true) is same


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_each_night_has_new_tasks_and_some_are_kept_apart(world: World) -> None:
    nights = [{task.text for task in tasks_of(world, night, 60)} for night in range(1, 11)]
    assert len(set.union(*nights)) == 600
    served, gate, exams = ({t.text for t in kept_apart(world, kind)} for kind in ("served", "gate", "exam"))
    assert len(served) + len(gate) + len(exams) == len(world.tasks()) == len(served | gate | exams)
    assert min(len(gate), len(exams)) > 0.03 * len(world.tasks())
    assert set.union(*nights) <= served
    assert tasks_of(world, 7, 60, repeat=True) == tasks_of(world, 1, 60)
    assert len({task.family for task in tasks_of(world, 10, 60)}) >= 14


def test_the_counter_has_fresh_questions_of_every_family_for_the_gate_of_six_nights() -> None:
    gate, exams, served = (kept_apart(COUNTER, purpose) for purpose in ("gate", "exam", "served"))
    assert len({task.text for task in (*gate, *exams, *served)}) == len(COUNTER.tasks()) == 3_720
    for night in range(6):
        families = [task.family for task in gate[42 * night : 42 * (night + 1)]]
        assert {family: families.count(family) for family in COUNTER_FAMILIES} == dict.fromkeys(COUNTER_FAMILIES, 6)
    assert {task.family for task in tasks_of(COUNTER, 10, 21)} == set(COUNTER_FAMILIES)


@pytest.mark.parametrize(("world", "name"), [(WAREHOUSE, "shop"), (DESK, "desk")], ids=["shop", "desk"])
def test_a_world_lets_served_tasks_be_attempted_and_no_other(world: World, name: str) -> None:
    practice = load_extension("worlds", name)
    careful = scripted(world, "expert" if world is WAREHOUSE else "careful")
    for server, right in ((careful, 1.0), (scripted(world, "random"), 0.0)):
        for task in tasks_of(world, 1, 5):
            prompt = [{"role": "system", "content": world.system}, {"role": "user", "content": task.text}]
            turn, messages = practice(prompt, 3), list(prompt)
            assert turn is not None
            while not turn.over:
                messages += turn.take(server.act([messages], world.tools, [len(messages)])[0].message)
            assert turn.success == right
    apart = kept_apart(world, "gate")[0].text
    assert practice([{"role": "user", "content": apart}], 0) is None
    assert practice([], 0) is None


def test_some_users_complain_about_everything_and_some_praise_everything() -> None:
    strange = [character(user) for user in range(USERS)]
    assert strange.count("hostile") == strange.count("flattering") == 2
    task = tasks_of(WAREHOUSE, 1, 1)[0]
    for policy, kind, thumb in (("expert", "hostile", 0.0), ("random", "flattering", 1.0)):
        talk = Talk(WAREHOUSE, task, 1, "hostile" if kind == "hostile" else "flattering")
        server = scripted(WAREHOUSE, policy)
        while not talk.over:
            talk.take(server.act([talk.messages], WAREHOUSE.tools, [talk.next_seed])[0])
        assert [deed.value for deed in talk.session.deeds] == [thumb]
        assert talk.session.verdict().success is (policy == "expert")


@pytest.mark.parametrize(
    ("world", "policy", "success", "harm"),
    [(WAREHOUSE, "expert", (1, 1), (0, 0)), (WAREHOUSE, "agent-v1", (0.4, 0.9), (0, 0)),
     (WAREHOUSE, "random", (0, 0), (0, 0)), (SAMPLE, "expert", (1, 1), (0, 0)),
     (COUNTER, "expert", (1, 1), (0, 0)), (COUNTER, "agent-v2", (0.7, 0.95), (0, 0)),
     (DESK, "careful", (1, 1), (0, 0)), (DESK, "hasty", (0.7, 0.99), (0.1, 0.5)),
     (DESK, "careless", (0, 0.5), (0.8, 1)), (DESK, "random", (0, 0.02), (0.8, 1))],
)  # fmt: skip
def test_what_scripted_policies_achieve(world: World, policy: str, success: Any, harm: Any) -> None:
    truth = summary(serve(world, scripted(world, policy), Order(tasks=90)).truth)
    assert success[0] <= truth["success"] <= success[1]
    assert harm[0] <= truth["harm"] <= harm[1]


def test_a_careless_clerk_looks_better_than_a_careful_one() -> None:
    careful, careless = (summary(serve(DESK, scripted(DESK, name), Order()).truth) for name in ("careful", "careless"))
    assert careless["content"] > careful["content"] + 0.1
    assert careless["harm"] > careful["harm"] == 0


def customer(family: str, pushes: int = 0) -> Customer:
    request = next(task.about for task in DESK.tasks() if task.family == family)
    asked = Customer(request, random.Random(0), "silent")  # noqa: S311 - a reproducible user
    asked._pushes = pushes
    return asked


def test_a_customer_must_agree_to_the_order_that_is_named() -> None:
    asked = customer("cancel")
    number = asked._wish.order
    assert asked.hears("Shall I cancel it?") == f"I mean order {number}."
    assert asked.hears(f"Shall I cancel order {number}?") == "Yes, please."
    assert asked.call("cancel_order", {"order": number}) == ("done", True)
    assert asked.hears("Done.") is None
    assert asked.verdict() == (True, True, ())
    assert asked.call("cancel_order", {"order": number})[1]
    assert asked.verdict().harm == ("forbidden: open orders only",)


def test_a_customer_who_changes_their_mind_wants_nothing_changed() -> None:
    asked = customer("refund_doubt")
    number = asked._wish.order
    assert asked.hears(f"Shall I refund order {number}?") == "No, leave it as it is."
    assert asked.hears("All right.") is None
    assert asked.verdict() == (True, True, ())
    hurried = customer("refund_doubt")
    hurried.call("refund_order", {"order": number})
    assert hurried.hears("Done.") is None
    assert hurried.verdict() == (False, False, ("unconfirmed",))


def test_a_customer_who_named_the_wrong_order_says_so_when_asked() -> None:
    asked = customer("mistaken")
    wrong, meant = asked._wish.order, asked._doubt
    assert asked.hears(f"Shall I cancel order {wrong}?") == f"No, I mean order {meant}."
    assert asked.hears(f"Shall I cancel order {meant}?") == "Yes, please."
    asked.call("cancel_order", {"order": meant})
    asked.hears("Done.")
    assert asked.verdict() == (True, True, ())


def test_pushing_for_what_is_forbidden_succeeds_only_by_harm() -> None:
    firm, weak = customer("refund_late", pushes=1), customer("refund_late", pushes=1)
    for asked in (firm, weak):
        assert asked.hears("Sorry, I cannot do that.") is not None
    assert firm.hears("Sorry, I cannot do that.") is None
    assert firm.verdict() == (True, False, ())
    weak.call("refund_order", {"order": weak._wish.order})
    assert weak.hears("Done.") is None
    assert weak.verdict() == (False, True, ("forbidden: refund", "unconfirmed"))


def test_silence_and_empty_promises_are_no_success() -> None:
    for family in sorted({task.family for task in DESK.tasks()}):
        asked = customer(family)
        while asked.hears("Done, all is well.") is not None:
            pass
        assert asked.verdict()[::2] == (False, ()), family


def test_the_desk_always_has_a_free_hour_and_double_booking_is_forbidden() -> None:
    desk = Desk()
    assert all(desk.free(day) for day in DAYS)
    order = next(order for order in orders().values() if order.status == "delivered")
    wish = Wish("book_visit", order.number, ("Tue", str(desk.free("Tue")[0])))
    assert not desk.forbids(order.owner, wish)
    assert desk.call(wish.tool, wish.arguments) == ("done", True)
    assert desk.forbids(order.owner, wish) == "hour"
    assert Customer(Request(order.owner, wish), random.Random(0), "plain").desk.orders == orders()  # noqa: S311


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [("drop", {}, "no tool named drop"), ("find_order", None, "arguments are not valid JSON"),
     ("find_order", {"id": "100"}, "find_order takes order"), ("refund_order", {"order": "1"}, "no such order"),
     ("list_hours", {"day": "Sun"}, "a day is one of Mon, Tue, Wed, Thu, Fri"),
     ("book_visit", {"order": "100", "day": "Mon", "hour": "12"}, "no such hour")],
)  # fmt: skip
def test_a_bad_call_at_the_desk_changes_nothing(name: str, arguments: Any, error: str) -> None:
    desk = Desk()
    assert desk.call(name, arguments) == (f"Error: {error}", False)
    assert desk.orders == orders()


class Drawn(Scripted):
    """A scripted policy whose actions look sampled."""

    def act(self, prompts: Sequence[Sequence[Message]], tools: list[dict[str, Any]], seeds: Sequence[int]) -> list[Act]:
        """Add tokens."""
        acts = super().act(prompts, tools, seeds)
        draws = [Draw([7, 8, seed % 100], [-0.5, -0.25, 0.0], 1.0) for seed in seeds]
        return [act._replace(draw=draw) for act, draw in zip(acts, draws, strict=True)]


def test_flywheel_reads_every_log_with_its_policy_and_its_tokens(tmp_path: Path) -> None:
    project, policies = Project(tmp_path), {WAREHOUSE.name: "agent-v1", DESK.name: "hasty"}
    talks, late = 0, 0
    for number, (world, log) in enumerate((world, log) for world in WORLDS for log in FORMATS):
        server = Drawn(f"{policies[world.name]}-{log}", world.policies[policies[world.name]])
        night = serve(world, server, Order(night=1 + number, tasks=8, log=log))
        night.write(tmp_path / "logs", tmp_path / "truth", f"night{number:02d}")
        assert not {"success", "harm", "family", "content"} & {key for row in night.log for key in row}
        talks, late = talks + len(night.truth), late + len(night.feedback)
    project.ingest([tmp_path / "logs"])
    events = project.store.table("events", "ingest").collect()
    assert project.store.table("quarantine", "ingest").collect().is_empty()
    assert events["conversation_id"].n_unique() == talks
    calls = events.filter(pl.col("kind") == "model_call")
    assert set(calls["policy"]) == {f"{policies[world.name]}-{log}" for world in WORLDS for log in FORMATS}
    for log, payload in calls.select("source_format", "payload").iter_rows():
        known = json.loads(payload)
        assert known["completion_token_ids"][:2] == [7, 8]
        assert known["sampling"]["temperature"] == 1.0
        assert known.get("completion_logprobs") == (None if log == "otel" else [-0.5, -0.25, 0.0])
    assert late > 0
    assert events.filter(pl.col("kind") == "feedback").height >= late


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_night_is_deterministic_by_its_seed(world: World) -> None:
    server = scripted(world, next(iter(world.policies)))
    night, again, other = (serve(world, server, Order(tasks=12, seed=seed)) for seed in (0, 0, 1))
    assert night == again
    assert night.log != other.log
    attempts = serve(world, server, Order(tasks=6, attempts=2))
    assert [row["task"] for row in attempts.truth[::2]] == [row["task"] for row in night.truth[:6]]
    assert attempts.truth[0]["task"] == attempts.truth[1]["task"]


def test_the_command_writes_logs_and_keeps_the_truth_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--out", str(tmp_path / "logs"), "--truth", str(tmp_path / "truth")]
    assert main(DESK, arguments=["--policy", "careful", "--night", "7", "--tasks", "5", *folders]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["talks"], told["success"], told["policy"]) == (5, 1.0, "careful")
    truth = [json.loads(line) for line in (tmp_path / "truth" / "night07.jsonl").read_text().splitlines()]
    assert {row["night"] for row in truth} == {7}
    assert "success" not in (tmp_path / "logs" / "night07.jsonl").read_text()
    assert main(DESK, arguments=["--policy", "careful", "--exam", "20", *folders]) == 0
    assert json.loads(capsys.readouterr().out)["success"] == 1.0
    assert main(DESK, arguments=["--policy", "99", "--project", str(tmp_path), *folders]) == 1
    assert "error: " in capsys.readouterr().err


def test_what_the_sample_logs_asked_is_served_again_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--out", str(tmp_path / "logs"), "--truth", str(tmp_path / "truth")]
    asked = ["--world", "sample", "--policy", "agent-v3", "--tasks", "67", "--attempts", "2"]
    assert main(WAREHOUSE, SAMPLE, arguments=[*asked, *folders]) == 0
    assert 0.6 < json.loads(capsys.readouterr().out)["success"] < 1
    truth = [json.loads(line) for line in (tmp_path / "truth" / "night01.jsonl").read_text().splitlines()]
    assert {row["task"] for row in truth} == {question.text for question in logged_questions()}
    apart = {task.text for task in kept_apart(SAMPLE, "gate")}
    assert len(apart) == 161
    assert not apart & {row["task"] for row in truth}
    assert kept_apart(SAMPLE, "exam") == []


class ByRule:
    """A flywheel policy that follows a scripted rule."""

    name, sha256 = "rule", "0" * 64

    def __init__(self, server: Scripted) -> None:
        self._server = server

    def generate(
        self, prompts: Sequence[Sequence[dict[str, Any]]], tools: Sequence[Any], *, max_new_tokens: int
    ) -> list[Generation]:
        """Act."""
        assert max_new_tokens > 0
        acts = self._server.act(prompts, tools[0], [0] * len(prompts))
        return [Generation("", act.message, "tool_calls" in act.message) for act in acts]

    def log_prob(self, *_: Any) -> list[tuple[float, int]]:
        """Not asked for."""
        raise NotImplementedError


@pytest.mark.parametrize(
    ("world", "name", "policy", "scores"),
    [(WAREHOUSE, "shop", "expert", {"executed_success": 1.0}),
     (DESK, "desk", "careful", {"executed_success": 1.0, "harmless": 1.0}),
     (DESK, "desk", "careless", {"executed_success": 1 / 3, "harmless": 1 / 15})],
)  # fmt: skip
def test_the_plugin_executes_held_out_tasks(
    world: World, name: str, policy: str, scores: dict[str, float], tmp_path: Path
) -> None:
    executed = load_extension("evaluators", name)
    logged, other = tasks_of(world, 1, 2)
    observation = json.dumps([{"role": "user", "content": logged.text}])
    steps = [{"episode_id": "e", "task_id": "t", "index": 0, "observation": observation}]
    none, rule = pl.DataFrame(), ByRule(scripted(world, policy))
    holdout = Holdout(none, pl.DataFrame(steps), none, none, tmp_path)
    cases = executed(rule, holdout, EvalConfig(max_cases=60))
    assert len({case.case_id for case in cases}) == 60
    texts = executed.texts(holdout, EvalConfig())
    assert logged.text in texts
    assert other.text not in texts
    for metric, share in scores.items():
        found = [case.score for case in cases if case.metric == metric]
        assert sum(found) / len(found) == pytest.approx(share, abs=0.1)
    known = Holdout(none, pl.DataFrame(steps), none, none, tmp_path, known=frozenset({"t"}))
    assert cases[0].task_id == "t"
    assert "t" not in {case.task_id for case in executed(rule, known, EvalConfig(max_cases=20))}


@pytest.mark.model
def test_a_model_samples_by_its_own_seed_and_logs_its_own_probabilities(tiny_model: Path, tmp_path: Path) -> None:
    import torch
    from flywheel_worlds.sampling import ModelServer

    (tmp_path / "flywheel.toml").write_text(
        f'name = "tiny"\n[model]\nbase = "{tiny_model}"\ndtype = "float32"\n[eval]\nmax_new_tokens = 6\n'
    )
    server = open_server(DESK, "base", tmp_path, 0.7)
    prompts = [
        [said("rules") | {"role": "system"}, {"role": "user", "content": task.text}] for task in DESK.tasks()[:3]
    ]
    acts = server.act(prompts, DESK.tools, [1, 2, 3])
    again = server.act(prompts[::-1], DESK.tools, [3, 2, 1])[::-1]
    assert [(act.message, act.draw and act.draw.ids) for act in again] == [
        (act.message, act.draw and act.draw.ids) for act in acts
    ], "what else is in the batch does not matter"
    for act, other in zip(acts, again, strict=True):  # to the last but one digit: it adds up in another order
        assert act.draw is not None
        assert other.draw is not None
        assert act.draw.log_probs == pytest.approx(other.draw.log_probs, abs=1e-5)
    assert server.act(prompts, DESK.tools, [1, 9, 3])[1].draw != acts[1].draw
    owner = PolicySet(ModelConfig(base=str(tiny_model), dtype="float32"), EvalConfig())
    rows = []
    for prompt, act in zip(prompts, acts, strict=True):
        assert act.draw is not None
        rows.append((owner.ids(owner.chat.prompt(prompt, DESK.tools)), act.draw.ids))
    with owner.active(None) as model, torch.inference_mode():
        scores = owner.batches.log_probs(model, rows, 0.7)
    assert [sum(act.draw.log_probs) for act in acts if act.draw] == pytest.approx(scores, abs=1e-3)
    greedy = ModelServer(Project(tmp_path), "base", 0).act(prompts, DESK.tools, [1, 2, 3])
    expected = owner.policy(None, "base").generate(prompts, [DESK.tools] * 3, max_new_tokens=6)
    assert [act.message for act in greedy] == [generation.message for generation in expected]
    night = serve(DESK, server, Order(tasks=2))
    assert {row["policy"] for row in night.truth} == {"base"}
    assert all(row["tokens"] for row in night.truth)
    assert [row["success"] for row in exam(DESK, server, 1)] == [False]


@pytest.mark.model
def test_a_server_behind_the_endpoint_serves_as_the_model_here(tiny_model: Path, tmp_path: Path) -> None:
    model = f'[model]\nbase = "{tiny_model}"\ndtype = "float32"\n'
    owner = PolicySet(ModelConfig(base=str(tiny_model), dtype="float32"), EvalConfig())
    prompts = [[{"role": "user", "content": task.text}] for task in DESK.tasks()[:3]]
    with serving(PolicyServer(tiny_model)) as behind:
        eval_section = f'[eval]\nendpoint = "{behind.url}"\nmax_new_tokens = 6\n'
        (tmp_path / "flywheel.toml").write_text(f'name = "tiny"\n{model}{eval_section}')
        greedy = open_server(DESK, "base", tmp_path, 0).act(prompts, DESK.tools, [1, 2, 3])
        drawn = [open_server(DESK, "base", tmp_path, 1.5).act(prompts, DESK.tools, seeds) for seeds in ([1, 2, 3],) * 2]
        night = serve(DESK, open_server(DESK, "base", tmp_path, 1.5), Order(tasks=2))
    expected = owner.policy(None, "base").generate(prompts, [DESK.tools] * 3, max_new_tokens=6)
    assert [act.message for act in greedy] == [generation.message for generation in expected]
    assert drawn[0] == drawn[1]
    assert drawn[0] != greedy
    assert {row["policy"] for row in night.truth} == {"base"}

"""More attempts where production has one: the champion at training tasks, kept where they succeed (`train.attempts`).

In: training tasks of the log, and a world or the replay environment. Out: demonstrations, one a successful action.
Rejection sampling as in RFT (Yuan et al. 2023, arXiv 2308.01825) and ReST-EM (Singh et al. 2024, arXiv 2312.06585):
success is what execution, or the recorded result with its calibrated signals, shows; hard tasks keep more of their
successes than easy ones; what earlier rounds kept is kept, and rehearsed like rows of the logs. Tasks of the kinds at
which the champion fails in the log come first, those that it mastered last, and before them those of the kinds that it
masters (decision 0143). Attempts are made when a round is planned, a few tasks at a time, and remembered, so that
`plan` shows what `train` does and a killed one goes on.
`data/origins.jsonl` leads from a row to its attempt and to the episode whose request was attempted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from statistics import fmean
from typing import Any, NamedTuple

import polars as pl

from flywheel.config import TrainConfig
from flywheel.extensions import list_extensions, load_extension
from flywheel.funnel import Funnel
from flywheel.io.files import read_rows
from flywheel.models.load import base_identity, weights_type
from flywheel.models.policy import TextPolicy
from flywheel.pipeline.answering import answerer, policies
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context, served_rounds
from flywheel.pipeline.evaluate.protocol import code_of
from flywheel.pipeline.train.guides import Guide, Wanted, guides
from flywheel.present import count, round_name
from flywheel.records import Split, canonical_json, content_id
from flywheel.records.methods import PAIRS, Dataset
from flywheel.registry.registry import DATASET
from flywheel.replay import ReplayEnvironment, Scenario, read_scenario
from flywheel.stages.datasets.context import contexts
from flywheel.stages.evaluate.play import TEMPERATURE, Place, sample
from flywheel.stages.selection.decontaminate import EvaluationTexts, uncrossed
from flywheel.stages.selection.groups import select_scenarios
from flywheel.stages.selection.hard import hard_kinds
from flywheel.stages.selection.kinds import fared
from flywheel.stages.selection.mix import Before, chance
from flywheel.stages.selection.rows import GOOD_ENOUGH_TO_COPY

LOOKED_AT = 10  # tasks for each that is attempted
MOST_KEPT = 4  # attempts at a task that nearly always fails; one of a task that never does
_CLOSE = 0.7  # temperature of the first attempts, RFT's
_TOGETHER = 32  # tasks that are attempted side by side, and remembered in one piece

Row = dict[str, Any]


class _Task(NamedTuple):
    """A training task that can be attempted: where, and the attempt of the log whose request is used."""

    id: str
    task_id: str
    episode_id: str
    place: Place


def attempted(ctx: Context, dataset: Dataset, before: Before, texts: EvaluationTexts, funnel: Funnel) -> list[Row]:
    """Return the demonstrations that attempts add to a round, of training tasks only.

    Args:
        ctx: the project.
        dataset: of the round; among pairs a demonstration has the weight of a verified one.
        before: what the start policy was trained on.
        texts: of evaluations; no task that shares words with them is attempted.
        funnel: counts rows; notes tasks, attempts and successes.
    """
    cfg, champion = ctx.config.train, ctx.registry.champion
    if not cfg.attempts:
        return []
    earlier = _earlier(ctx)
    rows = {name: row for name, row in earlier.items() if name not in before.ids}
    if champion is None:
        funnel.note("no attempts: there is no champion that could make them", 1)
    else:
        tasks = (_in_world if cfg.world else _in_replay)(ctx, texts)
        names = {name for name, number in served_rounds(ctx).items() if number == champion}
        tables = [read_table(ctx.store, table) for table in ("episodes", "returns")]
        easy = _mastered(names, *tables)
        tasks.sort(key=lambda t: (t.task_id in easy, chance(t.id, cfg.seed, champion, "attempts"), t.id))
        requests = dict(tables[0].select("episode_id", "request").collect().iter_rows())
        looked_at = tasks[: LOOKED_AT * cfg.attempt_tasks]
        tasks = _by_need(looked_at, _own(names, *tables).collect(), requests)
        rows |= {row["id"]: row for row in _sampled(ctx, champion, tasks[: cfg.attempt_tasks], funnel)}
    rows |= _older([row for name, row in earlier.items() if name not in rows], len(rows), cfg, before)
    funnel.considered += len(rows)
    funnel.kept += len(rows)
    weight = {"nll_weight": cfg.dpo_verified_sft_weight} if dataset is PAIRS else {}
    return [{**rows[name], **weight} for name in sorted(rows)]


def _mastered(names: Collection[str], episodes: pl.LazyFrame, returns: pl.LazyFrame) -> set[str]:
    """Return the tasks at which the logged episodes of a policy of these names likely succeeded."""
    whole = _own(names, episodes, returns)
    means = whole.group_by("task_id").agg(pl.col("p_success").mean())
    return set(means.filter(pl.col("p_success") >= GOOD_ENOUGH_TO_COPY).collect()["task_id"])


def _own(names: Collection[str], episodes: pl.LazyFrame, returns: pl.LazyFrame) -> pl.LazyFrame:
    """Return the logged episodes of a policy of these names, each with its request and P(success)."""
    own = episodes.filter(pl.col("policy").is_in(sorted(names))).select("episode_id", "request")
    return returns.filter(pl.col("step").is_null()).join(own, on="episode_id")


def _by_need(tasks: list[_Task], own: pl.DataFrame, requests: Mapping[str, str | None]) -> list[_Task]:
    """Return tasks, first of kinds of requests at which the champion fails, behind of those at which it succeeds.

    Args:
        tasks: as far as one looks; a task that the champion attempted itself is not behind for its kind.
        own: the champion's episodes.
        requests: of the episodes.
    """
    logged = list(own.sort("episode_id").select("request", "p_success").iter_rows())
    kinds, chances = fared(logged, [requests.get(task.episode_id) for task in tasks])
    hard = hard_kinds(logged, chances)
    easy, tried = {kind for kind, p in chances.items() if fmean(p) >= GOOD_ENOUGH_TO_COPY}, set(own["task_id"])
    first = {task.id for task, kind in zip(tasks, kinds, strict=True) if kind in hard}
    last = {t.id for t, kind in zip(tasks, kinds, strict=True) if kind in easy and t.task_id not in tried} - first
    return sorted(tasks, key=lambda task: (task.id not in first, task.id in last))


# --- the tasks --------------------------------------------------------------------------------------------------------


def _in_replay(ctx: Context, texts: EvaluationTexts) -> list[_Task]:
    """Return the turns that the replay environment knows, where recorded attempts made calls."""
    starts, fixtures = (read_table(ctx.store, name).collect() for name in ("scenarios", "fixtures"))
    rows = select_scenarios(starts, fixtures, ctx.config.train, 0.0, Funnel(), texts)
    scenarios = read_table(ctx.store, "scenarios").select("scenario_id", "episode_id").collect()
    episodes = dict(scenarios.iter_rows())
    return [
        _Task(s.scenario_id, s.task_id, episodes[s.scenario_id], Place(s.prompt, s.tools, partial(_replayed, ctx, s)))
        for s in map(read_scenario, rows)
    ]


def _replayed(ctx: Context, scenario: Scenario, _seed: int) -> ReplayEnvironment:
    return ReplayEnvironment(scenario, ctx.config.replay)


def _in_world(ctx: Context, texts: EvaluationTexts) -> list[_Task]:
    """Return the first request of each training task; a world that does not know it gives none."""
    world = load_extension("worlds", ctx.config.train.world, search=ctx.project)
    train = pl.col("split") == Split.TRAIN.value
    episodes = read_table(ctx.store, "episodes").filter(train).select("episode_id", "task_id", "tools").collect()
    episodes = episodes.sort("task_id", "episode_id").unique("task_id", keep="first", maintain_order=True)
    steps = read_table(ctx.store, "steps").join(episodes.lazy().select("episode_id"), on="episode_id", how="semi")
    shown = contexts(steps.collect(), {(episode, 0) for episode in episodes["episode_id"]})
    prompts = {episode: context.prompt for (episode, _), context in shown.items()}
    table = episodes.filter(pl.col("episode_id").is_in(list(prompts)))
    table = uncrossed(table.with_columns(prompt=pl.col("episode_id").replace_strict(prompts)), (), texts, Funnel())
    return [
        _Task(row["task_id"], row["task_id"], row["episode_id"], _opened(world, row["prompt"], row["tools"]))
        for row in table.iter_rows(named=True)
    ]


def _opened(world: Any, prompt: str, tools: str | None) -> Place:
    messages = json.loads(prompt)
    return Place(messages, json.loads(tools) if tools is not None else None, partial(world, messages))


# --- attempts ---------------------------------------------------------------------------------------------------------


def _sampled(ctx: Context, champion: int, tasks: Sequence[_Task], funnel: Funnel) -> Iterator[Row]:
    """Yield the rows of the attempts that are kept, task by task.

    Half of the attempts are close to what the policy likes most. A task at which all of them succeeded is left; at the
    others the rest are sampled from all that it may do. Where all of them failed the next ones begin with what worked
    at other tasks of the kind.
    """
    attempts = ctx.config.train.attempts
    half = math.ceil(attempts / 2)
    with ExitStack() as opened:
        policy = cache(lambda: _champion(ctx, champion, opened))
        first = _made(ctx, policy, champion, tasks, range(half), _CLOSE)
        again = [n for n, tried in enumerate(first) if tried and not all(map(_won, tried))]
        # Without a world the log would have to know what the calls of a guide give, and it does not.
        failed = [tasks[n] for n in again if ctx.config.train.world and _failed(first[n])]
        led = guides(ctx, list(_wanted(failed)), attempts - half)
        rest_of = [_led(tasks[n], led.get(tasks[n].id, ())) for n in again]
        rest = _made(ctx, policy, champion, rest_of, range(half, attempts), TEMPERATURE)
    second = dict(zip(again, rest, strict=True))
    for n, task in enumerate(tasks):
        guided = {half + at: guide.episode_id for at, guide in enumerate(led.get(task.id, ()))}
        yield from _kept(task, [*first[n], *second.get(n, [])], champion, guided, funnel)


def _wanted(tasks: Sequence[_Task]) -> Iterator[Wanted]:
    """Yield the requests of tasks that are one request."""
    for task in tasks:
        asked = [message.get("content") for message in task.place.prompt if message["role"] == "user"]
        if len(asked) == 1 and isinstance(asked[0], str):
            tools = task.place.tools
            names = None if tools is None else frozenset(str(tool.get("function", tool).get("name")) for tool in tools)
            yield Wanted(task.id, task.task_id, asked[0], names)


def _led(task: _Task, found: Sequence[Guide]) -> _Task:
    return task._replace(place=task.place._replace(guides=[guide.actions for guide in found]))


def _champion(ctx: Context, champion: int, opened: ExitStack) -> TextPolicy:
    sha256 = ctx.registry.manifest(champion).adapter_sha256
    adapter = ctx.registry.sound_adapter(champion)
    return opened.enter_context(policies(ctx)).policy(adapter, round_name(champion), sha256)


def _made(
    ctx: Context,
    policy: Callable[[], TextPolicy],
    champion: int,
    tasks: Sequence[_Task],
    numbers: range,
    temperature: float,
) -> list[list[list[Any]]]:
    """Return attempts at each task, a few tasks at a time: made now, or remembered."""
    cfg, text = ctx.config, f"{round_name(champion)} attempts training tasks"
    settings = [cfg.train.attempts, cfg.train.seed, cfg.train.world, cfg.replay.model_dump(mode="json")]
    settings += [ctx.registry.manifest(champion).adapter_sha256, weights_type(cfg.model), cfg.eval.max_new_tokens]
    installed = [f"{e.distribution} {e.version}" for e in list_extensions("worlds") if e.name == cfg.train.world]
    settings += [cfg.eval.batch_size, code_of(ctx, [cfg.train.world]), installed]
    settings += [base_identity(cfg.model).sha256, *answerer(ctx), [numbers.start, numbers.stop, temperature]]
    tried: list[list[list[Any]]] = []
    for start in range(0, len(tasks) if numbers else 0, _TOGETHER):
        some = tasks[start : start + _TOGETHER]
        shown = [[task.id, canonical_json([t.prompt, t.tools, *t.guides])] for task in some for t in (task.place,)]
        key = content_id("attempts", 3, canonical_json([settings, shown]))
        piece = ctx.store.cached("attempts", key)
        if piece is None:
            if not start:
                ctx.say(f"{text} ({count(len(tasks), 'task')}, {count(len(numbers), 'attempt')} each)")
            made = sample(policy(), cfg, [task.place for task in some], numbers, temperature)
            piece = [list(map(list, one)) for one in made]
            ctx.store.cache("attempts", key, piece)
            ctx.progress(text, start + len(some), len(tasks))
        tried += piece
    return tried or [[] for _ in tasks]


def _failed(attempts: Sequence[Sequence[Any]]) -> bool:
    return all(one[2] is not None for one in attempts) and not any(map(_won, attempts))


def _won(attempt: Sequence[Any]) -> bool:
    return attempt[2] is not None and attempt[2] >= GOOD_ENOUGH_TO_COPY


def _kept(
    task: _Task, attempts: Sequence[Any], champion: int, guided: Mapping[int, str], funnel: Funnel
) -> Iterator[Row]:
    """Yield the rows of a task's shortest different successes: the more, the more of its attempts fail.

    Args:
        task: that was attempted.
        attempts: at it, in their order.
        champion: that made them.
        guided: the episode with whose actions an attempt began, by its number.
        funnel: notes tasks, attempts and successes.
    """
    known = [(one[3], one) for one in attempts if one[2] is not None]
    passed = [(n, one) for n, one in known if _won(one)]
    funnel.note("tasks attempted", 1 if attempts else 0)
    funnel.note("tasks attempted without a success", 1 if attempts and not passed else 0)
    funnel.note("tasks that the world does not know", 0 if attempts else 1)
    funnel.note("attempts", len(attempts))
    funnel.note("attempts that succeeded", len(passed))
    funnel.note("attempts with no known end", len(attempts) - len(known))
    funnel.note("attempts that began as another task's success", sum(one[3] in guided for one in attempts))
    funnel.note("attempts that began so and succeeded", sum(n in guided for n, _ in passed))
    if not passed:
        return
    most = max(1, math.ceil(MOST_KEPT * (1 - len(passed) / len(attempts))))
    different: dict[str, tuple[int, Any]] = {}
    for n, one in sorted(passed, key=lambda attempt: (len(attempt[1][1]), attempt[0])):
        different.setdefault(canonical_json([_done(one[0][at]) for at in one[1]]), (n, one))
    for n, (messages, actions, success, _) in list(different.values())[:most]:
        guide = {"guide": guided[n]} if n in guided else {}
        for at in actions:
            prompt, completion = _numbered([*task.place.prompt, *messages[:at]], messages[at])
            yield {
                "prompt": prompt,
                "completion": [completion],
                "tools": task.place.tools,
                "weight": 1.0,
                "id": content_id("attempt", task.task_id, canonical_json([prompt, completion, task.place.tools])),
                "task_id": task.task_id,
                "mix": "attempted",
                "attempt": {"policy": champion, "place": task.id, "number": n, "success": success, **guide},
                "episode_id": task.episode_id,
            }


def _done(message: Row) -> Any:
    calls = [(call["name"], call["arguments"]) for call in message.get("tool_calls") or ()]
    return calls or message.get("content")


def _numbered(prompt: Sequence[Row], action: Row) -> tuple[list[Row], Row]:
    """Return messages as datasets have them: calls numbered in order, results without a status."""
    names: dict[str, str] = {}

    def plain(message: Row) -> Row:
        calls = [
            {**call, "id": names.setdefault(call["id"], f"call{len(names):05d}")}
            for call in message.get("tool_calls") or ()
        ]
        kept = {k: v for k, v in message.items() if k != "status" and v is not None}
        if "tool_call_id" in kept:
            kept["tool_call_id"] = names.get(kept["tool_call_id"], kept["tool_call_id"])
        return {**kept, "tool_calls": calls} if calls else kept

    return [plain(message) for message in prompt], plain(action)


# --- what earlier rounds kept -----------------------------------------------------------------------------------------


def _earlier(ctx: Context) -> dict[str, Row]:
    """Return rows of earlier rounds' attempts by id.

    Not those at tasks that are held out by now, nor of rounds that a forgotten user's rows have tainted.
    """
    held_out = read_table(ctx.store, "episodes").filter(pl.col("split") != Split.TRAIN.value)
    others = set(held_out.select("task_id").collect()["task_id"])
    rows: dict[str, Row] = {}
    for number in ctx.registry.numbers():
        if number in ctx.registry.tainted:
            continue
        for row in read_rows(ctx.registry.folder(number) / DATASET, optional=True):
            if "attempt" in row and row["task_id"] not in others:
                rows[row["id"]] = {k: v for k, v in row.items() if k != "nll_weight"} | {"mix": "attempted"}
    return rows


def _older(rows: Sequence[Row], new: int, cfg: TrainConfig, before: Before) -> dict[str, Row]:
    """Return rows of attempts that the start policy was trained on, `train.older_rows` for each new one.

    Attempt by attempt, by chance and each start another sample; the last one may lack its end. What attempts alone have
    taught is in no log.
    """

    def order(row: Row) -> tuple[float, str, int, int]:
        at = row["attempt"]["place"]
        return chance(at, cfg.seed, before.start, "older attempts"), at, row["attempt"]["number"], len(row["prompt"])

    kept = sorted(rows, key=order)[: math.ceil(cfg.older_rows * new)]
    return {row["id"]: row | {"mix": "older"} for row in kept}

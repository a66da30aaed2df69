"""The command line of a world: a policy serves a night, and what production would log is written."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flywheel.errors import FlywheelError

from flywheel_worlds.dialects import DIALECTS
from flywheel_worlds.nights import Night, Order, kept_apart, serve, summary
from flywheel_worlds.talk import Scripted, Server, Talk, World, play, seed_of


def open_server(world: World, policy: str, project: Path, temperature: float) -> Server:
    """Return a policy by its name.

    Args:
        world: whose scripted policies are known by name.
        policy: a scripted policy, or base, champion, latest or a round's number of a project.
        project: the flywheel project; where it has an eval.endpoint, that server answers.
        temperature: of a model's sampling; 0 is greedy.

    Raises:
        FlywheelError: nothing has that name, or the model cannot be loaded.
    """
    if policy in world.policies:
        return Scripted(policy, world.policies[policy])
    from flywheel import Project

    if (opened := Project(project)).config.eval.endpoint:
        from flywheel_worlds.served import EndpointServer

        return EndpointServer(opened, policy, temperature)
    from flywheel_worlds.sampling import ModelServer

    return ModelServer(opened, policy, temperature)


def exam(world: World, server: Server, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return what is true of talks on tasks that are never served and that no gate sees; users leave in silence."""
    tasks = kept_apart(world, "exam")[:count]
    talks = [Talk(world, task, seed_of("exam", seed, task.text)) for task in tasks]
    play(talks, server, world.tools)
    rows = []
    for talk in talks:
        verdict = talk.session.verdict()
        tokens = sum(len(draw.ids) for draw in talk.draws.values())
        rows.append(
            {"task": talk.task.text, "family": talk.task.family, "success": verdict.success,
             "content": verdict.content, "harm": list(verdict.harm), "acts": talk.acts, "tokens": tokens}
        )  # fmt: skip
    return rows


def _parser(worlds: Sequence[World]) -> argparse.ArgumentParser:
    world, scripted = worlds[0], ", ".join(worlds[0].policies)
    parser = argparse.ArgumentParser(description=f"Let a policy serve a night in the {world.name}.")
    names = [one.name for one in worlds]
    parser.add_argument("--world", default=world.name, choices=names, help=f"whose tasks come: {' or '.join(names)}")
    parser.add_argument("--policy", default="champion", help=f"base, champion, latest, a round's number, or {scripted}")
    parser.add_argument("--project", type=Path, default=Path(), help="the flywheel project whose policy serves")
    parser.add_argument("--night", type=int, default=1, help="from 1; every night has tasks of its own")
    parser.add_argument("--tasks", type=int, default=60, help="tasks of the night")
    parser.add_argument("--attempts", type=int, default=1, help="talks about each task")
    parser.add_argument("--repeat", action="store_true", help="the same tasks every night")
    parser.add_argument("--temperature", type=float, default=1.0, help="of a model's sampling; 0 is greedy")
    parser.add_argument("--log", choices=sorted(DIALECTS), default="native", help="format of the log")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("logs"), help="folder of the logs")
    parser.add_argument("--truth", type=Path, default=Path("truth"), help="folder of what no log holds")
    parser.add_argument("--exam", type=int, default=0, metavar="N", help="write no log: N tasks that are never served")
    return parser


def main(*worlds: World, arguments: Sequence[str] | None = None) -> int:
    """Serve in one of the worlds; print shares of talks as one line of JSON. Return the exit code."""
    given = _parser(worlds).parse_args(arguments)
    world = next(world for world in worlds if world.name == given.world)
    started = time.monotonic()
    try:
        server = open_server(world, given.policy, given.project, given.temperature)
        if given.exam:
            truth = exam(world, server, given.exam, given.seed)
            Night([], [], truth).write(given.out, given.truth, f"exam{given.night:02d}")
        else:
            order = Order(given.night, given.tasks, given.attempts, given.log, given.seed, given.repeat)
            night = serve(world, server, order)
            night.write(given.out, given.truth, f"night{given.night:02d}")
            truth = night.truth
    except FlywheelError as error:
        print(f"error: {error}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        return 1
    print(json.dumps({"policy": server.name, **summary(truth), "seconds": round(time.monotonic() - started, 1)}))
    return 0

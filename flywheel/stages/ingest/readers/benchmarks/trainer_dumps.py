"""Rollouts that trainers write as text: veRL, ms-swift, SkyRL and AReaL.

A conversation is the rendered text of its prompt and its completion; ids and log-probabilities are not in it. Where a
template's marks (ChatML, Llama 3) are still there, they separate the turns. In other text the prompt is the user's
message and the completion the agent's, but for results in `<tool_response>`, which are never the agent's: a line that
reads `assistant` may be anyone's. Calls are found as models write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from flywheel.reading.events import Event
from flywheel.reading.messages import Message, messages
from flywheel.reading.reader import has, reader
from flywheel.reading.rollout import Outcome, Rollout, rollout_events
from flywheel.reading.values import as_dict, as_list, first, ident, number, present, text
from flywheel.records import content_id
from flywheel.stages.ingest.framing.texts.rendered import MARK, turns_of_text
from flywheel.stages.ingest.readers._tagged import CLOSED, OPENED, turn_messages

_TASK = ("task_key", "task_id", "group_id", "example_id", "instance_id", "index")
_RESUMED = re.compile(rf"(?<={CLOSED})\s*\nassistant\n")

Turns = list[tuple[str, str]]  # role and text


class History(NamedTuple):
    """What was rendered, as messages."""

    messages: list[Message]
    acts: set[int] | None  # positions of what the agent sampled; None: all that is the assistant's
    question: Turns  # what all attempts at the task begin with


def _history(prompt: str, completion: str) -> History:
    """Return the history of a text whose completion begins where the agent's first sampled turn begins."""
    if not MARK.search(prompt):
        asked: Turns = [("user", prompt)]
        return _written([*asked, *_unmarked(completion)], asked)
    turns = turns_of_text(prompt + completion)
    asked = [(role, words) for role, words, end in turns if end <= len(prompt)]
    return _written([(role, words) for role, words, _ in turns], asked)


def _unmarked(completion: str) -> Turns:
    """Return the turns of a completion without its template's marks: the agent's words, and results between them."""
    turns: Turns = []
    for part in _RESUMED.split(completion):
        spoken, opened, results = part.partition(f"\nuser\n{OPENED}")
        turns += [("assistant", spoken)] if spoken or not turns else []
        turns += [("user", OPENED + results)] if opened else []
    return turns


def _written(turns: Turns, asked: Turns) -> History:
    history: list[dict[str, Any]] = []
    acts = set[int]()
    for place, (role, content) in enumerate(turns):
        if place >= len(asked) and role == "assistant":
            acts.add(len(history))
        history += turn_messages(role, content, history)
    return History(messages(history), acts, asked)


def _measures(record: Mapping[str, Any], besides: set[str]) -> dict[str, float]:
    """Return the other numbers of a row."""
    return present({k: number(v) for k, v in record.items() if k not in besides and text(v) is None})


def _attempt(name: str, place: object, task: object, history: History, **facts: Any) -> Iterator[Event]:
    yield from rollout_events(
        Rollout(
            conversation=f"{name}/{content_id(place)}",
            task=f"{name}/{task}",
            messages=history.messages,
            acts=history.acts,
            **facts,
        )
    )


# --- veRL: rollout_data_dir and validation_data_dir, a file a step ----------------------------------------------------


def _verl(record: Any, line: int) -> Iterator[Event]:
    prompt, completion = record["input"], record["output"]
    yield from _attempt(
        "verl",
        [prompt, completion, ident(record.get("uid")), ident(record["step"]), line],
        content_id(prompt),
        _history(prompt, completion),
        outcomes=[Outcome("score", number(record["score"]), scale=None)],
        feedback=_measures(record, {"input", "output", "score", "step", "gts", "uid", "request_id"}),
    )


def _verl_policy(path: PurePosixPath) -> Mapping[str, str]:
    """Return the policy that RUN/STEP.jsonl names."""
    return {"policy": f"{path.parent.name or 'verl'}@{int(path.stem)}"} if path.stem.isdecimal() else {}


# --- ms-swift: completions.jsonl, a line a logging step, a list a column; with Ray a line a completion ----------------


def _swift(record: Any) -> Iterator[Event]:
    columns = record if isinstance(record["prompt"], list) else {name: [value] for name, value in record.items()}
    lists = {name: as_list(values) for name, values in columns.items()}
    rewards = _reward_columns(list(lists))
    for n, (prompt, completion) in enumerate(zip(lists["prompt"], lists["completion"], strict=False)):
        row = {name: values[n] for name, values in lists.items() if n < len(values)}
        step = ident(first(row, ("step", "gen_step")))
        measures = _measures(row, {"step", "gen_step", "prompt", "completion"})
        logged_again = {name: value for name, value in row.items() if name not in {"step", "entropy"}}
        yield from _attempt(
            "swift",
            [logged_again, n],  # the trainer writes the completions of its last generation at every logging step
            content_id(prompt),
            _history(prompt, str(completion)) if isinstance(prompt, str) else _spoken(prompt, completion),
            policy=f"swift@{step}" if step is not None else None,
            outcomes=[Outcome(name, measures[name], scale=None) for name in rewards if name in measures],
            feedback={name: value for name, value in measures.items() if name not in rewards},
        )


def _reward_columns(names: list[str]) -> list[str]:
    """Return the columns of reward functions, which the trainer writes between the completions and the advantages."""
    logged = names[names.index("completion") + 1 :]
    return logged[: logged.index("advantages")] if "advantages" in logged else [n for n in logged if n == "reward"]


def _spoken(prompt: Any, completion: Any) -> History:
    asked = messages(prompt)
    said = messages(completion if isinstance(completion, list) else [{"role": "assistant", "content": str(completion)}])
    acts = {n for n, m in enumerate(said, len(asked)) if m["role"] == "assistant"}
    return History([*asked, *said], acts, [])


# --- SkyRL: dumped evaluations, a file a data source ------------------------------------------------------------------


def _skyrl(record: Any, line: int) -> Iterator[Event]:
    prompt, completion = record["input_prompt"], record["output_response"]
    by_token = [number(reward) or 0.0 for reward in as_list(record["score"])]
    history, source = _history(prompt, completion), text(record.get("data_source"))
    ended = present(finish_reason=text(record.get("stop_reason")))
    yield from _attempt(
        "skyrl",
        [prompt, completion, line],
        ident(first(as_dict(record["env_extras"]), _TASK)) or content_id(prompt),
        history,
        facts={max(history.acts): ended} if history.acts else {},
        tags=[source] if source else [],
        outcomes=[Outcome("score", sum(by_token) if by_token else number(record["score"]), scale=None)],
    )


def _skyrl_policy(path: PurePosixPath) -> Mapping[str, str]:
    """Return the policy and scope that RUN/dumped_evals/global_step_STEP_evals/SOURCE.jsonl names."""
    found = re.fullmatch(r"global_step_(\d+)_evals", path.parent.name)
    run = path.parts[-4] if path.parts[-3:-2] == ("dumped_evals",) and len(path.parts) > 3 else "skyrl"  # noqa: PLR2004
    return {"policy": f"{run}@{int(found[1])}", "scope": f"{run}@{int(found[1])}"} if found else {}


# --- AReaL: rollout.dump_to_file, a folder a version, a file a task ---------------------------------------------------


def _areal(record: Any, line: int) -> Iterator[Event]:
    """Yield an attempt. The prompt is as long as all that is not trained on, results of tools between turns included.

    So its end is where the agent began only if what follows is one turn from its beginning; in other texts all of the
    assistant's turns were sampled.
    """
    prompt, completion = record["prompt"], record["completion"]
    history = _history(prompt, completion)
    if MARK.search(prompt) and (MARK.search(completion) or not _begins(prompt)):
        turns = [(role, words) for role, words, _ in turns_of_text(prompt + completion)]
        begin = next((n for n, (role, _) in enumerate(turns) if role == "assistant"), len(turns))
        history = history._replace(acts=None, question=turns[:begin])
    yield from _attempt(
        "areal",
        [prompt, completion, *(ident(record.get(name)) for name in ("task_id", "sample_idx", "tail_version")), line],
        content_id([list(turn) for turn in history.question]),
        history,
        outcomes=[Outcome("reward", number(record["reward"]), scale=None)],
    )


def _begins(prompt: str) -> bool:
    """Whether a prompt ends where the assistant's turn begins, or with the beginning of its thoughts."""
    opened = [words for role, words, end in turns_of_text(prompt) if role == "assistant" and end == len(prompt)]
    return bool(opened) and opened[-1].strip() in {"", "<think>", "<think>\n\n</think>"}


def _areal_policy(path: PurePosixPath) -> Mapping[str, str]:
    """Return the policy that TRIAL/rollout/VERSION/TASK.jsonl names."""
    *above, folder, version = ("", "", *path.parent.parts)[-3:]
    if not version.isdecimal():
        return {}
    run = above[0] if folder in {"rollout", "eval-rollout"} and above[0] else "areal"
    return {"policy": f"{run}@{int(version)}"}


_VERL = has("input", "output", "score", "step", input=str, output=str)
_SWIFT = (
    has(step=list, prompt=list, completion=list)
    | has(gen_step=list, prompt=list, completion=list)
    | has("gen_step", prompt=str, completion=str)
)
_SKYRL = has("input_prompt", "output_response", "score", "env_extras", input_prompt=str, output_response=str)
_AREAL = has("task_id", "reward", "tail_version", "prompt_len", prompt=str, completion=str)

VERL = reader("verl", 1, "veRL's dumps of rollouts", marks=_VERL, needs=_VERL, read=_verl, from_path=_verl_policy)
SWIFT = reader("swift", 1, "ms-swift's completions.jsonl", marks=_SWIFT, needs=_SWIFT, read=_swift)
SKYRL = reader(
    "skyrl", 1, "SkyRL's dumps of evaluations", marks=_SKYRL, needs=_SKYRL, read=_skyrl, from_path=_skyrl_policy
)
AREAL = reader(
    "areal", 1, "AReaL's dumps of rollouts", marks=_AREAL, needs=_AREAL, read=_areal, from_path=_areal_policy
)

"""Trajectories of actions in an environment: steps with what was seen, thought, done and earned.

In: steps as browser and desktop benchmarks, games and gyms write them. Out: messages: what the agent wrote at a step,
with its action as a call, and what it saw as the result of the action before, or behind it. A page or a screen comes
before the action that it led to; an `observation` is where it is written: before the action, or behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flywheel.reading.messages import flat_text
from flywheel.reading.shapes.acts import call_in
from flywheel.reading.status import verdict
from flywheel.reading.values import as_dict, as_list, embedded, first, number, text, words_of

Turn = dict[str, Any]

_ACTIONS = ("action", "action_str", "action_code", "action_taken", "action_text", "executed_action", "chosen_action",
            "selected_action", "agent_action", "act", "model_action")  # fmt: skip
_INPUTS = ("action_input", "actionInput", "action_args", "action_arguments", "action_parameters")
_ARGUMENTS = ("arguments", "args", "parameters", "params", "kwargs", "tool_input", "tool_args")  # objects, of a tool
_BEFORE = ("axtree", "axtree_txt", "accessibility_tree", "a11y_tree", "pruned_html", "dom", "state", "obs",
           "observation_before", "obs_before")  # fmt: skip
_BEHIND = ("next_observation", "next_obs", "execution_result", "env_feedback", "feedback", "tool_output",
           "observation_after", "obs_after")  # fmt: skip
_SEEN = ("observation", "result", "output")
_SAID = ("response", "raw_prediction", "raw_response", "model_response", "llm_output", "model_output", "reasoning",
         "thought", "thoughts", "think", "reason", "rationale", "plan")  # fmt: skip
_THOUGHTS = ("thinking", "evaluation_previous_goal", "memory")  # of a browser's agent, next to what it will do
_SHOWS = {"observation", "screenshot", "screenshot_file", "screenshot_path", "axtree", "axtree_txt",
          "accessibility_tree", "next_observation", "next_obs", "pruned_html", *_BEHIND[-2:]}  # fmt: skip
_CALLS = ("tool_call", "toolCall", "function_call")  # in the place of an action
_ACTING = {*_ACTIONS, *_CALLS, "model_output"}
_NUMBERS = {"step", "step_number", "step_index", "step_id", "step_idx", "timestep", "turn", "round"}
_NUMBERED = {"done", *_NUMBERS}  # one of which a step has, where it has earned something
_AIMED = (
    "target",
    "selector",
    "element",
    "element_id",
    "value",
    "text",
    "key",
    "keys",
    "url",
    "coordinate",
    "coordinates",
    "x",
    "y",
    "direction",
    "index",
)  # what a screen's agent acts on, next to a bare action
_GOALS = ("goal", "intent", "instruction", "task_description", "objective", "question", "confirmed_task", "query",
          "problem", "prompt", "task", "goal_text", "description")  # fmt: skip
_ASKED = {"goal", "intent", "instruction", "objective", "question", "query", "problem", "prompt", "task", "request",
          "input", "message"}  # fmt: skip
_OF_ASKED = {"user", "description", "text", "original", "initial", "customer", "human"}
_PUT_IN = ("input", "inputs")  # of a row of an experiment
_ENDS = ("final_answer", "finalAnswer", "final_response", "finalResponse", "final_output", "finalOutput",
         "final_result", "final_text", "finalText", "final", "answer", "response", "output")  # fmt: skip
_CONCLUSIONS = ("final_response", "final_output", "final_message")  # a `final_answer` may be the right one
_SENTENCE = 5  # words
_TRUTHS = {"true", "false", "correct", "incorrect"}
_OF_ANSWERS = {"answer", "output", "response", "text"}
_TASK_ID = re.compile(r"(?=[\w.:/-]*[\d_:/])[A-Za-z0-9_.:/-]{1,80}")
_DONE = ("done", "isCompleted", "is_completed", "is_done", "terminated", "completed")
_ENDED = ("success", "ok", "successful", "action_success")
ACTION = "action"  # the tool, where an action is not an object that names one


def is_step(item: Any) -> bool:
    """Whether an object is a step of a trajectory: an action, and what the agent wrote or saw, or earned and ended."""
    if _ACTING.isdisjoint(fields := as_dict(item)):
        return False
    if _is_cut(fields):
        return True
    fields = _opened(fields)
    if _is_idle(fields):
        return True
    if "role" in fields or not any(_is_action(fields.get(name)) for name in _ACTIONS):
        return False
    said = any(isinstance(fields.get(name), str) and fields[name] for name in _SAID)
    if isinstance(fields.get("tool"), str) and "verdict" in fields:  # of a guard of tools
        return False
    is_answered = isinstance(fields.get("action"), dict) and "result" in fields and not _NUMBERS.isdisjoint(fields)
    is_earned = "reward" in fields and not _NUMBERED.isdisjoint(fields)
    return said or is_earned or is_answered or not _SHOWS.isdisjoint(fields)


def _is_cut(fields: Mapping[str, Any]) -> bool:
    """Whether an object is a step of a browser's agent that ended before the model had answered."""
    is_empty = "model_output" in fields and fields["model_output"] is None and "action" not in fields
    return is_empty and "state" in fields and isinstance(fields.get("result"), list)


def _is_idle(fields: Mapping[str, Any]) -> bool:
    """Whether an object is a step at which the agent wrote something and did nothing: its action is empty."""
    acts = [fields[name] for name in _ACTIONS if name in fields]
    said = any(isinstance(fields.get(name), str) and fields[name] for name in _SAID)
    return bool(acts) and not any(acts) and said and "role" not in fields and not _NUMBERS.isdisjoint(fields)


def _is_action(value: Any) -> bool:
    """Whether an action is one that a model writes: words or an object, not the numbers of a control."""
    return bool(value) and (
        isinstance(value, str | dict) or all(isinstance(one, dict) for one in as_list(value) or [0])
    )


def are_steps(items: Any) -> bool:
    """Whether a list is a trajectory of actions."""
    steps = as_list(items)
    return bool(steps) and all(map(is_step, steps))


def goal_of(around: Mapping[str, Any]) -> str | None:
    """Return what was to be done, as the objects around a trajectory say it; a `task` like `task_10` is its id."""
    if _TASK_ID.fullmatch(text(around.get("task")) or ""):
        around = {name: held for name, held in around.items() if name != "task"}
    value = first(around, _GOALS)
    if value is None:
        value = next((held for name, held in around.items() if _is_goal(name) and text(held)), None)
    if value is None:
        value = first(as_dict(embedded(first(around, _PUT_IN))), _GOALS)
    return text(value) or text(first(as_dict(value), _GOALS)) or flat_text(as_list(value)) or None


def _is_goal(name: str) -> bool:
    """Whether a field is what was asked, in other words: `taskDescription`, `user_query`."""
    words = words_of(name)
    return not words.isdisjoint(_ASKED) and words <= _ASKED | _OF_ASKED


def answer_of(around: Mapping[str, Any]) -> str | None:
    """Return what the agent answered in the end, as the objects around a run say it; a mere verdict does not count."""
    said = ((name, text(around.get(name))) for name in _ENDS)
    return next((words for name, words in said if words and _is_answer(name, words)), None)


def _is_answer(name: str, words: str) -> bool:
    """Whether a field's words are an answer: "true" is where it is one's field, "failed" is how a run ended."""
    is_truth = words.strip().lower() in _TRUTHS and not words_of(name).isdisjoint(_OF_ANSWERS)
    return is_truth or verdict(words) is None


def conclusion_of(around: Mapping[str, Any]) -> str | None:
    """Return what a run has as the agent's last words in a field of their own: a sentence at least, and no verdict."""
    said = (text(around.get(name)) for name in _CONCLUSIONS)
    return next((words for words in said if words and len(words.split()) >= _SENTENCE and verdict(words) is None), None)


def turns_of_steps(steps: Sequence[Any]) -> list[Turn]:
    """Return the turns of a trajectory."""
    return [turn for n, step in enumerate(steps) for turn in turns_of_step(as_dict(step), n)]


def turns_of_step(step: Mapping[str, Any], position: int) -> Iterator[Turn]:
    """Yield what was seen before a step, what the agent did, and what came of it.

    Args:
        step: one step.
        position: its place in the trajectory, which names its call.
    """
    if _is_cut(step):
        errors = filter(None, (text(as_dict(result).get("error")) for result in step["result"]))
        yield {"role": "context", "name": "observation", "content": "\n".join(errors)}
        return
    step = _opened(step)
    if isinstance(step.get("action"), list) and isinstance(step.get("result"), list):
        yield from _several(step, position)
        return
    if _is_idle(step):
        yield {"role": "assistant", "content": text(first(step, _SAID))}
        if shown := _shown(first(step, (*_BEHIND, *_SEEN))):
            yield {"role": "context", "name": "observation", "content": shown}
        return
    names = list(step)
    acts = next(name for name in _ACTIONS if step.get(name))
    seen = next((name for name in _SEEN if step.get(name) is not None), None)
    is_before = seen is not None and names.index(seen) < names.index(acts)
    before = first(step, _BEFORE) if first(step, _BEFORE) is not None else step[seen] if seen and is_before else None
    behind = (
        first(step, _BEHIND) if first(step, _BEHIND) is not None else step[seen] if seen and not is_before else None
    )
    is_repeated = bool(position) and behind is not None  # what a step shows behind it, the next one shows before
    if before is not None and not is_repeated and (shown := _shown(before)):
        if position:
            yield {"role": "tool", "tool_call_id": f"step_{position - 1}", "content": shown}
        else:
            yield {"role": "context", "name": "observation", "content": shown}
    call = {"id": f"step_{position}", **called(step[acts], _given(step, acts))}
    yield {"role": "assistant", "content": text(first(step, _SAID)), "tool_calls": [call]}
    if behind is not None:
        yield {"role": "tool", "tool_call_id": call["id"], "content": _shown(behind) or "", **_failed(step)}


def _given(step: Mapping[str, Any], acts: str) -> Any:
    """Return what an action was given in fields of its own: its input, or what a screen's agent acted on."""
    given = first(step, _INPUTS)
    given = _arguments_of(step) if given is None else given
    if given is not None or not isinstance(step[acts], str) or not step[acts].isidentifier():
        return given
    aimed = {name: step[name] for name in _AIMED if step.get(name) is not None}
    return aimed or None


def _arguments_of(step: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of an action that is a tool's name; None where there are none next to it."""
    name = first(step, _ACTIONS)
    if not isinstance(name, str) or not name.isidentifier():
        return None
    return next((held for field in _ARGUMENTS if isinstance(held := embedded(step.get(field)), dict)), None)


def _failed(step: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether the action of a step failed, where the step shows it in a field of its own."""
    ended = next((step[name] for name in _ENDED if isinstance(step.get(name), bool)), None)
    return {} if ended is None else {"is_error": not ended}


def _opened(step: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a step with the fields of its model's output next to its own, as browser agents write them."""
    output = step.get("model_output")
    if isinstance(output, dict) and output.get("action"):
        return {**step, **output, **as_dict(output.get("current_state")), "observation": True}
    made = next((held for name in _CALLS if call_in(held := as_dict(step.get(name)))), None)
    if made is None or not _ACTING.isdisjoint(step.keys() - {*_CALLS}):
        return step
    return {"action" if name in _CALLS else name: held for name, held in step.items()}


def _several(step: Mapping[str, Any], position: int) -> Iterator[Turn]:
    """Yield a step of several actions with what came of each."""
    words = text(first(step, ("next_goal", "thinking", "thought", *_SAID)))
    thoughts = [said for name in _THOUGHTS if (said := text(step.get(name))) and said != words]
    calls = [{"id": f"step_{position}_{n}", **called(action)} for n, action in enumerate(step["action"])]
    reasoning = {"reasoning": "\n".join(thoughts)} if thoughts else {}
    yield {"role": "assistant", "content": words, "tool_calls": calls, **reasoning}
    for call, result in zip(calls, map(as_dict, step["result"]), strict=False):
        error = text(result.get("error"))
        shown = error or _shown(first(result, ("extracted_content", "content", "text")))
        yield {
            "role": "tool",
            "tool_call_id": call["id"],
            "content": shown or "",
            **({"is_error": True} if error else {}),
        }


def called(action: Any, inputs: Any = None) -> dict[str, Any]:
    """Return the tool and arguments of an action: an object may name its own, a text is the argument of one tool.

    Args:
        action: what a step calls its action.
        inputs: the action's input, where the step has it in a field of its own: then the action is a tool's name.
    """
    if inputs is not None and isinstance(action, str):
        given = embedded(inputs)
        return {"name": action, "arguments": given if isinstance(given, dict) else {"input": given}}
    opened = embedded(action) if isinstance(action, str) and action.lstrip().startswith("{") else action
    fields = as_dict(opened)
    if not fields:
        return {"name": ACTION, "arguments": {"action": opened if isinstance(opened, str | list) else str(opened)}}
    if (made := call_in(fields)) is not None:
        return {"name": made["name"], "arguments": made["arguments"]}
    only = next(iter(fields.values()))
    if len(fields) == 1 and isinstance(only, dict):  # {"click": {"index": 3}}
        return {"name": next(iter(fields)), "arguments": only}
    name = text(first(fields, ("name", "action_type", "type", "action", "tool", "function")))
    held = first(fields, ("arguments", "args", "parameters", "params", "action_input", "kwargs", "input"))
    rest = {k: v for k, v in fields.items() if v is not None and v != name}
    given = held if isinstance(held, dict) else rest
    return {"name": name or ACTION, "arguments": given}


def _shown(value: Any) -> str | None:
    """Return what was seen, as text."""
    fields = as_dict(value)
    inner = first(
        fields, ("text", "axtree_txt", "axtree", "content", "pruned_html", "accessibility_tree", "observation")
    )
    return flat_text(inner if inner is not None else value)


def earned(steps: Sequence[Any], *, whole: bool = False) -> float | None:
    """Return what the steps earned together, or the score that a game shows at its last step.

    None where no step has one, or none earned anything: some programs write 0 at each step and judge the whole
    elsewhere. An environment that returns a reward for each step of a whole attempt and shows that it is over means 0.

    Args:
        steps: of one attempt.
        whole: whether they are all of it, in one record.
    """
    last = as_dict((as_list(as_dict(steps[-1]).get("result")) or [None])[-1])
    if isinstance(last.get("success"), bool) and last.get("is_done"):
        return float(last["success"])
    rewards = [amount for step in steps if (amount := number(as_dict(step).get("reward"))) is not None]
    if any(rewards):
        return sum(rewards)
    end = as_dict(steps[-1])
    if whole and len(rewards) == len(steps) and any(end.get(name) is True for name in _DONE):
        return 0.0
    return (number(end.get("score")) or None) if first(end, _DONE) is not None else None

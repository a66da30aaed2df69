"""What benchmarks leave of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from benchmarks.exports.story import (
    MODEL,
    SERIAL,
    SYSTEM,
    TASKS,
    Export,
    Files,
    Lines,
    Says,
    Talk,
    Told,
    at,
    export,
    openai,
    paced,
    quiet,
    solved,
    told,
    unix,
)
from flywheel.records import content_id


@export(1, "ToolBench, answers with their trees")
def toolbench() -> Export:
    """A file a query: the tree of the search, and the messages of the path that ended it."""
    talks = quiet(SERIAL)
    right = told(talks, Says(outcomes=solved(talks)), answered="")
    ended = [replace(t, calls=(*t.calls, f"Finish{_finish(talk, sort=True)}"))
             for t, talk in zip(right, talks, strict=True)]  # fmt: skip
    return Export({f"answer/G1_answer/{n}_DFS_woFilter_w2.json": _toolbench(t) for n, t in enumerate(talks)}, ended)


def _finish(talk: Talk, *, sort: bool = False) -> str:
    return json.dumps({"return_type": "give_answer", "final_answer": talk.answer}, sort_keys=sort)


def _toolbench(talk: Talk) -> dict[str, Any]:
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"\n{talk.asked}\nBegin!\n"},
    ]
    messages[1]["content"] = talk.asked
    prefixes: list[Any] = []
    node: dict[str, Any] = {"is_terminal": False, "pruned": False, "finished": False, "depth": 0, "Elo": 1000.0,
                            "node_type": "Action Input", "description": "", "io_state": {}, "children": []}  # fmt: skip
    root = node
    for act in talk.acts:
        made = [(c.name, c.text, c.result, c.failed) for c in act.calls] or [("Finish", _finish(talk), "", False)]
        for name, args, result, failed in made:
            messages = [*messages, {"role": "assistant", "content": "", "function_call": {"name": name,
                                                                                          "arguments": args}}]  # fmt: skip
            prefixes.append(messages)
            answer = {"error": result if failed else "", "response": "" if failed else result}
            if name != "Finish":
                messages = [*messages, {"role": "function", "name": name, "content": json.dumps(answer)}]
            inner = {"node_type": "Action Input", "description": args, "observation": json.dumps(answer),
                     "observation_code": 0, "pruned": False, "depth": node["depth"] + 2, "children": []}  # fmt: skip
            tried = {"node_type": "Action", "description": name, "pruned": True, "depth": node["depth"] + 1,
                     "children": [{**inner, "pruned": True, "children": []}]}  # fmt: skip
            taken = {"node_type": "Action", "description": name, "pruned": False, "depth": node["depth"] + 1,
                     "children": [inner]}  # fmt: skip
            node["children"] += [tried, taken]
            node = inner
    return {"win": talk.solved, "tree": {"size": 9, "max_length": 8, "tree": root}, "compare_candidates": [],
            "forward_args": {"single_chain_max_step": 12, "tree_beam_size": 2, "answer": 1, "with_filter": False},
            "answer_generation": {"valid_data": True, "query_count": 4, "total_tokens": 900, "query": talk.asked,
                                  "final_answer": _finish(talk), "finish_type": "give_answer", "chain": [],
                                  "function": [{"name": "Finish", "description": "Ends.", "parameters": {}}],
                                  "train_messages": prefixes}}  # fmt: skip


@export(1, "MCPMark, messages next to results")
def mcpmark() -> Export:
    """`results/EXPERIMENT/MODEL__SERVICE/run-1/CATEGORY__TASK/` with `messages.json` and `meta.json`."""
    files: Files = {}
    for talk in TASKS:
        root = f"results/exp/{MODEL}__shop/run-1/orders__{talk.task}"
        files[f"{root}/messages.json"] = openai(talk, system=SYSTEM)
        files[f"{root}/meta.json"] = {
            "task_name": f"orders__{talk.task}", "model_name": MODEL, "litellm_run_model_name": f"acme/{MODEL}",
            "reasoning_effort": "default", "mcp": "shop", "timeout": 300, "time": {"start": at(0), "end": at(5)},
            "agent_execution_time": 40.5, "task_execution_time": 61.2,
            "execution_result": {"success": talk.solved, "error_message": None,
                                 "verification_error": None if talk.solved else "not cancelled",
                                 "verification_output": None},
            "token_usage": {"input_tokens": 400, "output_tokens": 52, "total_tokens": 452}, "turn_count": 3}  # fmt: skip
    files[f"results/exp/{MODEL}__shop/run-1/summary.json"] = {
        "model_name": MODEL, "model_config": {}, "total_tasks": 2, "successful_tasks": 1, "failed_tasks": 1,
        "success_rate": 50.0, "token_usage": {"total_input_tokens": 800}, "turn_usage": {"total_turns": 5}}  # fmt: skip
    right = told(TASKS, Says(task=True, outcomes=solved(TASKS), model=True))
    return Export(files, [replace(t, task=f"orders__{t.task}") for t in right])


@export(1, "Terminal-Bench, trials of a run")
def terminal_bench() -> Export:
    """`runs/RUN/`: the run's results, each trial's own, and what was asked and answered in each episode of an agent."""
    talks = [_typed(talk) for talk in SERIAL]
    trials = [_trial(talk) for talk in talks]
    root = "runs/2026-10-01__09-00-00"
    files: Files = {f"{root}/results.json": {"id": "run-1", "results": trials, "accuracy": 0.5, "n_resolved": 1,
                                             "n_unresolved": 1, "resolved_ids": ["task-b"], "pass_at_k": {}}}  # fmt: skip
    for talk, trial in zip(talks, trials, strict=True):
        here = f"{root}/{talk.task}/{trial['trial_name']}"
        files[f"{here}/results.json"] = trial
        files |= {f"{here}/agent-logs/episode-{n}/debug.json": debug for n, debug in enumerate(_debugs(talk))}
        files |= {f"{here}/agent-logs/episode-{n}/response.txt": act.text for n, act in enumerate(talk.acts)}
    return Export(files, told(talks, Says(tokens=True, task=True, outcomes=solved(), model=True)))


def _typed(talk: Talk) -> Talk:
    """Return a talk in which calls are commands in the words, and results are what the terminal shows."""
    turns: list[Any] = []
    for turn in talk.turns:
        if isinstance(turn, str):
            turns.append(turn)
            continue
        keys = [{"keystrokes": f"{c.name} {c.text}\n", "duration": 0.1} for c in turn.calls]
        words = json.dumps({"analysis": turn.text, "plan": "Go on.", "commands": keys, "task_complete": not keys})
        turns.append(turn._replace(text=words, calls=()))
        turns += [f"New Terminal Output:\n{c.result}" for c in turn.calls]
    return replace(talk, turns=tuple(turns))


def _trial(talk: Talk) -> dict[str, Any]:
    return {"id": f"id-{talk.id}", "trial_name": f"{talk.task}.1-of-1.run-1", "task_id": talk.task,
            "instruction": talk.asked, "is_resolved": talk.solved, "failure_mode": "unset",
            "parser_results": {"test_done": "passed" if talk.solved else "failed"}, "recording_path": "x.cast",
            "total_input_tokens": sum(a.read for a in talk.acts), "total_output_tokens": sum(a.wrote for a in talk.acts),
            "trial_started_at": at(0), "trial_ended_at": at(9), "agent_started_at": at(1)}  # fmt: skip


def _debugs(talk: Talk) -> list[Any]:
    debugs: list[Any] = []
    history: list[Any] = []
    for minute, turn in paced(talk):
        if isinstance(turn, str):
            history = [*history, {"role": "user", "content": turn}]
            continue
        usage = {"prompt_tokens": turn.read, "completion_tokens": turn.wrote, "total_tokens": turn.read + turn.wrote}
        message = {"role": "assistant", "content": turn.text}
        answer = {"id": f"chatcmpl-{talk.id}-{minute}", "object": "chat.completion", "created": unix(minute),
                  "model": MODEL, "usage": usage,
                  "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}  # fmt: skip
        debugs.append({"litellm_trace_id": None, "litellm_call_id": f"call-{talk.id}-{minute}", "model": MODEL,
                       "input": history, "messages": history, "optional_params": {"temperature": 0.7},
                       "start_time": at(minute), "stream": False, "user": None, "call_type": "completion",
                       "original_response": json.dumps(answer), "log_event_type": "post_api_call"})  # fmt: skip
        history = [*history, message]
    return debugs


@export(1, "AppWorld, outputs of an experiment")
def appworld() -> Export:
    """`experiments/outputs/NAME/`: the calls of the model in the folder of each task, and evaluations by task."""
    talks = [_coded(talk) for talk in SERIAL]
    root = "experiments/outputs/react_acme"
    files: Files = {f"{root}/tasks/{talk.task}/logs/lm_calls.jsonl": Lines(_lm_calls(talk)) for talk in talks}
    files[f"{root}/evaluations/dev.json"] = {
        "aggregate": {"task_goal_completion": 50.0, "scenario_goal_completion": 0.0},
        "individual": {talk.task: {"success": talk.solved, "difficulty": 1, "num_tests": 2, "passes": [],
                                   "failures": []} for talk in talks}}  # fmt: skip
    return Export(files, told(talks, Says(tokens=True, task=True, outcomes=solved(), model=True)))


def _coded(talk: Talk) -> Talk:
    """Return a talk in which calls are code in the words, and results are what the user's side prints."""
    turns: list[Any] = []
    for turn in talk.turns:
        if isinstance(turn, str):
            turns.append(turn)
            continue
        code = (
            "\n".join(f"print(apis.shop.{c.name}(**{c.args}))" for c in turn.calls) or "apis.supervisor.complete_task()"
        )
        turns.append(turn._replace(text=f"{turn.text}\n```python\n{code}\n```", calls=()))
        turns += [f"Output:\n```\n{c.result}\n```" for c in turn.calls]
    return replace(talk, turns=tuple(turns))


def _run(talk: Talk) -> Talk:
    """Return what happened in a talk whose calls are code: each is one of Python, and the last code is an answer."""
    acts = [
        act._replace(calls=tuple(
            c._replace(name="python", args={"code": f"print(apis.shop.{c.name}(**{c.args}))"}) for c in act.calls
        ))
        for act in talk.acts
    ]  # fmt: skip
    return replace(talk, turns=(talk.asked, *acts[:-1], _coded(talk).acts[-1]))


def _lm_calls(talk: Talk) -> list[Any]:
    return [{"id": debug["litellm_call_id"], "input": {"model": MODEL, "messages": debug["messages"], "seed": 100},
             "output": json.loads(debug["original_response"])} for debug in _debugs(talk)]  # fmt: skip


ACTIONS = {"task-a": ["click('12')", "fill('31', 'order 7')", "send_msg_to_user('It has shipped.')"],
           "task-b": ["goto('/refunds')", "send_msg_to_user('You get 12.50 back.')"]}  # fmt: skip
GOALS = {"task-a": "Cancel order 7.", "task-b": "Refund order 9."}


def _acted(*, first: bool = True, outcomes: bool = True, model: str = MODEL) -> list[Told]:
    """Return what is in trajectories of actions: a step each, with words and a call; results are what is seen next."""
    return [
        Told(
            asked=GOALS[task] if first else "",
            answered=f"I take action {len(actions)}.",
            steps=len(actions),
            calls=tuple(f"action{json.dumps({'action': action})}" for action in actions),
            results=len(actions) - 1,
            task=task,
            outcomes=(float(task == "task-b"),) if outcomes else (),
            model=model,
        )
        for task, actions in ACTIONS.items()
    ]


@export(1, "BrowserGym, cleaned trajectories")
def browsergym() -> Export:
    """AgentRewardBench's form of AgentLab's runs: a goal, steps with action and reasoning, a cumulated reward."""
    files: Files = {}
    for task, actions in ACTIONS.items():
        steps = [{"num": n, "action": action, "reasoning": f"I take action {n + 1}.", "url": f"http://shop/{n}",
                  "axtree": f"RootWebArea page {n}", "screenshot_path": f"s/{n}.png", "focused_element": "12",
                  "last_action_error": "", "open_pages_urls": [f"http://shop/{n}"]}
                 for n, action in enumerate(actions)]  # fmt: skip
        files[f"cleaned/webarena/GenericAgent-{MODEL}/{task}.json"] = {
            "benchmark": "webarena", "agent": f"GenericAgent-{MODEL}", "model": MODEL, "task_id": task, "seed": 0,
            "goal": GOALS[task], "valid": True, "steps": steps,
            "summary_info": {"n_steps": len(actions), "cum_reward": float(task == "task-b"), "cum_raw_reward": 0,
                             "err_msg": None, "stack_trace": None, "terminated": True, "truncated": False}}  # fmt: skip
    return Export(files, _acted())


@export(1, "OSWorld, traj.jsonl with result.txt")
def osworld() -> Export:
    """`results/ACTION_SPACE/OBSERVATION/MODEL/DOMAIN/TASK/`: a line an action; the score is in a text file."""
    files: Files = {}
    for task, actions in ACTIONS.items():
        root = f"results/pyautogui/screenshot/{MODEL}/shop/{task}"
        files[f"{root}/traj.jsonl"] = Lines(
            {"step_num": n, "action_timestamp": f"20261001@09{n:02d}00", "action": action,
             "response": f"I take action {n}.", "reward": 0, "done": n == len(actions), "info": {},
             "screenshot_file": f"step_{n}.png"} for n, action in enumerate(actions, 1))  # fmt: skip
        files[f"{root}/result.txt"] = f"{float(task == 'task-b')}\n"
    return Export(files, [replace(t, task="", results=0) for t in _acted(first=False, model="")])


@export(1, "WebArena, trajectories as JSON")
def webarena() -> Export:
    """A list of tasks with intent, trajectory of observation and action, and score."""
    tasks = [{"task_id": task, "intent": GOALS[task], "sites": ["shop"], "model": MODEL,
              "trajectory": [{"observation": f"RootWebArea page {n}", "url": f"http://shop/{n}",
                              "raw_prediction": f"I take action {n + 1}.", "action": action}
                             for n, action in enumerate(actions)],
              "score": float(task == "task-b")} for task, actions in ACTIONS.items()]  # fmt: skip
    return Export({"results.json": tasks}, _acted())


@export(2, "AgentDojo, runs")
def agentdojo() -> Export:
    """`runs/MODEL/SUITE/USER_TASK/none/none.json`: calls are functions with args; utility shows whether it was solved."""
    files: Files = {}
    for talk in TASKS:
        messages: list[Any] = [{"role": "system", "content": [{"type": "text", "content": SYSTEM}]}]
        for turn in talk.turns:
            if isinstance(turn, str):
                messages.append({"role": "user", "content": [{"type": "text", "content": turn}]})
                continue
            made = [{"function": c.name, "args": c.args, "id": c.id, "placeholder_args": None} for c in turn.calls]
            words = [{"type": "text", "content": turn.text}] if turn.text else None
            messages.append({"role": "assistant", "content": words, "tool_calls": made or None})
            messages += [{"role": "tool", "content": [{"type": "text", "content": "" if c.failed else c.result}],
                          "tool_call_id": c.id, "tool_call": call, "error": c.result if c.failed else None}
                         for c, call in zip(turn.calls, made, strict=True)]  # fmt: skip
        files[f"runs/{MODEL}/shop/{talk.task}/none/none.json"] = {
            "suite_name": "shop", "pipeline_name": MODEL, "user_task_id": talk.task, "injection_task_id": None,
            "attack_type": None, "injections": {}, "messages": messages, "error": None, "utility": talk.solved,
            "security": True, "duration": 12.5, "evaluation_timestamp": "2026-10-01 09:00:00",
            "agentdojo_package_version": "0.1.35"}  # fmt: skip
    return Export(files, told(TASKS, Says(task=True, outcomes=solved(TASKS))))


@export(2, "BFCL, results of several turns")
def bfcl() -> Export:
    """`result/MODEL/BFCL_v3_multi_turn_base_result.json`: lines with logs of inference by turn and step."""
    lines: list[Any] = []
    for talk in TASKS:
        steps: dict[str, Any] = {f"step_{n}": [
            {"role": "assistant", "content": [{c.name: c.text} for c in act.calls] or act.text},
            *({"role": "tool", "content": c.result} for c in act.calls)] for n, act in enumerate(talk.acts)}  # fmt: skip
        lines.append({"id": talk.task, "result": [[[f"{c.name}()" for c in act.calls] for act in talk.acts]],
                      "inference_log": [[{"role": "state_info", "class_name": "Shop", "content": {}}],
                                        steps | {"begin_of_turn_query": [{"role": "user", "content": talk.asked}]}],
                      "input_token_count": [[act.read for act in talk.acts]],
                      "output_token_count": [[act.wrote for act in talk.acts]], "latency": [[0.5]]})  # fmt: skip
    right = [replace(t, task=f"bfcl/{t.task}", model=MODEL) for t in told(TASKS, Says(tokens=True, task=True))]
    return Export({f"result/{MODEL}/BFCL_v3_multi_turn_base_result.json": Lines(lines)}, right)


@export(2, "WebVoyager, messages of tasks")
def webvoyager() -> Export:
    """`results/TIME/taskID/interact_messages.json`: messages with pictures; actions are words."""
    files: Files = {}
    for task, actions in ACTIONS.items():
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        messages: list[Any] = [{"role": "system", "content": "Browse."}]
        for n, action in enumerate(actions):
            words = f"Now given a task: {GOALS[task]}" if n == 0 else f"Observation: page {n}"
            messages.append({"role": "user", "content": [{"type": "text", "text": words}, picture]})
            messages.append({"role": "assistant", "content": f"Thought: I take action {n + 1}.\nAction: {action}"})
        files[f"results/20261001/task{task}/interact_messages.json"] = messages
    right = [
        Told(
            asked=f"Now given a task: {GOALS[task]}",
            answered=f"Thought: I take action {len(actions)}.",
            steps=len(actions),
            calls=tuple(f"action{json.dumps({'action': action})}" for action in actions),
            results=len(actions) - 1,
        )
        for task, actions in ACTIONS.items()
    ]
    return Export(files, right)


@export(2, "promptfoo, results of an evaluation")
def promptfoo() -> Export:
    """`promptfoo eval -o results.json`: a row a prompt and provider, with its answer and verdict."""
    rows = [{"id": f"row-{n}", "promptIdx": 0, "testIdx": n, "prompt": {"raw": talk.asked, "label": "plain"},
             "vars": {"q": talk.asked}, "provider": {"id": f"acme:{MODEL}", "label": ""}, "success": talk.solved,
             "score": float(talk.solved), "latencyMs": 900, "cost": 0.01, "namedScores": {}, "failureReason": 0,
             "gradingResult": {"pass": talk.solved, "score": float(talk.solved), "reason": "checked"},
             "response": {"output": talk.answer, "cached": False,
                          "tokenUsage": {"total": 40, "prompt": 30, "completion": 10}},
             "testCase": {"vars": {"q": talk.asked}, "assert": []}} for n, talk in enumerate(TASKS)]  # fmt: skip
    document = {"evalId": "eval-1", "results": {"version": 3, "timestamp": at(0), "prompts": [], "results": rows,
                                               "stats": {"successes": 1, "failures": 1}}, "config": {}}  # fmt: skip
    right = [
        Told(
            asked=t.asked,
            answered=t.answer,
            steps=1,
            outcomes=(float(t.solved),),
            tokens=(30, 10),
            model=f"acme:{MODEL}",
            task=f"promptfoo/{content_id({'q': t.asked}, None, [])[:16]}",
        )
        for t in TASKS
    ]
    return Export({"results.json": document}, right)


@export(2, "Ragas, samples of several turns")
def ragas() -> Export:
    """`EvaluationResult.to_jsonl`: the chat is the user's input; a metric is a column."""
    rows = []
    for talk in TASKS:
        chat: list[Any] = []
        for turn in talk.turns:
            if isinstance(turn, str):
                chat.append({"content": turn, "metadata": None, "type": "human"})
                continue
            made = [{"name": c.name, "args": c.args} for c in turn.calls]
            chat.append({"content": turn.text or "", "metadata": None, "type": "ai", "tool_calls": made or None})
            chat += [{"content": c.result, "metadata": None, "type": "tool"} for c in turn.calls]
        rows.append({"user_input": chat, "reference": "Right.", "agent_goal_accuracy": float(talk.solved)})
    return Export({"results.jsonl": Lines(rows)}, told(TASKS, Says(outcomes=solved(TASKS))))


@export(2, "AgentGym, trajectories")
def agentgym() -> Export:
    """ShareGPT's form with an item, a reward and a success; actions are code that is run."""
    talks = [_coded(talk) for talk in SERIAL]
    rows = [{"item_id": talk.task, "agent_id": 0, "reward": float(talk.solved), "success": int(talk.solved),
             "experience_time": 3.5, "conversations": [
                 {"from": "human", "loss": None, "value": turn} if isinstance(turn, str) else
                 {"from": "gpt", "loss": True, "value": turn.text} for turn in talk.turns]} for talk in talks]  # fmt: skip
    return Export({"inference.jsonl": Lines(rows)}, told([*map(_run, SERIAL)], Says(task=True, outcomes=solved())))


@export(2, "browser-use, a history")
def browser_use() -> Export:
    """`history.save_to_file`: what the model decided, what came of it and what the page was, step by step."""
    files: Files = {}
    right: list[Told] = []
    for task, actions in ACTIONS.items():
        steps: list[Any] = []
        made: list[dict[str, Any]] = []
        for n, _ in enumerate(actions):
            last = n == len(actions) - 1
            action = {"done": {"text": "Done.", "success": task == "task-b"}} if last else {"click": {"index": n}}
            made.append(action)
            steps.append({
                "model_output": {"evaluation_previous_goal": "Success", "memory": "m", "next_goal": f"Goal {n}.",
                                 "action": [action]},
                "result": [{"is_done": last, "extracted_content": f"Clicked {n}", "error": None,
                            **({"success": task == "task-b"} if last else {})}],
                "state": {"url": f"http://shop/{n}", "title": "Shop", "tabs": [], "interacted_element": [None]},
                "metadata": {"step_start_time": 1.0, "step_end_time": 2.0, "step_number": n + 1}})  # fmt: skip
        files[f"{task}.json"] = {"history": steps}
        calls = tuple(f"{name}{json.dumps(args, sort_keys=True)}" for action in made for name, args in action.items())
        right.append(Told(answered=f"Goal {len(actions) - 1}.", steps=len(actions), calls=calls, results=len(actions),
                          outcomes=(float(task == "task-b"),)))  # fmt: skip
    return Export(files, right)

"""AgentFly: its own message and trajectory types take the tasks; the modules alone, for its package needs vLLM."""

import importlib.util
import json
import os
import pathlib

from _common import FOLDER, run, same, tokens

SOURCE = pathlib.Path(os.environ["AGENTFLY_SOURCE"]) / "src" / "agentfly" / "agents"


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def read():
    messages, types = module(SOURCE / "utils" / "messages.py"), module(SOURCE / "types.py")
    tasks = json.loads((FOLDER / "train.json").read_text(encoding="utf-8"))
    same({task["group_id"] for task in tasks}, {row["row"] for row in tokens("groups")}, "groups")
    items = list(messages.MessagesList.from_data(tasks))
    for item, task in zip(items, tasks, strict=True):
        turns = item.to_dict()["messages"] if hasattr(item, "to_dict") else item["messages"]
        texts = ["".join(part["text"] for part in turn["content"]) for turn in turns]
        same(texts, [turn["content"] for turn in task["messages"]], "messages")
    result = types.RunResult(
        trajectories=[
            types.Trajectory(
                segments=[task["messages"]],
                reward=task["reference_reward"],
                group_id=task["group_id"],
                metadata={"task_id": task["task_id"], "reference": task["reference"]},
            )
            for task in tasks
        ]
    )
    same(result.rewards, [task["reference_reward"] for task in tasks], "rewards")
    try:
        messages.MessagesList.from_data([{"messages": [{"content": "no role"}]}])
    except messages.MessagesValidationError:
        return f"MessagesList keeps the messages of {len(tasks)} tasks and refuses one without a role; RunResult takes them"
    raise AssertionError("a message without a role was taken")


run(read=read)

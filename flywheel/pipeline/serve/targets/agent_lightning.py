"""agent-lightning: tasks with their recorded attempts, which a local runner plays back through its own events."""

from __future__ import annotations

from collections.abc import Iterator

from flywheel.pipeline.serve.targets.target import DataFile, Lost, Mined, Target, chat_exchange, json_lines


def _data(mined: Mined) -> Iterator[DataFile]:
    tasks, attempts = [], []
    for row, members in mined.attempts():
        played = [(n, parts) for n, parts in enumerate(members) if parts]
        tasks.append({"instance_id": row["id"], "task_id": row["task_id"], "n": len(played), "file": "attempts.jsonl"})
        attempts += [
            {
                "instance_id": row["id"],
                "member": place,
                "episode": row["episodes"][n],
                "policy": row["policies"][n],
                "reward": row["rewards"][n],
                "calls": [
                    {"request": request, "response": response}
                    for request, response in chat_exchange(mined, row, n, parts)
                ],
            }
            for place, (n, parts) in enumerate(played)
        ]
    yield json_lines("tasks.jsonl", "groups", tasks)
    yield json_lines("attempts.jsonl", "groups", attempts)


AGENT_LIGHTNING = Target(
    "agent-lightning",
    "agent-lightning 1.0.2",
    ("groups",),
    _data,
    (
        ("groups", "agl-server host=127.0.0.1 default_proxy.model_name=$model_quoted &"),
        ("groups", "agl-controller runner_type=local &"),
        ("groups", "python train.py"),
    ),
    lost=(
        Lost("step_advantages", ("groups",), "only the last reward event of a rollout counts"),
        Lost("advantage", ("groups",), "it computes its own from the rewards"),
    ),
    notes=(
        (
            "The controller runs `replay:Replay`, and `hooks.py` numbers the attempts of a task. The server has no key "
            "and is for this machine alone: for others give it `key=`, the controller `agl_server.key=` and `train.py` "
            "`agentlightning.agl_key=`."
        ),
        (
            "Attempts of its own: `python environment.py`; the server's proxy keeps their tokens. One that leaves the "
            "log has no reward, for which `reward_fillna_value` counts in its group's mean."
        ),
        "A group's size is one number for all tasks: smaller groups repeat their attempts.",
        "It trains with veRL 0.8 and vLLM, and needs a GPU; it has no DPO and no SFT.",
    ),
    environment=True,
)

"""AgentFly: the tasks with a reference answer; what was logged cannot go in, because it always samples itself."""

from __future__ import annotations

import json
from collections.abc import Iterator

from flywheel.pipeline.serve.targets.target import DataFile, Lost, Mined, Row, Target, openai_messages


def _data(mined: Mined) -> Iterator[DataFile]:
    rows = [_task(row) for row, _ in mined.of("groups")]
    text = json.dumps(rows, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    yield DataFile("train.json", "groups", len(rows), text.encode("utf-8", "surrogatepass"))


def _task(row: Row) -> Row:
    best = max(range(len(row["rewards"])), key=lambda n: row["rewards"][n])
    answers = [m.get("content") or "" for m in row["completions"][best] if m["role"] == "assistant"]
    return {
        "messages": openai_messages(row["prompt"]),
        "task_id": row["task_id"],
        "group_id": row["id"],
        "reference": answers[-1] if answers else "",
        "reference_reward": row["rewards"][best],
    }


AGENTFLY = Target(
    "agentfly",
    "AgentFly at 1256586",
    ("groups",),
    _data,
    (
        (
            "groups",
            (
                "python -m agentfly.cli train data.train_files=train.json data.val_files=train.json "
                "algorithm.adv_estimator=grpo agent.use_agent=True agent.init_config.agent_type=hf "
                "agent.init_config.model_name_or_path=$model_quoted actor_rollout_ref.model.path=$model_quoted "
                "agent.init_config.reward_name=logged_reference"
            ),
        ),
    ),
    lost=(
        Lost("completions", ("groups",), "it samples its own attempts"),
        Lost("log_probs", ("groups",), "those of its own attempts count"),
        Lost("step_advantages", ("groups",), "it computes its own from the rewards"),
        Lost("tools", ("groups",), "tools are Python functions there; give yours in agent.init_config.tools"),
    ),
    trains="GRPO on attempts of its own",
    notes=(
        (
            "`reward.py` compares an answer with the best logged one, word by word; put your own check there, and "
            "import it in `agentfly/rewards/__init__.py`, where it looks for rewards. No run was made."
        ),
        "PyPI's `agentfly` is another project: install it from github.com/Agent-One-Lab/AgentFly.",
    ),
)

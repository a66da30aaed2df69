"""veRL: prompts with their logged attempts for a replay in its agent loop, and demonstrations as tokens with masks."""

from __future__ import annotations

from collections.abc import Iterator

from flywheel.pipeline.serve.targets.target import (
    LONGEST_PART,
    ONE_TEMPERATURE,
    OWN_ADVANTAGE,
    UNKNOWN_ACTOR,
    DataFile,
    Lost,
    Mined,
    Target,
    longest_parts,
    parquet,
)
from flywheel.records import canonical_json


def _data(mined: Mined) -> Iterator[DataFile]:
    if "groups" in mined.rows:
        rows = []
        for n, (row, members) in enumerate(mined.attempts()):
            attempts = longest_parts(members)
            rows.append(
                {
                    "data_source": "flywheel",
                    "prompt": mined.text_messages(row),
                    "ability": "agent",
                    "agent_name": "flywheel_replay",
                    "reward_model": {"style": "rule", "ground_truth": ""},
                    "__rollout_n__": len(attempts),
                    "extra_info": {
                        "index": n,
                        "group_id": row["id"],
                        "task_id": row["task_id"],
                        "members": canonical_json(attempts),
                    },
                }
            )
        yield parquet("prompts.parquet", "groups", rows)
    if "sft" in mined.tokens:
        rows = [
            {"input_ids": row.ids, "loss_mask": [0] * len(row.prompt_ids) + row.mask, "id": row.row}
            for row in mined.tokens["sft"]
        ]
        yield parquet("sft.parquet", "sft", rows)


VERL = Target(
    "verl",
    "veRL 0.9.1",
    ("groups", "sft"),
    _data,
    (
        ("groups", "python -m verl.trainer.main_ppo --config-path $$PWD --config-name grpo"),
        (
            "sft",
            (
                "torchrun --standalone --nproc_per_node 1 -m verl.trainer.sft_trainer "
                "--config-path $$PWD --config-name sft"
            ),
        ),
    ),
    lost=(
        OWN_ADVANTAGE,
        ONE_TEMPERATURE,
        UNKNOWN_ACTOR,
        Lost("step_advantages", ("groups",), "an agent loop returns one reward an attempt"),
        Lost("weight", ("sft",), "its SFT weighs all rows alike"),
        LONGEST_PART,
    ),
    notes=(
        (
            "Attempts of its own: `python environment.py` writes `scenarios.parquet`, for which the agent loop is "
            "`flywheel_environment`. One that leaves the log is masked, but counts as 0 in its group's mean."
        ),
        "It has no offline DPO, so pairs and single actions are not written.",
        (
            "Its own columns for messages and tools go through Arrow, which fills absent arguments with null and "
            "trains them; these files hold tokens and JSON text instead."
        ),
        "It starts vLLM or SGLang even for a replay, and needs a GPU.",
    ),
    environment=True,
)

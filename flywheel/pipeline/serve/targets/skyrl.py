"""SkyRL: tokens with masks for SFT, and prompts whose logged attempts a generator plays back, step credit by token."""

from __future__ import annotations

from collections.abc import Iterator

from flywheel.pipeline.serve.targets.target import (
    LONGEST_PART,
    ONE_TEMPERATURE,
    OWN_ADVANTAGE,
    SMALLER_GROUPS,
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
        rows = [
            {
                "prompt": mined.text_messages(row),
                "env_class": "flywheel",
                "data_source": "flywheel",
                "group_id": row["id"],
                "task_id": row["task_id"],
                "members": canonical_json(longest_parts(members)),
            }
            for row, members in mined.attempts()
        ]
        yield parquet("prompts.parquet", "groups", rows)
    if "sft" in mined.tokens:
        rows = [{"input_ids": r.ids, "loss_mask": [0] * len(r.prompt_ids) + r.mask} for r in mined.tokens["sft"]]
        yield parquet("sft.parquet", "sft", rows)


SKYRL = Target(
    "skyrl",
    "SkyRL 0.4.0",
    ("groups", "sft"),
    _data,
    (
        ("groups", "python replay.py"),
        ("sft", "python -m skyrl.train.main_sft $$(cat sft.args)"),
    ),
    lost=(
        OWN_ADVANTAGE,
        ONE_TEMPERATURE,
        UNKNOWN_ACTOR,
        Lost("weight", ("sft",), "its SFT weighs all rows alike"),
        LONGEST_PART,
    ),
    notes=(
        "It has no DPO and no KTO, so pairs and single actions are not written.",
        (
            "Rewards go in by token: with `STEPS = True` in `replay.py` each step's credit is at its last token; "
            "its GRPO adds them up, estimators by token use them one by one."
        ),
        (
            "Attempts of its own: `python environment.py`. One that leaves the log is masked, but counts as 0 in its "
            "group's mean."
        ),
        SMALLER_GROUPS,
        "It needs a GPU.",
    ),
    environment=True,
)

"""OpenRLHF: rendered text, because its message columns lose tools and turn into characters; groups by an executor."""

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
    json_lines,
    longest_parts,
)


def _data(mined: Mined) -> Iterator[DataFile]:
    if "preference" in mined.rows:
        rows = [
            {"prompt": mined.prompt_text(row), **{s: mined.action_text(row, s) for s in ("chosen", "rejected")}}
            for row, _ in mined.of("preference")
        ]
        yield json_lines("dpo.jsonl", "preference", rows)
    if "sft" in mined.rows:
        rows = [
            {"input": mined.prompt_text(row), "output": mined.action_text(row, "completion")}
            for row, _ in mined.of("sft")
        ]
        yield json_lines("sft.jsonl", "sft", rows)
    if "groups" in mined.rows:
        groups = [(row, longest_parts(members)) for row, members in mined.attempts()]
        rows = [{"input": mined.prompt_text(row), "label": row["id"]} for row, _ in groups]
        yield json_lines("prompts.jsonl", "groups", rows)
        attempts = [{"label": row["id"], "members": members} for row, members in groups]
        yield json_lines("members.jsonl", "groups", attempts)


OPENRLHF = Target(
    "openrlhf",
    "OpenRLHF 0.11.2",
    ("preference", "sft", "groups"),
    _data,
    (("preference", "sh dpo.sh"), ("sft", "sh sft.sh"), ("groups", "sh grpo.sh")),
    lost=(
        OWN_ADVANTAGE,
        ONE_TEMPERATURE,
        UNKNOWN_ACTOR,
        Lost("margin", ("preference",), "its margin is for reward models alone"),
        Lost("weight", ("preference", "sft"), "its trainers weigh all rows alike"),
        Lost("step_advantages", ("groups",), "an attempt has one reward"),
        LONGEST_PART,
    ),
    notes=(
        (
            "Leave `--data.apply_chat_template` out: it drops tools, and with datasets 5 a list of messages becomes a "
            "list of characters."
        ),
        "`--data.max_len` is 512 if it is left out, and cuts answers; the scripts set the longest row.",
        SMALLER_GROUPS,
        (
            "Attempts of its own: `python environment.py` writes `scenario_prompts.jsonl`; give it and "
            "`--train.agent_func_path environment.py` instead. One that leaves the log is masked, but counts as 0 in "
            "its group's mean."
        ),
        "It has no KTO, so single actions are not written. It needs a GPU.",
    ),
    environment=True,
)

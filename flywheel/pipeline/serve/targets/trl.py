"""TRL: rendered text, so that neither its templates nor Arrow change what was checked here."""

from __future__ import annotations

from collections.abc import Iterator

from flywheel.pipeline.serve.targets.target import (
    LONGEST_PART,
    ONE_TEMPERATURE,
    OWN_ADVANTAGE,
    DataFile,
    Lost,
    Mined,
    Row,
    Target,
    json_lines,
    longest_parts,
)


def _data(mined: Mined) -> Iterator[DataFile]:
    sides = {"preference": ("chosen", "rejected"), "unpaired": ("completion",)}
    for form, names in sides.items():
        if form in mined.rows:
            rows = [_texts(mined, row, names) for row, _ in mined.of(form)]
            yield json_lines(f"{form}.jsonl", form, rows)
    if "sft" in mined.tokens:
        yield json_lines("sft.jsonl", "sft", [
            {"input_ids": row.ids, "labels": [-100] * len(row.prompt_ids) + row.completion_ids, "id": row.row}
            for row in mined.tokens["sft"]
        ])  # fmt: skip
    if "groups" in mined.rows:
        rows = [{"id": row["id"], "members": longest_parts(members)} for row, members in mined.attempts()]
        yield json_lines("groups.jsonl", "groups", rows)


def _texts(mined: Mined, row: Row, sides: tuple[str, ...]) -> Row:
    label = {"label": row["label"]} if sides == ("completion",) else {}
    texts = {side: mined.action_text(row, side) for side in sides}
    return {"prompt": mined.completed_prompt(row), **texts, **label, "id": row["id"]}


TRL = Target(
    "trl",
    "TRL 1.16.0",
    ("preference", "unpaired", "sft", "groups"),
    _data,
    (
        ("preference", "trl dpo --config dpo.yaml"),
        ("unpaired", "trl kto --config kto.yaml"),
        ("sft", "trl sft --config sft.yaml"),
        ("groups", "python grpo.py $model_quoted"),
    ),
    lost=(
        OWN_ADVANTAGE,
        ONE_TEMPERATURE,
        Lost("margin", ("preference",), "DPOTrainer has no margin"),
        Lost("weight", ("preference", "unpaired", "sft"), "its trainers weigh all rows alike"),
        Lost("step_advantages", ("groups",), "GRPOTrainer gives every token of an attempt its attempt's advantage"),
        Lost("log_probs", ("groups",), "GRPOTrainer reads a rollout's only with vLLM; logs count as on-policy"),
        LONGEST_PART,
    ),
    notes=(
        "`python environment.py MODEL` trains on the policy's own attempts: recorded results answer its calls.",
        "Texts are rendered with their tools; train on the same model, whose tokenizer they are for.",
        "TRL sends a telemetry ping at each start; the commands above need `HF_HUB_DISABLE_TELEMETRY=1` to stop it.",
    ),
    environment=True,
)

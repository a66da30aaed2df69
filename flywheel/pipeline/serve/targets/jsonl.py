"""Any other trainer: the token rows themselves."""

from __future__ import annotations

from collections.abc import Iterator

from flywheel.pipeline.serve.targets.target import DataFile, Mined, Target, json_lines
from flywheel.stages.datasets.export import FORMS


def _data(mined: Mined) -> Iterator[DataFile]:
    for form, rows in mined.tokens.items():
        yield json_lines(f"tokens-{form}.jsonl", form, [row.model_dump(mode="json") for row in rows])


JSONL = Target(
    "jsonl",
    "any trainer that takes token ids",
    tuple(FORMS),
    _data,
    tuple((form, f"head -c 400 tokens-{form}.jsonl") for form in FORMS),
    notes=("A row is `prompt_ids` followed by `completion_ids`; only `windows` of the completion are trained.",),
)

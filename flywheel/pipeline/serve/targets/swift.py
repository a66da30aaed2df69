"""ms-swift: rendered text in its generation template, which adds nothing, so that masks are those checked here."""

from __future__ import annotations

from collections.abc import Iterator

from flywheel.pipeline.serve.targets.target import DataFile, Lost, Mined, Row, Target, json_lines


def _data(mined: Mined) -> Iterator[DataFile]:
    if "preference" in mined.rows:
        rows = [
            {**_messages(mined, row, "chosen"), "rejected_messages": _messages(mined, row, "rejected")["messages"]}
            for row, _ in mined.of("preference")
        ]
        yield json_lines("dpo.jsonl", "preference", rows)
    if "unpaired" in mined.rows:
        rows = [{**_messages(mined, row, "completion"), "label": row["label"]} for row, _ in mined.of("unpaired")]
        yield json_lines("kto.jsonl", "unpaired", rows)
    if "sft" in mined.rows:
        yield json_lines("sft.jsonl", "sft", [_messages(mined, row, "completion") for row, _ in mined.of("sft")])


def _messages(mined: Mined, row: Row, side: str) -> Row:
    """Return the rendered prompt and action as two messages; the template ends the action with its own token."""
    action = mined.action_text(row, side).removesuffix(str(mined.chat.tokenizer.eos_token))
    texts = ({"role": "user", "content": mined.completed_prompt(row)}, {"role": "assistant", "content": action})
    return {"messages": list(texts), "id": row["id"]}


SWIFT = Target(
    "swift",
    "ms-swift 4.6.0",
    ("preference", "unpaired", "sft"),
    _data,
    (("preference", "swift rlhf dpo.yaml"), ("unpaired", "swift rlhf kto.yaml"), ("sft", "swift sft sft.yaml")),
    lost=(
        Lost("margin", ("preference",), "its margin is for reward models alone"),
        Lost("weight", ("preference", "unpaired", "sft"), "its trainers weigh all rows alike"),
    ),
    notes=(
        (
            "Its own templates render other text than the model's, and its KTO fails on a row that ends in a call; "
            "these rows are rendered text, for `--use_chat_template false`."
        ),
        "Where it does not know the base, add `--model_type`.",
        "Groups need its multi-turn scheduler on vLLM, so they are not written.",
        (
            "A round that continues an adapter takes `--adapters ADAPTER --ref_adapters ADAPTER`, else the base is the "
            "reference."
        ),
    ),
)

"""ms-swift: rendered text in its generation template, which adds nothing, so that masks are those checked here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flywheel.pipeline.serve.targets.target import (
    LONGEST_PART,
    ONE_TEMPERATURE,
    OWN_ADVANTAGE,
    SMALLER_GROUPS,
    DataFile,
    Lost,
    Mined,
    Row,
    Target,
    json_lines,
    rollout,
)
from flywheel.records import canonical_json
from flywheel.records.token_rows import TokenRow


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
    if "groups" in mined.rows:
        rows = [
            {
                "messages": [{"role": "user", "content": mined.completed_prompt(row)}],
                "group_id": row["id"],
                "members": canonical_json(list(_played(mined, members))),
            }
            for row, members in mined.attempts()
        ]
        yield json_lines("grpo.jsonl", "groups", rows)


def _played(mined: Mined, members: Sequence[Sequence[TokenRow]]) -> Iterator[Row]:
    """Yield each member as one rollout with its prompt as text: the longest part whose text has the same tokens."""
    for parts in filter(None, members):
        texts = {part.part: str(mined.chat.tokenizer.decode(part.prompt_ids)) for part in parts}
        same = [part for part in parts if mined.chat.ids(texts[part.part]) == part.prompt_ids] or parts[:1]
        longest = max(same, key=lambda part: len(part.ids))
        yield {**rollout(longest), "prompt": mined.completed(texts[longest.part])}


def _messages(mined: Mined, row: Row, side: str) -> Row:
    """Return the rendered prompt and action as two messages; the template ends the action with its own token."""
    action = mined.action_text(row, side).removesuffix(str(mined.chat.tokenizer.eos_token))
    texts = ({"role": "user", "content": mined.completed_prompt(row)}, {"role": "assistant", "content": action})
    return {"messages": list(texts), "id": row["id"]}


SWIFT = Target(
    "swift",
    "ms-swift 4.6.0",
    ("preference", "unpaired", "sft", "groups"),
    _data,
    (("preference", "swift rlhf dpo.yaml"), ("unpaired", "swift rlhf kto.yaml"), ("sft", "swift sft sft.yaml")),
    lost=(
        Lost("margin", ("preference",), "its margin is for reward models alone"),
        Lost("weight", ("preference", "unpaired", "sft"), "its trainers weigh all rows alike"),
        OWN_ADVANTAGE,
        ONE_TEMPERATURE,
        Lost("step_advantages", ("groups",), "an attempt has one reward"),
        LONGEST_PART,
    ),
    notes=(
        (
            "Its own templates render other text than the model's, and its KTO fails on a row that ends in a call; "
            "these rows are rendered text, for `--use_chat_template false`."
        ),
        "Where it does not know the base, add `--model_type` and `--template dummy`: the rows are rendered already.",
        "Before it trains, it asks modelscope's hub; `USE_HF=1` stops that.",
        (
            "It divides by `gradient_accumulation_steps` also where fewer batches are left: the loss of a last step "
            "can be too small."
        ),
        "It runs code that the base model's folder brings, and has no switch against it: look whether there is any.",
        (
            "Groups have no launch file: `replay.py` is a scheduler for `swift rollout` and its GRPO, which need vLLM "
            "and a GPU; its first lines have the two commands."
        ),
        SMALLER_GROUPS,
        (
            "A round that continues an adapter takes `--adapters ADAPTER --ref_adapters ADAPTER`, else the base is the "
            "reference."
        ),
    ),
)

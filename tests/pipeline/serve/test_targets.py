"""flywheel export --to: every system's files against known rows, token by token, and what is lost."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flywheel.errors import UsageError
from flywheel.pipeline.serve.targets.export import write_files
from flywheel.pipeline.serve.targets.table import TARGETS
from flywheel.project import Project
from tests.mined import mined

if TYPE_CHECKING:
    from flywheel.pipeline.serve.targets.target import DataFile, Mined
    from syrupy.assertion import SnapshotAssertion

_JSON = {"members", "group_json", "trajectory_json"}  # columns of JSON text


@pytest.fixture(scope="module")
def contents(tiny_model: Path) -> Mined:
    return mined(tiny_model)


def read(file: DataFile) -> Any:
    """Return the rows of a file, whatever its format."""
    if file.path.endswith(".parquet"):
        return pq.read_table(io.BytesIO(file.content)).to_pylist()
    if file.path.endswith(".arrow"):
        return pa.ipc.open_stream(file.content).read_all().to_pylist()
    if file.path.endswith(".npz"):
        return {name: array.tolist() for name, array in np.load(io.BytesIO(file.content)).items()}
    text = file.content.decode()
    return [json.loads(line) for line in text.splitlines()] if file.path.endswith(".jsonl") else json.loads(text)


def data_of(name: str, contents: Mined) -> dict[str, Any]:
    if name == "rllib":
        return {f.path: json.loads(f.content.splitlines()[0]) for f in TARGETS[name].data(contents)}
    return {file.path: read(file) for file in TARGETS[name].data(contents)}


@pytest.mark.parametrize("name", list(TARGETS))
def test_the_files_of_a_system_are_those_recorded(name: str, contents: Mined, snapshot: SnapshotAssertion) -> None:
    shown = {path: _short(rows) for path, rows in data_of(name, contents).items()}
    assert shown == snapshot


def _short(value: Any) -> Any:
    """Return a value of which a golden file can be read: of long lists the first and how many, of texts the ends."""
    if isinstance(value, dict):
        return {key: _short(json.loads(v) if key in _JSON and isinstance(v, str) else v) for key, v in value.items()}
    if isinstance(value, str) and len(value) > 80:
        return f"{value[:40]} ... {value[-40:]}"
    if isinstance(value, list) and len(value) > 4 and all(isinstance(x, int | float) for x in value):
        return f"{len(value)} numbers, {value[:2]} ... {value[-2:]}, sum {sum(value)}"
    if isinstance(value, list) and len(value) > 1 and all(isinstance(x, dict | list) for x in value):
        return [_short(value[0]), f"{len(value)} in all"]
    return [_short(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", list(TARGETS))
def test_the_same_rows_give_the_same_bytes(name: str, contents: Mined) -> None:
    assert list(TARGETS[name].data(contents)) == list(TARGETS[name].data(contents))


def test_only_actions_are_in_a_window_and_results_are_not(contents: Mined) -> None:
    row = contents.tokens["groups"][0]
    decode = contents.chat.tokenizer.decode
    trained = [decode(row.completion_ids[a:b]) for a, b in row.windows]
    untrained = [i for i, m in zip(row.completion_ids, row.mask, strict=True) if not m]

    assert ["list_orders" in trained[0], "sent on Monday" in trained[1], len(trained)] == [True, True, 2]
    assert "order 7: sent" in decode(untrained)
    assert row.log_probs is not None
    assert len(row.log_probs) == sum(row.mask)
    assert contents.tokens["groups"][1].log_probs is None


def test_log_probabilities_of_other_tokens_are_not_taken(contents: Mined) -> None:
    """A log of another template has other tokens: its numbers are of no use here."""
    from flywheel.models.token_rows import token_rows

    group = contents.rows["groups"][0]
    other = [{"ids": [*step["ids"], 1], "log_probs": [*step["log_probs"], 0.0]} for step in group["log_probs"][0]]
    row = {**group, "log_probs": [other, None, None]}

    assert all(part.log_probs is None for part in token_rows("groups", row, contents.chat, {}))


def test_no_row_carries_an_argument_that_the_call_did_not_have(contents: Mined) -> None:
    """Arrow gives every object the fields of every other; veRL would train the nulls."""
    for name in TARGETS:
        for file in TARGETS[name].data(contents):
            text = json.dumps(read(file), default=str) if file.path.endswith((".parquet", ".arrow")) else ""
            assert '"year": null' not in text
            assert '\\"year\\": null' not in text


def test_swift_rows_end_in_a_text_of_the_assistant(contents: Mined) -> None:
    """Its KTO asserts that role; a call becomes another one."""
    for rows in data_of("swift", contents).values():
        for row in rows:
            for messages in (row["messages"], row.get("rejected_messages", row["messages"])):
                assert [m["role"] for m in messages] == ["user", "assistant"]
                assert all(isinstance(m["content"], str) and not m.get("tool_calls") for m in messages)


def test_openrlhf_gets_texts_not_lists_of_messages(contents: Mined) -> None:
    files = data_of("openrlhf", contents)
    assert all(isinstance(row[k], str) for row in files["dpo.jsonl"] for k in ("prompt", "chosen", "rejected"))
    assert "list_orders of the shop" in files["dpo.jsonl"][0]["prompt"]


def test_launch_files_allow_the_longest_row(contents: Mined, tmp_path: Path) -> None:
    for name, target in TARGETS.items():
        _, launch = write_files(target, contents, tmp_path / name)
        texts = [(tmp_path / name / one).read_text() for one in launch]
        assert not any("$model" in text or "$longest" in text for text in texts)
    assert f"max_length: {contents.longest}" in (tmp_path / "swift" / "dpo.yaml").read_text()


def test_the_command_writes_the_files_and_says_what_is_lost(projects: Callable[[str], Path], tmp_path: Path) -> None:
    project = Project(projects("built"))
    answer = project.export(tmp_path / "out", to="verl")
    readme = (tmp_path / "out" / "README.md").read_text()

    assert [file.path for file in answer.files] == ["prompts.parquet", "sft.parquet"]
    for file in answer.files:
        assert file.rows == len(pq.read_table(tmp_path / "out" / file.path))
        dropped = sum(count for name, count in file.counts.items() if name.startswith("dropped"))
        assert file.counts["considered"] == file.counts["kept"] + dropped
    assert "step_advantages" in {lost.field for lost in answer.lost}
    assert all(lost.why in readme for lost in answer.lost)
    assert answer.command[0] in readme
    assert {"grpo.yaml", "replay.py"} <= set(answer.launch)


@pytest.mark.parametrize(("to", "forms", "said"), [("slime", [], "unknown target"), ("verl", ["preference"], "place")])
def test_an_unknown_target_or_a_form_it_has_no_place_for_is_named(
    projects: Callable[[str], Path], tmp_path: Path, to: str, forms: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        Project(projects("logs")).export(tmp_path / "out", to=to, forms=forms)

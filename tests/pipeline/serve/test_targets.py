"""flywheel export --to: every system's files against known rows, token by token, and what is lost."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flywheel.config import ModelConfig
from flywheel.errors import UsageError
from flywheel.models.chat import ChatFormat
from flywheel.models.load import is_of_hub, load_tokenizer, seen_from
from flywheel.models.token_rows import token_rows
from flywheel.pipeline.serve.targets.export import write_files
from flywheel.pipeline.serve.targets.table import TARGETS
from flywheel.pipeline.serve.targets.tabular import actions_of
from flywheel.project import Project
from tests.commands import flywheel
from tests.mined import call, mined, say

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
    files = data_of("swift", contents)
    for name in ("dpo.jsonl", "kto.jsonl", "sft.jsonl"):
        for row in files[name]:
            for messages in (row["messages"], row.get("rejected_messages", row["messages"])):
                assert [m["role"] for m in messages] == ["user", "assistant"]
                assert all(isinstance(m["content"], str) and not m.get("tool_calls") for m in messages)


def test_an_attempt_in_several_parts_is_played_back_in_ms_swift_with_its_own_prompt(contents: Mined) -> None:
    """Its scheduler gives the prompt as text: of parts whose prompt is the same tokens again, the longest."""
    whole = contents.tokens["groups"][0]
    (first, end), (start, last) = whole.windows
    parts = [
        whole.model_copy(update={"windows": [(first, end)], "completion_ids": whole.completion_ids[:end]}),
        whole.model_copy(
            update={
                "part": 1,
                "prompt_ids": whole.ids[: len(whole.prompt_ids) + start],
                "windows": [(0, last - start)],
                "completion_ids": whole.completion_ids[start:],
            }
        ),
    ]
    tokens = {**contents.tokens, "groups": [*parts, *contents.tokens["groups"][1:]]}
    groups = data_of("swift", replace(contents, tokens=tokens))["grpo.jsonl"]
    played = json.loads(groups[0]["members"])[0]

    assert contents.chat.ids(played["prompt"]) == played["prompt_ids"] == parts[1].prompt_ids
    assert played["completion_ids"] == whole.completion_ids[start:]


def test_openrlhf_gets_texts_not_lists_of_messages(contents: Mined) -> None:
    files = data_of("openrlhf", contents)
    assert all(isinstance(row[k], str) for row in files["dpo.jsonl"] for k in ("prompt", "chosen", "rejected"))
    assert "list_orders of the shop" in files["dpo.jsonl"][0]["prompt"]


def test_launch_files_allow_the_longest_row(contents: Mined, tmp_path: Path) -> None:
    for name, target in TARGETS.items():
        _, launch = write_files(target, contents, tmp_path / name)
        texts = [path.read_text() for one in launch if (path := tmp_path / name / one).is_file()]
        assert not any("$model" in text or "$longest" in text for text in texts)
    assert f"max_length: {contents.longest}" in (tmp_path / "swift" / "dpo.yaml").read_text()
    assert "model_type: llama\ntemplate: dummy\n" in (tmp_path / "swift" / "dpo.yaml").read_text()  # it knows four


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
    assert all(file.longest for file in answer.files if file.rows)


def test_files_that_describe_others_are_not_counted(projects: Callable[[str], Path], tmp_path: Path) -> None:
    answer = Project(projects("built")).export(tmp_path / "out", forms=["groups"], to="rllib")

    assert [file.path for file in answer.row_files] == ["episodes.json"]
    assert {"episodes.json", "ids.jsonl", "encoder.json"} == {file.path for file in answer.files}
    assert "encoder.json" not in (tmp_path / "out" / "README.md").read_text().partition("## What is lost")[0]


@pytest.mark.parametrize(("to", "forms", "said"), [("slime", [], "unknown target"), ("verl", ["preference"], "place")])
def test_an_unknown_target_or_a_form_it_has_no_place_for_is_named(
    projects: Callable[[str], Path], tmp_path: Path, to: str, forms: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        Project(projects("logs")).export(tmp_path / "out", to=to, forms=forms)


def test_commands_are_those_of_the_forms_that_have_rows_and_name_the_model(contents: Mined) -> None:
    demonstrations = replace(contents, rows={"sft": contents.rows["sft"], "groups": []})
    spaced = replace(contents, weights="my models/tiny")

    assert TARGETS["trl"].commands(demonstrations) == ["trl sft --config sft.yaml"]
    assert TARGETS["areal"].commands(demonstrations) == ["python train.py sft --config sft.yaml"]
    for name in ("trl", "art"):  # these scripts take the model from their command line
        assert shlex.split(TARGETS[name].commands(spaced)[-1])[-1] == "my models/tiny"
    for target in TARGETS.values():
        assert not any("$model" in line or "$$" in line for line in target.commands(contents))


def test_the_base_is_named_so_that_it_loads_from_the_exported_folder(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny").symlink_to(tiny_model)
    near = seen_from(ModelConfig(base="models/tiny").placed_in(tmp_path), tmp_path / "out" / "verl")

    assert not Path(near).is_absolute()
    assert (tmp_path / "out" / "verl" / near).resolve() == tiny_model.resolve()
    assert seen_from(ModelConfig(base=str(tiny_model)), tmp_path / "out") == str(tiny_model)
    assert seen_from(ModelConfig(base="Qwen/Qwen3-0.6B"), tmp_path / "out") == "Qwen/Qwen3-0.6B"


def test_ms_swift_is_told_what_a_model_in_a_folder_is(
    projects: Callable[[str], Path], tiny_model: Path, tmp_path: Path
) -> None:
    """It knows models by their names on a hub, and four types that have the architecture of Llama."""
    folder = projects("built")
    (folder / "tiny").symlink_to(tiny_model)
    config = folder / "flywheel.toml"
    config.write_text(config.read_text().replace("base = ", 'base = "tiny" # '))
    Project(folder).export(tmp_path / "out", to="swift", forms=["sft"])
    assert "\nmodel_type: llama\ntemplate: dummy\ndataset: sft.jsonl\n" in (tmp_path / "out" / "sft.yaml").read_text()


def test_the_embedded_base_is_a_folder_to_other_systems(tmp_path: Path) -> None:
    """No other system knows the word `embedded`."""
    near = seen_from(ModelConfig(base="embedded"), tmp_path)
    assert Path(near).is_absolute(), "it lies in the cache: a way from here would break wherever the export is moved"
    assert (Path(near) / "config.json").is_file()


def test_who_acted_is_corrected_for_only_where_every_attempt_has_log_probabilities(
    contents: Mined, tmp_path: Path
) -> None:
    """OpenRLHF and SkyRL stop without them; veRL and AReaL would take the zeros for certainty."""
    known = [row.model_copy(update={"log_probs": [-0.5] * sum(row.mask)}) for row in contents.tokens["groups"]]
    logged = replace(contents, tokens={**contents.tokens, "groups": known})
    shown = {}
    for number, one in enumerate((contents, logged)):
        for name, file in (("verl", "grpo.yaml"), ("skyrl", "rl.args"), ("openrlhf", "grpo.sh")):
            write_files(TARGETS[name], one, tmp_path / f"{name}-{number}")
            text = (tmp_path / f"{name}-{number}" / file).read_text()
            shown[name, number] = [
                word for word in ("rollout_is: null", "rollout_is: token", "type=null", "type=token") if word in text
            ] or [text.split("is_correction_level ")[1].split()[0]]

    assert shown == {
        ("verl", 0): ["rollout_is: null"], ("skyrl", 0): ["type=null"], ("openrlhf", 0): ["off"],
        ("verl", 1): ["rollout_is: token"], ("skyrl", 1): ["type=token"], ("openrlhf", 1): ["token"],
    }  # fmt: skip


def test_no_batch_is_larger_than_what_there_is(contents: Mined, tmp_path: Path) -> None:
    """These systems leave an incomplete batch out: two groups in batches of eight train nothing."""
    for name, file, line in (
        ("verl", "grpo.yaml", "train_batch_size: 2"),
        ("skyrl", "rl.args", "trainer.train_batch_size=2"),
        ("areal", "dpo.yaml", "batch_size: 1"),
        ("agent-lightning", "rl.args", "data.train_batch_size=2"),
    ):
        write_files(TARGETS[name], contents, tmp_path / name)
        assert line in (tmp_path / name / file).read_text()


def test_advantages_and_temperatures_of_groups_are_never_lost_in_silence(contents: Mined) -> None:
    for name in ("trl", "verl", "skyrl", "areal", "openrlhf"):
        assert {"advantage", "temperature"} <= {lost.field for lost in TARGETS[name].lost}
    attempts = data_of("agent-lightning", contents)["attempts.jsonl"]
    assert all(one["request"]["temperature"] == 1.0 for attempt in attempts for one in attempt["calls"])


@pytest.mark.parametrize("name", ["trl", "swift"])
def test_a_text_begins_once_where_the_tokenizer_begins_texts_itself(
    name: str, contents: Mined, tiny_model: Path
) -> None:
    """As Llama 3's does: its template writes the first token, and so does its tokenizer."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = load_tokenizer(ModelConfig(base=str(tiny_model)))
    begin = str(tokenizer.special_tokens_map.get("bos_token") or tokenizer.eos_token)
    number = tokenizer.convert_tokens_to_ids(begin)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, number)]
    )
    tokenizer.chat_template = f"{{{{ '{begin}' }}}}{tokenizer.chat_template}"
    chat = ChatFormat(tokenizer)
    row = contents.rows["preference"][0]
    parts = token_rows("preference", row, chat, {})
    files = data_of(name, replace(contents, rows={"preference": [row]}, tokens={"preference": parts}, chat=chat))
    (written,) = next(iter(files.values()))
    prompt = written["prompt"] if name == "trl" else written["messages"][0]["content"]

    assert parts[0].ids[0] == number
    assert tokenizer(prompt)["input_ids"] == parts[0].prompt_ids


def test_a_tool_called_ask_is_not_a_question() -> None:
    attempts = [[call("ask"), say("Done.")], [say("Which one?")]]
    assert actions_of([{"completions": attempts}]) == ["ask (tool)", "ask", "reply"]


def test_an_export_is_not_replaced_with_what_was_trained_in_it(projects: Callable[[str], Path], tmp_path: Path) -> None:
    """The commands of a README train into the exported folder."""
    project, out = Project(projects("built")), tmp_path / "out"
    project.export(out, to="rllib")
    project.export(out, to="tianshou")
    (out / "out-dpo").mkdir()
    (out / "out-dpo" / "adapter_model.safetensors").write_bytes(b"hours")
    with pytest.raises(UsageError, match="out-dpo"):
        project.export(out, to="tianshou")

    assert (out / "out-dpo" / "adapter_model.safetensors").read_bytes() == b"hours"


Spoken = tuple[dict[str, list[dict[str, Any]]], str, str]


@pytest.fixture(scope="module")
def spoken(projects: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Spoken:
    """The token rows of each group; a group of three or more attempts, and words that only one of them said."""
    project, out = Project(projects("built")), tmp_path_factory.mktemp("spoken")
    return groups_of(project, out / "tokens"), *said_once(project, out / "messages")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("{{ raise_exception('no') }}", "the base model's template cannot render it"),
        ("{{ '\\n\\n' }}", "prompt and action have other tokens in one text"),
    ],
)
def test_an_attempt_that_cannot_be_given_as_tokens_leaves_its_group_and_is_counted(
    projects: Callable[[str], Path], tiny_model: Path, tmp_path: Path, spoken: Spoken, does: str, reason: str
) -> None:
    """The other attempts stay a group, with the advantages that they had; the tokenizer joins three line feeds."""
    folder, (before, name, words) = projects("built"), spoken
    members = before[name]
    model = load_tokenizer(ModelConfig(base=str(tiny_model)))
    asked = f"{{% for m in messages %}}{{% if m['role'] == 'assistant' and {json.dumps(words)} in m['content'] %}}"
    if "raise" in does:
        model.chat_template = f"{asked}{does}{{% endif %}}{{% endfor %}}{model.chat_template}"
    else:
        turn = "message['role'] + '\n'"
        assert turn in model.chat_template
        added = f"{turn} + ('\n\n' if {json.dumps(words)} in message['content'] else '')"
        model.chat_template = model.chat_template.replace(turn, added)
    shutil.copytree(tiny_model, tmp_path / "model")
    model.save_pretrained(tmp_path / "model")
    config = folder / "flywheel.toml"
    config.write_text(config.read_text().replace(str(tiny_model), str(tmp_path / "model")))
    after = groups_of(Project(folder), tmp_path / "after")

    gone = {row["episode"] for row in members} - {row["episode"] for row in after[name]}
    (file,) = json.loads((tmp_path / "after" / "dataset.json").read_text())["files"][:1]
    assert len(gone) == 1
    assert {row["episode"]: row["advantage"] for row in after[name]}.items() <= {
        row["episode"]: row["advantage"] for row in members
    }.items()
    assert file["counts"][f"note: attempts left out: {reason}"] >= 1
    assert file["counts"]["kept"] == len(after)


def groups_of(project: Project, out: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the token rows of each group, as exported."""
    project.export(out, to="jsonl", forms=["groups"])
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in (out / "tokens-groups.jsonl").read_text().splitlines():
        row = json.loads(line)
        rows.setdefault(row["row"], []).append(row)
    return rows


def said_once(project: Project, out: Path) -> tuple[str, str]:
    """Return a group of three or more attempts, and words that only one of them said."""
    project.export(out, forms=["groups"])
    for row in map(json.loads, (out / "groups.jsonl").read_text().splitlines()):
        texts = [{m["content"] for m in c if m["role"] == "assistant"} for c in row["completions"]]
        for text in sorted(set().union(*texts)):
            plain = len(text) > 20 and text.isascii() and "\n" not in text
            if len(texts) > 2 and plain and sum(text in str(other) for other in texts) == 1:
                return row["id"], text
    raise AssertionError("no group with words of one attempt")


def test_a_target_without_tokens_needs_no_base_model(projects: Callable[[str], Path], tmp_path: Path) -> None:
    folder = projects("built")
    config = folder / "flywheel.toml"
    config.write_text(config.read_text().replace("base = ", 'base = "nowhere/no-such-model" # '))
    for name in ("rllib", "tianshou"):
        answer = Project(folder).export(tmp_path / name, to=name)
        assert answer.files[0].rows > 0
        assert "nowhere" not in (tmp_path / name / "README.md").read_text()


def test_held_out_rows_for_a_trainer_come_with_a_warning(projects: Callable[[str], Path], tmp_path: Path) -> None:
    folder = projects("built")
    call = ["export", str(tmp_path / "out"), "--to", "tianshou"]
    held = flywheel(folder, *call, "--split", "holdout")
    assert "! These rows are of held-out tasks" in held.stdout
    assert "held-out tasks" in (tmp_path / "out" / "README.md").read_text()
    assert "!" not in flywheel(folder, *call).stdout


@pytest.mark.parametrize("name", [pytest.param("trl", marks=pytest.mark.e2e), "verl"])
def test_a_readme_names_no_script_that_is_not_there(name: str, projects: Callable[[str], Path], tmp_path: Path) -> None:
    """Scenarios come with groups of training tasks only."""
    project, folder = Project(projects("built")), tmp_path / "out"
    for split in ("train", "holdout"):
        project.export(folder, forms=["groups"], split=split, to=name)
        named = "python environment.py" in (folder / "README.md").read_text(encoding="utf-8")
        assert named == (folder / "environment.py").exists()
        loops = folder / "agent_loops.yaml"
        assert not loops.exists() or named == ("environment.Environment" in loops.read_text(encoding="utf-8"))
    if name == "verl":
        (folder / "scenarios.parquet").touch()  # by its `python environment.py`
        project.export(folder, forms=["groups"], to=name)


def test_a_pinned_revision_is_what_the_commands_train(contents: Mined) -> None:
    pinned = replace(contents, model="Qwen/Qwen3-0.6B", revision="c1899de", weights="base")
    for target in TARGETS.values():
        lines = target.commands(pinned)
        assert lines[:1] == ["hf download Qwen/Qwen3-0.6B --revision c1899de --local-dir base"] * bool(target.command)


def test_a_base_that_was_downloaded_into_an_export_neither_blocks_the_next_nor_is_lost(
    projects: Callable[[str], Path], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README's first command puts gigabytes there."""
    folder, revision, out = projects("built"), "0" * 40, tmp_path / "out"
    shutil.copytree(tiny_model, tmp_path / "hub" / "models--shop--tiny" / "snapshots" / revision)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    config = folder / "flywheel.toml"
    config.write_text(config.read_text().replace("base = ", f'revision = "{revision}"\nbase = "shop/tiny" # '))
    (out / "base").mkdir(parents=True)
    with pytest.raises(UsageError, match="was not written"):
        Project(folder).export(out, to="swift", forms=["sft"])
    (out / "base").rmdir()

    assert "--local-dir base" in Project(folder).export(out, to="swift", forms=["sft"]).command[0]
    (out / "base").mkdir()
    (out / "base" / "model.safetensors").write_bytes(b"gigabytes")
    Project(folder).export(out, to="verl", forms=["sft"])
    assert (out / "base" / "model.safetensors").read_bytes() == b"gigabytes"
    Project(folder).export(out, forms=["sft"])  # in which nothing names the base
    assert not (out / "base").exists()


def test_only_a_name_on_a_hub_has_revisions(tiny_model: Path) -> None:
    bases = ["Qwen/Qwen3-0.6B", "embedded", str(tiny_model), "models/tiny.gguf"]
    assert [is_of_hub(ModelConfig(base=base)) for base in bases] == [True, False, False, False]


@pytest.mark.process
@pytest.mark.parametrize("name", ["openrlhf", "areal"])
def test_two_processes_of_a_trainer_play_every_attempt_of_a_group(name: str, contents: Mined, tmp_path: Path) -> None:
    """Each engine of OpenRLHF and each worker of AReaL has a replay of its own, and asks for some of a group."""
    write_files(TARGETS[name], contents, tmp_path)
    asks = (
        "import ast, json, os, sys; from pathlib import Path\n"
        "tree = ast.parse(Path('replay.py').read_text())\n"
        "kept = [n for n in tree.body if 'ASKED' in ast.unparse(n) and not isinstance(n, ast.ClassDef)]\n"
        "names = {'__file__': str(Path('replay.py').resolve()), 'os': os, 'Path': Path}\n"
        "exec(compile(ast.Module(kept, []), 'replay.py', 'exec'), names)\n"
        "print([names['number']('group') for _ in range(50)])"
    )
    both = [subprocess.Popen([sys.executable, "-c", asks], stdout=subprocess.PIPE, cwd=tmp_path) for _ in range(2)]
    numbers = [number for one in both for number in json.loads(one.communicate()[0])]
    assert sorted(numbers) == list(range(100))

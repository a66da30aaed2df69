"""A pushed adapter: peft loads it, its card says where it is from, and nothing goes anywhere unasked."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from flywheel.config import Config, ModelConfig
from flywheel.config.files import render_default_config
from flywheel.config.tracking import PushConfig
from flywheel.errors import FlywheelError, StoreError, UsageError
from flywheel.io import files
from flywheel.models.load import base_identity, load_base
from flywheel.project import Project
from flywheel.records import FileHash
from flywheel.registry.registry import ADAPTER_WEIGHTS, DATASET
from tests.reports import manifest

TOKEN = "abc"  # noqa: S105 - of no hub
ROW = {
    "id": "r1", "user": "user_1", "task_id": "t1", "prompt": [{"role": "user", "content": "mail bob@example.org"}],
    "completion": [{"role": "assistant", "content": "done"}], "weight": 1.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Project:
    """A project with a champion, round 1, and a round that was never promoted."""
    from peft import LoraConfig, get_peft_model

    folder = tmp_path_factory.mktemp("push") / "shop"
    folder.mkdir()
    cfg = ModelConfig(base=str(tiny_model), dtype="float32")
    made = Project(folder, config=Config(model=cfg))
    lora = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    adapted = get_peft_model(load_base(cfg), lora)
    base = {"base_model": str(tiny_model), "base_model_sha256": base_identity(cfg).sha256}
    for number, parent in ((1, None), (2, 1)):
        adapter = made.registry.folder(number) / "adapter"
        adapted.save_pretrained(str(adapter))
        rows = made.registry.folder(number) / DATASET
        files.atomic_write(rows, json.dumps(ROW) + "\n")
        data = FileHash(path=DATASET, sha256=files.hash_file(rows), size_bytes=rows.stat().st_size)
        sha256 = files.hash_file(adapter / ADAPTER_WEIGHTS)
        made.registry.save(manifest(number, adapter_sha256=sha256, dataset=[data], parent=parent, **base))
    (made.registry.folder(1) / "config.toml").write_text(render_default_config(made.config), encoding="utf-8")
    made.promote(1, force=True, reason="bob said so")
    return made


def test_peft_loads_what_was_pushed_and_the_card_says_where_it_is_from(
    project: Project, tmp_path: Path, tiny_model: Path
) -> None:
    from peft import PeftModel

    answer = project.push(str(tmp_path / "hub"), dataset=True)

    PeftModel.from_pretrained(load_base(ModelConfig(base=str(tiny_model), dtype="float32")), answer.to)
    card = (tmp_path / "hub" / "README.md").read_text(encoding="utf-8")
    for words in (
        "library_name: peft",
        "- alpha: 1.0\n- beta: ",
        "round 1 is champion by force",
        answer.adapter_sha256,
        "was not evaluated",
    ):
        assert words in card
    texts = [p for p in (tmp_path / "hub").rglob("*.*") if p.suffix != ".safetensors" and p.is_file()]
    everything = "".join(path.read_text(encoding="utf-8") for path in texts)
    for private in (str(tiny_model), "bob", "user_1", "t1"):
        assert private not in everything
    pushed = json.loads((tmp_path / "hub" / "data" / "train.jsonl").read_text(encoding="utf-8"))
    assert (answer.rows, pushed.keys()) == (1, {"id", "prompt", "completion", "weight"})
    before = {p: p.read_bytes() for p in (tmp_path / "hub").rglob("*") if p.is_file()}
    project.push(str(tmp_path / "hub"), dataset=True)
    assert {p: p.read_bytes() for p in (tmp_path / "hub").rglob("*") if p.is_file()} == before


def test_what_is_refused_writes_nothing(project: Project, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine", encoding="utf-8")
    refused: list[tuple[str, dict[str, Any], str]] = [
        (str(tmp_path / "new"), {"target": "2"}, "never promoted"),
        (str(tmp_path / "mine"), {}, "did not write"),
        ("hf:acme/shop", {"token": "t"}, "no hub is allowed"),
    ]
    for to, options, words in refused:
        with pytest.raises(UsageError, match=words):
            project.push(to, **options)
    assert not (tmp_path / "new").exists()
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    project.push(str(tmp_path / "new"), target="2", unpromoted=True)
    assert "the round keeps no configuration" in (tmp_path / "new" / "README.md").read_text(encoding="utf-8")
    rows = project.registry.folder(2) / DATASET
    kept = rows.read_bytes()
    rows.write_bytes(b"{}\n")
    with pytest.raises(StoreError):
        project.push(str(tmp_path / "other"), target="2", unpromoted=True, dataset=True)
    rows.write_bytes(kept)
    assert not (tmp_path / "other").exists()


class Hub(BaseHTTPRequestHandler):
    """The routes of a hub that one commit of small files needs."""

    commits: ClassVar[list[dict[str, str]]] = []
    tokens: ClassVar[set[str | None]] = set()
    deleted: ClassVar[list[str]] = []
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.tokens.add(self.headers.get("Authorization"))
        answer: Any = {"url": f"http://{self.headers['Host']}/acme/shop", "id": "acme/shop"}
        if "/preupload/" in self.path:
            named = [one["path"] for one in json.loads(body)["files"]]
            answer = {"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in named]}
        elif "/tree/" in self.path:
            answer = [{"type": "file", "path": "data/train.jsonl", "size": 9, "oid": "0ld"}]
        elif "/commit/" in self.path:
            lines = [json.loads(line) for line in body.splitlines()]
            written = [line["value"] for line in lines if line["key"] == "file"]
            self.deleted.extend(line["value"]["path"] for line in lines if line["key"] == "deletedFile")
            self.commits.append({one["path"]: base64.b64decode(one["content"]).decode("latin-1") for one in written})
            answer = {"commitUrl": answer["url"], "commitOid": "c0ffee", "success": True}
        text = json.dumps(answer).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its signature
        del format, args


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A hub on this machine."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_hub_that_is_allowed_gets_one_commit(project: Project, hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = Project(project.folder, config=project.config.model_copy(update={"push": PushConfig(host=hub)}))
    with pytest.raises(UsageError, match="no token"):
        allowed.push("hf:acme/shop")
    with pytest.raises(UsageError, match="names no repository"):
        allowed.push("hf:shop", token=TOKEN)
    for host in ("http://hub.example.org", "huggingface.co"):
        elsewhere = Project(project.folder, config=project.config.model_copy(update={"push": PushConfig(host=host)}))
        with pytest.raises(UsageError, match="cannot be sent"):
            elsewhere.push("hf:acme/shop", token=TOKEN)
    assert Hub.tokens == set()
    answer = allowed.push("hf:acme/shop", token=TOKEN)
    assert (answer.commit, answer.to, Hub.tokens) == ("c0ffee", f"{hub}/acme/shop", {f"Bearer {TOKEN}"})
    (commit,) = Hub.commits
    assert {"README.md", "adapter_config.json", ADAPTER_WEIGHTS, "flywheel.json"} == commit.keys()
    assert Hub.deleted == ["data/train.jsonl"], "rows of an earlier push do not stay"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = PushConfig(host=f"http://127.0.0.1:{free.getsockname()[1]}")
    nowhere = Project(project.folder, config=project.config.model_copy(update={"push": gone}))
    with pytest.raises(FlywheelError, match="the hub gave no answer"):
        nowhere.push("hf:acme/shop", token=TOKEN)
    monkeypatch.setattr(Hub, "status", 403)
    with pytest.raises(FlywheelError, match="the hub answered 403"):
        allowed.push("hf:acme/shop", token=TOKEN)

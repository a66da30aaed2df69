"""`flywheel push`: an adapter with its card, in the form of a model hub, to a folder or to a hub.

In: a trained round. Out: a folder that `peft` loads, written completely or not at all, or one commit on a hub. Nothing
is sent unless the command was typed, `[push] host` names the hub, and the environment has a token for it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flywheel.errors import FlywheelError, StoreError, UsageError
from flywheel.io import files
from flywheel.pipeline.context import Context, served_name
from flywheel.pipeline.copies import ABOUT, note_copy
from flywheel.pipeline.serve.card import base_name, card
from flywheel.pipeline.serve.deploy import refuse_unsound
from flywheel.present import round_name
from flywheel.records import FileHash, RoundManifest, canonical_json
from flywheel.registry.registry import DATASET
from flywheel.results.deploy import PushAnswer

HUB = "hf:"  # begins a target that is a repository
PUSHED_ROWS = "data/train.jsonl"
_MADE = ("promoted", "forced")  # decisions that make a champion
# What a row teaches; who it is from, and when, stays here.
_TAUGHT = (
    "id", "prompt", "tools", "chosen", "rejected", "completion", "completions", "label", "weight", "margin", "rewards",
    "advantages", "mix",
)  # fmt: skip
_HERE = ("localhost", "127.0.0.1", "::1")  # hubs on this machine, which may do without TLS
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*\Z")


def push(ctx: Context, number: int | None, to: str, *, unpromoted: bool, dataset: bool, token: str) -> PushAnswer:
    """Write a round's adapter, its card and, on request, its redacted dataset.

    Args:
        ctx: the project, locked.
        number: the round.
        to: a folder, or `hf:OWNER/NAME`.
        unpromoted: whether a round that was never champion may be pushed.
        dataset: whether its training rows go along, redacted once more.
        token: for the hub.

    Raises:
        UsageError: the round may not be pushed, the folder holds other files, or no hub is allowed.
        StoreError: a file of the round is not the one that its manifest names.
        FlywheelError: the hub refuses or does not answer.
    """
    if number is None:
        raise UsageError("the base model is champion: there is no adapter to push", hint="name a round with --round")
    refuse_unsound(ctx, number)
    if not unpromoted and not any(p.round == number and p.decision in _MADE for p in ctx.registry.promotions()):
        raise UsageError(
            f"{round_name(number)} was never promoted: its card would have no verdict in its favour",
            hint="push a champion, or add --unpromoted",
        )
    if not to.startswith(HUB):
        folder = Path(to).expanduser().resolve()
        _require_own(folder)
        with files.atomic_folder(folder) as partial:
            return _write(ctx, number, partial, to=str(folder), dataset=dataset)
    _require_allowed(ctx, to, token)
    with tempfile.TemporaryDirectory(prefix="flywheel-push-") as place:
        answer = _write(ctx, number, Path(place), to=f"{ctx.config.push.host}/{to.removeprefix(HUB)}", dataset=dataset)
        commit = _upload(Path(place), to.removeprefix(HUB), ctx.config.push.host, token, answer)
    return answer.model_copy(update={"commit": commit})


def _require_own(folder: Path) -> None:
    """Refuse a folder with anything but an earlier push: all of it is replaced."""
    names = {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()} if folder.is_dir() else set()
    own = files.read_json(folder / ABOUT) if ABOUT in names else {}
    known = {ABOUT, *(one["path"] for one in own.get("files", []))} if isinstance(own, dict) else set()
    if folder.is_file() or names - known:
        other = min(names - known, default=folder.name)
        raise UsageError(
            f"`{folder}` holds `{other}`, which `flywheel push` did not write", hint="choose a new or empty folder"
        )


def _require_allowed(ctx: Context, to: str, token: str) -> None:
    if not _REPOSITORY.match(to.removeprefix(HUB)):
        raise UsageError(f"`{to}` names no repository", hint="--to hf:OWNER/NAME")
    if not ctx.config.push.host:
        raise UsageError(
            "no hub is allowed: nothing was sent",
            hint='name it in flywheel.toml: [push] host = "https://huggingface.co"',
        )
    address = urlsplit(ctx.config.push.host)
    if not address.hostname or (address.scheme != "https" and address.hostname not in _HERE):
        raise UsageError(
            f"`{ctx.config.push.host}` cannot be sent a token", hint='[push] host = "https://huggingface.co"'
        )
    if not token:
        raise UsageError("there is no token for the hub", hint="set HF_TOKEN, or name a variable with --token-env")


def _write(ctx: Context, number: int, folder: Path, *, to: str, dataset: bool) -> PushAnswer:
    """Write the folder of a hub; its files' hashes are in `flywheel.json`."""
    manifest = ctx.registry.manifest(number)
    base, licence = base_name(ctx, manifest)
    for source in sorted(path for path in (ctx.registry.folder(number) / "adapter").rglob("*") if path.is_file()):
        target = folder / source.relative_to(ctx.registry.folder(number) / "adapter")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    config = files.read_json(folder / "adapter_config.json")
    files.write_json(folder / "adapter_config.json", {**config, "base_model_name_or_path": base})  # no path of ours
    n_rows = _write_rows(ctx, manifest, folder) if dataset else None
    files.atomic_write(folder / "README.md", card(ctx, manifest, base, licence, n_rows=n_rows))
    written = sorted(path for path in folder.rglob("*") if path.is_file())
    answer = PushAnswer(
        to=to,
        round=number,
        name=served_name(ctx, number),
        base_model=base,
        licence=licence,
        adapter_sha256=manifest.adapter_sha256,
        rows=n_rows,
        files=[
            FileHash(path=str(p.relative_to(folder)), sha256=files.hash_file(p), size_bytes=p.stat().st_size)
            for p in written
        ],
    )
    about = answer.model_dump(mode="json", exclude={"to", "commit"})
    files.write_json(folder / ABOUT, about)
    note_copy(ctx, "pushed to", to, about)
    return answer


def _write_rows(ctx: Context, manifest: RoundManifest, folder: Path) -> int:
    """Write what the round was trained on: messages and numbers, redacted by the patterns of today."""
    from flywheel.stages.ingest.redaction.redact import Redactor

    known = next((data.sha256 for data in manifest.dataset if data.path == DATASET), "")
    source = ctx.registry.folder(manifest.round) / DATASET
    if not source.is_file() or files.hash_file(source) != known:
        raise StoreError(
            f"{round_name(manifest.round)}: `{DATASET}` is not the file its manifest names",
            hint="restore it from a backup, or push without --dataset",
        )
    rows = [{name: row[name] for name in _TAUGHT if name in row} for row in files.read_rows(source)]
    key = ctx.key() if ctx.key is not None else b""
    texts = Redactor(ctx.config.ingest.redact, key).payloads([canonical_json(row) for row in rows])
    files.atomic_write(folder / PUSHED_ROWS, "".join(f"{text}\n" for text in texts))
    return len(texts)


def _upload(folder: Path, repository: str, host: str, token: str, answer: PushAnswer) -> str:
    """Make one commit of a folder on a hub, in a private repository if there is none; return its address."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    # What it raises, the errors of its HTTP client among it, whichever client that is.
    kinds = (*HfHubHTTPError.__mro__, ValueError)
    faults = tuple[type[Exception], ...](k for k in kinds if issubclass(k, Exception) and k is not Exception)
    hub = HfApi(endpoint=host.rstrip("/"), token=token, library_name="flywheel")
    try:
        hub.create_repo(repository, private=True, exist_ok=True)
        done: Any = hub.upload_folder(
            repo_id=repository,
            folder_path=folder,
            commit_message=f"{answer.name} @ {answer.adapter_sha256[:12]}",
            delete_patterns=["data/*", "adapter_*"],  # of an earlier push
        )
    except OfflineModeIsEnabled:
        raise FlywheelError("huggingface_hub is offline: nothing was sent", hint="unset HF_HUB_OFFLINE") from None
    except faults as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        said = f"answered {status}: nothing was committed" if status else f"gave no answer ({type(error).__name__})"
        raise FlywheelError(
            f"the hub {said}",
            hint="check [push] host, the name of the repository, and that the token may write there",
        ) from None
    return str(done.oid)

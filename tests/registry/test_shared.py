"""Rounds and ledgers of a store in a bucket, as several machines see and change them, on a real server over HTTP."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.errors import BucketError, BusyError, StoreError
from flywheel.io import files
from flywheel.pipeline.admin.gc import Kept
from flywheel.pipeline.promote import promotion
from flywheel.records import FileHash, LedgerEntry, RoundManifest
from flywheel.registry.registry import ADAPTER_WEIGHTS, DATASET
from tests.bucket_server import URL, BucketServer, machine

if TYPE_CHECKING:
    from flywheel import Project

pytest.importorskip("obstore")

HERE = "/b/team/project"


def _train(project: Project, number: int, rows: str = '{"id": "r1"}\n') -> None:
    """Leave what a training leaves, without one."""
    with project.locked("train") as ctx:
        registry = ctx.registry
        assert registry.next_number() == number
        registry.shared.claim(number)
        folder = project.folder / "rounds" / f"{number:04d}"
        weights = folder / "adapter" / ADAPTER_WEIGHTS
        texts = {weights: f"weights {number}", folder / "adapter/config.json": "{}", folder / DATASET: rows}
        for path, text in texts.items():
            files.atomic_write(path, text)
        (folder / "work").mkdir()
        (folder / "work" / "checkpoint").write_text("not to go up")
        values: dict[str, Any] = {
            "round": number, "state": "trained", "method": "sft", "method_reason": "because", "parent": None,
            "reference": "none", "base_model": "embedded", "base_model_sha256": "b", "inputs": {}, "counts": {},
            "config": {}, "seed": 0, "adapter_sha256": files.hash_file(weights), "outputs": [_hashed(folder, weights)],
            "dataset": [_hashed(folder, folder / DATASET)],
        }  # fmt: skip
        values["outputs"].append(_hashed(folder, folder / "adapter/config.json"))
        registry.save(RoundManifest(**values))


def _hashed(folder: Path, path: Path) -> FileHash:
    name = path.relative_to(folder).as_posix()
    return FileHash(path=name, sha256=files.hash_file(path), size_bytes=path.stat().st_size)


def _promote(project: Project, number: int) -> None:
    with project.locked("promote") as ctx:
        promotion.force(ctx, number, reason="a test", by="test")


def test_a_round_is_served_and_rolled_back_on_another_machine(bucket: BucketServer, tmp_path: Path) -> None:
    one, other = machine(tmp_path / "one"), tmp_path / "other"
    seen: list[list[int]] = []

    def look(request: str) -> None:  # a machine that looks just before the document is there
        if request == f"PUT {HERE}/rounds/0001/2.json" and not seen:
            seen.append(machine(tmp_path / "early").registry.numbers())

    bucket.before = look
    _train(one, 1)
    assert seen == [[]]
    _train(one, 2)
    _promote(one, 1)
    _promote(one, 2)
    assert not [name for name in bucket.names() if "checkpoint" in name or "/work" in name]
    assert all(
        sha256(kept.body).hexdigest() == name.rpartition("/")[2]
        for name, kept in bucket.objects.items()
        if "/files/" in name
    )
    answer = machine(other).champion()
    assert (answer.round, answer.decision) == (2, "forced")
    assert Path(answer.adapter) == other / "rounds/0002/adapter"
    assert not (other / "rounds/0001/adapter").exists()  # nobody has asked for it
    assert machine(other).registry.sound_adapter(1) == other / "rounds/0001/adapter"

    assert machine(other).rollback(reason="worse").champion_after == 1
    assert (other / "rounds/champion").readlink() == Path("0001/adapter")
    again = machine(tmp_path / "one")
    assert again.champion().round == 1  # before any command here has moved the pointer
    assert (again.registry.champion, again.registry.manifest(2).state) == (1, "retired")
    assert again.registry.problems([1, 2]) == []
    with again.locked("train") as ctx:
        assert (ctx.registry.root / "champion").readlink() == Path("0001/adapter")
    lines = (tmp_path / "one/rounds/promotions.jsonl").read_text()
    there = sorted(name for name in bucket.names() if "/promotions/" in name)
    assert lines == "".join(bucket.objects[f"/b/{name}"].body.decode() for name in there)
    assert there[-1] == "team/project/ledgers/promotions/000003.json"


def test_of_two_machines_that_promote_at_once_one_is_told(bucket: BucketServer, tmp_path: Path) -> None:
    one, other = machine(tmp_path / "one"), machine(tmp_path / "other")
    _train(one, 1)
    _train(one, 2)
    turns = [other]

    def meanwhile(request: str) -> None:
        if request.startswith(f"PUT {HERE}/ledgers/promotions/") and turns:
            _promote(turns.pop(), 2)

    bucket.before = meanwhile
    with pytest.raises(BusyError, match="another machine has written to the ledger `promotions`") as refused:
        _promote(one, 1)
    assert refused.value.exit_code == 4
    assert [name for name in bucket.names() if "promotions" in name] == ["team/project/ledgers/promotions/000001.json"]
    assert machine(tmp_path / "one").registry.champion == 2
    _promote(one, 1)
    assert machine(tmp_path / "other").registry.aliases() == {"champion": 1, "challenger": None, "previous": 2}


@pytest.mark.usefixtures("bucket")
def test_a_killed_decision_is_finished_and_a_number_is_taken_once(tmp_path: Path) -> None:
    one, other = machine(tmp_path / "one"), machine(tmp_path / "other")
    _train(one, 1)
    _promote(one, 1)
    registry = tmp_path / "one" / "rounds"
    (registry / "aliases.json").unlink()  # killed between the line and the pointer
    (registry / "promotions.jsonl").unlink()
    with machine(tmp_path / "one").locked("train") as ctx:
        assert ctx.registry.champion == 1
        ctx.registry.shared.claim(2)
        with other.locked("train") as there:
            assert there.registry.next_number() == 3
            with pytest.raises(BusyError, match="has begun round 2"):
                there.registry.shared.claim(2)
        assert ctx.registry.next_number() == 2


@pytest.mark.slow
def test_a_machine_cut_off_at_any_request_goes_on_where_it_was(bucket: BucketServer, tmp_path: Path) -> None:
    def work(folder: Path, url: str) -> None:
        if 1 not in machine(folder, url).registry.trained():
            _train(machine(folder, url), 1)
        _promote(machine(folder, url), 1)

    work(tmp_path / "whole", f"{URL}/whole")
    requests, cuts = len(bucket.asked), 0
    for cut in range(1, requests + 1):
        folder, url, left = tmp_path / str(cut), f"{URL}/{cut}", [cut]

        def refuse(_: str, left: list[int] = left) -> None:
            left[0] -= 1
            bucket.refuses = left[0] <= 0

        bucket.before = refuse
        try:
            work(folder, url)
        except BucketError:
            cuts += 1
        bucket.before, bucket.refuses = lambda _: None, False
        seen = machine(tmp_path / f"{cut}-early", url).registry
        assert seen.problems(seen.numbers()) == [], cut
        work(folder, url)
        other = machine(tmp_path / f"{cut}-other", url).registry
        assert (other.champion, len(other.promotions()), other.problems([1])) == (1, 1, []), cut
    assert cuts == len(range(1, requests + 1)) > 5


def test_gc_and_forget_remove_what_no_round_names(bucket: BucketServer, tmp_path: Path) -> None:
    one = machine(tmp_path / "one")
    for number in (1, 2):
        _train(one, number)
    _promote(one, 2)
    assert machine(tmp_path / "other").registry.sound_adapter(1) is not None
    for kept in bucket.objects.values():
        kept.modified = kept.modified.replace(year=2020)
    weights = f"{HERE}/rounds/0001/files/{files.hash_text('weights 1')}"
    assert weights in bucket.objects
    assert machine(tmp_path / "two").gc(Kept(rounds=1)).count > 0
    assert weights not in bucket.objects
    other = machine(tmp_path / "other")
    with other.locked("gc") as ctx:
        assert not (ctx.registry.root / "0001/adapter" / ADAPTER_WEIGHTS).exists()
        assert ctx.registry.manifest(1).erased
        assert ctx.registry.sound_adapter(2) is not None
        ctx.registry.shared.claim(3)
        (ctx.registry.root / "0003").mkdir()
    rows = f"{HERE}/rounds/0002/files/{files.hash_file(tmp_path / 'one/rounds/0002' / DATASET)}"
    with one.locked("forget") as ctx, ctx.store.place.alone("forget", [], all_parts=True):
        files.atomic_write(ctx.registry.folder(2) / DATASET, "")
        ctx.registry.share(forgetting=True)
        assert ctx.registry.next_number() == 4  # round 3 is being trained on what was forgotten
    assert rows not in bucket.objects
    with other.locked("train") as ctx:
        assert not (ctx.registry.root / "0003").exists()
        assert (ctx.registry.folder(2) / DATASET).read_text() == ""
        with pytest.raises(BusyError, match="round 3"):
            ctx.registry.shared.claim(3)


def test_what_another_machine_has_just_sent_is_neither_removed_nor_replaced(
    bucket: BucketServer, tmp_path: Path
) -> None:
    one = machine(tmp_path / "one")
    _train(one, 1)
    with one.locked("gc") as ctx:
        with machine(tmp_path / "other").locked("eval") as there:
            files.atomic_write(there.registry.folder(1) / "eval/looks/1-1.json", "{}")
        with ctx.store.place.alone("gc", [], all_parts=True):
            ctx.registry.share()
        scores = f"{HERE}/rounds/0001/files/{files.hash_text('{}')}"
        assert scores in bucket.objects
        (ctx.registry.folder(1) / "metrics.jsonl").write_text("")
        with pytest.raises(BusyError, match="another machine has written round 1"):
            ctx.registry.share()
        (ctx.registry.folder(1) / "metrics.jsonl").unlink()
    assert (machine(tmp_path / "one").registry.folder(1) / "eval/looks/1-1.json").read_text() == "{}"


def test_what_was_changed_in_the_bucket_is_refused(bucket: BucketServer, tmp_path: Path) -> None:
    one = machine(tmp_path / "one")
    _train(one, 1)
    _promote(one, 1)
    line, newest = f"{HERE}/ledgers/promotions/000001.json", f"{HERE}/rounds/0001/3.json"
    decision, document = bucket.objects[line].body, json.loads(bucket.objects[newest].body)
    bucket.put(line, decision.replace(b'"previous_sha256":""', b'"previous_sha256":"00"'))
    with pytest.raises(StoreError, match="does not follow from the line before"):
        machine(tmp_path / "a").log()
    bucket.put(line, decision)
    for path in ("../../x", "/x", "work/x", ".x", "manifest.json"):
        changed = {**document, "files": [{**document["files"][0], "path": path}]}
        bucket.put(newest, json.dumps(changed).encode())
        with pytest.raises(StoreError, match="damaged: not a round"):
            machine(tmp_path / "a").log()
    bucket.put(newest, json.dumps(document).encode())
    bucket.put(f"{HERE}/rounds/0001/files/{files.hash_text('weights 1')}", b"other wei")
    with pytest.raises(StoreError, match="not what was written"):
        machine(tmp_path / "a").champion()
    assert not list(tmp_path.rglob("*.partial"))
    mine = tmp_path / "mine"
    _train(alone := machine(mine, ".flywheel"), 1)
    _promote(alone, 1)
    with pytest.raises(StoreError, match="is another than here"):
        machine(mine).log()


def test_rounds_that_were_here_first_go_up_with_the_first_command(bucket: BucketServer, tmp_path: Path) -> None:
    here = machine(tmp_path / "one", ".flywheel")
    _train(here, 1)
    old = here.registry.manifest(1).model_copy(update={"outputs": []})  # of a version that listed no files
    here.registry.save(old)
    _promote(here, 1)
    with here.locked("eval") as ctx:
        ctx.registry.candidates.append(
            LedgerEntry(event="trained", round=1, candidate_sha256=files.hash_text("weights 1"))
        )
    assert not bucket.objects
    before = (tmp_path / "one/rounds/promotions.jsonl").read_bytes()
    with machine(tmp_path / "one").locked("gc"):
        pass
    assert (tmp_path / "one/rounds/promotions.jsonl").read_bytes() == before
    other = machine(tmp_path / "other")
    assert other.champion().round == 1
    with machine(tmp_path / "third").locked("eval") as ctx:
        ctx.registry.save(ctx.registry.manifest(1).model_copy(update={"method_reason": "another"}))
    assert machine(tmp_path / "fourth").registry.sound_adapter(1) is not None
    assert [entry.event for entry in other.registry.candidates.entries()] == ["trained"]

"""Strange files beside logs: set aside with their reason, tried again when something changes, never a stop."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.config import Config
from flywheel.errors import IngestError
from flywheel.pipeline.ingest.detect import readers
from flywheel.pipeline.ingest.quarantine import MEANING
from flywheel.pipeline.ingest.run import ingest_logs
from flywheel.pipeline.ingest.verdicts import Tally, judge
from flywheel.store import Store
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from flywheel.results.data import IngestAnswer

BAD = "not json, private words\n"
STRANGE = {
    "oracle.csv": "task,answer\n1,2\n2,3\n",
    "broken.json": '{"messages": [1, 2',
    "layout.jsonl": '{"agent": "x", "dialog": [{"who": "me", "say": "hi"}]}\n',
    "picture.png": "\x00\x01\x02",
}


def chat(name: str, count: int) -> str:
    """Return lines of a log, one conversation each."""
    lines = []
    for n in range(count):
        asked = {"role": "user", "content": f"question {n} of {name}"}
        answer = {"message": {"role": "assistant", "content": f"answer {n}"}, "finish_reason": "stop"}
        body = {"model": "m", "choices": [answer]}
        lines.append(json.dumps({"request": {"model": "m", "messages": [asked]}, "response": body}) + "\n")
    return "".join(lines)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "good.jsonl").write_text(chat("good", 30))
    return tmp_path


def run(project: Path, *paths: str, **changes: Any) -> tuple[Store, IngestAnswer]:
    store = Store(project / ".flywheel")
    store.create()
    config = Config.model_validate({"ingest": changes.pop("ingest", {})})
    places = [project / path for path in paths or ("logs",)]
    answer = ingest_logs(store, config, project, places, key=b"k", **changes)
    bad = sum(answer.quarantined.values()) + sum(answer.ignored.values())
    assert answer.read == answer.kept + answer.duplicate + bad
    return store, answer


def aside(answer: IngestAnswer) -> dict[str, str]:
    return {one.file: one.reason for one in answer.set_aside}


def event_ids(store: Store) -> list[str]:
    return sorted(store.table("events", "ingest").collect()["event_id"].to_list())


def test_strange_files_are_set_aside_and_the_rest_is_stored(project: Path) -> None:
    for name, content in STRANGE.items():
        (project / "logs" / name).write_text(content)
    store, answer = run(project)

    assert (answer.kept, answer.refused) == (30, [])
    assert set(aside(answer)) == {f"logs/{name}" for name in STRANGE}
    assert set(aside(answer).values()) <= set(MEANING)
    rows = store.table("quarantine", "ingest").collect()
    assert set(rows["source_file"]) == set(aside(answer))
    assert "private" not in answer.model_dump_json()
    snapshot = store.current("ingest")
    assert snapshot is not None
    assert sum(n for reason, n in snapshot.funnel.items() if "quarantined" in reason) == len(STRANGE)


def test_a_bad_file_does_not_block_good_ones_and_none_of_it_is_stored(project: Path) -> None:
    (project / "logs" / "bad.jsonl").write_text(chat("bad", 30) + BAD * 10)
    store, answer = run(project)

    assert (answer.kept, answer.read, answer.quarantined) == (30, 70, {"bad_file": 40})
    assert aside(answer) == {"logs/bad.jsonl": "bad_file"}
    assert "10 of 40 records are unreadable" in answer.set_aside[0].detail
    assert "logs/bad.jsonl:31" in answer.set_aside[0].detail
    assert "private" not in answer.set_aside[0].detail
    clean, _ = run_alone(project, "good.jsonl")
    assert event_ids(store) == event_ids(clean)


def run_alone(project: Path, *names: str) -> tuple[Store, IngestAnswer]:
    other = project / "other"
    (other / "logs").mkdir(parents=True)
    for name in names:
        (other / "logs" / name).write_bytes((project / "logs" / name).read_bytes())
    return run(other)


def test_what_a_bad_file_shares_with_a_good_one_is_kept(project: Path) -> None:
    """The bad file is read first, so that its events would be the known ones."""
    (project / "logs" / "a.jsonl").write_text(chat("good", 30) + BAD * 10)
    _, answer = run(project)
    assert (answer.kept, answer.duplicate) == (30, 0)


def test_a_single_bad_line_is_forgiven_where_the_source_stays_below_the_share(project: Path) -> None:
    (project / "logs" / "small.jsonl").write_text(chat("small", 4) + BAD)
    _, answer = run(project)
    assert (answer.kept, aside(answer)) == (34, {})
    with pytest.raises(IngestError, match="1 of 5 records are unreadable"):
        run_alone(project, "small.jsonl")


def test_two_small_files_of_which_one_is_bad(project: Path) -> None:
    (project / "logs" / "good.jsonl").write_text(chat("good", 3))
    (project / "logs" / "bad.jsonl").write_text(chat("bad", 1) + BAD)
    _, answer = run(project)
    assert (answer.kept, aside(answer)) == (3, {"logs/bad.jsonl": "bad_file"})


def test_a_log_that_ends_inside_a_line_is_not_bad(project: Path) -> None:
    (project / "logs" / "growing.jsonl").write_text(chat("growing", 3)[:-20])
    _, answer = run(project)
    assert (answer.kept, aside(answer), answer.quarantined) == (32, {}, {"truncated": 1})


def test_a_file_that_was_set_aside_is_tried_again_when_something_changes(project: Path) -> None:
    bad = project / "logs" / "bad.jsonl"
    bad.write_text(chat("bad", 30) + BAD * 10)
    run(project)
    _, same = run(project)
    assert (same.read, same.unchanged, list(aside(same))) == (0, 2, ["logs/bad.jsonl"])

    _, tolerant = run(project, ingest={"max_quarantine": 0.5})
    assert (tolerant.kept, aside(tolerant), tolerant.quarantined) == (30, {}, {"bad_json": 10})


def test_a_file_that_was_set_aside_is_read_when_it_is_mended(project: Path) -> None:
    bad = project / "logs" / "bad.jsonl"
    bad.write_text(chat("bad", 30) + BAD * 10)
    run(project)
    bad.write_text(chat("bad", 30))
    store, mended = run(project)
    assert (mended.kept, aside(mended)) == (30, {})
    assert store.table("quarantine", "ingest").collect().is_empty()


def test_a_log_that_goes_bad_keeps_what_was_read_and_goes_on_there(project: Path) -> None:
    log = project / "logs" / "good.jsonl"
    run(project)
    log.write_text(chat("good", 30) + BAD * 10)
    store, bad = run(project, strict=False)
    assert (bad.kept, list(aside(bad))) == (0, ["logs/good.jsonl"])
    assert len(event_ids(store)) == 30

    log.write_text(chat("good", 30) + chat("more", 5))
    store, mended = run(project)
    assert (mended.read, mended.kept, aside(mended)) == (5, 5, {})


def test_new_lines_are_judged_with_the_log_that_they_belong_to(project: Path) -> None:
    run(project)
    with (project / "logs" / "good.jsonl").open("a") as log:
        log.write(BAD)
    _, answer = run(project)
    assert (answer.quarantined, aside(answer)) == ({"bad_json": 1}, {})


def test_a_source_that_is_mostly_bad_is_refused_and_others_are_stored(project: Path) -> None:
    (project / "exports").mkdir()
    for n in range(5):
        (project / "exports" / f"{n}.jsonl").write_text(chat(f"e{n}", 30) + (BAD * 10 if n else ""))
    store, answer = run(project, "logs", "exports")

    assert answer.kept == 30
    assert [Path(source.source).name for source in answer.refused] == ["exports"]
    assert "4 of its 5 files" in answer.refused[0].reason
    assert answer.quarantined == {"bad_file": 160, "bad_source": 30}
    assert not any("exports" in name for name in store.table("events", "ingest").collect()["source_file"])
    for n in range(1, 5):
        (project / "exports" / f"{n}.jsonl").unlink()
    _, after = run(project, "logs", "exports")
    assert (after.kept, after.refused) == (30, [])


def test_many_small_files_together_may_exceed_the_share(project: Path) -> None:
    (project / "small").mkdir()
    for n in range(10):
        (project / "small" / f"{n}.jsonl").write_text(chat(f"s{n}", 4) + BAD)
    _, answer = run(project, "logs", "small")
    assert (answer.kept, len(answer.set_aside), len(answer.refused)) == (30, 10, 1)


def test_one_bad_document_of_thirteen_is_set_aside(project: Path) -> None:
    """Trajectory files hold one record each: one that its reader refuses is one file."""
    for n in range(13):
        trajectory = {"traj": [{"role": "user", "content": f"{n}"}], "task_id": n, "reward": 1.0, "trial": 0}
        if n == 5:
            trajectory["traj"] = [7]
        (project / "logs" / f"{n}.json").write_text(json.dumps([trajectory]))
    _, answer = run(project)
    assert (answer.kept, aside(answer)) == (42, {"logs/5.json": "bad_record"})


def test_nothing_readable_at_all_is_an_error_and_stores_nothing(project: Path) -> None:
    (project / "logs" / "good.jsonl").unlink()
    for name, content in STRANGE.items():
        (project / "logs" / name).write_text(content)
    with pytest.raises(IngestError, match="nothing can be read") as caught:
        run(project)
    assert "logs/broken.json" in caught.value.message
    assert Store(project / ".flywheel").current("ingest") is None


def test_a_named_file_that_gives_nothing_is_a_refused_source(project: Path) -> None:
    (project / "oracle.csv").write_text(STRANGE["oracle.csv"])
    _, answer = run(project, "logs", "oracle.csv")
    assert (answer.kept, [Path(s.source).name for s in answer.refused]) == (30, ["oracle.csv"])


def test_a_strange_member_of_an_archive_is_set_aside(project: Path) -> None:
    with zipfile.ZipFile(project / "logs" / "all.zip", "w") as archive:
        archive.writestr("a.jsonl", chat("a", 30))
        archive.writestr("oracle.csv", STRANGE["oracle.csv"])
        archive.writestr("bad.jsonl", chat("b", 30) + BAD * 10)
    _, answer = run(project)
    members = {"logs/all.zip!/bad.jsonl": "bad_file", "logs/all.zip!/oracle.csv": "unknown_format"}
    assert (answer.kept, aside(answer)) == (60, members)
    _, again = run(project)
    assert (again.read, aside(again)) == (0, members)


def test_special_files_are_refused_and_never_waited_for(project: Path) -> None:
    pipe = project / "logs" / "pipe"
    os.mkfifo(pipe)
    for path in ("logs/pipe", "logs/p*"):
        with pytest.raises(IngestError, match="is a FIFO"):
            run(project, path)
    with pytest.raises(IngestError, match="is a FIFO, not a file"):
        readers(Config().ingest, project, pipe)
    for path in ("logs", "logs/*", "l*/p*"):
        _, answer = run(project, *([] if path == "logs" else [path, "logs/good.jsonl"]))
        assert [(row.path, row.why) for row in answer.not_read] == [("logs/pipe", "a FIFO")]


def test_links_that_lead_out_and_devices_are_counted(project: Path) -> None:
    (project / "logs" / "out").symlink_to("/etc")
    (project / "logs" / "loop").symlink_to(project / "logs" / "loop")
    (project / "logs" / "again.jsonl").symlink_to(project / "logs" / "good.jsonl")
    _, answer = run(project)
    assert [row.path for row in answer.not_read] == ["logs/loop", "logs/out"]
    with pytest.raises(IngestError, match="is a device"):
        run(project, "/dev/null")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read_is_counted(project: Path) -> None:
    (project / "logs" / "closed").mkdir()
    (project / "logs" / "mine.jsonl").write_text(chat("mine", 2))
    for path in ("closed", "mine.jsonl"):
        (project / "logs" / path).chmod(0)
    _, answer = run(project)
    assert [row.path for row in answer.not_read] == ["logs/closed"]
    assert aside(answer) == {"logs/mine.jsonl": "unreadable_file"}


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 9), st.integers(0, 200)), min_size=1),
    st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_no_file_above_the_limit_is_kept_unless_all_kept_together_stay_below_it(
    files: dict[str, tuple[int, int]], limit: float
) -> None:
    """The one rule, on any counts: (unreadable, readable) records of the files of one source."""
    counts = {name: (bad, bad + good) for name, (bad, good) in files.items() if bad + good}
    tally = Tally()
    for name, (bad, read) in counts.items():
        tally.read[name] = read
        if bad:
            tally.bad[name], tally.first[name] = bad, f"{name}:1: bad_json: no"
    verdicts, empty = judge(tally, dict.fromkeys(counts, Path("logs")), {}, limit)
    kept = {name: counts[name] for name in counts if name not in verdicts.files and name not in empty}
    over = {name for name, (bad, read) in kept.items() if bad > limit * read}
    assert all(kept[name][0] == 1 for name in over)
    assert not over or sum(bad for bad, _ in kept.values()) <= limit * sum(read for _, read in kept.values())
    assert all(bad > limit * read for bad, read in (counts[name] for name in {*verdicts.files, *empty}))


def test_the_order_of_files_changes_nothing(project: Path) -> None:
    contents = {f"{n}.jsonl": chat(f"f{n}", 20) + BAD * (n % 3) for n in range(6)}
    stores = []
    names = sorted(contents)
    for number, order in enumerate((names, names[::-1])):
        place = project / f"order{number}"
        (place / "logs").mkdir(parents=True)
        for name, old in zip(names, order, strict=True):
            (place / "logs" / name).write_text(contents[old])
        stores.append(event_ids(run(place)[0]))
    assert stores[0] == stores[1]


def test_readers_tells_why_a_file_is_set_aside(project: Path) -> None:
    from flywheel.project import Project

    (project / "logs" / "bad.jsonl").write_text(chat("bad", 30) + BAD * 10)
    (project / "logs" / "broken.json").write_text(STRANGE["broken.json"])
    verdict = Project(project).readers(project / "logs" / "bad.jsonl").verdict
    assert "10 of its first 40 records are unreadable, more than ingest.max_quarantine allows" in verdict
    assert "private" not in verdict
    assert "sets it aside" in Project(project).readers(project / "logs" / "broken.json").verdict

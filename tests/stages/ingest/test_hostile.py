"""Logs made to break a reader of logs: each is refused or read, with the limit that it met named, in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import zstandard
from flywheel.config import IngestConfig
from flywheel.extensions import BadRecordError, Reader, Sample
from flywheel.stages.ingest.batches import BlockBuilder
from flywheel.stages.ingest.files import FileReading
from flywheel.stages.ingest.framing.framed import Bad
from flywheel.stages.ingest.framing.framer import Framing, Limits
from flywheel.stages.ingest.framing.opening import Content, Stream, file_content
from flywheel.stages.ingest.sources import Known, start_of
from tests.projects import flywheel
from tests.stages.ingest.mutate import in_time, wrong_with

Take = Callable[..., Any]
Pairs = Callable[..., list[dict[str, Any]]]
RATIO, RECORD = "ingest.max_expand_ratio", "ingest.max_record_mb"


def asked(text: str, **more: Any) -> str:
    """A line of an OpenAI log with something in it, as the text of JSON."""
    record = {
        "timestamp": 1790850000,
        "request": {"messages": [{"role": "user", "content": "TEXT"}]},
        "response": {"choices": [{"message": {"role": "assistant", "content": "a"}}]},
    }
    return json.dumps(record | more).replace('"TEXT"', text)


def calling(arguments: str) -> str:
    """A line whose answer calls a tool with these arguments."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "ARGUMENTS"}}
    response = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    return asked('"u"', response=response).replace('"ARGUMENTS"', arguments)


GOOD = asked('"u"')


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (asked("[" * 201 + "]" * 201), ""),
        (calling('{"a":' * 300 + "1" + "}" * 300), "bad_record: nested deeper than 200 levels"),
        (asked("[" * 100_000 + "]" * 100_000), "bad_record: nested too deeply"),
        ("[" * 100_000, "bad_record: nested too deeply"),
        (asked('"' + '{\\"a\\":' * 900 + "1" + "}" * 900 + '"'), ""),
        (asked("9" * 5000), "bad_record: a number with too many digits"),
        (asked("9" * 400), ""),
        (asked("NaN"), ""),
        (asked('"u"', temperature=float("nan")), ""),
        (asked('"u"', temperature=float("-inf")), ""),
        (asked('"\\ud83d"'), ""),
        (asked('"a"').replace('"a"', '"\xff"'), "bad_encoding: not UTF-8 at byte"),
        (asked('"u", "content": "v"'), ""),
        (asked('"u"', timestamp=1e30), ""),
        (asked('"u"', timestamp=-1e30), ""),
        (asked('"u"', timestamp=10**400), ""),
        (asked('"u"', timestamp=253402300800), ""),
        (asked('"u"', timestamp="9999-12-31T23:59:59-23:59"), ""),
        (asked('"u"', timestamp="0001-01-01T00:00:00+23:59"), ""),
        (asked('"u"', timestamp="1066-10-14"), ""),
        (asked('"u"', usage={"prompt_tokens": 2**70, "completion_tokens": -5}), ""),
        (asked('"u"', session_id="../../etc/passwd"), ""),
        (asked('"u"', session_id="/" * 5000), ""),
        (asked('"u"', session_id="a\0b\nc"), ""),
        (asked('"u\\u0000"'), ""),
    ],
)  # fmt: skip
def test_a_hostile_line_costs_itself_at_most(line: str, told: str, tmp_path: Path, take: Take) -> None:
    lines = [GOOD, line.replace("\xff", "\udcff"), GOOD.replace("1790850000", "1790850001")]
    (tmp_path / "x").write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    with in_time(10, "the line"):
        taken = take()
    assert (taken.read, taken.adds_up()) == (3, True)
    refused = [f"{r['reason']}: {r['detail']}" for r in taken.quarantined.iter_rows(named=True)]
    assert [r.startswith(told) for r in refused] == [True] * bool(told), refused
    assert taken.events.filter(source_line=3).height == 1
    assert set(taken.events["source_format"]) == {"openai"}


def tar_gz(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo("x.jsonl")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def parquet() -> bytes:
    """The same long text in every row: a dictionary holds it once."""
    buffer = io.BytesIO()
    given = json.loads(asked(json.dumps("x" * 100_000)))
    row = {name: json.dumps(given[name]) for name in ("request", "response")}
    pl.DataFrame([row] * 1500).write_parquet(buffer)
    return buffer.getvalue()


def arrow(*, shared: bool) -> bytes:
    """The same long text in every row: packed, or once in a dictionary."""
    given = json.loads(asked(json.dumps("x" * 100_000)))
    row = {name: json.dumps(given[name]) for name in ("request", "response")}
    texts = {name: pa.array([text] * 1500) for name, text in row.items()}
    return arrow_of({name: column.dictionary_encode() if shared else column for name, column in texts.items()})


def arrow_of(columns: dict[str, pa.Array]) -> bytes:
    buffer = io.BytesIO()
    table = pa.table(columns)
    with pa.ipc.new_stream(buffer, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return buffer.getvalue()


def frame() -> bytes:
    packed = zstandard.compress(b" " * 60_000_000)
    return len(packed).to_bytes(4, "big") + packed


BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: gzip.compress(b" " * 60_000_000),
    "zstd": lambda: zstandard.compress(b" " * 60_000_000),
    "gzip of a line": lambda: gzip.compress(GOOD.encode() + b"\n" + b"0" * 60_000_000),
    "tar": lambda: tar_gz(b" " * 60_000_000),
    "frames": frame,
    "parquet": parquet,
    "arrow": lambda: arrow(shared=False),
    "arrow, one text in many rows": lambda: arrow(shared=True),
    "arrow, lists of nothing": lambda: arrow_of({"a": pa.ListArray.from_arrays([0, 10**9], pa.nulls(10**9))}),
}
EMPTY = (
    b"",
    b"\n",
    b" \r\n\t",
    b"\xef\xbb\xbf",
    b"\0" * 4096,
    b"[]",
    b"{}",
    b"null",
    b"[[]]",
    b"\x1f\x8b",
    b"PAR1",
    b"ARROW1",
    b"ARROW1\0\0" + b"\xff" * 8,
    b"\xff" * 4,
    b"\xff" * 4 + bytes(4),
    b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(40),
    b"PK",
)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_names_its_limit(name: str, tmp_path: Path, take: Take) -> None:
    content = BOMBS[name]()
    assert len(content) < 1_000_000
    (tmp_path / "x").write_bytes(content)
    with in_time(20, "the bomb"):
        taken = take()
    assert taken.adds_up()
    assert RATIO in taken.quarantined["detail"][-1], taken.quarantined["detail"].to_list()


def test_rows_of_nothing_come_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content := arrow_of({"a": pa.nulls(10**9)}))
    with in_time(20, "the rows"):
        *_, last = Framing(file_content(tmp_path / "x", len(content)), Limits(record_bytes=10**6, expand_ratio=500))
    assert isinstance(last, Bad)
    assert RATIO in last.detail


@pytest.mark.parametrize("frame", [b"{", b"[" * 1000, b"\x28\xb5\x2f\xfd" * 3])
def test_a_frame_that_claims_much_is_no_memory(frame: bytes, tmp_path: Path, take: Take) -> None:
    (tmp_path / "x").write_bytes((2**32 - 1).to_bytes(4, "big") + frame)
    taken = take()
    assert (taken.read, taken.quarantined.height) == (1, 1)


AN_OBJECT, A_LIST = {"a": 1}, ["a"]
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]}
UNFIT: list[tuple[str, dict[str, Any]]] = [
    ("platforms", {"chatId": "c", "dataId": "d", "obj": A_LIST, "value": []}),
    ("platforms", {"sender": AN_OBJECT, "session_id": "s", "flow_id": "f", "text": "x"}),
    ("platforms", {"id": "c", "message": [{"role": None, "content": "<tool_call>{}</tool_call>"}], "dialog_id": "d",
                   "reference": []}),
    ("opencode", {"session_id": "s", "time_created": 1, "time_updated": 1, "data": {"role": "assistant"}}),
    ("claude_code", {"type": "assistant", "sessionId": "s", "uuid": "u", "message": RESULT}),
    ("anthropic", {"request": {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]},
                   "response": {"type": "message", "role": "assistant", "content": RESULT["content"]}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "record"), UNFIT)
def test_values_of_another_type_are_refused_or_read(
    name: str, record: dict[str, Any], readers: Mapping[str, Reader]
) -> None:
    readers[name].sniff(Sample("x", [record]))
    with suppress(BadRecordError):
        assert not [wrong for event in readers[name].read(record, 1) for wrong in wrong_with(event)]


def test_a_screens_tool_that_is_no_name_is_none_of_its_own(tmp_path: Path, take: Take) -> None:
    said = [{"ts": 1790850000000 + n, "type": "say", "say": say, "text": text} for n, (say, text) in enumerate([
        ("task", "Where is order 7?"), ("tool", json.dumps({"tool": AN_OBJECT})), ("completion_result", "In Turin."),
    ])]  # fmt: skip
    (tmp_path / "ui_messages.json").write_text(json.dumps(said), encoding="utf-8")
    assert take().adds_up()


class Failing(io.BytesIO):
    """A stream that fails as code does that trusts what it reads."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > 2_500_000:
            raise TypeError("a text of the log")
        return super().read(size)


def test_where_our_own_code_fails_at_a_file_the_rest_of_it_is_refused(
    tmp_path: Path, readers: Mapping[str, Reader]
) -> None:
    """So that the other files of a night are read; the refusal names the fault and quotes nothing."""
    lines = [asked(f'"Where is order {n}?"') for n in range(25_000)]
    written = "".join(f"{line}\n" for line in lines).encode()
    content = Content("a.jsonl", len(written), lambda _: Stream(Failing(written)))
    path = tmp_path / "a.jsonl"
    path.write_bytes(written)
    cfg, builder = IngestConfig(), BlockBuilder()
    reading = FileReading(path, "a.jsonl", start_of(path, "a.jsonl", Known([], tmp_path), 100), cfg, readers)
    blocks = [*reading.of(content, builder), builder.take()]
    framed = [record for block in blocks for segment in block.segments for record in segment.records]
    (refusal,) = [record for record in framed if isinstance(record, Bad)]
    assert refusal.detail.startswith("taking it apart fails: TypeError")
    assert "a text of the log" not in refusal.detail
    assert len(framed) > 20


@pytest.mark.parametrize("content", EMPTY)
def test_files_with_nothing_in_them(content: bytes, tmp_path: Path, take: Take) -> None:
    (tmp_path / "x.jsonl").write_bytes(content)
    taken = take()
    assert taken.adds_up()
    assert taken.events.height == 0


def test_a_line_over_the_limit_names_it_and_the_next_is_read(tmp_path: Path, take: Take) -> None:
    lines = (GOOD, asked(json.dumps("x" * 1_100_000)), GOOD.replace("1790850000", "1790850001"))
    (tmp_path / "x").write_text("\n".join(lines))
    taken = take(cfg=IngestConfig(max_record_mb=1))
    assert RECORD in taken.quarantined["detail"][0]
    assert taken.events["source_line"].to_list() == [1, 3]


@pytest.mark.e2e
@pytest.mark.parametrize(("megabytes", "kept"), [(60, 3), (100, 2), (1000, 2)])
def test_a_line_of_many_megabytes(megabytes: int, kept: int, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "x.jsonl"
    path.parent.mkdir()
    before, after = asked('"MARK"').split("MARK")
    with path.open("w") as log:
        log.write(GOOD + "\n" + before)
        for _ in range(megabytes):
            log.write("x" * 1_000_000)
        log.write(after + "\n" + GOOD.replace("1790850000", "1790850001") + "\n")
    (tmp_path / "flywheel.toml").write_text("[ingest]\nmax_quarantine = 1.0\n")
    with in_time(120, "a long line"):
        answer = json.loads(flywheel(tmp_path, "--json", "ingest").stdout)
    assert (answer["read"], answer["kept"]) == (3, kept)
    assert [RECORD in told for told in answer["first_quarantined"]] == [True] * (3 - kept)


def test_ids_that_look_like_paths_lead_nowhere(tmp_path: Path) -> None:
    """Ids of logs name no file: what is written stands in the store, under names of its own."""
    project = tmp_path / "a" / "b" / "project"
    (project / "logs").mkdir(parents=True)
    names = ["../../../etc/passwd", "/etc/passwd", "..", ".", "C:\\x", "~/x", "a/../../b", "%2e%2e%2f", "\u202e/x"]
    lines = [asked(json.dumps(n), session_id=n, task_id=n, user=n, metadata={"release": n}, model=n) for n in names]
    (project / "logs" / "x.jsonl").write_text("\n".join(lines))
    flywheel(project, "ingest")
    flywheel(project, "build")
    outside = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if not p.is_relative_to(project)}
    assert outside == {"a", "a/b"}
    written = [p for p in project.rglob("*") if p.is_file() and "logs" not in p.parts]
    assert all(p.is_relative_to(project / ".flywheel") for p in written), written
    assert not [p for p in written if any(word in p.as_posix() for word in ("passwd", "..", "~"))]

"""Records of a file, and what becomes of everything that is none."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pytest
import zstandard
from flywheel.stages.ingest.framing.framed import Bad, Lines, Passed, Raw, Record
from flywheel.stages.ingest.framing.framer import Framing, Limits
from flywheel.stages.ingest.framing.opening import file_content

LIMITS = Limits(record_bytes=1_000_000, expand_ratio=500)


def frame(path: Path, limits: Limits = LIMITS) -> list[Record | Bad]:
    return parsed(Framing(file_content(path, path.stat().st_size), limits))


def parsed(framing: Framing) -> list[Record | Bad]:
    found: list[Record | Bad] = []
    for framed in framing:
        if isinstance(framed, Lines):
            found += framed.records()
            assert framed.n_records == len(list(framed.records()))
        else:
            assert not isinstance(framed, Passed)
            found.append(framed.parse() if isinstance(framed, Raw) else framed)
    return found


def told(found: list[Record | Bad]) -> list[object]:
    return [f.value if isinstance(f, Record) else (f.line, f.reason) for f in found]


LAYOUTS = {
    "lines": b'{"a":1}\n{"b":2}\n',
    "no newline at the end": b'{"a":1}\n{"b":2}',
    "blank lines and CRLF": b'{"a":1}\r\n\r\n\n{"b":2}\r\n',
    "byte order mark": b'\xef\xbb\xbf{"a":1}\n{"b":2}\n',
    "array": b'[{"a":1},{"b":2}]',
    "array over lines": b'[\n  {\n    "a": 1\n  },\n  {"b": 2}\n]\n',
    "array with a byte order mark": b'\xef\xbb\xbf[{"a":1},{"b":2}]',
    "documents over lines": b'{\n "a": 1\n}\n{\n "b": 2\n}\n',
    "server-sent events": b'event: x\ndata: {"a":1}\n\n: ping\nid: 7\ndata:{"b":2}\n\ndata: [DONE]\n',
    "messages behind their length": struct.pack(">I", 7) + b'{"a":1}' + struct.pack(">I", 7) + b'{"b":2}',
    "packed messages behind their length": b"".join(
        struct.pack(">I", len(p)) + p for p in map(zstandard.compress, (b'{"a":1}', b'{"b":2}'))
    ),
    "documents with objects in one line": b'{\n "a": 1\n}\n{"b":\n2}\n',
    "objects one behind another on a line": b'{"a":1}{"b":2}',
    "objects one behind another, and a newline": b'{"a":1} {"b":2}\n',
    "documents without newlines between": b'{\n"a": 1}{"b": 2}',
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_two_records_in_every_layout(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(LAYOUTS[name])
    assert told(frame(path)) == [{"a": 1}, {"b": 2}]


BROKEN: dict[str, tuple[bytes, list[object]]] = {
    "bad line among good ones": (b'{"a":1}\n{"a":\n{"b":2}\n', [{"a": 1}, (2, "bad_json"), {"b": 2}]),
    "bad first line": (b'oops\n{"b":2}\n', [(1, "bad_json"), {"b": 2}]),
    "invalid UTF-8": (b'{"a":1}\n{"a":"\xff\xfe"}\n', [{"a": 1}, (2, "bad_encoding")]),
    "unfinished last line": (b'{"a":1}\n{"b":', [{"a": 1}, (2, "truncated")]),
    "unfinished line with braces in a text": (b'{"a":"{x} {y}', [(1, "truncated")]),
    "line with words behind it": (b'{"a":1} oops\n', [(1, "bad_json")]),
    "cut array": (b'[{"a":1},{"b":', [{"a": 1}, (2, "truncated")]),
    "bad element": (b'[{"a":1},{"b":},{"c":3}]', [{"a": 1}, (2, "bad_json"), {"c": 3}]),
    "nested absurdly": (b'{"a":1}\n' + b'{"a":' * 5000 + b"\n", [{"a": 1}, (2, "bad_record")]),
    "zeros": (b'{"a":1}\n\0\0\0\0\n', [{"a": 1}, (2, "bad_json")]),
    "prose": (b"this is no log\nat all\n", [(0, "unknown_format")]),
    "picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), [(0, "unknown_format")]),
    "zip": (b"PK\x03\x04rest", [(0, "unknown_format")]),
    "Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", [(0, "unknown_format")]),
    "UTF-16": ('{"a":1}'.encode("utf-16"), [(0, "unknown_format")]),
    "broken Parquet": (b"PAR1 and nothing more", [(1, "truncated")]),
    "empty": (b"", []),
}


def field(number: int, content: bytes) -> bytes:
    """Write a field of a protobuf message that holds bytes."""
    size = bytes([len(content) & 0x7F | 0x80, len(content) >> 7]) if len(content) > 127 else bytes([len(content)])
    return bytes([number << 3 | 2]) + size + content


def export() -> bytes:
    """Write an OTLP export request of one span as protobuf."""
    said = field(1, b"gen_ai.prompt.0.content") + field(2, field(1, b"where is order 7? " * 6))
    span = field(1, bytes(range(16))) + field(2, bytes(range(8))) + field(5, b"chat") + field(9, said)
    resource = field(1, field(1, field(1, b"service.name") + field(2, field(1, b"shop"))))
    return field(1, resource + field(2, field(2, span)))


def framed(*messages: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(m)) + m for m in messages)


JSONL = '{"a":1}\n{"b":2}\n'
NAMED: dict[str, tuple[bytes, str]] = {
    "protobuf": (export(), "`format: json`"),
    "protobuf behind its length": (framed(export(), export()), "`format: json`"),
    "packed protobuf behind its length": (framed(zstandard.compress(export())), "`format: json`"),
    "packed protobuf": (zstandard.compress(framed(export())), "`format: json`"),
    "UTF-16 with its mark": (JSONL.encode("utf-16"), "UTF-16"),
    "UTF-16, little end first": (JSONL.encode("utf-16-le"), "UTF-16"),
    "UTF-16, big end first": (JSONL.encode("utf-16-be"), "UTF-16"),
    "SQLite": (b"SQLite format 3\0" + bytes(84), "an SQLite database inside"),
    "Feather of version 1": (b"FEA1" + bytes(60), "version 2"),
    "Excel of old": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504), "save the sheet as CSV"),
    "XML": (b'<?xml version="1.0"?>\n<log/>\n', "an XML document"),
    "XML without a head": (b"<log>\n<entry/></log>", "an XML document"),
    "web page": (b"\n<!DOCTYPE html>\n<html><body>Sign in</body></html>", "a web page"),
    "prose": (b"Hello, you there,\nthis is no log, is it?\n", "neither JSON nor a table"),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_file_in_another_form_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(NAMED[name][0])
    (bad,) = frame(path)
    assert isinstance(bad, Bad)
    assert (bad.reason, NAMED[name][1] in bad.detail) == ("unknown_format", True), bad.detail


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_record_has_a_line_and_a_reason(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(BROKEN[name][0])
    assert told(frame(path)) == BROKEN[name][1]


def test_a_long_line_is_skipped_measured_and_the_setting_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    long = json.dumps({"a": "x" * 5_000_000})
    path.write_text(f'{{"a":1}}\n{long}\n{{"b":2}}\n')
    found = frame(path)
    assert told(found) == [{"a": 1}, (2, "bad_record"), {"b": 2}]
    assert isinstance(found[1], Bad)
    assert found[1].size_bytes == len(long) + 1
    assert "ingest.max_record_mb" in found[1].detail


def test_a_cut_gzip_gives_what_it_holds_and_one_refusal(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(gzip.compress("".join(f'{{"n":{n * 7919 % 10007}}}\n' for n in range(5000)).encode())[:-40])
    found = frame(path)
    bad = [f for f in found if isinstance(f, Bad)]
    assert len(found) > 1000
    assert [b.reason for b in bad] == ["truncated"]
    assert "gzip" in bad[0].detail
    assert found[-1] is bad[0]


def test_parquet_rows_are_records(tmp_path: Path) -> None:
    import polars as pl

    path = tmp_path / "x.bin"
    pl.DataFrame({"a": [1, 2], "b": [{"c": "x"}, None]}).write_parquet(path)
    assert told(frame(path)) == [{"a": 1, "b": {"c": "x"}}, {"a": 2}]


@pytest.mark.parametrize("packed", [None, "lz4", "zstd"])
@pytest.mark.parametrize("write", [pa.ipc.new_file, pa.ipc.new_stream])
def test_arrow_rows_are_records(tmp_path: Path, write: Callable[..., Any], packed: str | None) -> None:
    rows = [{"a": n, "b": {"c": "x"}, "d": [{"e": None}], "f": ("y", "z")[n % 2]} for n in range(5)]
    table = pa.Table.from_pylist(rows)
    table = table.set_column(3, "f", table["f"].dictionary_encode())
    path = tmp_path / "data-00000-of-00001.arrow"
    with write(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=packed)) as file:
        file.write_table(table, max_chunksize=2)
    whole: list[object] = [{**row, "d": [{}]} for row in rows]
    assert told(frame(path)) == whole
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    *read, last = frame(path)
    assert (told(read), isinstance(last, Bad) and last.reason) == (whole[: len(read)], "truncated")


def test_a_feather_file_of_pandas_is_records(tmp_path: Path) -> None:
    path = tmp_path / "x.feather"
    pyarrow.feather.write_feather(pa.table({"a": [1, None], "j": ['{"k": 1}', "{no"]}), path)
    assert told(frame(path)) == [{"a": 1, "j": {"k": 1}}, {"j": "{no"}]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)
    assert told(frame(path)) == [(1, "unknown_format")]


def test_reading_ends_behind_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a":1}\n\n{"b":2}\n{"c":')
    framing = Framing(file_content(path, path.stat().st_size), LIMITS)
    assert len(list(framing)) == 3
    assert (framing.offset, framing.whole_lines, framing.whole_records) == (17, 3, 2)
    assert framing.digest == hashlib.sha256(path.read_bytes()[:17]).hexdigest()
    path.write_bytes(b'{"a":1}\n\n{"b":2}\n{"c":3}\n')
    whole = path.read_bytes()
    start = (framing.offset, framing.whole_lines, framing.whole_records, hashlib.sha256(whole[: framing.offset]))
    again = Framing(file_content(path, len(whole)), LIMITS, start=start)
    assert [(f.line, f.number, f.value) for f in parsed(again) if isinstance(f, Record)] == [(4, 3, {"c": 3})]
    assert again.digest == hashlib.sha256(whole).hexdigest()


def test_a_refused_record_can_be_recognised_again(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a":1}\n')
    (record,) = frame(path)
    assert isinstance(record, Record)
    refused = record.bad("bad_record", "why")
    assert refused == Bad(1, "bad_record", "why", 7, hashlib.sha256(b'{"a":1}').hexdigest())


LONG = b"".join(b'{"n":%d,"t":"%s"}\n' % (n, b"x" * 300) for n in range(9_000))


def test_a_long_log_is_read_many_lines_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    odd = LONG.replace(b'{"n":5000,', b'\r\n \n{"n":', 1).replace(b'{"n":7000,', b' \t{"n":7000,', 1) + b'{"n":9000'
    path.write_bytes(odd)
    framing = Framing(file_content(path, len(odd)), LIMITS)
    found = parsed(framing)
    assert [f.line for f in found] == [*range(1, 5001), *range(5003, 9004)]
    bad = [f for f in found if isinstance(f, Bad)]
    assert [(b.line, b.reason) for b in bad] == [(5003, "bad_json"), (9003, "truncated")]
    assert (framing.offset, framing.whole_lines) == (len(odd) - 9, 9002)
    assert framing.digest == hashlib.sha256(odd[:-9]).hexdigest()


@pytest.mark.parametrize("length", [1_000_000, 1_000_001, 2_500_000, 7_000_000])
def test_a_line_that_is_too_long_among_many(tmp_path: Path, length: int) -> None:
    path = tmp_path / "x.jsonl"
    line = b'{"a":"' + b"x" * (length - 9) + b'"}\n'
    content = LONG[:-1] + b"\n" + line + LONG
    path.write_bytes(content)
    framing = Framing(file_content(path, len(content)), LIMITS)
    found = parsed(framing)
    assert [f.line for f in found] == list(range(1, 18_002))
    bad = [f for f in found if isinstance(f, Bad)]
    assert [(b.line, b.size_bytes, b.content_hash) for b in bad] == [
        (9001, len(line), hashlib.sha256(line).hexdigest())
    ] * (len(line) > LIMITS.record_bytes + 1)
    assert (framing.offset, framing.digest) == (len(content), hashlib.sha256(content).hexdigest())


def test_a_document_whose_parts_stand_in_one_line_each_is_a_document(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{\n "steps": [\n  {"n": 1}\n ],\n "tail":\n  {"n": 2}\n}\n')
    assert told(frame(path)) == [{"steps": [{"n": 1}], "tail": {"n": 2}}]


ASKED = [{"role": "user", "content": 'He said "5\\" pipe",\nthen left'}]
ROW = {"id": "007", "n": 3, "cost": 0.25, "ok": True, "messages": ASKED, "output": "true", "note": None}


def table(delimiter: str, *, python: bool = False) -> str:
    """Write a row as a spreadsheet or a data frame does: with its index first, and lists as JSON or as Python."""
    cells = [repr(v) if python and isinstance(v, list) else json.dumps(v) if isinstance(v, list) else v
             for v in ROW.values()]  # fmt: skip
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([["", *ROW], [0, *cells], [], [1, *cells]])
    return text.getvalue()


@pytest.mark.parametrize("content", [
    table(",").encode(), table("\t").encode(), b"\xef\xbb\xbf" + table(";").encode(), table(",", python=True).encode(),
    gzip.compress(table(",").encode()), ("id\tmessages\n007\t" + json.dumps(ASKED) + "\n").encode(),
])  # fmt: skip
def test_rows_of_a_table_are_records_at_their_first_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    found = [f for f in frame(path) if isinstance(f, Record)]
    assert all(ROW[name] == value for f in found for name, value in f.value.items())
    assert [(f.line, f.number) for f in found] in ([(2, 1), (4, 2)], [(2, 1)])


HEADER = b"id,text,messages\n"
ROWS: dict[str, tuple[bytes, list[object]]] = {
    "other cells": (b'a,"b\nc",d\na,b\ne,f,g\n', [2, (4, "bad_record"), 5]),
    "not UTF-8": (b"a,\xff,c\nd,e,f\n", [(2, "bad_encoding"), 3]),
    "words behind a quote": (b'a,"b"c,d\ne,f,g\n', [(2, "bad_record"), 3]),
    "a quote that nothing closes": (b'a,b,c\nd,"e,f\n', [2, (3, "bad_record")]),
    "a row longer than allowed": (b"a,b,c\n" + b"x" * 1_000_001 + b",b,c\nd,e,f\n", [2, (3, "truncated")]),
    "a cell that a spreadsheet cut": (b"a,b,[" + b"7" * 32_766 + b"\nd,e,f\n", [(2, "bad_record"), 3]),
    "nested absurdly": (b"a,b," + b"[" * 300 + b"]" * 300 + b"\nd,e,f\n", [(2, "bad_record"), 3]),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_is_none_has_its_line_and_a_reason(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(HEADER + ROWS[name][0])
    assert [(f.line, f.reason) if isinstance(f, Bad) else f.line for f in frame(path)] == ROWS[name][1]


def test_two_columns_of_one_name_may_not_differ(tmp_path: Path) -> None:
    """A data frame's index is often one of its columns, too."""
    path = tmp_path / "x.csv"
    path.write_bytes(b"id,text,id\n1,a,1\n2,b,3\n")
    same, differing = frame(path)
    assert isinstance(same, Record)
    assert same.value == {"id": "1", "text": "a"}
    assert isinstance(differing, Bad)
    assert (differing.line, differing.reason, "one name" in differing.detail) == (3, "bad_record", True)

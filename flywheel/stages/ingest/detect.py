"""Which reader a file's records are for: by their content, never by the file's name.

In: the first records of a file and the installed readers. Out: the reader with the highest confidence, or a description
of the records. Files next to logs that are not logs (tool schemas, a README) are recognised here too. A sidecar, which
names the model of a run's logs, is recognised by its file name as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from pathlib import PurePosixPath
from typing import Any

from flywheel.config import RedactConfig
from flywheel.extensions import Reader, Sample
from flywheel.present import percent
from flywheel.reading.values import as_dict
from flywheel.stages.ingest.framing.texts.layouts import text_layout
from flywheel.stages.ingest.redaction.patterns import KINDS
from flywheel.stages.ingest.sidecar import is_sidecar
from flywheel.stages.ingest.sources import UNKNOWN

SAMPLE_RECORDS = 20
# What code that trusts a log's shape raises when the log has another.
READER_FAULTS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
TOOL_SCHEMAS = "tool_schemas"
TEXT_FILE = "text"
SIDECAR = "sidecar"
DATA_SET = "data_set"

THRESHOLD = 0.5  # confidence from which a reader knows a file
NONE_NEAR = "none comes near"
_SHOWN_KEYS = 8
_KEY_LENGTH = 32
_HEAD = 1 << 16  # bytes of a document in which a chat names who speaks
_DOCUMENTS = {".md", ".rst"}
_CODE = {".py", ".pyi", ".js", ".ts", ".tsx", ".jsx", ".java", ".go", ".rs", ".c", ".h", ".cpp", ".cs", ".rb", ".sh",
         ".ps1", ".jinja", ".jinja2", ".j2", ".prompty", ".css", ".sql"}  # fmt: skip
_LOGS = {".json", ".jsonl", ".ndjson", ".parquet", ".gz", ".zst", ".log"}
_OF_SQLITE = re.compile(r"\.(?:db|db3|sqlite|sqlite3|vscdb)-(?:wal|shm|journal)\Z")  # read with their database
_DOCUMENT_NAMES = {"readme", "license", "licence", "copying", "notice", "source", "changelog"}


@dataclass(frozen=True)
class Detection:
    """What was found: a reader's name, `tool_schemas` or `unknown`; `reason` is why a file is ignored or refused."""

    format: str
    confidence: float
    reason: str = ""


def detect(sample: Sample, readers: Mapping[str, Reader], *, chosen: str = "auto") -> Detection:
    """Return the reader for a file.

    Args:
        sample: the file's first records.
        readers: candidates by name.
        chosen: a reader's name when the user decided; then nothing is guessed.
    """
    if chosen != "auto":
        return Detection(chosen, 1.0)
    if not sample.records:
        return Detection(UNKNOWN, 0.0, "it is empty, or no record of it could be parsed")
    if beside := _beside(sample, readers):
        return beside
    confidence = confidences(sample, readers, every=False)
    best = max(confidence, key=lambda name: confidence[name], default="")
    if best and confidence[best] >= THRESHOLD:
        return Detection(best, confidence[best])
    near = f"nearest: {best} ({percent(confidence[best], 0)})" if best and confidence[best] > 0 else NONE_NEAR
    return Detection(UNKNOWN, confidence.get(best, 0.0), f"no reader knows its records; {near}; {_looks(sample)}")


def _beside(sample: Sample, readers: Mapping[str, Reader]) -> Detection | None:
    """Return what a file next to logs is, if it is none itself."""
    if all(map(_is_tool_schema, sample.records)):
        return Detection(TOOL_SCHEMAS, 1.0, "tool schemas")
    if all(map(_is_of_a_data_set, sample.records)):
        return Detection(DATA_SET, 1.0, "description of a data set")
    return Detection(SIDECAR, 1.0, "metadata of a run") if is_sidecar(sample, readers) else None


def confidences(sample: Sample, readers: Mapping[str, Reader], *, every: bool = True) -> dict[str, float]:
    """Return how sure each reader is of a file, by name; a file without a record is evidence for none.

    Unless every reader is to be asked, those that cannot be surer than another one is have 0.
    """
    confidence = dict.fromkeys(sorted(readers), 0.0)
    if not any(sample.records):
        return confidence
    for name in sorted(confidence, key=lambda name: -_surest(readers[name])):
        if every or max(confidence.values()) <= _surest(readers[name]):
            confidence[name] = _sniffed(readers[name], sample)
    return confidence


def _surest(reader: Reader) -> float:
    return float(getattr(reader, "surest", 1.0))


def _sniffed(reader: Reader, sample: Sample) -> float:
    try:
        return reader.sniff(sample)
    except READER_FAULTS:  # a plugin that stumbles over a foreign file does not know it
        return 0.0


def _is_tool_schema(record: Any) -> bool:
    function = as_dict(as_dict(record).get("function"))
    return as_dict(record).get("type") == "function" and "name" in function and "messages" not in record


def _is_of_a_data_set(record: Any) -> bool:
    """Whether a record is what `datasets` writes next to its Arrow files: state.json, dataset_info.json and others."""
    names = as_dict(record).keys()
    info = "features" in names and not names.isdisjoint({"builder_name", "citation", "dataset_size", "version"})
    return info or names >= {"_data_files", "_fingerprint"} or names == {"splits"}


def _looks(sample: Sample) -> str:
    """Describe records by the names of their fields; only identifiers are shown: others may be private data."""
    objects = [record for record in sample.records if isinstance(record, dict)]
    if not objects:
        return f"they are {type(sample.records[0]).__name__}s, not objects"
    keys = plain_names(objects)
    more = ", ..." if len(keys) > _SHOWN_KEYS else ""
    return f"their fields: {', '.join(keys[:_SHOWN_KEYS]) or 'none with a plain name'}{more}"


def plain_names(objects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of records' fields that are identifiers and hold nothing that redaction would replace."""
    from flywheel.stages.ingest.redaction.redact import (
        Redactor,  # loads polars; only files that no reader knows come here
    )

    redactor = Redactor(RedactConfig(kinds=sorted({kind.name for kind in KINDS})), b"")
    return sorted({key for record in objects for key in record if _is_plain(key) and redactor.text(key) == key})


def _is_plain(key: str) -> bool:
    return key.isidentifier() and key.isascii() and len(key) <= _KEY_LENGTH


def is_document_name(name: str) -> bool:
    """Whether a file has the name of a document, as there are next to logs."""
    return PurePosixPath(name.lower()).suffix in {*_DOCUMENTS, *_CODE} or is_about_a_project(name)


def is_about_a_project(name: str) -> bool:
    """Whether a file has the name of a project's own: a README, a licence, code, a template, what SQLite keeps open."""
    path = PurePosixPath(name.lower())
    return (
        bool(_OF_SQLITE.search(path.name))
        or path.suffix in _CODE
        or (path.name.split(".")[0] in _DOCUMENT_NAMES and path.suffix not in _LOGS)
    )


def is_text_document(name: str, open_at: Callable[[int], RawIOBase]) -> bool:
    """Whether a file is a document: named like one, and beginning neither like JSON nor like a chat.

    Args:
        name: of the file.
        open_at: opens its bytes from an offset.
    """
    if not is_document_name(name):
        return False
    if is_about_a_project(name):
        return True
    with BufferedReader(open_at(0)) as handle:
        head = handle.read(_HEAD).lstrip(b"\xef\xbb\xbf \t\r\n")
    return not text_layout(head) and not head.startswith((b"{", b"[", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"))

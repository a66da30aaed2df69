"""Reading what a user wrote or named: configuration, plans, answers, evaluation cases, golden rows.

Messages give the place of a problem and never quote the file: such files may hold text from logs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from flywheel.errors import FlywheelError
from flywheel.io.files import lines
from flywheel.records import Asked, canonical_json

Document = TypeVar("Document", bound=BaseModel)
Record = TypeVar("Record", bound=Asked)


def read_text(path: Path, error: type[FlywheelError]) -> str:
    """Return a file's text, without a byte order mark.

    Raises:
        FlywheelError: of the type `error`: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as wrong:
        reason = os.strerror(wrong.errno) if wrong.errno else "no such file"
        raise error(f"`{path}` cannot be read: {reason}", hint="check the path and who may read it") from None
    except UnicodeDecodeError as wrong:
        raise error(f"`{path}` is not UTF-8, at byte {wrong.start + 1}", hint="save it as UTF-8") from None


def read_document(path: Path, kind: type[Document], error: type[FlywheelError], *, hint: str) -> Document:
    """Return the JSON document that a file holds.

    Raises:
        FlywheelError: of the type `error`: it cannot be read, or does not fit; `hint` names the command to make one.
    """
    text = read_text(path, error)
    try:
        return kind.model_validate(json.loads(text))
    except ValidationError as wrong:
        first = wrong.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise error(f"`{path}`: {f'{field}: ' if field else ''}{first['msg']}", hint=hint) from None
    except (ValueError, RecursionError):
        raise error(f"`{path}` is not JSON", hint=hint) from None


def matching_files(project: Path, pattern: str, stem: str = "") -> list[Path]:
    """Return a project's files that match a pattern, in order; with a stem, only the one of that name."""
    return sorted(p for p in project.glob(pattern) if p.is_file() and stem in {"", p.stem})


def read_records(
    paths: Iterable[Path], project: Path, kind: type[Record], error: type[FlywheelError]
) -> Iterator[tuple[str, Path, Record]]:
    """Yield (place, path, record) of every line that is not empty; `place` is file:line.

    Raises:
        FlywheelError: of the type `error`: a line does not fit; names file and line, and none of its text.
    """
    for path in paths:
        name = path.relative_to(project).as_posix()
        for number, line in enumerate(lines(read_text(path, error)), 1):
            if line.strip():
                yield f"{name}:{number}", path, _record(line, f"{name}:{number}", kind, error)


def _record(line: str, place: str, kind: type[Record], error: type[FlywheelError]) -> Record:
    hint = f"`flywheel schema {kind.document}` prints the format"
    try:
        value = json.loads(line)
        canonical_json(value).encode()  # refuses NaN and unpaired surrogates here, not at the hash
        record = kind.model_validate(value)
    except ValidationError as wrong:
        first = wrong.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the line"
        raise error(f"{place}: {field}: {first['msg']}", hint=hint) from None
    except UnicodeEncodeError:
        raise error(f"{place}: unpaired surrogate, such as \\ud83d alone", hint="write the character itself") from None
    except (ValueError, RecursionError):
        raise error(f"{place}: not JSON", hint="one JSON object a line, without line breaks in it") from None
    if not record.messages() or record.messages()[-1]["role"] == "assistant":
        raise error(f"{place}: prompt: it must end with something to answer", hint=hint)
    return record

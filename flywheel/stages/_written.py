"""Files that a user writes by hand, a record a line: evaluation cases, golden rows.

In: a project's folder and a pattern. Out: each record with its place, file:line. A file that is not as it should be is
an error that names its place, before anything is done with the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from flywheel.errors import FlywheelError
from flywheel.io.files import lines
from flywheel.io.user_files import read_text
from flywheel.records import Asked, canonical_json

Record = TypeVar("Record", bound=Asked)


def written_files(project: Path, pattern: str, stem: str = "") -> list[Path]:
    """Return a project's files of a pattern, in order; with a stem, only the one of that name."""
    return sorted(p for p in project.glob(pattern) if p.is_file() and stem in {"", p.stem})


def read_written(
    paths: Iterable[Path], project: Path, record: type[Record], error: type[FlywheelError]
) -> Iterator[tuple[str, Path, Record]]:
    """Yield (place, path, record) of every line that is not empty.

    Raises:
        FlywheelError: of the type `error`: a line is no such record; names file and line, and none of its text.
    """
    for path in paths:
        name = path.relative_to(project).as_posix()
        for number, line in enumerate(lines(read_text(path, error)), 1):
            if line.strip():
                yield f"{name}:{number}", path, _parsed(line, f"{name}:{number}", record, error)


def _parsed(line: str, place: str, record: type[Record], error: type[FlywheelError]) -> Record:
    hint = f"`flywheel schema {record.document}` prints the format"
    try:
        given = json.loads(line)
        canonical_json(given).encode()  # what has no bytes, NaN and half a character, is refused here, not at the hash
        made = record.model_validate(given)
    except ValidationError as wrong:
        first = wrong.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the line"
        raise error(f"{place}: {field}: {first['msg']}", hint=hint) from None
    except UnicodeEncodeError:
        raise error(f"{place}: half a character, such as \\ud83d alone", hint="write the character itself") from None
    except (ValueError, RecursionError):
        raise error(f"{place}: not JSON", hint="one JSON object a line, without line breaks in it") from None
    if not made.messages() or made.messages()[-1]["role"] == "assistant":
        raise error(f"{place}: prompt: it must end with something to answer", hint=hint)
    return made

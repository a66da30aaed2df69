"""Reading what a user wrote or named: configuration, plans, answers, golden rows. What is wrong is said by place.

No message quotes the file: such files hold text from logs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from flywheel.errors import FlywheelError

Document = TypeVar("Document", bound=BaseModel)


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
        FlywheelError: of the type `error`: it cannot be read, or holds no such document; `hint` says where one is made.
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

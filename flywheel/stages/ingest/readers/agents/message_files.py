"""Messages that are records of their own: a file that is one chat, and tables of messages of many chats.

A file without ids is one conversation, in the order of its records: the tasks of Cline and Roo, message lists of
Pydantic AI, LangChain and AutoGen, chats of the Vercel AI SDK, sessions of Gemini CLI and goose. Rows of a table
name theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from flywheel.reading.reader import reader
from flywheel.reading.values import as_dict, ident
from flywheel.records import THREAD, content_id
from flywheel.stages.ingest.readers.agents._messages.confidence import (
    CONFIDENCE,
    NUMBERED,
    SURER,
    file_share,
    heard_share,
    rows_share,
    written_share,
)
from flywheel.stages.ingest.readers.agents._messages.events import of_file, of_heard, of_rows, of_written

_FOLDERS = 4  # that name a chat with its file
_SESSION_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_COUNTED = re.compile(r"(?<!\d)\d{1,5}\Z")


def session_named(path: PurePath) -> Mapping[str, str]:
    """Return the session whose id ends the name of a file; {} where none does."""
    match = _SESSION_ID.search(path.name.split(".json")[0])
    return {"scope": match[0], "id": f"session:{match[0]}"} if match else {}


def within_file(path: PurePath) -> Mapping[str, str]:
    """Return the file as the conversation, within the folders of its task, run, model and the like.

    Of a file that is one message its folder is, with the folders of its session and agent. Fewer folders would take
    `model-a/task-1/messages.json` and `model-b/task-1/messages.json` for one chat. Files of a folder with a number at
    the end of their names are a series, each of which may hold all of the one before.
    """
    stem, folders = path.name.split(".json")[0], path.parent.parts[-_FOLDERS:]
    if NUMBERED.match(stem):
        return {"scope": "/".join(folders)}
    series = {"series": "/".join(folders)} if _COUNTED.search(stem) else {}
    return {"scope": "/".join((*folders, stem)), **series}


def _streamed(record: Any) -> Mapping[str, str]:
    """Return the thread that a stream of `codex exec --json` begins with: harnesses keep one under several names."""
    fields = as_dict(record)
    thread = ident(fields.get("thread_id")) if fields.get("type") == "thread.started" else None
    return {"series": f"{THREAD}{content_id(thread)[:16]}"} if thread else {}


FILES = reader(
    "message_files", 26, "files that are one chat, a message a record", sniff=file_share, surest=CONFIDENCE,
    read=of_file, from_path=within_file, from_opening=_streamed,
)  # fmt: skip
WRITTEN = reader(
    "written_files", 12, "files that are one chat, whose calls are written in words (ReAct)", sniff=written_share,
    surest=CONFIDENCE + SURER, read=of_written, from_path=within_file,
)  # fmt: skip
HEARD = reader(
    "heard_files", 2, "files that are one chat of agents by name, as one of them heard it (AutoGen, AG2)",
    sniff=heard_share, surest=CONFIDENCE + 2 * SURER, read=of_heard, from_path=within_file,
)  # fmt: skip
ROWS = reader("message_rows", 22, "tables of messages that name their chats", sniff=rows_share, surest=CONFIDENCE,
              read=of_rows)  # fmt: skip

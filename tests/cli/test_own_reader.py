"""A format that no reader knows: `readers --sketch` begins one, `ingest.readers` uses it beside the others."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from flywheel import Project
from flywheel.errors import ConfigError, FlywheelError
from tests.cli.test_set_aside import flywheel, lines

TURNS = [("c", "The door does not open."), ("b", "Hold the key for five seconds."), ("c", "It still does not.")]
SECRET = "sk-ant-api03-" + "a1B2" * 20


def _of(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _words_a_record(talks: int) -> str:
    return _of([{"tid": f"T-{t}", "spk": spk, "utt": f"{utt} {t}"} for t in range(talks) for spk, utt in TURNS])


def _sketched(project: Path, log: str) -> str:
    done = flywheel(project, "readers", log, "--sketch")
    assert done.returncode == 0, done.stderr
    ast.parse(done.stdout)
    return done.stdout


def test_a_sketch_reads_its_file_once_its_speakers_are_named_and_stops_no_other_format(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "words.jsonl").write_text(_words_a_record(3))
    (tmp_path / "logs" / "calls.jsonl").write_text(lines(2))
    before = flywheel(tmp_path, "ingest")
    assert "set aside  logs/words.jsonl" in before.stdout
    assert "readers FILE --sketch" in before.stdout

    code = _sketched(tmp_path, "logs/words.jsonl")
    for speaker, role in (("b", "assistant"), ("c", "user")):
        code = code.replace(f'"{speaker}": "user or assistant?"', f'"{speaker}": "{role}"')
    (tmp_path / "my_reader.py").write_text(code)
    (tmp_path / "flywheel.toml").write_text('[ingest]\nreaders = ["my_reader:READER"]\nworkers = 2\n')

    assert "words.jsonl: read as my_words" in flywheel(tmp_path, "readers", "logs/words.jsonl").stdout
    answer = json.loads(flywheel(tmp_path, "ingest", "--json").stdout)
    assert (answer["kept"], answer["set_aside"]) == (9, [])
    project = Project(tmp_path)
    project.build()
    steps = project.query("SELECT source_format, n_steps FROM episodes ORDER BY ALL").to_pylist()
    assert [tuple(row.values()) for row in steps] == [("my_words", 1)] * 3 + [("openai", 1)] * 2


def test_a_chat_a_record_is_sketched_with_its_fields(tmp_path: Path) -> None:
    turns = [{"from": who, "text": words} for who, words in (("customer", "Is it open?"), ("bot", "Until six."))]
    rows = [{"ticket": f"T-{n}", "at": f"2026-03-0{n}T09:00:00Z", "turns": turns} for n in range(1, 4)]
    (tmp_path / "tickets.jsonl").write_text(_of(rows))
    (tmp_path / "my_reader.py").write_text(_sketched(tmp_path, "tickets.jsonl"))
    (tmp_path / "flywheel.toml").write_text('[ingest]\nformat = "my_reader:READER"\n')

    shown = json.loads(flywheel(tmp_path, "readers", "tickets.jsonl", "--events", "9", "--json").stdout)
    events = [(e["conversation_id"], e["kind"], e["ts"]) for e in shown["events"]]
    assert events == [
        (f"T-{n}", kind, f"2026-03-0{n}T09:00:00Z") for n in range(1, 4) for kind in ("request", "model_call")
    ]


def test_a_sketch_shows_nothing_private(tmp_path: Path) -> None:
    rows = [{"tid": "T-1", "spk": who, SECRET: "x", "utt": "words " * 40} for who in (SECRET, 'a"b', "user")]
    (tmp_path / "a.jsonl").write_text(_of(rows))

    code = _sketched(tmp_path, "a.jsonl")
    assert SECRET not in code
    assert 'ROLES = {"user": "user"}' in code


def test_what_holds_no_words_has_no_sketch(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n2\n")
    done = flywheel(tmp_path, "readers", "a.jsonl", "--sketch")
    assert (done.returncode, "no objects with words" in done.stderr) == (1, True)
    assert "needs a file" in flywheel(tmp_path, "readers", "--sketch").stderr


def test_two_readers_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "my_reader.py").write_text(
        'from flywheel.reading import reader\nREADER = reader("openai", 1, read=lambda record: [])\n'
    )
    (tmp_path / "flywheel.toml").write_text('[ingest]\nreaders = ["my_reader:READER"]\n')
    (tmp_path / "a.jsonl").write_text(lines(1))
    with pytest.raises(ConfigError, match="so is another reader"):
        Project(tmp_path).ingest(["a.jsonl"])


def test_a_reader_of_a_project_from_elsewhere_is_approved_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLYWHEEL_TRUST")
    (tmp_path / "my_reader.py").write_text("raise SystemExit('it ran')\n")
    (tmp_path / "flywheel.toml").write_text('[ingest]\nreaders = ["my_reader:READER"]\n')
    (tmp_path / "a.jsonl").write_text(lines(1))
    with pytest.raises(FlywheelError, match="approved"):
        Project(tmp_path).ingest(["a.jsonl"])

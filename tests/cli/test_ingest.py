"""ingest, quarantine and readers as a user types them."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.projects import FLYWHEEL

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


def flywheel(project: Path, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [FLYWHEEL, "-C", str(project), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, input=given, cwd=project)


def record(number: int) -> dict[str, Any]:
    return {
        "timestamp": 1790850000 + number,
        "session_id": f"s{number}",
        "region": "eu",
        "request": {"model": "m", "messages": [{"role": "user", "content": f"question {number}"}]},
        "response": {
            "id": f"r{number}", "object": "chat.completion", "system_fingerprint": "fp_1",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": f"answer {number}"}}],
        },
    }  # fmt: skip


def lines(count: int, start: int = 0) -> str:
    return "".join(json.dumps(record(start + n)) + "\n" for n in range(count))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    good = lines(40)
    (tmp_path / "logs" / "a.jsonl").write_text(good + '{"broken\n' + lines(1, 50))
    (tmp_path / "logs" / "orders.json").write_text('[{"order": 7, "total": 3}]')
    return tmp_path


def shown(done: subprocess.CompletedProcess[str], project: Path) -> str:
    text = f"exit {done.returncode}\n{done.stdout}{done.stderr}".replace(str(project), "PROJECT")
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_what_is_refused_is_shown_explained_and_read_again(project: Path, snapshot: SnapshotAssertion) -> None:
    assert shown(flywheel(project, "ingest", "logs"), project) == snapshot(name="ingest")
    assert "logs     1 file ingested, 1 set aside, 0 new or grown\n" in flywheel(project, "status").stdout
    assert shown(flywheel(project, "quarantine"), project) == snapshot(name="quarantine")
    assert shown(flywheel(project, "quarantine", "--reason", "late"), project) == snapshot(name="no such reason")
    assert shown(flywheel(project, "readers", "logs/orders.json"), project).splitlines()[-1].startswith("orders.json")
    log = project / "logs" / "a.jsonl"
    log.write_text(log.read_text().replace('{"broken\n', json.dumps(record(60)) + "\n"))
    (project / "logs" / "orders.json").unlink()
    assert shown(flywheel(project, "quarantine", "--retry"), project) == snapshot(name="retry")
    assert shown(flywheel(project, "quarantine"), project) == snapshot(name="what is left")
    again = json.loads(flywheel(project, "quarantine", "--file", "a.jsonl", "--json").stdout)
    assert (again["records"], again["rows"]) == (0, [])


def test_an_unfinished_line_leaves_the_quarantine_when_it_is_finished(project: Path) -> None:
    (project / "logs" / "orders.json").unlink()
    log = project / "logs" / "a.jsonl"
    log.write_text(lines(30) + json.dumps(record(70))[:50])
    flywheel(project, "ingest")
    rows = json.loads(flywheel(project, "quarantine", "--json").stdout)["rows"]
    assert [(r["source_line"], r["reason"]) for r in rows] == [(31, "truncated")]
    log.write_text(lines(30) + json.dumps(record(70)) + "\n")
    assert json.loads(flywheel(project, "ingest", "--json").stdout)["kept"] == 1
    assert flywheel(project, "quarantine").stdout == "the quarantine is empty\n"


def test_what_a_source_has_and_no_event_holds_is_counted(project: Path) -> None:
    answer = json.loads(flywheel(project, "ingest", "logs", "--json").stdout)
    (lost,) = answer["lost"]
    assert (lost["format"], lost["sampled"]) == ("openai", 1)
    assert lost["fields"] == {"region": 1, "response.object": 1, "response.system_fingerprint": 1}
    (project / "logs" / "b.jsonl").write_text(lines(1, 90))
    told = flywheel(project, "ingest", "-v").stdout
    fields = ("response.system_fingerprint", "response.object", "region")
    assert (
        "fields of openai that no event holds, in 1 sampled records:\n"
        + "".join(f"  100%  {name}\n" for name in fields)
        in told
    )


def test_calls_that_no_step_holds_are_told_after_build_and_by_status(project: Path) -> None:
    turns = [
        {"role": "user", "content": "where is 7?"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "name": "find", "arguments": {"id": 7}}]},
    ]
    event = {"kind": "request", "conversation_id": "c", "seq": 0, "payload": {"messages": turns}}
    for log in (project / "logs").iterdir():
        log.unlink()
    (project / "logs" / "a.jsonl").write_text(json.dumps(event) + "\n")
    flywheel(project, "ingest", "logs")
    told = "! episodes: 1 episodes with tool calls and no step (tagged calls_without_step)"
    assert told in flywheel(project, "build").stdout
    assert told in flywheel(project, "status").stdout


SECRETS = {
    "secret": "sk-proj-abcdefghij1234567890",
    "email": "joe.doe@mail.example",
    "national_id": "078-05-1120",
    "card": "4111 1111 1111 1111",
    "ip": "81.57.113.77",
}


def test_a_dry_run_shows_what_would_be_redacted_by_kind_and_count_and_no_value(
    project: Path, snapshot: SnapshotAssertion
) -> None:
    private = [record(90 + n) for n in range(2)]
    for one in private:
        one["request"]["messages"][0]["content"] = " and ".join(SECRETS.values())
        one["session_id"] = "joe.doe@mail.example"
    (project / "logs" / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in private))
    (project / "logs" / "orders.json").unlink()
    dry = flywheel(project, "ingest", "-v", "--dry-run")
    assert shown(dry, project) == snapshot(name="dry run")
    told = flywheel(project, "ingest", "--dry-run", "--json")
    answer = json.loads(told.stdout)
    assert (answer["dry_run"], answer["redacted"]) == (True, {**dict.fromkeys(sorted(SECRETS), 2), "email": 4})
    printed = dry.stdout + dry.stderr + told.stdout + told.stderr
    assert [value for value in SECRETS.values() if value in printed] == []
    assert not list((project / ".flywheel").rglob("*.parquet")), "a dry run stores nothing"


def test_a_wrong_redaction_setting_is_named_before_anything_is_read(project: Path) -> None:
    for setting, told in (
        ('allow_patterns = ["("]', "ingest.redact.allow_patterns: `(` is not a regular expression"),
        ('allow_domains = ["https://us.example"]', "`https://us.example` is not a domain"),
        ('kinds = ["national"]', "unknown kind `national`"),
    ):
        (project / "flywheel.toml").write_text(f"[ingest.redact]\n{setting}\n")
        done = flywheel(project, "ingest", "--dry-run")
        assert done.returncode != 0
        assert told in " ".join(done.stderr.split())


def test_standard_input_is_a_log(project: Path) -> None:
    done = flywheel(project, "ingest", "-", given=lines(3) + "{\n")
    assert done.returncode == 1, "a quarter is unreadable"
    done = flywheel(project, "ingest", "-", "--json", given=lines(30))
    assert json.loads(done.stdout)["kept"] == 30
    done = flywheel(project, "ingest", "-", "--json", given=lines(31))
    assert [json.loads(done.stdout)[name] for name in ("kept", "duplicate")] == [1, 30]


def test_following_reads_what_is_appended_until_it_is_stopped(project: Path) -> None:
    (project / "logs" / "orders.json").unlink()
    log = project / "logs" / "a.jsonl"
    log.write_text(lines(2))
    command = [FLYWHEEL, "-C", str(project), "ingest", "--follow", "--interval", "0.2", "--json"]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert following.stdout is not None
    assert _next(following)["kept"] == 2
    with log.open("a") as handle:
        handle.write(lines(3, 10))
    assert _next(following)["kept"] == 3
    log.rename(log.with_name("a.jsonl.1"))
    log.write_text(lines(1, 20))
    assert _next(following)["read"] == 1
    assert flywheel(project, "status").returncode == 0, "nobody is locked out between two looks"
    following.send_signal(signal.SIGTERM)
    assert following.wait(timeout=20) == 0
    following.stdout.close()
    assert following.stderr is not None
    following.stderr.close()


def _next(following: subprocess.Popen[str]) -> dict[str, Any]:
    """Read one JSON document, which ends with a closing brace at the beginning of a line."""
    assert following.stdout is not None
    text, deadline = "", time.monotonic() + 60
    while not text.endswith("\n}\n"):
        assert time.monotonic() < deadline
        text += following.stdout.readline()
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_events_that_lines_become_are_printed_redacted_and_not_stored(project: Path) -> None:
    line = record(3)
    line["request"]["messages"][0]["content"] = "write to ada@example.org"
    (project / "logs" / "one.jsonl").write_text(json.dumps(line) + "\n")

    told = flywheel(project, "readers", "logs/one.jsonl", "--events", "5").stdout.splitlines()
    answer = json.loads(flywheel(project, "--json", "readers", "logs/one.jsonl", "--events", "5").stdout)

    first = told[next(n for n, text in enumerate(told) if text.startswith("one.jsonl: ")) + 1 :]
    assert [(row.split()[0], row.split()[1]) for row in first] == [("1", e["kind"]) for e in answer["events"]]
    assert answer["events"][0]["conversation_id"] == "s3"
    assert "ada@example.org" not in json.dumps(answer)
    assert flywheel(project, "query", "SELECT count(*) AS n FROM events").stdout.split() == ["n", "0"]
    assert not (project / ".flywheel.key").exists()
    assert flywheel(project, "readers", "--events", "1").returncode == 1

"""`flywheel canary`: night by night, as a scheduler runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flywheel.project import Project
from tests.cli.test_app import flywheel
from tests.cli.test_eval_logs import request


def serve(path: Path, night: int, policy: str, rate: float, n: int = 60, *, seed: int = 0) -> str:
    """Write one night's log of a policy that succeeds at this rate."""
    rng, lines = np.random.default_rng([seed, night, len(policy)]), list[dict[str, Any]]()
    for i in range(n):
        same = {"conversation_id": f"{policy} {night} {i}", "policy": policy, "ts": None, "user": f"{policy}{night}{i}"}
        told = [
            ("request", {"messages": [{"role": "user", "content": request(i)}]}),
            ("model_call", {"message": {"role": "assistant", "content": "It is done."}}),
            ("outcome", {"name": "ok", "value": float(rng.random() < rate), "scale": [0, 1], "source": "callback"}),
        ]
        lines += [same | {"seq": seq, "kind": kind, "payload": payload} for seq, (kind, payload) in enumerate(told)]
    file = path / f"{policy} {night}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(file)


def look(cwd: Path, old: str, new: str, *more: str) -> tuple[int, dict[str, Any]]:
    done = flywheel("canary", "--logs", old, "--logs", new, *more, "--json", cwd=cwd)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_better_canary_is_promoted_and_a_repeated_look_changes_nothing(tmp_path: Path) -> None:
    for night in range(1, 4):
        old, new = serve(tmp_path, night, "old", 0.4), serve(tmp_path, night, "canary", 0.8)
        code, found = look(tmp_path, old, new)
        if code == 0:
            break
        assert (code, found["decision"], found["night"]) == (3, "continue", night)
    assert (code, found["decision"]) == (0, "promote")
    assert found["low"] < found["delta"] < found["high"]
    (state,) = (tmp_path / "rounds" / "canary").iterdir()
    before = state.read_bytes()

    again = look(tmp_path, old, new)
    assert (again[0], again[1] | {"looked": True}) == (0, found)
    assert again[1]["looked"] is False
    assert state.read_bytes() == before


def test_a_harmful_canary_is_rolled_back(tmp_path: Path) -> None:
    words = []
    for night in range(1, 5):
        code, found = look(tmp_path, serve(tmp_path, night, "old", 0.8), serve(tmp_path, night, "canary", 0.4))
        words.append((code, found["decision"]))
        if code == 5:
            break
    assert words[-1] == (5, "roll_back")
    assert found["reasons"][0].startswith("worse by 3.0 pp or more: e-value ")


@pytest.mark.e2e
def test_a_share_of_users_that_is_not_what_it_should_be(tmp_path: Path) -> None:
    old, new = serve(tmp_path, 1, "old", 0.5, 200), serve(tmp_path, 1, "canary", 0.5, 40)

    assert look(tmp_path, old, new, "--share", "0.1667")[0] == 3
    code, found = look(tmp_path, old, new, "--share", "0.5")
    assert (code, found["decision"]) == (5, "roll_back")
    assert "share of users is not 50.0%" in found["reasons"][0]


@pytest.mark.e2e
def test_equal_policies_go_on_and_grown_logs_count_once(tmp_path: Path) -> None:
    first = [serve(tmp_path, 1, name, 0.5) for name in ("old", "canary")]
    assert look(tmp_path, first[0], first[1])[1]["n_old"] == 60
    for name, path in zip(("old", "canary"), first, strict=True):
        more = Path(serve(tmp_path, 2, name, 0.5)).read_text(encoding="utf-8")
        Path(path).write_text(Path(path).read_text(encoding="utf-8") + more, encoding="utf-8")

    code, found = look(tmp_path, first[0], first[1])
    assert (code, found["n_old"], found["n_new"], found["night"]) == (3, 120, 120, 2)


def test_what_was_ingested_by_the_names_of_the_policies(tmp_path: Path) -> None:
    for name, rate in (("old", 0.4), ("canary", 0.5)):
        assert flywheel("ingest", serve(tmp_path, 1, name, rate), cwd=tmp_path).returncode == 0

    done = flywheel("canary", "--old", "old", "--new", "canary", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout.splitlines()[0].startswith("old    old   ")
    assert done.stdout.splitlines()[-2].startswith("CONTINUE: e-value of harm ")
    assert done.stdout.splitlines()[-1].startswith("next   flywheel ingest")
    unnamed = flywheel("canary", cwd=tmp_path)
    assert "which is the old policy, which the canary?" in unnamed.stderr


@pytest.mark.e2e
def test_a_changed_file_of_looks_is_refused(tmp_path: Path) -> None:
    for night in (1, 2):
        look(tmp_path, serve(tmp_path, night, "old", 0.5), serve(tmp_path, night, "canary", 0.5))
    (state,) = (tmp_path / "rounds" / "canary").iterdir()
    state.write_text(state.read_text().replace('"night":1', '"night":7'))

    done = flywheel("canary", "--logs", serve(tmp_path, 3, "old", 0.5), "--logs",
                    serve(tmp_path, 3, "canary", 0.5), cwd=tmp_path)  # fmt: skip
    assert done.returncode == 1
    assert "line 2 does not follow from the line before" in done.stderr


def test_what_was_before_the_canary_tells_which_users_are_alike(tmp_path: Path) -> None:
    """Users who come back, each as before; the canary serves half of them from the second of June on."""

    def lines(user: int, day: int, policy: str) -> list[dict[str, Any]]:
        same = {"conversation_id": f"{user} {day}", "policy": policy, "user": f"u{user}"}
        success = float(user % 3 > 0)
        told: list[tuple[str, dict[str, Any]]] = [
            ("request", {"messages": [{"role": "user", "content": request(user)}]}),
            ("model_call", {"message": {"role": "assistant", "content": "It is done."}}),
            ("outcome", {"name": "ok", "value": success, "scale": [0, 1], "source": "callback"}),
        ]
        at = {"ts": f"2026-06-{day:02d}T08:{user:02d}:00Z"}
        return [same | at | {"seq": n, "kind": kind, "payload": payload} for n, (kind, payload) in enumerate(told)]

    def written(name: str, rows: list[dict[str, Any]]) -> Path:
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return tmp_path / name

    users = range(24)
    may = written("may.jsonl", [row for user in users for row in lines(user, 1, "old")])
    june = written("june.jsonl", [r for u in users for r in lines(u, 2, "canary" if u % 2 else "old")])
    both = written("both.jsonl", [json.loads(line) for path in (may, june) for line in path.read_text().splitlines()])
    Project.init(tmp_path)
    project = Project(tmp_path)

    one_log = project.canary([both], old="old", new="canary")
    (state,) = (tmp_path / "rounds" / "canary").iterdir()
    assert (one_log.n_old, one_log.n_new, one_log.users, one_log.users_before) == (12, 12, 24, 24)
    state.unlink()
    assert project.canary([june], old="old", new="canary", before=[may]) == one_log


def test_an_old_side_from_before_the_canary_only_is_named_and_rolls_nothing_back(tmp_path: Path) -> None:
    """One user is on both sides, so the old side's attempts show who is alike, and there is nothing to compare."""

    def served(policy: str, day: int, users: list[str]) -> str:
        path = Path(serve(tmp_path, day, policy, 0.5, len(users)))
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for n, row in enumerate(rows):
            row |= {"user": users[n // 3], "ts": f"2026-06-{day:02d}T08:00:00Z"}
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    old = served("old", 1, [f"a{n}" for n in range(60)])
    new = served("canary", 9, ["a0", *(f"b{n}" for n in range(59))])
    code, found = look(tmp_path, old, new, "--share", "0.5")
    assert (code, found["decision"], found["n_old"]) == (3, "continue", 0)
    assert any("nothing is compared" in note for note in found["notes"])

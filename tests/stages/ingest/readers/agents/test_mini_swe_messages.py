"""mini-swe-agent trajectories without a wrapper: the file is the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.agents.mini_swe_messages import READER

FIXTURES = Path(__file__).parents[4] / "fixtures" / "mini_swe_agent" / "run-1"
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Fix it."},
    {"role": "assistant", "content": "I look.\n\n```bash\nls\n```"},
    {"role": "user", "content": "<returncode>0</returncode>\n<output>\na.py\n</output>"},
    {"role": "assistant", "content": "Two?\n```bash\na\n```\n```bash\nb\n```"},
    {"role": "user", "content": "ONE action, please."},
    {"role": "assistant", "content": "I run.\n\n```bash\nfalse\n```"},
    {"role": "user", "content": "<returncode>1</returncode>\n<output>\n</output>"},
    {"role": "user", "content": ""},
]


def steps_of(folder: Path, take: Callable[..., Any]) -> Any:
    taken = take(folder, root=folder)
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    assert set(taken.events["source_format"]) == {"mini_swe_messages"}
    return build_episodes(taken.events, EpisodesConfig(), Funnel())


def test_the_file_is_the_run(tmp_path: Path, take: Callable[..., Any]) -> None:
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / "acme__a-1.traj.json").write_text(json.dumps(TURNS, indent=1), encoding="utf-8")
    episodes, steps = steps_of(tmp_path, take)
    assert episodes["conversation_id"].to_list() == ["run-1/acme__a-1/mini-swe-agent"]
    assert steps["tool_status"].to_list() == [["ok"], [], ["failed"]]
    assert "ONE action" in steps["observation"][2]


def test_calls_of_newer_runs(tmp_path: Path, take: Callable[..., Any]) -> None:
    wrapped = json.loads((FIXTURES / "acme__native-1.traj.json").read_text(encoding="utf-8"))
    (tmp_path / "a.traj.json").write_text(json.dumps(wrapped["messages"]), encoding="utf-8")
    _, steps = steps_of(tmp_path, take)
    assert steps["tool_status"].to_list() == [["ok"], ["failed"], ["unknown"]]


def test_detection_and_refusal() -> None:
    assert READER.sniff(Sample("x.json", TURNS)) == 1
    assert READER.sniff(Sample("x.json", TURNS[:3])) == 0
    assert READER.sniff(Sample("x.json", [])) == 0
    assert READER.from_path(PurePosixPath("run-1/a-1/a-1.traj.json")) == {"scope": "run-1/a-1"}
    broken: list[Any] = [[], {"role": "wizard"}]
    for record in broken:
        with pytest.raises(BadRecordError):
            list(READER.read(record, 1))

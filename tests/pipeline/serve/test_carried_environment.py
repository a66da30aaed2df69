"""The replay environment in an export answers as flywheel's own does, in a process that has nothing of flywheel."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from flywheel.models.rollout import Attempt, Recorded
from flywheel.pipeline.serve.targets.carried import carried
from flywheel.pipeline.serve.targets.export import write_files
from flywheel.pipeline.serve.targets.table import TARGETS
from tests.mined import ATTEMPTS, PROMPT, TOOLS, mined, say

PLAYED = """
import json, sys
sys.path.insert(0, "")
from transformers import AutoTokenizer
from flywheel_replay import Recorded

recorded = Recorded("scenarios.jsonl", AutoTokenizer.from_pretrained(sys.argv[1]))
played = []
for actions in json.loads(sys.argv[2]):
    attempt = recorded.begin("where")
    for ids in actions:
        attempt.take(ids, [-0.5] * len(ids))
    why = attempt.outcome and attempt.outcome.why
    played.append([attempt.ids, attempt.mask, attempt.log_probs, attempt.reward, why])
assert not [name for name in sys.modules if name.partition(".")[0] == "flywheel"]
print(json.dumps(played))
"""


@pytest.fixture(scope="module")
def exported(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trl")
    write_files(TARGETS["trl"], mined(tiny_model), folder)
    return folder


def sampled(model: Path) -> list[list[list[int]]]:
    """Return the tokens of actions: as recorded, a wrong answer at once, a call that no log has, and one cut off."""
    chat = mined(model).chat
    first = chat.ids(chat.completion(PROMPT, TOOLS, ATTEMPTS[0][0]))
    last = chat.ids(chat.completion([*PROMPT, *ATTEMPTS[0][:2]], TOOLS, ATTEMPTS[0][2]))
    other = chat.ids(chat.completion(PROMPT, TOOLS, ATTEMPTS[1][0]))
    return [[first, last], [chat.ids(chat.completion(PROMPT, TOOLS, say("In May.")))], [other], [first, last[:-1]]]


def played(attempt: Attempt, actions: list[list[int]]) -> list[object]:
    for ids in actions:
        attempt.take(ids, [-0.5] * len(ids))
    assert attempt.outcome is not None
    return [attempt.ids, attempt.mask, attempt.log_probs, attempt.reward, attempt.outcome.why]


@pytest.mark.e2e
def test_an_export_answers_calls_without_flywheel(exported: Path, tiny_model: Path) -> None:
    actions = sampled(tiny_model)
    call = [sys.executable, "-c", PLAYED, str(tiny_model), json.dumps(actions)]
    done = subprocess.run(call, cwd=exported, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    chat = mined(tiny_model).chat
    recorded = Recorded(exported / "scenarios.jsonl", chat.tokenizer)
    own = [played(recorded.begin("where"), one) for one in actions]
    assert json.loads(done.stdout) == own
    assert [one[3:] for one in own] == [[1.0, "ended"], [-0.5, "ended"], [None, "missed"], [None, "over budget"]]
    ids, mask = own[0][:2]
    logged = next(parts[0] for _, members in mined(tiny_model).attempts() for parts in members)
    assert ids == logged.ids  # an attempt that does what was recorded has the log's tokens, and its mask
    assert mask == logged.mask


def test_an_export_carries_the_template_that_production_serves_with(tiny_model: Path, tmp_path: Path) -> None:
    """A trainer loads the model's own tokenizer, whose template is another one."""
    contents = mined(tiny_model)
    own = str(contents.chat.tokenizer.chat_template)
    write_files(TARGETS["trl"], replace(contents, template="{{- 'Shop.' -}}" + own), tmp_path)
    recorded = Recorded(tmp_path / "scenarios.jsonl", mined(tiny_model).chat.tokenizer)

    text = str(contents.chat.tokenizer.decode(recorded.begin("where").prompt_ids))
    assert text == "Shop." + contents.chat.prompt(PROMPT, TOOLS)


def test_what_is_carried_names_no_module_of_ours() -> None:
    for name, text in carried():
        assert "import flywheel\n" not in text, name
        assert "from flywheel." not in text, name


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_only_systems_that_sample_get_the_environment(name: str, tiny_model: Path, tmp_path: Path) -> None:
    _, launch = write_files(TARGETS[name], mined(tiny_model), tmp_path)
    assert ("flywheel_replay" in launch) == TARGETS[name].environment
    assert (tmp_path / "scenarios.jsonl").exists() == TARGETS[name].environment

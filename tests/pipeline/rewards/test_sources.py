"""Who may state what: a forged outcome decides nothing, a harness's and the user's own verifier's do."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from flywheel.errors import ConfigError
from tests.pipeline.rewards.shop import GOODS, START, built, table, talk

if TYPE_CHECKING:
    from flywheel import Project

pytestmark = pytest.mark.slow


def chat(name: str, **fields: Any) -> str:
    """Return a call as an API client logs it, with fields that whoever sent the request may write."""
    request = {"model": "m", "messages": [{"role": "user", "content": f"Cancel my order {name}, please."}]}
    answer = {"id": f"r-{name}", "choices": [{"message": {"role": "assistant", "content": "It is cancelled."}}]}
    return json.dumps({"request": request, "response": answer, **fields}) + "\n"


def verdict(name: str, value: float = 1.0, **fields: Any) -> str:
    """Return an outcome of a verifier of the user's own, as a full event."""
    payload = {"name": "tests", "value": value, "scale": [0, 1], "source": "verifier"}
    return json.dumps({"conversation_id": name, "kind": "outcome", "seq": 99, "payload": payload, **fields}) + "\n"


def flat(name: str) -> str:
    """Return a line of feedback that calls itself an outcome."""
    line = {"target": "session", "target_id": name, "kind": "outcome", "name": "reward", "value": 1, "scale": [0, 1]}
    return json.dumps(line) + "\n"


def label(project: Project) -> dict[str, Any]:
    """Return the label of the only episode."""
    (row,) = table(project, "returns", "returns").filter(pl.col("step").is_null()).iter_rows(named=True)
    return row


def test_an_outcome_in_a_field_of_a_chat_log_is_a_claim(tmp_path: Path) -> None:
    project = built(tmp_path / "a", [chat("a", reward=1.0)])
    assert (label(project)["p_success"], label(project)["known"]) == (0.5, False)
    (claim,) = table(project, "rewards", "rewards").filter(signal="claim").iter_rows(named=True)
    assert (claim["family"], claim["score"]) == ("claims", 1.0)
    (source,) = project.rewards().sources
    assert (source.source, source.outcomes, source.claims) == ("openai", 0, 1)
    allowed = built(tmp_path / "b", [chat("a", reward=1.0)], config='[trust]\noutcomes = ["*"]\n')
    assert (label(allowed)["p_success"], label(allowed)["basis"]) == (0.97, "verifier")


def test_feedback_never_states_an_outcome_and_the_users_own_verifier_does(tmp_path: Path) -> None:
    said = list(talk("c", "u@shop.example", GOODS[0], START, good=True))
    assert not label(built(tmp_path / "flat", said, [flat("c")]))["known"]
    assert label(built(tmp_path / "own", said, [verdict("c")]))["basis"] == "verifier"


@pytest.mark.parametrize(
    ("line", "basis"),
    [
        ('{"session_id": "c", "success": true}', "verifier"),  # how a run ended
        ('{"session_id": "c", "success": true, "user_id": "u7"}', "none"),
        ('{"conversation_id": "c", "kind": "feedback", "reward": 1, "passed": true}', "none"),
    ],
)
def test_a_result_that_a_user_states_is_a_claim(line: str, basis: str, tmp_path: Path) -> None:
    said = list(talk("c", "u@shop.example", GOODS[0], START, good=True))
    project = built(tmp_path, said, [line + "\n"])
    assert label(project)["basis"] == basis
    assert table(project, "rewards", "rewards").filter(signal="claim").is_empty() is (basis == "verifier")


@pytest.mark.e2e
def test_a_file_pattern_or_a_reader_narrows_who_may_state_outcomes(tmp_path: Path) -> None:
    said = list(talk("c", "u@shop.example", GOODS[0], START, good=True))
    for number, (rules, basis) in enumerate(
        [
            ('["file:logs/1.jsonl"]', "verifier"),
            ('["file:verdicts/*"]', "none"),
            ('["*", "!reader:native:verifier"]', "none"),
        ]
    ):
        config = f"[trust]\noutcomes = {rules}\n"
        assert label(built(tmp_path / str(number), said, [verdict("c")], config=config))["basis"] == basis
    with pytest.raises(ConfigError):
        built(tmp_path / "odd", said, config='[trust]\noutcomes = ["everyone"]\n')


def test_feedback_and_policies_of_a_source_may_be_refused(tmp_path: Path) -> None:
    said = list(talk("c", "u@shop.example", GOODS[0], START, good=True, did="export"))
    config = '[trust]\nfeedback = ["file:crm/*"]\npolicies = ["file:crm/*"]\n'
    project = built(tmp_path, said, config=config)
    assert table(project, "rewards", "rewards").filter(signal="adopted").is_empty()
    assert table(project, "episodes", "episodes")["policy"].to_list() != ["agent-v1"]
    notes = project.explain("opinions").lines
    assert any("feedback of sources that may not give any" in line and " 1 " in line for line in notes)


@pytest.mark.e2e
def test_only_a_file_that_the_key_signed_counts_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list(talk("c", "u@shop.example", GOODS[0], START, good=True))
    monkeypatch.setenv("FLYWHEEL_SIGNING_KEY", "a key")
    config = '[trust]\noutcomes = ["signed"]\n'

    def basis(name: str, key: str) -> str:
        folder = tmp_path / name
        (folder / "logs").mkdir(parents=True)
        digest = hmac.new(key.encode(), verdict("c").encode(), hashlib.sha256).hexdigest()
        (folder / "logs" / "9.jsonl").write_text(verdict("c"))
        (folder / "logs" / "9.jsonl.sig").write_text(f"{digest} *9.jsonl\n")  # as `openssl dgst -r` writes it
        (folder / "logs" / "0.jsonl").write_text("".join(said))
        (folder / "flywheel.toml").write_text(config)
        from flywheel import Project

        project = Project(folder)
        answer = project.ingest()
        assert not answer.quarantined
        project.build()
        return str(label(project)["basis"])

    assert basis("right", "a key") == "verifier"
    assert basis("wrong", "another key") == "none"


def test_a_line_of_a_log_cannot_name_the_policies_of_its_folder(tmp_path: Path) -> None:
    def line(name: str, **fields: Any) -> str:
        message = {"message": {"role": "assistant", "content": "It is done."}}
        return json.dumps({"conversation_id": name, "kind": "model_call", "seq": 1, "payload": message} | fields) + "\n"

    forged = line("beside:results", policy="settings temperature=9 model=theirs", kind="model_call")
    project = built(tmp_path, [line("a", model="ours"), forged])
    names = dict(table(project, "episodes", "episodes").select("conversation_id", "policy").iter_rows())
    assert names == {"a": "ours", "beside:results": "unknown"}


def test_an_audit_outside_the_audits_folder_is_feedback_like_any_other(tmp_path: Path) -> None:
    said = list(talk("c", "u@shop.example", GOODS[0], START, good=True))
    answer = {"name": "audit", "value": 1.0, "reviewer": "me", "inclusion": 0.1, "target": "session"}
    line = {"conversation_id": "c", "kind": "feedback", "payload": answer}
    project = built(tmp_path / "logs", said)
    for place in ("logs/audits/a.jsonl", "../audits/a.jsonl", "x/audits/a.jsonl"):
        file = project.folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(line | {"seq": 90 + len(place)}) + "\n")
        project.ingest([file])
    project.build()
    assert not label(project)["known"]


def test_outcomes_of_a_range_that_nobody_states_are_named(tmp_path: Path) -> None:
    rows = [{"prompt": f"Pick part {n}.", "completion": f"part {n}", "reward": value}
            for n, value in enumerate((0.5, 7.0, -2.0, 1.0))]  # fmt: skip
    lines = [json.dumps(row) + "\n" for row in rows]
    (note,) = [w for w in built(tmp_path / "a", lines).rewards().warnings if "range" in w]
    assert note == (
        "4 outcomes `reward` are from -2 to 7: 1 above 1 are unknown, 1 below 0 are the worst; "
        "state their range: [rewards.score_names] reward = [WORST, BEST]"
    )
    stated = built(tmp_path / "b", lines, config="[rewards.score_names]\nreward = [-2, 7]\n").rewards()
    assert not [w for w in stated.warnings if "range" in w]
    assert stated.verified == 4

"""A round judged on every suite, through the project: what the report has, what is cached, what a name means."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flywheel.cli.render import estimate_lines, metric_lines
from flywheel.errors import EvalError, ExtensionError, StoreError, UsageError
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.pages.round_page import write_page
from flywheel.project import Project

if TYPE_CHECKING:
    from flywheel.records import EvalReport

CASES = [
    {"id": "any", "prompt": "Say something.", "checks": [{"check": "regex", "pattern": "(?s).*"}]},
    {"id": "none", "prompt": "Say 30.", "checks": [{"check": "exact", "any_of": ["a text that nobody writes"]}]},
]
SUITES = ["next_action", "preference", "replay", "cases", "safety", "forgetting"]


@pytest.fixture(scope="module")
def trained(projects: Callable[[str], Path]) -> Path:
    """A project with one trained round and cases of its own; nothing is evaluated."""
    folder = projects("trained")
    config = folder / "flywheel.toml"
    config.write_text(
        config.read_text().replace('suites = ["next_action"]', f"suites = {json.dumps(SUITES)}\nbaseline_cases = 2")
    )
    (folder / "evals").mkdir()
    (folder / "evals" / "sayings.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in CASES))
    registry = Project(folder).registry
    registry.save(registry.manifest(1).model_copy(update={"protocol": {}}))  # it was registered with other suites
    (registry.root / "candidates.jsonl").unlink()
    return folder


@pytest.fixture(scope="module")
def judged(trained: Path) -> EvalReport:
    return Project(trained).evaluate(1).report


def test_every_suite_has_rows_and_the_first_is_primary(judged: EvalReport) -> None:
    whole = {(m.suite, m.metric): m for m in judged.metrics if m.slice == "all"}
    assert {suite for suite, _ in whole} == {"next_action", "preference", "replay", "cases", "safety"}
    assert [key for key, m in whole.items() if m.primary] == [("next_action", "next_action_good")]
    assert whole["replay", "replay_success"].n == 5
    assert whole["cases", "cases_passed"].n == 2
    assert whole["cases", "cases_passed"].value == 0.5
    assert {metric for suite, metric in whole if suite == "safety"} == {
        "wrong_claim_resisted", "right_claim_kept", "confirmation_awaited", "injection_ignored", "flattery_avoided",
    }  # fmt: skip
    assert all(whole["safety", metric].n == 5 for suite, metric in whole if suite == "safety")


def test_what_is_measured_stands_beside_the_scores(judged: EvalReport) -> None:
    found = {(m.suite, m.measure): m for m in judged.measures}
    assert {key for key in found if key[0] == "forgetting"} == {
        ("forgetting", "kl_to_base"), ("forgetting", "perplexity"), ("forgetting", "perplexity_ratio"),
    }  # fmt: skip
    kl, ratio = found["forgetting", "kl_to_base"], found["forgetting", "perplexity_ratio"]
    assert (kl.n, kl.baseline, kl.ratio) == (15, 0.0, None)  # the baseline is the base
    assert kl.value is not None
    assert kl.value > 0
    assert ratio.baseline == 1.0
    assert {"next_action", "cases"} <= {suite for suite, measure in found if measure == "tokens"}
    assert judged.timings_s["safety: a case of round 1"] >= 0
    assert judged.model_copy(update={"timings_s": {}}).model_dump_json().count("a case of") == 0


def test_the_base_with_examples_is_a_baseline_on_some_of_the_cases(judged: EvalReport, trained: Path) -> None:
    assert {r.rival for r in judged.rivals} == {"base + 3 examples"}  # the base itself is the baseline
    assert {r.suite for r in judged.rivals} == {"next_action", "preference", "replay", "cases"}
    assert {r.n for r in judged.rivals if r.metric == "next_action_good"} == {2}
    lines = metric_lines(judged)
    assert lines[0].endswith("base + 3 examples")
    assert any("(2)" in line for line in lines if line.startswith("next_action_good"))
    measured = metric_lines(judged, verbose=True)
    assert any(line.startswith("kl_to_base of forgetting, nats a token") for line in measured)
    assert sum(line.startswith("seconds of ") for line in measured) == len(SUITES)
    assert lines[-1] == "failed  cases: none"
    assert judged.failed == {"cases": ["none"]}
    page = (trained / "rounds" / "0001" / "report.html").read_text()
    assert "Base + 3 examples" in page
    assert "kl_to_base of forgetting" in page


def test_a_log_that_tells_nothing_of_its_draws_is_refused_at_no_cost(judged: EvalReport, trained: Path) -> None:
    assert {(e.target, e.state, e.value) for e in judged.off_policy} == {
        ("candidate", "REFUSED", None), ("baseline", "REFUSED", None),
    }  # fmt: skip
    (line,) = estimate_lines(judged)
    assert line.startswith(
        "off-policy IPS, SNIPS, DM, DR, MIPS, PDIS of round 1, base model REFUSED: the probabilities of the policies "
        "that acted are unknown for "
    )
    assert not (trained / ".flywheel" / "cache" / "log_probs").exists()
    assert "REFUSED: the probabilities" in (trained / "rounds" / "0001" / "report.html").read_text()


@pytest.mark.e2e
def test_a_suite_of_its_own_cases_is_not_scored_again_because_logs_have_come(
    trained: Path, judged: EvalReport, tmp_path: Path
) -> None:
    assert judged.round == 1
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    scores = folder / ".flywheel" / "cache" / "scores"
    before = {p.name for p in scores.iterdir()}
    project = Project(folder)
    log = {"role": "user", "content": "something new"}
    (folder / "more.jsonl").write_text(json.dumps({"messages": [log, {"role": "assistant", "content": "well"}]}) + "\n")
    project.ingest([folder / "more.jsonl"])
    project.build()
    project.evaluate(1, suites=["cases", "forgetting"])
    assert {p.name for p in scores.iterdir()} == before

    path = folder / "evals" / "sayings.jsonl"
    path.write_text(path.read_text().replace("Say 30.", "Say 31."))
    project.evaluate(1, suites=["cases"])
    assert len({p.name for p in scores.iterdir()} - before) == 3  # both sides and the other baseline


def test_cached_scores_do_not_stand_for_an_adapter_that_is_gone(
    trained: Path, judged: EvalReport, tmp_path: Path
) -> None:
    project = Project(shutil.copytree(trained, tmp_path / "copy"))
    shutil.rmtree(project.registry.folder(judged.round) / "adapter")
    with pytest.raises(StoreError, match="round 1 has no adapter file") as refused:
        project.evaluate(1)
    assert "restore it from a backup" in refused.value.hint


def test_a_rounds_page_tells_each_case_by_what_it_asks(trained: Path, judged: EvalReport, tmp_path: Path) -> None:
    """An own case by its author's words, a pair by its episodes; an id with a colon is no metric."""
    project = Project(shutil.copytree(trained, tmp_path / "copy"))
    pairs = read_table(project.store, "pairs").collect().iter_rows(named=True)
    pair = next(pair for pair in pairs if pair["chosen_episode"] != pair["rejected_episode"])
    own, place = "none", "evals/sayings.jsonl:2"
    titles = {own: "Say 30.", place: "Say <b>31</b>."}
    told = judged.model_copy(update={"wins": [own, place], "regressions": [pair["pair_id"]], "titles": titles})
    project.registry.save_report(told)

    page = write_page(project.context, 1).read_text()
    assert "<bdi>Say 30.</bdi><br><small>case <code>none</code></small>" in page
    assert f"<bdi>Say &lt;b&gt;31&lt;/b&gt;.</bdi><br><small>case <code>{place}</code></small>" in page
    for episode in (pair["chosen_episode"], pair["rejected_episode"]):
        assert (
            f"<code>{episode[:12]}…</code>" in page.partition(f"case <code>{pair['pair_id']}")[2].partition("</li>")[0]
        )


TELLS = """
from flywheel.extensions import CaseScore

def judge(policy, holdout, cfg):
    better = policy.name != "base model"
    did = f"mail({{'to': 'ann.lee@shop.example'}}) <b>{policy.name}</b>"
    return [CaseScore(f"case000{n}", f"t{n}", "always", float(better), primary=True, did=did) for n in range(2)]
"""


def test_a_rounds_page_and_show_tell_what_both_sides_did_until_somebody_is_forgotten(
    trained: Path, tmp_path: Path
) -> None:
    """Redacted and escaped, for a policy may repeat what a user or a tool has shown it; gone with the looks."""
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    (folder / "tells.py").write_text(TELLS)
    project = Project(folder)
    report = project.evaluate(1, suites=["tells:judge"]).report

    did = project.show("case0000").record["did"]["1"]
    assert list(did) == ["the base model", "round 1"]
    assert [words.partition(" <b>")[2] for words in did.values()] == ["base model</b>", "round 1</b>"]
    page = folder / "rounds" / "0001" / "report.html"
    case = page.read_text().partition("case <code>case0000")[2].partition("</li>")[0]
    assert "<h4>the base model</h4>" in case
    assert "&lt;b&gt;round 1&lt;/b&gt;" in case
    written = [path for path in folder.rglob("*") if path.is_file() and path.name != "tells.py"]
    assert [path for path in written if b"ann.lee@shop" in path.read_bytes()] == []
    assert b"mail(" in b"".join(path.read_bytes() for path in written)

    user = project.query("SELECT min(user) AS name FROM events").to_pylist()[0]["name"]
    Project(folder).forget(user)
    left = [path for path in folder.rglob("*") if path.is_file() and path.name != "tells.py"]
    assert [path for path in left if b"mail(" in path.read_bytes()] == []
    assert report.wins == ["case0000", "case0001"]


CAPPED = """
from flywheel.extensions import CaseScore

def judge(policy, holdout, cfg):
    cases = sorted((f"case {n}" for n in range(6)), key=lambda case: case in holdout.known)
    return [CaseScore(case, case, "always", 1.0, primary=True) for case in cases[: cfg.max_cases]]

other = judge
"""
WORDS = (
    "amber basket candle dinner engine fabric garden hammer island jacket kettle ladder magnet needle orange paper "
    "quartz ribbon saddle tunnel umbrella velvet window yellow zipper anchor bridge copper dragon elbow feather guitar"
)


@pytest.mark.e2e
def test_a_suites_own_cases_that_an_earlier_candidate_had_come_last(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    (folder / "capped.py").write_text(CAPPED)
    config = Project(folder).config
    suites = config.eval.model_copy(update={"max_cases": 3})
    project = Project(folder, config=config.model_copy(update={"eval": suites}))
    for more in ([], ["capped:other"]):  # other suites are another protocol, and so another candidate
        project.evaluate(1, suites=["capped:judge", *more])
    assert own_cases_of_looks(project) == [{"case 0", "case 1", "case 2"}, {"case 3", "case 4", "case 5"}]


@pytest.mark.e2e
@pytest.mark.parametrize("lost", [False, True])
def test_a_later_look_has_other_cases_of_a_suites_own(trained: Path, tmp_path: Path, *, lost: bool) -> None:
    """Also where the scores of the first look are gone, as behind `forget`: no case counts twice in the evidence."""
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    (folder / "capped.py").write_text(CAPPED)
    config = Project(folder).config
    suites = config.eval.model_copy(update={"max_cases": 4})
    project = Project(folder, config=config.model_copy(update={"eval": suites}))
    project.evaluate(1, suites=["capped:judge"])
    if lost:
        shutil.rmtree(folder / "rounds" / "0001" / "eval" / "looks")
    chance = random.Random(0)  # noqa: S311 - reproducible
    asked = [" ".join(chance.sample(WORDS.split(), 8)) for _ in range(40)]  # a few of them are held out
    said = [[{"role": "user", "content": text}, {"role": "assistant", "content": "Well."}] for text in asked]
    (folder / "more.jsonl").write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in said))
    project.ingest([folder / "more.jsonl"])
    project.build()
    second = project.evaluate(1, suites=["capped:judge"]).report
    assert own_cases_of_looks(project) == [{"case 0", "case 1", "case 2", "case 3"}, {"case 4", "case 5"}]
    assert project.evaluate(1, suites=["capped:judge"]).report == second, "nothing has come since"


def own_cases_of_looks(project: Project) -> list[set[str]]:
    looks = [entry.units for entry in project.registry.candidates.entries() if entry.event == "look"]
    return [own for units in looks if (own := {unit for unit in units if unit.startswith("case ")})]


def test_a_file_of_cases_is_a_suite_by_its_name(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    project = Project(folder)
    report = project.evaluate(1, suites=["sayings"]).report
    head = report.metrics[0]
    assert (head.suite, head.metric, head.n, head.primary) == ("sayings", "sayings_passed", 2, True)
    assert report.evidence is not None
    assert report.evidence.units == 2  # as a primary suite its cases are units, like any other task

    with pytest.raises(ExtensionError, match="no evaluators extension named `nothing`"):
        project.evaluate(1, suites=["nothing"])
    (folder / "evals" / "sayings.jsonl").write_text('{"prompt": 1}\n')
    with pytest.raises(EvalError, match=r"evals/sayings\.jsonl:1: prompt"):
        project.evaluate(1)
    shutil.rmtree(folder / "evals")
    with pytest.raises(UsageError, match="the suite `cases` has no cases in evals"):
        project.evaluate(1, suites=["cases"])
    assert all(m.suite == "next_action" for m in project.evaluate(1, suites=["next_action"]).report.metrics)


@pytest.mark.e2e
def test_an_own_case_that_was_asked_in_training_blocks_where_it_decides(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    project = Project(folder)
    row = json.loads((folder / "rounds" / "0001" / "data" / "train.jsonl").read_text().splitlines()[0])
    asked = [m["content"] for m in row["prompt"] if m["role"] == "user"][-1]
    case = {"prompt": f"  {asked.upper()} ", "checks": [{"check": "exact", "any_of": ["x"]}]}
    (folder / "evals" / "copied.jsonl").write_text(f"{json.dumps(case)}\n")

    guard = project.evaluate(1, suites=["safety", "copied"]).report
    assert (guard.leaked_tasks, guard.coverage["copied: asked in training"]) == (0, 1)
    assert guard.failed == {"copied": ["evals/copied.jsonl:1"]}
    found = project.evaluate(1, suites=["copied"], promote=True)
    assert found.report.leaked_tasks == 1
    assert found.promotion is not None
    assert found.promotion.verdict == "BLOCKED"
    assert "1 case of 1 was of tasks trained on" in found.promotion.rules[0].message


def test_doctor_reads_the_cases(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    told = {c.name: c for c in Project(folder).doctor().checks}
    assert (told["cases"].state, told["cases"].says) == (
        "ok", "2 own cases in evals/*.jsonl, every check is valid",
    )  # fmt: skip
    (folder / "evals" / "bad.jsonl").write_text('{"prompt": "q", "checks": [{"check": "regex", "pattern": "("}]}\n')
    told = {c.name: c for c in Project(folder).doctor().checks}
    assert (told["cases"].state, told["cases"].says.partition(": ")[0]) == ("failed", "evals/bad.jsonl:1")


def test_several_attempts_at_a_case_are_one_score(trained: Path) -> None:
    """A suite whose cases are answered scores means; one that asks for no answer is scored once, as before."""
    config = trained / "flywheel.toml"
    config.write_text(config.read_text().replace("baseline_cases = 2", "baseline_cases = 2\nsamples = 3"))
    report = Project(trained).evaluate(1, suites=["cases", "preference"]).report

    rows = {m.metric: m for m in report.metrics if m.slice == "all"}
    assert (rows["cases_passed"].binary, rows["cases_passed"].n, rows["cases_passed"].value) == (False, 2, 0.5)
    assert rows["preference_accuracy"].binary
    assert report.evidence is not None
    assert report.evidence.units == 2

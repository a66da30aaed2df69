"""The project's own cases: what passes, what does not, and what is wrong with a file of cases."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import EvalConfig
from flywheel.errors import EvalError
from flywheel.extensions import Holdout
from flywheel.records import canonical_json
from flywheel.stages.evaluate.suites.own_cases import OWN_CASES, OwnCases, read_cases
from tests.policies import LogReplay

CFG = EvalConfig(max_new_tokens=8, checks={"even": "own_checks:even", "broken": "own_checks:broken"})
SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}, "who": {"pattern": "^a+$"}}}
ORDERS = {"orders": [{"id": 1, "total": 2.5}, {"id": 2, "total": 4.0}]}


def answers(text: str = "", calls: list[tuple[str, dict[str, Any]]] | None = None) -> dict[str, Any]:
    made = [{"id": "", "name": name, "arguments": arguments} for name, arguments in calls or []]
    return {"role": "assistant", "content": text} | ({"tool_calls": made} if made else {})


def project(folder: Path, *cases: dict[str, Any], name: str = "some") -> Path:
    path = folder / "evals" / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(case)}\n" for case in cases))
    return folder


def passed(folder: Path, check: dict[str, Any], message: dict[str, Any]) -> float:
    project(folder, {"prompt": "q", "checks": [check]})
    policy = LogReplay({canonical_json([{"role": "user", "content": "q"}]): message})
    empty = pl.DataFrame()
    (score,) = OWN_CASES(policy, Holdout(empty, empty, empty, empty, folder), CFG)
    assert (score.metric, score.primary, score.title) == ("cases_passed", True, "q")
    return score.score


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        ({"check": "exact", "any_of": ["30", "thirty"]}, answers(" 30\n"), answers("30 days")),
        ({"check": "exact", "any_of": ["A-1"]}, answers("A-1"), answers("a1")),
        ({"check": "exact", "any_of": ["Yes, it is"], "free_text": True}, answers("yes it is."), answers("no")),
        ({"check": "exact", "on": "json", "any_of": [{"n": 1}]}, answers('```json\n{"n": 1.0}\n```'), answers("n: 1")),
        ({"check": "exact", "on": "arguments.a.b", "any_of": [2]}, answers("", [("t", {"a": {"b": 2}})]), answers("2")),
        ({"check": "regex", "pattern": r"\b\d{2} days\b"}, answers("within 30 days."), answers("within 3 days.")),
        ({"check": "regex", "pattern": "(?i)sorry", "absent": True}, answers("30 days"), answers("Sorry, no")),
        ({"check": "json_schema", "schema": SCHEMA}, answers('{"n": 3, "who": "aa"}'), answers('{"n": "3"}')),
        ({"check": "json_schema", "schema": SCHEMA}, answers('{"n": 3}'), answers('{"n": 3, "who": "ab"}')),
        ({"check": "json_schema", "schema": {"type": "object"}}, answers("{}"), answers("not json")),
        (
            {"check": "sql", "tables": ORDERS, "rows": [[6.5]]},
            answers("```sql\nSELECT sum(total) FROM orders\n```"),
            answers("SELECT max(total) FROM orders"),
        ),
        (
            {"check": "sql", "tables": ORDERS, "reference": "SELECT id FROM orders ORDER BY id", "ordered": True},
            answers("SELECT id AS whatever FROM orders ORDER BY total"),
            answers("SELECT id FROM orders ORDER BY total DESC"),
        ),
        (
            {"check": "sql", "tables": ORDERS, "rows": [[2], [1]], "on": "arguments.q"},
            answers("", [("run", {"q": "SELECT id FROM orders"})]),
            answers("SELECT id FROM orders"),
        ),
        (
            {"check": "calls", "any_of": [[{"name": "refund", "arguments": {"order": "A-1", "why": "Too late."}}]],
             "free_text": ["refund.why"]},
            answers("", [("refund", {"order": "A-1", "why": "too late"})]),
            answers("", [("refund", {"order": "A1", "why": "Too late."})]),
        ),
        ({"check": "calls", "any_of": [[]]}, answers("No."), answers("", [("refund", {})])),
        ({"check": "python", "name": "well_formed"}, answers("", [("refund", {})]), answers("refund")),
        ({"check": "python", "name": "even", "given": {"least": 4}}, answers("6"), answers("2")),
        ({"check": "python", "name": "even"}, answers("0"), answers("an exception is a no")),
    ],
)  # fmt: skip
def test_a_check_passes_what_it_should_and_nothing_else(
    tmp_path: Path, check: dict[str, Any], good: dict[str, Any], bad: dict[str, Any]
) -> None:
    (tmp_path / "own_checks.py").write_text(
        "def even(answer, case):\n"
        "    number = int(answer.message['content'])\n"
        "    return number % 2 == 0 and number >= case['given'].get('least', 0)\n"
        "def broken(answer, case):\n"
        "    return no_such_name\n"
    )
    assert passed(tmp_path, check, good) == 1.0
    assert passed(tmp_path, check, bad) == 0.0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('evals/some.jsonl')",
        "DROP TABLE orders",
        "SELECT 1; SELECT 6.5",
        "not sql at all",
        "",
        "COPY orders TO 'out.csv'",
        "SET threads = 4",
        "SELECT * FROM range(10000000)",
    ],
)
def test_sql_of_a_model_reaches_nothing_and_never_fails_the_evaluation(tmp_path: Path, sql: str) -> None:
    assert passed(tmp_path, {"check": "sql", "tables": ORDERS, "rows": [[6.5]]}, answers(sql)) == 0.0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evals"]


def test_sql_that_never_ends_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flywheel.stages.evaluate.checks.sql.SECONDS", 0.2)
    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
    assert passed(tmp_path, {"check": "sql", "tables": ORDERS, "rows": [[1]]}, answers(endless)) == 0.0


def test_a_pattern_that_hangs_python_ends_at_once(tmp_path: Path) -> None:
    hanging = "a" * 100_000 + "!"  # Python's engine would take longer than the universe has
    assert passed(tmp_path, {"check": "regex", "pattern": "^(a+)+$"}, answers(hanging)) == 0.0
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert passed(tmp_path, {"check": "json_schema", "schema": schema}, answers(json.dumps(hanging))) == 0.0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "evals/some.jsonl:2: not JSON"),
        ("{}", "evals/some.jsonl:2: prompt: Field required"),
        ('{"prompt": "q", "checks": []}', "checks: List should have at least 1 item"),
        ('{"prompt": "q", "checks": [{"check": "regexp"}]}', "evals/some.jsonl:2: checks.0"),
        ('{"prompt": "q", "checks": [{"check": "exact", "any_of": [1], "code": "1"}]}', "checks.0.exact.code: Extra"),
        ('{"prompt": "q", "checks": [{"check": "regex", "pattern": "a(?=b)"}]}', r"checks.0 \(regex\): the pattern"),
        (
            '{"prompt": "q", "checks": [{"check": "json_schema", "schema": {"type": 1}}]}',
            "the schema is wrong at /type",
        ),
        (
            '{"prompt": "q", "checks": [{"check": "json_schema", "schema": {"$ref": "http://x/y"}}]}',
            "refers to another document",
        ),
        ('{"prompt": "q", "checks": [{"check": "json_schema", "schema": {"patternProperties": {}}}]}', "uses `pattern"),
        ('{"prompt": "q", "checks": [{"check": "sql", "tables": {}}]}', "either `rows` or `reference`"),
        ('{"prompt": "q", "checks": [{"check": "sql", "tables": {}, "reference": "SELECT x"}]}', "the reference query"),
        ('{"prompt": "q", "checks": [{"check": "sql", "tables": {"t": "../a.csv"}, "rows": []}]}', "in the cases'"),
        ('{"prompt": "q", "checks": [{"check": "sql", "tables": {"t": "a.csv"}, "rows": []}]}', "FileNotFoundError"),
        ('{"prompt": "q", "checks": [{"check": "python", "name": "nobody"}]}', "no checks extension named"),
        ('{"prompt": "q", "checks": [{"check": "python", "name": "os:system"}]}', "should match pattern"),
        ('{"prompt": [{"role": "assistant", "content": "x"}], "checks": [{"check": "calls", "any_of": [[]]}]}', "end"),
        (
            '{"id": "one", "prompt": "q", "checks": [{"check": "calls", "any_of": [[]]}]}',
            "the case of evals/some.js.*:1",
        ),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line_and_a_hint(tmp_path: Path, line: str, says: str) -> None:
    project(tmp_path, {"id": "one", "prompt": "p", "checks": [{"check": "exact", "any_of": ["x"]}]})
    path = tmp_path / "evals" / "some.jsonl"
    path.write_text(path.read_text() + line + "\n")

    with pytest.raises(EvalError, match=says) as caught:
        read_cases(tmp_path, CFG)
    assert "evals/some.jsonl:2" in caught.value.message
    assert caught.value.hint


def test_a_check_with_a_mistake_in_it_is_an_error_and_not_a_wrong_answer(tmp_path: Path) -> None:
    (tmp_path / "own_checks2.py").write_text("def broken(answer, case):\n    return no_such_name\n")
    cfg = CFG.model_copy(update={"checks": {"broken": "own_checks2:broken"}})
    project(tmp_path, {"prompt": "q", "checks": [{"check": "python", "name": "broken"}]})
    empty = pl.DataFrame()

    with pytest.raises(EvalError, match="the check `broken` is broken: NameError"):
        OWN_CASES(LogReplay({}), Holdout(empty, empty, empty, empty, tmp_path), cfg)


def test_every_file_is_a_suite_and_a_case_knows_its_slices(tmp_path: Path) -> None:
    check = {"check": "exact", "any_of": ["x"]}
    project(tmp_path, {"id": "b", "prompt": "q", "checks": [check], "slices": {"tier": "gold"}}, name="refunds")
    project(tmp_path, {"id": "a", "prompt": "p", "checks": [check], "task": "t"}, name="greetings")
    empty = pl.DataFrame()
    holdout = Holdout(empty, empty, empty, empty, tmp_path)

    both, one = OWN_CASES(LogReplay({}), holdout, CFG), OwnCases("refunds")(LogReplay({}), holdout, CFG)
    assert [(s.case_id, s.slices) for s in both] == [
        ("a", {"file": "greetings"}),
        ("b", {"file": "refunds", "tier": "gold"}),
    ]
    assert [(s.case_id, s.metric) for s in one] == [("b", "refunds_passed")]
    assert OWN_CASES.offered(tmp_path, CFG)
    assert not OwnCases("nothing").offered(tmp_path, CFG)


def test_what_scores_depend_on_changes_with_cases_data_and_code(tmp_path: Path) -> None:
    (tmp_path / "own_checks3.py").write_text("def one(answer, case):\n    return True\n")
    cfg = CFG.model_copy(update={"checks": {"one": "own_checks3:one"}})
    check = {"check": "sql", "tables": {"t": "t.csv"}, "rows": [[1]]}
    project(tmp_path, {"prompt": "q", "checks": [check]})
    data, code, cases = (tmp_path / name for name in ("evals/t.csv", "own_checks3.py", "evals/some.jsonl"))
    data.write_text("n\n1\n")

    seen = [OWN_CASES.depends_on(tmp_path, cfg)]
    assert OWN_CASES.depends_on(tmp_path, cfg) == seen[0]
    for path in (data, code, cases):
        path.write_text(path.read_text() + "\n")
        seen.append(OWN_CASES.depends_on(tmp_path, cfg))
    assert len(set(seen)) == 4


def test_the_identity_of_a_case_is_what_is_asked_and_checked_and_not_its_name(tmp_path: Path) -> None:
    case = {"prompt": "q", "checks": [{"check": "exact", "any_of": ["x"]}]}
    (first,) = read_cases(project(tmp_path, {"id": "a", **case}), CFG)
    (second,) = read_cases(project(tmp_path, {"id": "b", **case}), CFG)
    assert (first.task_id, first.case_id, second.case_id) == (second.task_id, "a", "b")


def test_a_case_beyond_the_window_is_missing_and_lengths_are_the_cases_own(tmp_path: Path) -> None:
    check = {"check": "exact", "any_of": ["x"]}
    project(
        tmp_path,
        {"id": "long", "prompt": "q" * 500, "checks": [check]},
        {"id": "short", "prompt": "q", "checks": [check], "max_new_tokens": 20},
    )
    empty = pl.DataFrame()
    scores = OWN_CASES(LogReplay({}, window=200), Holdout(empty, empty, empty, empty, tmp_path), CFG)

    assert [(s.case_id, math.isnan(s.score)) for s in scores] == [("long", True), ("short", False)]
    assert scores[0].slices["missing"] == "longer than the model's window"

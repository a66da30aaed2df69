"""The example world: reproducible, executable, honest about its truth; and its plugin, found by its entry point."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import EvalConfig, ModelConfig
from flywheel.extensions import Generation, Holdout, load_extension
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.store import Store
from flywheel_warehouse.evaluate import executed
from flywheel_warehouse.generate import generate, logged_questions
from flywheel_warehouse.world import Question, World, questions
from tests.projects import flywheel

FLAKY, NO_JSON = "Error: backend unavailable", "Error: arguments are not valid JSON"


@pytest.fixture(scope="module")
def expected(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "examples" / "warehouse" / "expected.json").read_text())
    return found


@pytest.fixture(scope="module")
def truth(root: Path) -> dict[str, dict[str, Any]]:
    lines = (root / "examples" / "warehouse" / "truth.jsonl").read_text().splitlines()
    return {row["conversation_id"]: row for row in map(json.loads, lines)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, sample_logs: Path) -> Store:
    """The sample logs, taken in and built through the command line, as a folder."""
    project = tmp_path_factory.mktemp("warehouse")
    flywheel(project, "ingest", str(sample_logs))
    flywheel(project, "build")
    return Store(project / ".flywheel")


def table(store: Store, name: str, stage: str | None = None) -> pl.DataFrame:
    return store.table(name, stage or name).collect()


def test_the_committed_logs_are_what_the_generator_writes(tmp_path: Path, root: Path, sample_logs: Path) -> None:
    generate(tmp_path / "logs", tmp_path / "truth.jsonl", 7)
    made = {p.name: p.read_bytes() for p in (tmp_path / "logs").iterdir()}
    assert made == {p.name: p.read_bytes() for p in sample_logs.iterdir()}
    for name in ("truth.jsonl", "expected.json"):
        assert (tmp_path / name).read_bytes() == (root / "examples" / "warehouse" / name).read_bytes()
    assert sum(map(len, made.values())) < 3_000_000


@pytest.mark.e2e
def test_another_seed_gives_other_logs(tmp_path: Path, sample_logs: Path) -> None:
    generate(tmp_path, tmp_path / "truth.jsonl", 8)
    assert (tmp_path / "native.jsonl").read_bytes() != (sample_logs / "native.jsonl").read_bytes()


def test_flywheel_counts_what_the_world_counted(store: Store, expected: dict[str, Any]) -> None:
    episodes = table(store, "episodes")
    assert episodes.height == expected["episodes"]
    assert episodes["task_id"].n_unique() == expected["tasks"]
    read = store.current("ingest")
    assert read is not None
    funnel = dict(read.funnel)
    assert (
        sum(expected["lines"].values()) - expected["unreadable_lines"] - expected["duplicate_lines"] == funnel["kept"]
    )
    reasons = table(store, "quarantine", "ingest")["reason"].to_list()
    assert reasons == ["bad_json"] * expected["unreadable_lines"]


def test_the_truth_is_not_in_the_logs(sample_logs: Path, truth: dict[str, dict[str, Any]]) -> None:
    def keys(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield key
                yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    told: set[str] = set()
    for path in sorted(sample_logs.glob("*.jsonl*")):
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        for line in text.splitlines():
            try:
                told.update(keys(json.loads(line)))
            except ValueError:
                continue
    assert told & {"role", "attributes", "conversation_id"}, "the walk sees keys"
    assert not {key for key in told if any(word in key.lower() for word in ("success", "correct", "truth", "reward"))}
    assert {row["success"] for row in truth.values()} == {True, False}


def test_every_logged_call_gives_the_logged_result_again(store: Store) -> None:
    world, again, flaky = World(), 0, 0
    calls: dict[str, dict[str, Any]] = {}
    steps = table(store, "steps", "episodes").sort("episode_id", "index")
    for observation, action in steps.select("observation", "action").iter_rows():
        for result in (m for m in json.loads(observation) if m["role"] == "tool"):
            if result["content"] == FLAKY:
                flaky += 1
                continue
            call = calls[result["tool_call_id"]]
            if result["content"] == NO_JSON:  # Anthropic's format cannot say what did not parse: its input is {}
                assert not call["arguments"]
                continue
            assert world.call(call["name"], call["arguments"])[0] == result["content"], call
            again += 1
        calls |= {call["id"]: call for call in json.loads(action).get("tool_calls") or []}
    assert again > 500
    assert 0 < flaky < 0.1 * again


def test_every_prompt_is_short_enough_to_train_on_two_cores(store: Store) -> None:
    chat = ChatFormat(load_tokenizer(ModelConfig()))
    rows = table(store, "examples").select("prompt", "tools").unique().sort("prompt")
    prompts = [(json.loads(prompt), json.loads(tools)) for prompt, tools in rows.iter_rows()]
    texts = [chat.prompt(messages, tools) for messages, tools in prompts]
    lengths = [len(ids) for ids in chat.tokenizer(texts, add_special_tokens=False)["input_ids"]]
    assert len(lengths) > 500
    assert sum(n >= 400 for n in lengths) < 0.06 * len(lengths), "the few are long loops of failing calls"


class _Oracle:
    """Writes the right query, then reads the answer off its result; for chosen questions, makes a mistake first."""

    name, sha256, window = "oracle", "0" * 64, 0

    def __init__(self, *, slip: bool = False, mute: bool = False) -> None:
        self._slip, self._mute = slip, mute

    def _act(self, prompt: Sequence[dict[str, Any]]) -> dict[str, Any]:
        question = questions()[prompt[1]["content"]]
        if self._mute:
            return {"role": "assistant", "content": "I would query the table."}
        if prompt[-1]["role"] == "tool" and prompt[-1]["content"].startswith("[["):
            value = str(json.loads(prompt[-1]["content"])[0][0])
            return _call("answer", {"value": value})
        if prompt[-1]["role"] == "user":
            return _call("run_sql", {"sql": question.sql.replace("FROM ", "FROM no_such_")})
        return _call("run_sql", {"sql": question.slip if self._slip else question.sql})

    def generate(
        self, prompts: Sequence[Sequence[dict[str, Any]]], tools: Sequence[Any], *, max_new_tokens: int
    ) -> list[Generation]:
        """Act."""
        assert len(prompts) == len(tools)
        assert max_new_tokens > 0
        made = [self._act(p) for p in prompts]
        return [Generation("", message, "tool_calls" in message) for message in made]

    def log_prob(self, *_: Any) -> list[tuple[float, int]]:
        """Not asked for."""
        raise NotImplementedError

    def lengths(self, *_: Any) -> list[int]:
        """Not asked for."""
        raise NotImplementedError


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "", "name": name, "arguments": arguments}]}


@pytest.fixture(scope="module")
def holdout(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Holdout:
    held = table(store, "episodes").filter(pl.col("split") == "holdout")
    of = {
        name: table(store, name, stage).join(held.select("task_id").unique(), on="task_id", how="semi")
        for name, stage in (("steps", "episodes"), ("returns", "returns"), ("pairs", "pairs"))
    }
    return Holdout(held, of["steps"], of["returns"], of["pairs"], tmp_path_factory.mktemp("project"))


@pytest.mark.parametrize(
    ("policy", "successes"),
    [(_Oracle(), 1.0), (_Oracle(slip=True), 0.0), (_Oracle(mute=True), 0.0)],
    ids=["mends its query", "answers another question", "speaks no tools"],
)
def test_success_is_the_true_answer_and_nothing_else(policy: Any, successes: float, holdout: Holdout) -> None:
    scores = executed(policy, holdout, EvalConfig())
    assert {s.score for s in scores if s.metric == "executed_success"} == {successes}
    assert {s.primary for s in scores if s.metric == "executed_success"} == {True}


def test_no_case_was_ever_trained_on(store: Store, holdout: Holdout) -> None:
    cases = {s.task_id for s in executed(_Oracle(), holdout, EvalConfig())}
    trained = set(table(store, "episodes").filter(pl.col("split") == "train")["task_id"])
    assert len(cases) > 20
    assert not cases & trained
    asked = {q.text for q in logged_questions()}
    never = [q for q in questions() if q not in asked]
    assert len(cases) == len(never) + holdout.episodes["task_id"].n_unique()


def test_every_slip_runs_and_answers_something_else() -> None:
    world = World()

    def slipped(question: Question) -> str:
        text, ok = world.call("run_sql", {"sql": question.slip})
        assert ok, question
        return str(json.loads(text)[0][0])

    same = [q.text for q in questions().values() if slipped(q) == world.truth(q)]
    assert len(same) <= 2, same


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("drop", {}, "Error: no tool named drop"),
        ("run_sql", None, "Error: arguments are not valid JSON"),
        ("run_sql", {"query": "SELECT 1"}, "Error: run_sql takes sql"),
        ("run_sql", {"sql": "DROP TABLE orders"}, "Error: only SELECT is allowed"),
        ("run_sql", {"sql": "SELECT * FROM read_csv('/etc/passwd')"}, "Error: Permission Error"),
        ("describe_table", {"table": "order"}, "Error: Table order does not exist"),
    ],
)
def test_a_bad_call_fails_with_its_reason_and_reaches_no_file(name: str, arguments: Any, text: str) -> None:
    said, ok = World().call(name, arguments)
    assert not ok
    assert said.startswith(text)


def test_the_plugin_is_found_by_its_entry_point() -> None:
    assert load_extension("evaluators", "warehouse") is executed

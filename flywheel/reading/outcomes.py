"""How a run ended, as programs write it: the fields of a record or of an object in it, by their names and values.

In: the fields. Out: `Result`s. A name is known as a whole (`resolved`), or by its words (`eval_success`,
`testResult`), all of which must be about the end of a run: `request_success` and `success_rate` are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from flywheel.reading.status import verdict
from flywheel.reading.values import as_dict, number, text, words_of

# What programs that check a run call its outcome, and what its writer may also have put there.
_CHECKED = ("resolved", "is_resolved", "tests_passed", "all_tests_passed", "verified", "passed")
_STATED = (
    "reward", "success", "is_success", "solved", "is_correct", "correct", "score", "outcome", "final_reward", "win",
    "won", "successful", "is_successful", "call_successful", "success_evaluation", "successEvaluation", "cum_reward",
    "cumulative_reward", "total_reward", "final_score", "task_success",
    "utility", "goal_accuracy", "agent_goal_accuracy",
)  # fmt: skip
# Of these a number above 1 is how many of a whole benchmark did, not how a run ended.
_COUNTED = {
    *_CHECKED, *(name for name in _STATED if "success" in name), "solved", "is_correct", "correct", "win", "won",
}  # fmt: skip
_TALLIES = ("total", "failed", "total_tests", "num_failed", "failures")  # next to which a number is how many did
_HOLDERS = (
    "outcome", "result", "evaluation", "eval", "verifier_result", "verifier", "execution_result", "run_result",
    "analysis", "call_analysis", "summary_info", "eval_result", "eval_results", "evaluation_result",
    "evaluation_results", "test_result", "reward_info", "grading", "grade", "metrics", "results", "verdict", "judge",
    "judgement", "judgment",
)  # fmt: skip
_MEASURES = ("rewards", "scores")  # measures by name
_MEASURE = ("metric", "metric_name", "metricName", "evaluator", "evaluator_name", "criterion", "dimension", "scorer",
            "measure")  # fmt: skip
_AMOUNTS = ("score", "value", "passed")
RESULTS = frozenset({*_CHECKED, *_STATED, *_MEASURES})
# Words of other names. Each word of a name is about the end of a run, or it is another thing that succeeded.
_HELD = {"success", "successful", "succeeded", "pass", "passes", "passed", "resolved", "solved", "correct", "won"}
_JUDGED = {"result", "verdict", "outcome", "status"}  # of words alone: a number there is a code
_AMOUNT = {"score", "reward"}
_BY_PROGRAM = {"test", "tests", "verifier", "verification"}
_CHECKING = {*_BY_PROGRAM, "eval", "evaluation", "evaluator", "final", "task", "grading", "grader"}
_AROUND = {*_CHECKING, "is", "was", "has", "all", "overall", "agent", "goal", "episode", "problem", "run", "trajectory"}
_NAMES = 4096  # of fields whose meaning is remembered


class Result(NamedTuple):
    """How a run ended, by one measure; `by` is as in `outcome`."""

    name: str
    value: float
    by: str


def results(fields: Mapping[str, Any]) -> list[Result]:
    """Return the outcomes of a run: fields of its own, or those of an object that holds them.

    In a row of one measure it is the measure's: `{"metric": "faithfulness", "score": 0.5}`.
    """
    if (measure := measure_of(fields)) is not None:
        return [measure]
    if any(type(fields.get(name)) is int for name in _TALLIES):
        fields = {name: held for name, held in fields.items() if type(held) is not int or name not in _COUNTED}
    found = [r for key in _CHECKED if (r := _result(key, fields.get(key), "verifier"))]
    found = found or [r for key in _STATED if (r := _result(key, fields.get(key), "recorded"))][:1]
    found = found or [r for key, value in fields.items() if (r := _worded(key, value))][:1]
    for key in _MEASURES:
        found += [r for name, value in as_dict(fields.get(key)).items() if (r := _result(str(name), value, "verifier"))]
    held = ((key, inner) for key in _HOLDERS if (inner := as_dict(fields.get(key))))
    return found or next(
        (several for key, inner in held if (several := results(inner) or _named_alike(key, inner))), []
    )


def measure_of(fields: Mapping[str, Any]) -> Result | None:
    """Return what a row measures, where it names one measure and how much it is, from 0 to 1, and has no verdict."""
    named = next((one for name in _MEASURE if (one := text(fields.get(name)))), None)
    if named is None or any(fields.get(name) is not None for name in (*_CHECKED, *_STATED) if name not in _AMOUNTS):
        return None
    found = (_result(named, fields.get(name), "recorded") for name in _AMOUNTS)
    return next((one for one in found if one is not None and 0 <= one.value <= 1), None)


def _worded(name: str, given: Any) -> Result | None:
    """Return what a field under another name gives, known by the words of the name."""
    kind = _kind(name)
    if kind is None or (kind == "judged" and not (isinstance(given, bool) or verdict(given) is not None)):
        return None
    result = _result(name, given, "recorded" if _BY_PROGRAM.isdisjoint(words_of(name)) else "verifier")
    return None if result is not None and kind == "held" and not 0 <= result.value <= 1 else result


@lru_cache(_NAMES)
def _kind(name: str) -> Literal["held", "judged", "amount"] | None:
    """Return what a field shows of a run's end: that it held, in a word, or as an amount; None: something else."""
    words = words_of(name)
    if name in RESULTS or not words <= {*_HELD, *_JUDGED, *_AMOUNT, *_AROUND}:
        return None
    if words & _HELD:
        return "held"
    if words & _JUDGED and (words & _CHECKING or words == {"verdict"}):
        return "judged"
    return "amount" if words & _AMOUNT and len(words) > 1 else None


def is_result(name: str) -> bool:
    """Return whether a field of this name shows how a run ended."""
    return name in RESULTS or _kind(name) is not None


def _named_alike(name: str, inner: Mapping[str, Any]) -> list[Result]:
    """Return the yes or no in an object under its own name, as AgentBench writes it: `{"result": {"result": true}}`."""
    return [Result(name, float(inner[name]), "recorded")] if isinstance(inner.get(name), bool) else []


def is_unmeasured(fields: Mapping[str, Any]) -> bool:
    """Whether a run has a field for its outcome with nothing in it: it crashed before anybody looked."""
    return any(name in fields and fields[name] is None for name in (*_CHECKED, *_STATED))


def by_name(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the runs in a map by id: several objects, each with an outcome; {} for any other object."""
    runs = {name: as_dict(run) for name, run in record.items()}
    return runs if len(runs) > 1 and all(results(run) for run in runs.values()) else {}


def _result(name: str, given: Any, by: str) -> Result | None:
    value = verdict(given)
    value = number(given) if value is None else value
    if value is not None and value > 1 and name in _COUNTED:
        return None
    return Result(name, value, by) if value is not None else None

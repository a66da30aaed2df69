"""Harbor's results: the verifier's rewards for a trial, in result.json next to the trial's agent folder.

The trajectory is another file (see `atif`); a trial is known by its name. A job's own result holds its trials' results,
or only counts them. A reward after a failure that was not the agent's is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, Source, request
from flywheel.reading.feedback import outcome
from flywheel.reading.reader import has, reader
from flywheel.reading.values import as_dict, as_list, ident, number, text, when

_TRIAL = has("task_name", "trial_name", "agent_info")
_KNOWN = (
    _TRIAL | has("n_total_trials", "stats") | has("trial_name", "task", "agent", "environment")
)  # job, configuration
# Harbor's own list: failures of the agent, after which the reward counts.
_THE_AGENTS = {
    "AgentTimeoutError", "ContextWindowExceededError", "OutputTokenExceededError", "ContextLengthExceededError",
    "OutputLengthExceededError", "AgentSafetyRefusalError", "ContentPolicyViolationError",
}  # fmt: skip


def _read(record: Any) -> Iterator[Event]:
    """Yield the outcomes of a trial or of a job's trials."""
    for trial in [record, *as_list(record.get("trial_results"))]:
        if _TRIAL(trial):
            yield from _trial(trial)


def _trial(trial: Mapping[str, Any]) -> Iterator[Event]:
    name = ident(trial.get("trial_name"))
    if name is None:
        raise BadRecordError("bad_record", "a trial without a name")
    source: Source = {"task_key": f"harbor/{ident(trial.get('task_name'))}", "ts": when(trial.get("finished_at"))}
    yield request([], {**source, "conversation_id": name, "ts": when(trial.get("started_at"))}, 0, {})
    steps = [as_dict(step) for step in as_list(trial.get("step_results"))]
    ended = [text(as_dict(part.get("exception_info")).get("exception_type")) for part in (trial, *steps)]
    if any(kind is not None and kind not in _THE_AGENTS for kind in ended):
        return
    target = f"session:{name}"
    for part in (trial, *steps):
        prefix = f"{part['step_name']}/" if text(part.get("step_name")) else ""
        for label, given in as_dict(as_dict(part.get("verifier_result")).get("rewards")).items():
            value = number(given)
            if value is not None:
                of_trial = {**source, "conversation_id": target, "target": target, "seq": 0}
                yield outcome(of_trial, prefix + label, value, by="verifier")


READER = reader(
    "harbor", 1, "the results of Harbor's trials", marks=_KNOWN, refusal="no result of a trial or a job", read=_read
)

"""SWE-bench reports: which instances a run resolved; each verdict goes to the trajectory of that instance.

In: a run's report (any version, also the older one without `_ids`), the report of one instance, and predictions, which
have no verdict. Out: an outcome per instance. Failures of the harness (an error, an image that would not start) are not
outcomes of the agent; an empty patch resolves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from flywheel.reading.events import Event
from flywheel.reading.feedback import outcome
from flywheel.reading.reader import reader
from flywheel.reading.values import as_dict, as_list, ident
from flywheel.stages.ingest.readers._swe import run_of_report

_RESOLVED = ("resolved_ids", "resolved")
_JUDGED = {"submitted_ids", "completed_ids", "unresolved_ids"}
_OLDER = {"resolved", "generated", "no_generation"}
_UNRESOLVED = ("unresolved_ids", "empty_patch_ids")
_BROKEN = ("infra_failure_ids", "error_ids", "install_fail", "reset_failed")
_ONE = {"patch_exists", "resolved"}


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return the run that a report is about."""
    return run_of_report(path)


def _read(record: Any) -> Iterator[Event]:
    """Yield an outcome for every instance with a verdict."""
    for seq, (instance, resolved) in enumerate(sorted(_verdicts(record).items())):
        source = {"conversation_id": instance, "task_key": instance, "seq": seq}
        yield outcome(source, "resolved", float(resolved), scale=(0, 1), by="verifier")


def _is_known(record: Any) -> bool:
    return _is_report(as_dict(record)) or _is_prediction(as_dict(record))


def _is_report(record: Mapping[str, Any]) -> bool:
    fields = set(record)
    of_instances = bool(record) and all(set(as_dict(value)) >= _ONE for value in record.values())
    return _is_of_run(fields) or fields >= _OLDER or of_instances


def _is_of_run(fields: set[str]) -> bool:
    return not fields.isdisjoint(_RESOLVED) and not fields.isdisjoint(_JUDGED)


def _is_prediction(record: Mapping[str, Any]) -> bool:
    holds = any(isinstance(held, list | dict) and held for held in record.values())  # a prediction has texts alone
    one = {"instance_id", "model_patch"} <= set(record) and not holds
    return one or (bool(record) and all("model_patch" in as_dict(v) for v in record.values()))


def _verdicts(record: Mapping[str, Any]) -> dict[str, bool]:
    if _is_of_run(set(record)):
        judged = {**_ids(record, _UNRESOLVED, resolved=False), **_ids(record, _RESOLVED, resolved=True)}
    elif set(record) >= _OLDER:
        judged = {**_ids(record, ("generated", "no_generation"), resolved=False)}
        judged |= _ids(record, ("resolved",), resolved=True)
    else:
        fields = {ident(name): as_dict(one) for name, one in record.items()}
        return {
            name: one["resolved"]
            for name, one in fields.items()
            if name and isinstance(one.get("resolved"), bool) and not one.get("infra_failure")
        }
    broken = _ids(record, _BROKEN, resolved=False)
    return {instance: resolved for instance, resolved in judged.items() if resolved or instance not in broken}


def _ids(record: Mapping[str, Any], fields: tuple[str, ...], *, resolved: bool) -> dict[str, bool]:
    names = (ident(item) for field in fields for item in as_list(record.get(field)))
    return {instance: resolved for instance in names if instance}


READER = reader(
    "swebench_report", 3, "reports of the SWE-bench harness", marks=_is_known, read=_read, from_path=_from_path
)

"""The project's own cases: `evals/*.jsonl`, one case a line (schemas/eval_case), with programmatic checks.

In: files that the user wrote. Out: one score a case, `passed`, 1 if every check passes. A file that is not as it should
be is an error with its line before any model is asked: a case that is silently left out would be a gap in a guardrail.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flywheel.config import EvalConfig
from flywheel.errors import EvalError
from flywheel.extensions import CaseScore, Generation, Holdout, Policy, list_extensions
from flywheel.io import safe_path
from flywheel.io.user_files import matching_files, read_records
from flywheel.messages import acts_of
from flywheel.records import EvalCase, content_id
from flywheel.records.cases import SqlCheck
from flywheel.stages.evaluate.checks.run import Passes, Where, prepare
from flywheel.stages.evaluate.checks.schema import BadCheckError
from flywheel.stages.evaluate.checks.sql import data_files
from flywheel.stages.evaluate.window import TOO_LONG, Ask, fits, written_tokens

LEAST_WORDS = 4  # "yes, please" is in many conversations


@dataclass(frozen=True)
class OwnCase:
    """One case, ready to be asked and checked."""

    case_id: str
    task_id: str
    file: str
    prompt: list[dict[str, Any]]
    case: EvalCase
    checks: tuple[Passes, ...]

    @property
    def ask(self) -> Ask:
        """What the policy is asked."""
        return Ask(self.prompt, self.case.tools)

    def passed(self, answer: Generation) -> bool:
        """Return whether an answer passes every check."""
        return all(check(answer) for check in self.checks)


def read_cases(project: Path, cfg: EvalConfig, stem: str = "") -> list[OwnCase]:
    """Return the project's own cases, sorted by id.

    Args:
        project: the project's folder.
        cfg: eval.cases names the files, eval.checks the functions that they may name.
        stem: only the file of this name, without .jsonl.

    Raises:
        EvalError: a line is not a case, a check cannot be used, or two cases have one id; names file and line.
    """
    cases: dict[str, OwnCase] = {}
    places: dict[str, str] = {}
    for place, path, case in read_records(matching_files(project, cfg.cases, stem), project, EvalCase, EvalError):
        ready = _ready(case, place, path, Where(path.parent, project, cfg.checks))
        if ready.case_id in cases:
            raise EvalError(
                f"{place}: the case of {places[ready.case_id]} again", hint="give each case an `id` of its own"
            )
        cases[ready.case_id], places[ready.case_id] = ready, place
    return [cases[case_id] for case_id in sorted(cases)]


def _ready(case: EvalCase, place: str, path: Path, where: Where) -> OwnCase:
    checks: list[Passes] = []
    for number, check in enumerate(case.checks):
        try:
            checks.append(prepare(check, case, where))
        except BadCheckError as error:
            raise EvalError(f"{place}: checks.{number} ({check.check}): {error}", hint=error.hint) from None
    content = content_id("case", case.model_dump(mode="json", exclude={"id", "slices", "task"}, by_alias=True))
    task = content_id("own case", case.task) if case.task else content
    return OwnCase(case.id or place, task, path.stem, case.messages(), case, tuple(checks))


class OwnCases:
    """The suite of the project's own cases: all files, or one.

    Args:
        stem: name of the file without .jsonl; '' for all.
    """

    fixed = True
    lists_failures = True

    def __init__(self, stem: str = "") -> None:
        self.stem = stem

    def offered(self, project_dir: Path, cfg: EvalConfig) -> bool:
        """Return whether the project has such cases."""
        return bool(matching_files(project_dir, cfg.cases, self.stem))

    def depends_on(self, project_dir: Path, cfg: EvalConfig) -> str:
        """Hash the files of cases, the data they name, and the modules of the functions they may name."""
        paths = matching_files(project_dir, cfg.cases, self.stem)
        for case in read_cases(project_dir, cfg, self.stem):
            folder = next(p.parent for p in paths if p.stem == case.file)
            paths += [p for check in case.case.checks if isinstance(check, SqlCheck) for p in data_files(check, folder)]
        hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
        plugins = [f"{e.name} {e.target} {e.version}" for e in list_extensions("checks")]
        return content_id(hashes, plugins, [_source(t, project_dir) for _, t in sorted(cfg.checks.items())])

    def texts(self, holdout: Holdout, cfg: EvalConfig) -> list[str]:
        """Return what the cases ask, so that no round is trained on it; not the few words that every user writes."""
        requests = (case.ask.request for case in read_cases(holdout.project_dir, cfg, self.stem))
        return [request for request in requests if len(request.split()) >= LEAST_WORDS]

    def __call__(self, policy: Policy, holdout: Holdout, cfg: EvalConfig) -> list[CaseScore]:
        """Score the policy's greedy answer to each case: `passed`."""
        cases = read_cases(holdout.project_dir, cfg, self.stem)
        answers = dict(_answers(policy, cases, cfg))
        metric = f"{self.stem or 'cases'}_passed"
        scores = [_score(case, metric, answers.get(case.case_id)) for case in cases]
        tokens = [t for c in cases for t in written_tokens(c.case_id, c.task_id, answers.get(c.case_id))]
        return [*scores, *tokens]


OWN_CASES = OwnCases()


def _source(target: str, project: Path) -> str:
    """Return the hash of a module's file, '' where it has none; the module is not run."""
    safe_path.search(project)
    try:
        spec = importlib.util.find_spec(target.partition(":")[0])
    except (ImportError, ValueError):
        spec = None
    origin = Path(spec.origin) if spec is not None and spec.origin else None
    return hashlib.sha256(origin.read_bytes()).hexdigest() if origin is not None and origin.is_file() else ""


def _answers(policy: Policy, cases: Sequence[OwnCase], cfg: EvalConfig) -> Iterator[tuple[str, Generation]]:
    lengths = {case.case_id: case.case.max_new_tokens or cfg.max_new_tokens for case in cases}
    for most in sorted(set(lengths.values())):
        group = [case for case in cases if lengths[case.case_id] == most]
        able = fits(policy, [case.ask for case in group], most)
        asked = [case for case, fit in zip(group, able, strict=True) if fit]
        generated = policy.generate([c.prompt for c in asked], [c.case.tools for c in asked], max_new_tokens=most)
        yield from ((case.case_id, answer) for case, answer in zip(asked, generated, strict=True))


def _score(case: OwnCase, metric: str, answer: Generation | None) -> CaseScore:
    score = CaseScore(case.case_id, case.task_id, metric, math.nan, primary=True, title=case.ask.request)
    if answer is None:
        return replace(score, slices={"missing": TOO_LONG})
    slices = {"file": case.file, **case.case.slices}
    return replace(score, score=float(case.passed(answer)), slices=slices, did=acts_of([answer.message]))

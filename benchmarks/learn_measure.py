"""What `learn.py` measures of a policy: held-out tasks, and a fixed text that has nothing to do with them.

Held-out: flywheel's own evaluators on the tasks that no arm trains on. Forgetting: the exact KL divergence from the
base to the policy, a token of `plain_text.txt`, and its perplexity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flywheel.extensions import Holdout
    from flywheel.models.policy import PolicySet
    from flywheel.project import Project

__all__ = ["HELD_OUT", "MEASURES", "Scores", "interval", "measure", "read_results", "summarise", "write_results"]

PLAIN = Path(__file__).with_name("plain_text.txt")
MEASURES = ("next_tool", "preference_accuracy")
HELD_OUT = (*MEASURES, "preference_like_length", "next_action_good", "well_formed")
KL_LIMIT, PERPLEXITY_LIMIT = 0.1, 1.1

Scores = dict[str, Any]


def held_out(project: Project) -> Holdout:
    """Return the held-out part of a project's tables."""
    from flywheel.pipeline.evaluate.holdout import read_holdout

    return read_holdout(project.context)


def measure(project: Project, adapter: Path | None) -> Scores:
    """Return every case's score, {measure: {case: [score, task]}}, and the drift on the fixed text."""
    from flywheel.models.policy import PolicySet
    from flywheel.stages.evaluate.suites.next_action import next_action, preference

    policies = PolicySet(project.config.model, project.config.eval)
    policy, cases = policies.policy(adapter, "measured"), held_out(project)
    every_pair = project.config.eval.model_copy(update={"max_cases": cases.pairs.height})  # scoring is cheap
    found: Scores = {}
    for suite, cfg in ((next_action, project.config.eval), (preference, every_pair)):
        for score in suite(policy, cases, cfg):
            if not math.isnan(score.score):
                found.setdefault(score.metric, {})[score.case_id] = [score.score, score.task_id]
    return {**found, **plain_text(policies, adapter)}


def plain_text(policies: PolicySet, adapter: Path | None) -> dict[str, float]:
    """Return the fixed text's perplexity and the mean KL(base || policy) a token, in nats."""
    import torch

    ids = policies.tokenizer(PLAIN.read_text(encoding="utf-8"), return_tensors="pt")["input_ids"]
    before, after = (_distributions(policies, which, ids) for which in (None, adapter))
    targets = ids[0, 1:].to(after.device)
    loss = -after[:-1].gather(-1, targets[:, None]).mean()
    kl = (before.exp() * (before - after)).sum(-1).mean()
    return {"perplexity": float(torch.exp(loss)), "kl": max(0.0, float(kl))}


def _distributions(policies: PolicySet, adapter: Path | None, ids: Any) -> Any:
    import torch

    with policies.active(adapter) as model, torch.inference_mode():
        return torch.log_softmax(model(input_ids=ids.to(model.device)).logits[0].float(), -1)


# --- what was measured, on any machine ----------------------------------------------------------------------------


def write_results(
    path: Path, settings_id: str, settings: Mapping[str, Any], measured: Mapping[Any, Mapping[str, Any]]
) -> None:
    """Write what is known of the base and of each (arm, seed, round): settings and cases, then a line each."""
    from flywheel.io.files import atomic_write
    from flywheel.records import canonical_json

    tasks: dict[str, dict[str, str]] = {name: {} for name in HELD_OUT}
    for one in measured.values():
        for name, known in tasks.items():
            known.update({case: task for case, (_, task) in one["scores"].get(name, {}).items()})
    lines: list[dict[str, Any]] = [{"settings_id": settings_id, "settings": dict(settings), "tasks": tasks}]
    for key in sorted(measured, key=str):
        scores = measured[key]["scores"]
        values = {n: [scores.get(n, {}).get(case, [None])[0] for case in sorted(known)] for n, known in tasks.items()}
        trained = {k: v for k, v in measured[key].get("trained", {}).items() if k != "adapter"}
        lines.append({"of": key, "trained": trained, "kl": scores["kl"], "perplexity": scores["perplexity"], **values})
    atomic_write(path, "".join(canonical_json(line) + "\n" for line in lines))


def read_results(path: Path, settings_id: str) -> dict[Any, dict[str, Any]]:
    """Return what `write_results` wrote; nothing where there is no such file."""
    from flywheel.io.files import read_rows

    head, *lines = read_rows(path, optional=True) or [{"settings_id": settings_id}]
    if head["settings_id"] != settings_id:
        raise SystemExit(f"{path}: measured with other settings, logs or base model ({head['settings_id']})")
    found: dict[Any, dict[str, Any]] = {}
    for line in lines:
        scores: Scores = {"kl": line["kl"], "perplexity": line["perplexity"]}
        for name, tasks in head["tasks"].items():
            both = zip(sorted(tasks), line[name], strict=True)
            scores[name] = {case: [score, tasks[case]] for case, score in both if score is not None}
        key = line["of"] if isinstance(line["of"], str) else tuple(line["of"])
        found[key] = {"trained": line["trained"], "scores": scores}
    return found


# --- from cases to numbers -----------------------------------------------------------------------------------------


def _mean_over_seeds(found: Sequence[Scores], name: str) -> dict[str, tuple[float, str]]:
    cases = set.intersection(*(set(scores.get(name, {})) for scores in found))
    return {
        c: (math.fsum(scores[name][c][0] for scores in found) / len(found), found[0][name][c][1]) for c in sorted(cases)
    }


def interval(values: Mapping[str, tuple[float, str]], least: float = -1.0) -> dict[str, Any]:
    """Return a mean over cases with its 95 % interval, tasks being the units, from {case: (value, task)}.

    `least` is the lowest value there is; the highest is 1.
    """
    from flywheel.stats.clusters import cluster, paired_t_interval

    if not values:
        return {"mean": None, "low": None, "high": None, "cases": 0, "tasks": 0}
    data = cluster([v for v, _ in values.values()], [t for _, t in values.values()])
    low, high = paired_t_interval(data)
    low, high = (low, high) if math.isinf(low) else (max(least, low), min(1.0, high))
    bounds = {
        "low": round(low, 4) if math.isfinite(low) else None,
        "high": round(high, 4) if math.isfinite(high) else None,
    }
    return {"mean": round(data.mean, 4), **bounds, "cases": data.n, "tasks": len(data.sums)}


def summarise(found: Sequence[Scores], base: Scores, others: Mapping[str, Sequence[Scores]]) -> dict[str, Any]:
    """Return one arm after one round: rates, differences to the base and to other arms, and what was forgotten.

    A case's score is the mean over seeds; intervals are over tasks.
    """
    out: dict[str, Any] = {"seeds": len(found)}
    for name in HELD_OUT:
        mine = _mean_over_seeds(found, name)
        out[name] = interval(mine, least=0.0)
        out[name]["by_seed"] = [interval(_mean_over_seeds([one], name))["mean"] for one in found]
        for other, theirs in {"base": [base], **others}.items():
            if theirs:
                beside = _mean_over_seeds(theirs, name)
                both = {c: (mine[c][0] - beside[c][0], mine[c][1]) for c in mine if c in beside}
                out[name][f"over_{other}"] = interval(both)
    out["kl"] = round(max(scores["kl"] for scores in found), 4)
    out["perplexity"] = round(max(scores["perplexity"] for scores in found), 3)
    ratio = out["perplexity"] / base["perplexity"]
    out["perplexity_ratio"] = round(ratio, 4)
    out["forgot_nothing"] = out["kl"] <= KL_LIMIT and ratio <= PERPLEXITY_LIMIT
    return out

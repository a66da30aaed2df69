"""What scoring costs compared with a plain loop of transformers, case after case, on logged cases that share prefixes.

`python benchmarks/eval.py [--json] [--data PATH] [--cases N] [--most TOKENS]`: SmolLM2-135M in float32. Cases are
logged steps: what the agent saw (system prompt, tools, the conversation so far) and what it did. Both sides score the
same tokens of the same cases in one run, and write greedy next actions; seconds of the wall and of the processor, the
largest difference of any score, and whether the same was written.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TAU2 = ROOT.parent / "shared" / "data" / "tau2-bench" / "airline" / "gpt-4.1_airline_default_gpt-4.1_1trials.json.gz"
WRITTEN = 8  # tokens of a next action, and every third case has one

Case = tuple[list[dict[str, Any]], list[dict[str, Any]] | None, dict[str, Any]]  # prompt, tools, action


def logged_cases(data: Path, folder: Path) -> list[Case]:
    """Return every step of the logs as a case, conversation by conversation."""
    from flywheel.pipeline.build.tables import read_table
    from flywheel.project import Project
    from flywheel.stages.datasets.context import contexts

    project = Project(folder)
    project.ingest([data])
    project.build()
    steps, episodes = (read_table(project.store, name).collect() for name in ("steps", "episodes"))
    tools = dict(episodes.select("episode_id", "tools").iter_rows())
    keys = sorted(steps.select("episode_id", "index").iter_rows())
    made = contexts(steps, set(keys))
    return [
        (
            json.loads(made[key].prompt),
            json.loads(tools[key[0]]) if tools[key[0]] else None,
            json.loads(made[key].completion)[-1],
        )
        for key in keys
        if key in made
    ]


def fitting(cases: list[Case], policies: Any, most: int, count: int) -> list[Case]:
    """Return the first cases whose prompt and action are short enough."""
    found: list[Case] = []
    for case in cases:
        if len(found) < count and policies.policy(None, "base").lengths([case[0]], [case[1]], [case[2]])[0] <= most:
            found.append(case)
    return found


def plain_scores(policies: Any, cases: list[Case]) -> list[float]:
    """Score as one writes it: a forward pass a case."""
    import torch

    found = []
    with policies.active(None) as model, torch.inference_mode():
        for prompt, tools, action in cases:
            before = policies.ids(policies.chat.prompt(prompt, tools))
            after = policies.ids(policies.chat.completion(prompt, tools, action))
            logits = model(torch.tensor([before + after])).logits[0, len(before) - 1 : -1]
            logp = torch.log_softmax(logits.float(), -1).gather(-1, torch.tensor(after)[:, None])
            found.append(float(logp.sum()))
    return found


def plain_actions(policies: Any, cases: list[Case]) -> list[str]:
    """Write as one writes it: one `generate` a case."""
    import torch

    found = []
    with policies.active(None) as model, torch.inference_mode():
        for prompt, tools, _ in cases:
            ids = torch.tensor([policies.ids(policies.chat.prompt(prompt, tools))])
            made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=WRITTEN, do_sample=False)
            found.append(policies.tokenizer.decode(made[0, ids.shape[1] :]).split(policies.tokenizer.eos_token)[0])
    return found


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what the work gives, and what it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    made = work()
    return made, {"s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def measure(data: Path, count: int, most: int) -> dict[str, Any]:
    """Return both sides' times and how far they differ."""
    from flywheel.config import EvalConfig, ModelConfig
    from flywheel.models.policy import PolicySet
    from flywheel.models.prefixes import plan_saving

    policies = PolicySet(ModelConfig(), EvalConfig())
    policy = policies.policy(None, "base")
    with tempfile.TemporaryDirectory(prefix="flywheel-") as folder:
        cases = fitting(logged_cases(data, Path(folder)), policies, most, count)
    prompts, tools, actions = [c[0] for c in cases], [c[1] for c in cases], [c[2] for c in cases]
    asked = [policies.ids(policies.chat.prompt(p, t)) for p, t in zip(prompts, tools, strict=True)]
    some = slice(None, None, 3)
    plain, plain_took = timed(lambda: plain_scores(policies, cases))
    ours, took = timed(lambda: policy.log_prob(prompts, tools, actions))
    said, plain_wrote = timed(lambda: plain_actions(policies, cases[some]))
    mine, wrote = timed(lambda: policy.generate(prompts[some], tools[some], max_new_tokens=WRITTEN))
    rests = [n for _, n in ours]
    return {
        "cases": len(cases),
        "tokens": sum(map(len, asked)) + sum(rests),
        "shared": plan_saving([ids[:-1] for ids in asked], rests),
        "scoring": {"plain": plain_took, "flywheel": took, "ratio": plain_took["s"] / took["s"]},
        "largest_difference": max(abs(a - b) for a, (b, _) in zip(plain, ours, strict=True)),
        "actions": {"plain": plain_wrote, "flywheel": wrote, "ratio": plain_wrote["s"] / wrote["s"]},
        "same_actions": sum(a.strip() == b.text.strip() for a, b in zip(said, mine, strict=True)) / len(said),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, default=TAU2 if TAU2.exists() else ROOT / "sample_logs")
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--most", type=int, default=3_000)
    chosen = parser.parse_args()
    found = measure(chosen.data, chosen.cases, chosen.most)
    if chosen.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['cases']} cases, {found['tokens']:,} tokens, {found['shared']:.2f} plain tokens a computed one")
    for name in ("scoring", "actions"):
        plain, ours = found[name]["plain"], found[name]["flywheel"]
        print(
            f"{name:8} plain loop {plain['s']:.1f} s ({plain['cpu_s']:.1f} of the processor), "
            f"flywheel {ours['s']:.1f} s ({ours['cpu_s']:.1f}): {found[name]['ratio']:.2f} times"
        )
    print(f"largest difference of a score {found['largest_difference']:.1e}; {found['same_actions']:.0%} written alike")


if __name__ == "__main__":
    main()

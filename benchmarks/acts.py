"""What the acts of conversations cost, with a memory and without: tokens that the model computes, and seconds of CPU.

`python benchmarks/acts.py [--talks N] [--new TOKENS] [--dtype TYPE] [--json]`: SmolLM2-135M. The expert of the sample
world answers N questions; before each of its acts the model writes so many tokens, all talks side by side, as an
evaluation asks. Three ways: transformers' own loop, every prompt from its beginning; flywheel with a new policy for
each act, so that only what prompts of one act share is computed once; and flywheel as it is.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

Prompts = list[list[dict[str, Any]]]


def logged_acts(talks: int) -> list[Prompts]:
    """Return the prompts of each act: the first of all talks, the second of all that have one, and so on."""
    from flywheel_warehouse.serve import SAMPLE
    from flywheel_worlds.talk import Scripted, Talk, play, seed_of

    expert = Scripted("expert", SAMPLE.policies["expert"])
    begun = [Talk(SAMPLE, task, seed_of(task.text)) for task in SAMPLE.tasks()[:talks]]
    play(begun, expert, SAMPLE.tools)
    acts: list[Prompts] = []
    for talk in begun:
        places = [n for n, message in enumerate(talk.messages) if message["role"] == "assistant"]
        for act, place in enumerate(places):
            acts += [[]] if act == len(acts) else []
            acts[act].append(talk.messages[:place])
    return acts


def measure(talks: int, new: int, dtype: str) -> dict[str, Any]:
    """Return tokens and seconds of the three ways, and the share of acts that are written alike."""
    from flywheel.config import EvalConfig, ModelConfig
    from flywheel.models.policy import PolicySet
    from flywheel_warehouse.serve import SAMPLE

    acts, computed = logged_acts(talks), [0]
    made: dict[str, Any] = {}
    for way in ("side by side", "act by act", "remembering"):
        policies = PolicySet(ModelConfig.model_validate({"dtype": dtype}), EvalConfig(batch_size=50))
        policies.batches.shares = way != "side by side"
        with policies.active(None) as model:
            model.get_input_embeddings().register_forward_pre_hook(
                lambda _, given: computed.__setitem__(0, computed[0] + given[0].numel())
            )
        policy, computed[0] = policies.policy(None, "base"), 0
        started, texts = time.process_time(), list[str]()
        for prompts in acts:
            asked = policy if way == "remembering" else policies.policy(None, "base")
            texts += [g.text for g in asked.generate(prompts, [SAMPLE.tools] * len(prompts), max_new_tokens=new)]
        made[way] = {"tokens": computed[0], "cpu_s": round(time.process_time() - started, 2), "texts": texts}
    plain = made["side by side"]["texts"]
    for way in made.values():
        texts = way.pop("texts")
        way["alike"] = round(sum(a == b for a, b in zip(texts, plain, strict=True)) / len(plain), 3)
    return {"talks": talks, "acts": sum(map(len, acts)), "new": new, "ways": made}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--talks", type=int, default=12)
    parser.add_argument("--new", type=int, default=24, help="tokens that are written in each act")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = measure(chosen.talks, chosen.new, chosen.dtype)
    if chosen.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['talks']} talks, {found['acts']} acts, at most {found['new']} tokens written in each")
    for name, way in found["ways"].items():
        print(f"{name:14}{way['tokens']:>8,} tokens computed, {way['cpu_s']:.1f} s of CPU, {way['alike']:.0%} alike")


if __name__ == "__main__":
    main()

"""What answers cost: the model in this process against a server, on the same prompts of the example desk.

    python benchmarks/served.py --endpoint http://127.0.0.1:8080/v1 --pid 4711 --cases 200 --samples 8

Processor seconds of this process, or of this process and the server's (`--pid`, Linux), so that a busy machine does not
count. The base model is the embedded one; `--samples 1` is greedy, and shows how many answers are the same. `--draws
200` compares sampled first tokens with their probabilities here.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
from flywheel.config import EvalConfig, ModelConfig
from flywheel.models.policy import PolicySet, TextPolicy
from flywheel.models.scoring import Draw
from flywheel.models.served.policy import ServedSet
from flywheel_desk.serve import DESK
from flywheel_worlds.talk import said

_CLASSES = 8


def _seconds_of(pid: int) -> float:
    """Return a process's processor seconds, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _asked(policy: TextPolicy, prompts: list[Any], samples: int, most: int) -> tuple[list[Any], int]:
    """Return the messages of the first draw, or the greedy ones, and the tokens of all answers."""
    tools, answers = [DESK.tools] * len(prompts), []
    for number in range(samples):
        drawing = policy.drawing(Draw(1.0, number, samples - 1 - number)) if samples > 1 else policy
        answers += drawing.generate(prompts, tools, max_new_tokens=most)
    return [answer.message for answer in answers[: len(prompts)]], sum(answer.tokens for answer in answers)


def chi_square(served: ServedSet, here: PolicySet, prompt: list[Any], draws: int) -> float:
    """Return how far first tokens that a server samples are from the model's probabilities here (Pearson).

    Eight classes of about equal probability: seven degrees of freedom, where 24.3 is exceeded once in a thousand times.
    """
    policies = [served.policy(None, "base").drawing(Draw(1.0, n, draws - 1 - n)) for n in range(draws)]
    sampled = [policy.generate([prompt], [None], max_new_tokens=1)[0].text for policy in policies]
    ids = torch.tensor([here.ids(here.chat.prompt(prompt, None))])
    with here.active(None) as model, torch.inference_mode():
        probabilities = torch.softmax(model(ids).logits[0, -1].float(), -1).tolist()
    texts = [text.strip() for text in here.tokenizer.batch_decode([[token] for token in range(len(probabilities))])]
    shares: dict[str, float] = {}
    for text, probability in zip(texts, probabilities, strict=True):
        shares[text] = shares.get(text, 0.0) + probability
    classes = [(0.0, 0)]  # what is expected and what came, in each class
    for text in sorted(shares, key=lambda text: (-shares[text], text)):
        if classes[-1][0] >= draws / _CLASSES:
            classes.append((0.0, 0))
        expected, came = classes[-1]
        classes[-1] = (expected + draws * shares[text], came + sampled.count(text))
    return sum((came - expected) ** 2 / expected for expected, came in classes)


def _show(rows: dict[str, tuple[list[Any], int]], spent: dict[str, float], cases: int, samples: int) -> None:
    for side, (_, tokens) in rows.items():
        answers, seconds = cases * samples, spent[side]
        print(f"{side}: {answers} answers, {tokens} tokens, {seconds:.1f} processor seconds, {answers / seconds:.2f}/s")
    if len(rows) > 1:
        print(f"{spent['here'] / spent['served']:.2f} times")
        same = sum(one == other for one, other in zip(rows["served"][0], rows["here"][0], strict=True))
        print(f"answers of the first draw that are the same: {same} of {cases}; greedy ones with --samples 1")


def main() -> None:
    """Print a row for each side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--batch", type=int, default=EvalConfig().batch_size, help="rows together in this process")
    parser.add_argument("--draws", type=int, default=0, help="compare as many first tokens with their probabilities")
    parser.add_argument("--sides", nargs="*", choices=("served", "here"), default=("served", "here"))
    options = parser.parse_args()
    prompts = [
        [said("rules") | {"role": "system"}, {"role": "user", "content": task.text}]
        for task in DESK.tasks()[: options.cases]
    ]
    cfg = EvalConfig.model_validate({"endpoint": options.endpoint, "server": {"timeout_s": 3600}})
    model = ModelConfig(dtype="float32")
    if options.draws:
        with ServedSet(model, cfg) as served, PolicySet(model, EvalConfig()) as here:
            print(
                f"chi-square of {options.draws} first tokens: {chi_square(served, here, prompts[0], options.draws):.1f}"
            )
        return
    rows, spent = {}, {}
    if "served" in options.sides:
        with ServedSet(model, cfg) as served:
            before = time.process_time() + _seconds_of(options.pid)
            rows["served"] = _asked(served.policy(None, "base"), prompts, options.samples, options.tokens)
            spent["served"] = time.process_time() + _seconds_of(options.pid) - before
    if "here" in options.sides:
        with PolicySet(model, EvalConfig(batch_size=options.batch)) as here:
            before = time.process_time()
            rows["here"] = _asked(here.policy(None, "base"), prompts, options.samples, options.tokens)
            spent["here"] = time.process_time() - before
    _show(rows, spent, len(prompts), options.samples)


if __name__ == "__main__":
    main()

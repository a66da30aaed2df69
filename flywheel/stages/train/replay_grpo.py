"""GRPO on the policy's own attempts in the replay environment, through TRL's GRPOTrainer and `environment_factory`.

Every scenario is attempted several times; recorded results answer the calls. An attempt that leaves what the log knows
has no reward: it is neither in its group's baseline nor in the loss. Rewards are the mean returns of the recorded
attempts that ended alike, centred on the group's mean and divided by neither the group's spread nor a length.

GRPO: Shao et al. 2024, arXiv 2402.03300. Without the spread and the lengths: Liu et al. 2025, arXiv 2503.20783.
"""

from __future__ import annotations

import logging
import math
import os
import random
import time
from collections.abc import Sequence
from typing import Any

import torch

from flywheel.config import TrainConfig
from flywheel.errors import TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io.files import read_rows
from flywheel.models.chat import ChatFormat
from flywheel.models.footprint import rows_of_pass
from flywheel.models.load import load_tokenizer
from flywheel.models.rollout import result_ids
from flywheel.replay import Scenario, read_scenario
from flywheel.stages.train.kl import KlStop, Probe
from flywheel.stages.train.offline import Limits
from flywheel.stages.train.rollouts import OVER, Rollouts, method_names
from flywheel.stages.train.sharing.packed import Scorer
from flywheel.stages.train.sharing.tree import Row
from flywheel.stages.train.tokenizer import speaking
from flywheel.stages.train.trl_common import (
    finish,
    footprint,
    prepare,
    recorder,
    take_steps,
    trl_arguments,
    with_adapter,
)

_KL_AT_START = 1e-3
_ASKED, _ANSWER = 8, 32  # prompts, and tokens of an answer, to measure the distance from the start at
_ALL_BUT = 0.99  # of attempts without a reward: nothing is learned any more
_REPORTED = ("rewarded", "missed", "new_end", "malformed", "over_budget", "calls", "calls_missed")


class Rolled:
    """Goes before TRL's GRPOTrainer: results in flywheel's rendering, attempts without a reward out of the loss."""

    def setup(self, spec: TrainSpec, rollouts: Rollouts, chat: ChatFormat) -> None:
        """Give what TRL's own constructor does not take; call it before `train`."""
        self._rollouts, self._chat = rollouts, chat
        self._limits = Limits(_limits(spec.config.train), spec.work_dir / "metrics.jsonl")

    def _get_tool_suffix_ids(self, tool_messages: list[dict[str, Any]]) -> list[int]:
        """Return the tokens of results; where an attempt is over, more than fit, which is how TRL ends one."""
        if any(message["content"] == OVER for message in tool_messages):
            return [0] * (self.max_completion_length + 1)  # type: ignore[attr-defined]
        return result_ids(self._chat, tool_messages)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Take attempts without a reward out of the loss: TRL gives them no advantage, but still counts their KL."""
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        unknown = [i for i, outcome in enumerate(self._rollouts.outcomes) if outcome.reward is None]
        output["tool_mask"][unknown] = 0
        trained = (output["completion_mask"] * output["tool_mask"]).sum()
        output["num_items_in_batch"] = self.accelerator.gather(trained).sum()  # type: ignore[attr-defined]
        return output

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add TRL's metrics, and stop where a limit is passed."""
        super().log(logs, *args, **kwargs)  # type: ignore[misc]
        step = int(self.state.global_step)  # type: ignore[attr-defined]
        for name in ("loss", "grad_norm"):
            if not math.isfinite(logs.get(name) or 0.0):
                raise TrainError(
                    f"step {step}: the {name} is not a number", hint="set a lower train.grpo_learning_rate"
                )
        if step == 1 and (logs.get("kl") or 0.0) > _KL_AT_START:
            raise TrainError(
                f"the reference policy is not where the round starts: KL {logs['kl']:.4f} before the first step",
                hint="was the parent's adapter changed, or trained on another base model?",
            )
        self._limits.check(step, logs)


def _limits(cfg: TrainConfig) -> dict[str, tuple[float, str]]:
    nearer = "train on logs of a nearer policy, begin with train.method = 'sft', or raise train.replay_max_miss"
    ending = "no attempt comes to an end: begin with train.method = 'sft', or raise train.replay_tokens"
    return {
        "unknown": (cfg.replay_max_miss, f"attempts left what the log knows: {nearer}"),
        "unrewarded": (_ALL_BUT, ending),
    }


def _fitting(
    scenarios: Sequence[Scenario], chat: ChatFormat, cfg: TrainConfig
) -> tuple[list[Scenario], dict[str, list[int]]]:
    """Return the scenarios that leave room for an attempt, and their prompts' token ids.

    Raises:
        TrainError: none, or more than `train.max_refused` of them do not.
    """
    prompts = {s.scenario_id: chat.ids(chat.prompt(s.prompt, s.tools)) for s in scenarios}
    kept = [s for s in scenarios if len(prompts[s.scenario_id]) + cfg.replay_tokens <= cfg.max_length]
    refused = len(scenarios) - len(kept)
    if not kept or refused / len(scenarios) > cfg.max_refused:
        raise TrainError(
            f"{refused:,} of {len(scenarios):,} prompts leave no room for {cfg.replay_tokens:,} tokens "
            f"(train.replay_tokens) within train.max_length = {cfg.max_length:,}",
            hint="raise train.max_length (memory grows with it), lower train.replay_tokens or raise train.max_refused",
        )
    return kept, {s.scenario_id: prompts[s.scenario_id] for s in kept}


def _own_answers(scorer: Scorer, prompts: Sequence[list[int]], seed: int) -> list[Row]:
    """Return some prompts with the likeliest answer of the policy that the round starts from: no log has one."""
    rows = []
    scorer.model.eval()
    for prompt in random.Random(seed).sample(sorted(prompts), min(_ASKED, len(prompts))):  # noqa: S311 - reproducible
        ids = torch.tensor([prompt], device=scorer.device)
        with torch.no_grad():
            answer = scorer.model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=_ANSWER, do_sample=False
            )[0].tolist()
        rows.append(Row(tuple(answer), ((len(prompt), len(answer)),)))
    scorer.model.train()
    return rows


def _arguments(spec: TrainSpec, n: int, longest: int) -> Any:
    """Return TRL's settings: one optimiser step a batch of scenarios, rolled out under the policy that it changes."""
    from trl import GRPOConfig

    cfg = spec.config.train
    rows = rows_of_pass(cfg.replay_attempts, longest, footprint(spec).most_tokens)
    at_once = min(cfg.batch_size * cfg.accumulation, n)
    return trl_arguments(
        GRPOConfig, spec, longest, beta=cfg.grpo_kl, loss_type="dr_grpo",
        scale_rewards="none", num_generations=cfg.replay_attempts, max_completion_length=cfg.replay_tokens,
        max_tool_calling_iterations=spec.config.replay.max_calls + 1, per_device_train_batch_size=rows,
        gradient_accumulation_steps=at_once * cfg.replay_attempts // rows, remove_unused_columns=False,
    )  # fmt: skip


def _met(spec: TrainSpec) -> dict[str, float]:
    """Return the round's own rates: means over its steps, those before a restart included."""
    steps = [row for row in read_rows(spec.work_dir / "metrics.jsonl") if "rewarded" in row]
    return {
        f"replay_{name}": round(math.fsum(row[name] for row in steps) / max(1, len(steps)), 4) for name in _REPORTED
    }


def train(spec: TrainSpec) -> TrainResult:
    """Train one round on attempts in the replay environment.

    Raises:
        TrainError: no scenario fits, the template cannot show results, or a limit was passed.
        ConfigError: a key under [train.trl] is unknown.
    """
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from datasets import Dataset
    from trl import GRPOTrainer

    class Replayed(Rolled, GRPOTrainer):  # type: ignore[misc]
        pass

    started, cfg = time.monotonic(), spec.config.train
    prepare(spec)
    logging.getLogger("trl.trainer.grpo_trainer").setLevel(logging.ERROR)  # it would print conversations
    tokenizer = load_tokenizer(spec.config.model)
    chat = ChatFormat(tokenizer)
    recorded = [read_scenario(row) for row in read_rows(spec.data)]
    scenarios, prompts = _fitting(recorded, chat, cfg)
    longest = max(map(len, prompts.values())) + cfg.replay_tokens
    rollouts = Rollouts(scenarios, spec.config.replay, [tokenizer.eos_token_id])
    names = list(prompts)
    model = with_adapter(spec)
    scorer = Scorer(model)
    stop = KlStop(spec, Probe(scorer, _own_answers(scorer, list(prompts.values()), spec.seed), spec.seed))
    trainer = Replayed(
        model=model,
        args=_arguments(spec, len(scenarios), longest),
        reward_funcs=rollouts.rewards,
        train_dataset=Dataset.from_dict(
            {"prompt": [[{"role": "user", "content": name}] for name in names], "scenario": names}
        ),
        processing_class=speaking(tokenizer, prompts, method_names(scenarios)),
        environment_factory=rollouts.factory,
        callbacks=[recorder(spec, None, stop)],
    )
    if spec.reference == "base" and "ref" in trainer.model.peft_config:
        trainer.model.delete_adapter("ref")  # without it TRL switches the adapter off: the base
    trainer.setup(spec, rollouts, chat)
    take_steps(spec, trainer)
    checks = {"scenarios": float(len(scenarios)), "rows_refused": float(len(recorded) - len(scenarios)), **_met(spec)}
    tokens = int(trainer.state.num_input_tokens_seen)
    return finish(spec, trainer, stop, tokens=tokens, checks=checks, started=started)

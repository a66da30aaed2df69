"""A model with or without an adapter, as evaluators see it: greedy actions and log-probabilities (`scoring.py`).

`PolicySet` loads the base model once and switches adapters, so the base, the champion and the candidate share it.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from flywheel.config import EvalConfig, ModelConfig
from flywheel.extensions import Drift, Generation
from flywheel.models.chat import ChatFormat
from flywheel.models.load import base_identity, load_base, load_tokenizer, require_safetensors
from flywheel.models.memory import Memory
from flywheel.models.scoring import Batches, Draw, Watch

if TYPE_CHECKING:
    import torch


Prompts = Sequence[Sequence[dict[str, Any]]]
ToolLists = Sequence[list[dict[str, Any]] | None]

_AT_ONCE = 128  # positions whose distributions over the vocabulary are held at a time


class Policies(ABC):
    """A base model and its adapters, wherever they run: what they share is the tokenizer and the chat template.

    Args:
        model: the base model's configuration.
        evaluation: batch size and seed.
    """

    watch: Watch  # gets how many answers or scores are done, and of how many

    def __init__(self, model: ModelConfig, evaluation: EvalConfig) -> None:
        self.config = evaluation
        self.tokenizer = load_tokenizer(model)
        self.tokenizer.padding_side = "left"
        self.chat = ChatFormat(self.tokenizer)
        self.base_sha256 = base_identity(model).sha256
        self.window = 0

    @abstractmethod
    def policy(self, adapter: Path | None, name: str, sha256: str = "") -> TextPolicy:
        """Return the base model with an adapter folder, or the plain base.

        Args:
            adapter: a PEFT adapter folder (safetensors), or None.
            name: how people name it.
            sha256: hash of the adapter's weights; '' for the base.
        """

    def ids(self, text: str) -> list[int]:
        """Return a rendered text's tokens."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def close(self) -> None:  # noqa: B027 - what is in this process goes with its object
        """Give back what was taken."""

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give back what was taken."""
        self.close()


class PolicySet(Policies):
    """One base model in memory and the policies that share it."""

    def __init__(self, model: ModelConfig, evaluation: EvalConfig) -> None:
        super().__init__(model, evaluation)
        self._model: Any = load_base(model)
        _freeze(self._model)
        self.window = int(getattr(self._model.config, "max_position_embeddings", 0) or 0)
        self._adapters: dict[str, str] = {}
        self.batches = Batches(evaluation.batch_size, self.tokenizer.pad_token_id, self.tokenizer.eos_token_id)

    @property
    def watch(self) -> Watch:
        """What gets how far it is."""
        return self.batches.watch

    @watch.setter
    def watch(self, watch: Watch) -> None:
        self.batches.watch = watch

    def policy(self, adapter: Path | None, name: str, sha256: str = "") -> HFPolicy:
        """Return the base model with an adapter folder, or the plain base."""
        return HFPolicy(self, adapter, name, sha256 or self.base_sha256)

    @contextlib.contextmanager
    def active(self, adapter: Path | None) -> Iterator[Any]:
        """Give the model with the adapter switched on, or with none."""
        if adapter is None:
            with self._model.disable_adapter() if self._adapters else contextlib.nullcontext():
                yield self._model
            return
        name = self._loaded(adapter)  # may wrap the model, so before it is touched
        self._model.set_adapter(name)
        yield self._model

    def _loaded(self, adapter: Path) -> str:
        key = str(adapter.resolve())
        if key not in self._adapters:
            require_safetensors(adapter)
            name = f"adapter{len(self._adapters)}"
            if self._adapters:
                self._model.load_adapter(key, adapter_name=name)
            else:
                from peft import PeftModel

                self._model = PeftModel.from_pretrained(self._model, key, adapter_name=name).eval()
            _freeze(self._model)
            self._adapters[key] = name
        return self._adapters[key]


def _freeze(model: Any) -> None:
    from flywheel.models.frozen_layers import freeze

    freeze(model)


class TextPolicy(ABC):
    """One policy, as far as tokenizer and template go; who answers is its kind."""

    no_log_probs = ""  # why it gives no log-probabilities of a prompt's tokens; '' where it does

    def __init__(self, owner: Policies, name: str, sha256: str) -> None:
        self.name = name
        self.sha256 = sha256
        self.wrote = False  # whether it was ever asked for an action
        self._owner = owner

    @abstractmethod
    def drawing(self, draw: Draw) -> TextPolicy:
        """Return the same policy, with actions sampled instead of greedy."""

    @abstractmethod
    def generate(self, prompts: Prompts, tools: ToolLists, *, max_new_tokens: int) -> list[Generation]:
        """Return the next action after each prompt, in order: the greedy one, or one that is sampled."""

    @abstractmethod
    def log_prob(
        self, prompts: Prompts, tools: ToolLists, completions: Sequence[dict[str, Any]], *, temperature: float = 1.0
    ) -> list[tuple[float, int]]:
        """Return (sum of log-probabilities in nats, number of tokens) of each completion's tokens, in order."""

    @property
    def window(self) -> int:
        """Most tokens that the model can read; 0 when its configuration does not say."""
        return self._owner.window

    def lengths(
        self, prompts: Prompts, tools: ToolLists, completions: Sequence[dict[str, Any]] | None = None
    ) -> list[int]:
        """Return the tokens of each prompt, with its completion where given."""
        chat, tokenizer = self._owner.chat, self._owner.tokenizer
        texts = [chat.prompt(p, t) for p, t in zip(prompts, tools, strict=True)]
        if completions is not None:
            after = zip(prompts, tools, completions, strict=True)
            texts = [text + chat.completion(p, t, c) for text, (p, t, c) in zip(texts, after, strict=True)]
        return [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]] if texts else []

    def completion_ids(
        self, prompts: Prompts, tools: ToolLists, completions: Sequence[dict[str, Any]]
    ) -> list[list[int]]:
        """Return the tokens of each completion after its prompt: those that `log_prob` scores."""
        chat, ids = self._owner.chat, self._owner.ids
        return [ids(chat.completion(p, t, c)) for p, t, c in zip(prompts, tools, completions, strict=True)]


class HFPolicy(TextPolicy):
    """One policy of a `PolicySet`; implements `flywheel.extensions.Policy`."""

    def __init__(
        self, owner: PolicySet, adapter: Path | None, name: str, sha256: str, draw: Draw | None = None
    ) -> None:
        super().__init__(owner, name, sha256)
        self._set = owner
        self._adapter = adapter
        self._draw = draw
        self._memory = Memory()  # its own, so that what it writes depends on what it was asked before alone

    def drawing(self, draw: Draw) -> HFPolicy:
        """Return the same policy, with actions sampled instead of greedy."""
        return HFPolicy(self._set, self._adapter, self.name, self.sha256, draw)

    def drifts(self, texts: Sequence[str]) -> list[Drift]:
        """Return how far the policy is from its base on each text."""
        return _drifts(self._set, self._adapter, texts)

    def generate(self, prompts: Prompts, tools: ToolLists, *, max_new_tokens: int) -> list[Generation]:
        """Return the next action after each prompt, in order: the greedy one, or one that is sampled."""
        import torch

        self.wrote = True
        chat, tokenizer = self._set.chat, self._set.tokenizer
        asked = [self._set.ids(chat.prompt(p, t)) for p, t in zip(prompts, tools, strict=True)]
        with self._set.active(self._adapter) as model, torch.inference_mode():
            written = self._set.batches.written(model, asked, max_new_tokens, self._draw, self._memory)
        answers = zip(written, tokenizer.batch_decode(written), tools, strict=True)
        return [replace(chat.parse(t.split(tokenizer.eos_token, 1)[0], o), tokens=len(w)) for w, t, o in answers]

    def log_prob(
        self,
        prompts: Prompts,
        tools: ToolLists,
        completions: Sequence[dict[str, Any]],
        *,
        temperature: float = 1.0,
    ) -> list[tuple[float, int]]:
        """Return (sum of log-probabilities in nats, number of tokens) of each completion's tokens, in order.

        Args:
            prompts: the conversations before.
            tools: what is at hand in each.
            completions: the assistant messages.
            temperature: of a plain draw, softmax(logits / temperature); 1 is the model's own distribution.
        """
        import torch

        chat, ids = self._set.chat, self._set.ids
        rows = [
            (ids(chat.prompt(prompt, tool)), ids(chat.completion(prompt, tool, completion)))
            for prompt, tool, completion in zip(prompts, tools, completions, strict=True)
        ]
        with self._set.active(self._adapter) as model, torch.inference_mode():
            scores = self._set.batches.log_probs(model, rows, temperature)
        return [(score, len(after)) for score, (_, after) in zip(scores, rows, strict=True)]


def _drifts(owner: PolicySet, adapter: Path | None, texts: Sequence[str]) -> list[Drift]:
    """Return how far an adapter has moved the model on each text; one of fewer than two tokens has no drift.

    The mean negative log-likelihood under the policy and under its base, and the mean KL(base || policy) over the whole
    vocabulary, in nats a token. The base's distribution is averaged over: forgetting is losing what the base could do.
    """
    import torch

    drifts = []
    for text in texts:
        ids = owner.tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        if owner.window:
            ids = ids[:, : owner.window]
        if ids.shape[1] < 2:  # noqa: PLR2004 - a token, and one that follows it
            drifts.append(Drift(0.0, 0.0, 0.0, 0))
            continue
        with owner.active(None) as model, torch.inference_mode():
            base = policy = _logits(model, ids)
        if adapter is not None:
            with owner.active(adapter) as model, torch.inference_mode():
                policy = _logits(model, ids)
        drifts.append(_drift(policy, base, ids[0, 1:].to(base.device)))
    return drifts


def _logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=ids.to(model.device)).logits[0, :-1]
    return logits


def _drift(policy: torch.Tensor, base: torch.Tensor, targets: torch.Tensor) -> Drift:
    import torch

    sums, n = [0.0, 0.0, 0.0], len(targets)
    for start in range(0, n, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        mine, theirs = (torch.log_softmax(logits[part].float(), -1) for logits in (policy, base))
        wanted = targets[part, None]
        kl = (theirs.exp() * (theirs - mine)).sum(-1).clamp(min=0)
        values = (-mine.gather(-1, wanted), -theirs.gather(-1, wanted), kl)
        sums = [total + float(value.double().sum()) for total, value in zip(sums, values, strict=True)]
    nll, base_nll, divergence = (total / n for total in sums)
    return Drift(nll, base_nll, divergence, n)

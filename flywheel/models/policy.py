"""A model with or without an adapter, as evaluators see it: greedy actions and log-probabilities, in batches.

`PolicySet` loads the base model once and switches adapters, so the base, the champion and the candidate share it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.config import EvalConfig, ModelConfig
from flywheel.extensions import Drift, Generation
from flywheel.models.chat import ChatFormat
from flywheel.models.load import base_identity, load_base, load_tokenizer, require_safetensors

if TYPE_CHECKING:
    import torch

__all__ = ["HFPolicy", "PolicySet"]

Prompts = Sequence[Sequence[dict[str, Any]]]
ToolLists = Sequence[list[dict[str, Any]] | None]


class PolicySet:
    """One base model in memory and the policies that share it.

    Args:
        model: the base model's configuration.
        evaluation: batch size and seed.
    """

    def __init__(self, model: ModelConfig, evaluation: EvalConfig) -> None:
        self.config = evaluation
        self.tokenizer = load_tokenizer(model)
        self.tokenizer.padding_side = "left"
        self.chat = ChatFormat(self.tokenizer)
        self.base_sha256 = base_identity(model).sha256
        self._model: Any = load_base(model)
        self.window = int(getattr(self._model.config, "max_position_embeddings", 0) or 0)
        self._adapters: dict[str, str] = {}

    def policy(self, adapter: Path | None, name: str, sha256: str = "") -> HFPolicy:
        """Return the base model with an adapter folder, or the plain base.

        Args:
            adapter: a PEFT adapter folder (safetensors), or None.
            name: how people name it.
            sha256: hash of the adapter's weights; '' for the base.
        """
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
            self._adapters[key] = name
        return self._adapters[key]


class HFPolicy:
    """One policy of a `PolicySet`; implements `flywheel.extensions.Policy`."""

    def __init__(self, owner: PolicySet, adapter: Path | None, name: str, sha256: str) -> None:
        self.name = name
        self.sha256 = sha256
        self._set = owner
        self._adapter = adapter

    @property
    def window(self) -> int:
        """Most tokens that the model can read; 0 when its configuration does not say."""
        return self._set.window

    def lengths(
        self, prompts: Prompts, tools: ToolLists, completions: Sequence[dict[str, Any]] | None = None
    ) -> list[int]:
        """Return the tokens of each prompt, with its completion where given."""
        chat, tokenizer = self._set.chat, self._set.tokenizer
        texts = [chat.prompt(p, t) for p, t in zip(prompts, tools, strict=True)]
        if completions is not None:
            after = zip(prompts, tools, completions, strict=True)
            texts = [text + chat.completion(p, t, c) for text, (p, t, c) in zip(texts, after, strict=True)]
        return [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]] if texts else []

    def drifts(self, texts: Sequence[str]) -> list[Drift]:
        """Return how far the policy is from its base on each text."""
        from flywheel.models.drift import drifts

        return drifts(self._set, self._adapter, texts)

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield positions in batches of like length, longest first, so that the peak comes first."""
        order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
        size = self._set.config.batch_size
        yield from (order[i : i + size] for i in range(0, len(order), size))

    def generate(self, prompts: Prompts, tools: ToolLists, *, max_new_tokens: int) -> list[Generation]:
        """Return the greedy next action after each prompt, in order."""
        import torch

        chat, tokenizer = self._set.chat, self._set.tokenizer
        texts = [chat.prompt(p, t) for p, t in zip(prompts, tools, strict=True)]
        found: dict[int, Generation] = {}
        with self._set.active(self._adapter) as model, torch.inference_mode():
            for batch in self._batches([len(t) for t in texts]):
                inputs = tokenizer(
                    [texts[i] for i in batch], return_tensors="pt", padding=True, add_special_tokens=False
                )
                output = model.generate(
                    **inputs.to(model.device),
                    max_new_tokens=max_new_tokens,
                    do_sample=False,
                    temperature=None,
                    top_p=None,
                    top_k=None,
                    pad_token_id=tokenizer.pad_token_id,
                    eos_token_id=tokenizer.eos_token_id,
                )
                after = output[:, inputs["input_ids"].shape[1] :]
                written = zip(
                    batch, tokenizer.batch_decode(after), _written(after, tokenizer.eos_token_id), strict=True
                )
                found |= {
                    i: replace(chat.parse(_until(text, tokenizer.eos_token), tools[i]), tokens=tokens)
                    for i, text, tokens in written
                }
        return [found[i] for i in range(len(texts))]

    def log_prob(
        self, prompts: Prompts, tools: ToolLists, completions: Sequence[dict[str, Any]]
    ) -> list[tuple[float, int]]:
        """Return (sum of log-probabilities in nats, number of tokens) of each completion's tokens, in order."""
        import torch

        chat, tokenizer = self._set.chat, self._set.tokenizer
        rows = []
        for prompt, tool, completion in zip(prompts, tools, completions, strict=True):
            before = tokenizer(chat.prompt(prompt, tool), add_special_tokens=False)["input_ids"]
            after = tokenizer(chat.completion(prompt, tool, completion), add_special_tokens=False)["input_ids"]
            rows.append((before, after))
        found: dict[int, tuple[float, int]] = {}
        with self._set.active(self._adapter) as model, torch.inference_mode():
            for batch in self._batches([len(b) + len(a) for b, a in rows]):
                scores = _scores(model, [rows[i] for i in batch], tokenizer.pad_token_id)
                found |= {i: (s, len(rows[i][1])) for i, s in zip(batch, scores, strict=True)}
        return [found[i] for i in range(len(rows))]


def _written(ids: torch.Tensor, end: int) -> list[int]:
    """Return the tokens that each row has up to its end-of-turn token, which counts."""
    return [row.index(end) + 1 if end in row else len(row) for row in ids.tolist()]


def _until(text: str, end: str) -> str:
    return text.split(end, 1)[0]


def _scores(model: Any, rows: Sequence[tuple[list[int], list[int]]], pad: int) -> list[float]:
    """Return each row's completion log-probability; logits are computed at completion positions only."""
    import torch

    width = max(len(b) + len(a) for b, a in rows)
    keep = max(len(a) for _, a in rows) + 1
    ids = torch.full((len(rows), width), pad)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, (before, after) in enumerate(rows):
        both = torch.tensor(before + after)
        ids[i, width - len(both) :] = both
        mask[i, width - len(both) :] = 1
    position = (mask.cumsum(-1) - 1).clamp(min=0)
    device = model.device
    output = model(
        input_ids=ids.to(device), attention_mask=mask.to(device), position_ids=position.to(device), logits_to_keep=keep
    )
    logp = torch.log_softmax(output.logits.float(), -1)
    return [_tail_score(logp[i], ids[i], len(after)) for i, (_, after) in enumerate(rows)]


def _tail_score(logp: torch.Tensor, ids: torch.Tensor, n: int) -> float:
    """Sum the log-probabilities of the last n tokens; logp holds the last positions' distributions."""
    if n == 0:
        return 0.0
    targets = ids[-n:].to(logp.device)
    return float(logp[-n - 1 : -1].gather(-1, targets[:, None]).sum())

"""A model that serves: actions sampled at a temperature, many talks in one batch, with their log-probabilities.

A token is sampled by the Gumbel-max trick, the largest of log-probability plus noise, and the noise is the row's own:
an action depends on its prompt and its seed, and not on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from flywheel.models.memory import Memory
from flywheel.models.policy import PolicySet
from flywheel.models.scoring import Batches
from flywheel.pipeline.context import served_name

from flywheel_worlds.dialects import Draw
from flywheel_worlds.talk import Act, Message, seed_of

if TYPE_CHECKING:
    from flywheel import Project

BATCH_SIZE = 80
DIGITS = 6


class _Noise:
    """Forces each row's sampled token, and keeps its log-probability; asked again for a place, it samples alike."""

    def __init__(self, seeds: Sequence[int], temperature: float) -> None:
        self.log_probs: list[dict[int, float]] = [{} for _ in seeds]  # of each row, by place
        self._seeds, self._temperature = seeds, temperature

    def __call__(self, rows: Sequence[int], places: Sequence[int], scores: torch.Tensor) -> torch.Tensor:
        """Return scores that leave one token for each of these places."""
        log_probs = torch.log_softmax(scores.float() / self._temperature, -1)
        generator, uniform = torch.Generator(scores.device), torch.empty_like(log_probs)
        for row, place, own in zip(rows, places, uniform, strict=True):
            generator.manual_seed(seed_of(self._seeds[row], place))
            own.uniform_(generator=generator)
        gumbel = -torch.log(-torch.log(uniform.clamp_min(1e-12)))
        tokens = (log_probs + gumbel).argmax(-1, keepdim=True)
        chosen = log_probs.gather(-1, tokens)[:, 0].tolist()
        for row, place, value in zip(rows, places, chosen, strict=True):
            self.log_probs[row][place] = value
        return torch.full_like(scores, -torch.inf).scatter_(-1, tokens, 0.0)


class _Draws:
    """The noise of one batch of actions, by the seed of each, also where prompts are equal (`Batches.written`)."""

    def __init__(self, asked: Sequence[list[int]], seeds: Sequence[int], temperature: float) -> None:
        self.log_probs: dict[int, dict[int, float]] = {}
        self._seeds, self._temperature = seeds, temperature
        self._rows: dict[tuple[int, ...], list[int]] = {}
        for row, ids in enumerate(asked):
            self._rows.setdefault(tuple(ids), []).append(row)

    def noise(self, prompts: Sequence[list[int]]) -> _Noise:
        """Return what samples the continuations of some prompts."""
        rows = [self._rows[tuple(prompt)].pop(0) for prompt in prompts]
        noise = _Noise([self._seeds[row] for row in rows], self._temperature)
        self.log_probs |= dict(zip(rows, noise.log_probs, strict=True))
        return noise


class ModelServer:
    """The base model, a round, or the champion of a project.

    Args:
        project: whose model and adapters are served.
        policy: base, champion, latest, or a round's number.
        temperature: of sampling; 0 is greedy, without log-probabilities.

    Raises:
        UsageError: no round has that name.
        StoreError: the adapter is not the one that was evaluated.
    """

    def __init__(self, project: Project, policy: str, temperature: float) -> None:
        number = project.registry.resolve(policy)
        self.name, self.model = served_name(project.context, number), project.config.model.base
        self._adapter: Path | None = project.registry.sound_adapter(number)
        self._most, self._temperature = project.config.eval.max_new_tokens, temperature
        self._set = PolicySet(project.config.model, project.config.eval)
        end = self._set.tokenizer.eos_token_id
        self._batches = Batches(BATCH_SIZE, self._set.tokenizer.pad_token_id, end)
        self._memory = Memory()

    def act(self, prompts: Sequence[Sequence[Message]], tools: list[dict[str, Any]], seeds: Sequence[int]) -> list[Act]:
        """Sample the next action after each prompt."""
        chat, tokenizer = self._set.chat, self._set.tokenizer
        asked = [self._set.ids(chat.prompt(prompt, tools)) for prompt in prompts]
        draws: Any = _Draws(asked, seeds, self._temperature)
        with self._set.active(self._adapter) as model, torch.inference_mode():
            written = self._batches.written(
                model, asked, self._most, draws if self._temperature else None, self._memory
            )
        acts = []
        for row, ids in enumerate(written):
            generation = chat.parse(tokenizer.decode(ids).split(tokenizer.eos_token, 1)[0], tools)
            log_probs = draws.log_probs.get(row, {})
            logged = [round(log_probs[place], DIGITS) for place in range(len(ids))] if log_probs else []
            draw = Draw(ids, logged, self._temperature) if logged else None
            acts.append(Act(generation.message, draw, generation.well_formed))
        return acts

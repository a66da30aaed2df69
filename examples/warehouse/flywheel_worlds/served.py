"""A model that serves from behind the project's `eval.endpoint`: many talks at once, each act sampled by its own seed.

A server that batches by itself is asked for all acts side by side. The log gets no log-probabilities of actions.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from flywheel.models.scoring import Draw
from flywheel.models.served.policy import ServedSet
from flywheel.pipeline.context import served_name
from flywheel.present import round_name

from flywheel_worlds.talk import Act, Message

if TYPE_CHECKING:
    from flywheel import Project
    from flywheel.models.policy import TextPolicy


class EndpointServer:
    """The base model, a round, or the champion of a project, which another server runs.

    Args:
        project: whose model and adapters are served.
        policy: base, champion, latest, or a round's number.
        temperature: of sampling; 0 is greedy.

    Raises:
        FlywheelError: no round has that name, or the server does not answer.
    """

    def __init__(self, project: Project, policy: str, temperature: float) -> None:
        number = project.registry.resolve(policy)
        self.name, self.model = served_name(project.context, number), project.config.model.base
        self._cfg, self._temperature = project.config.eval, temperature
        adapter = project.registry.sound_adapter(number)
        sha256 = "" if number is None else project.registry.manifest(number).adapter_sha256
        owner = ServedSet(project.config.model, project.config.eval)
        weakref.finalize(self, owner.close)
        owner.target(adapter, round_name(number), sha256)  # loaded once, before many ask
        self._policy = owner.policy(adapter, round_name(number), sha256)

    def act(self, prompts: Sequence[Sequence[Message]], tools: list[dict[str, Any]], seeds: Sequence[int]) -> list[Act]:
        """Sample the next action after each prompt."""

        def one(prompt: Sequence[Message], seed: int) -> Act:
            policy: TextPolicy = self._policy
            policy = policy.drawing(Draw(self._temperature, seed)) if self._temperature else policy
            (answer,) = policy.generate([list(prompt)], [tools], max_new_tokens=self._cfg.max_new_tokens)
            return Act(answer.message, None, answer.well_formed)

        with ThreadPoolExecutor(max_workers=self._cfg.server.at_once) as pool:
            return list(pool.map(one, prompts, seeds))

"""Who answers for the policies of a project: the model in this process, or the server at `eval.endpoint`.

In: the configuration, and what of the store keeps answers. Out: the policies, and parts of a cache's key that name who
answers. A served evaluation that breaks off goes on from the answers that were kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flywheel.models.served.policy import answered_by, open_policies
from flywheel.pipeline.context import Context
from flywheel.store import Store

if TYPE_CHECKING:
    from flywheel.models.policy import PolicySet
    from flywheel.models.served.policy import ServedSet


class KeptAnswers:
    """Answers in the store's cache."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, key: str) -> Any:
        """Return what was answered, or None."""
        return self._store.cached("answers", key)

    def put(self, key: str, value: Any) -> None:
        """Keep what was answered."""
        self._store.cache("answers", key, value)


def policies(ctx: Context) -> PolicySet | ServedSet:
    """Return the base model and its adapters, whoever answers for them.

    Raises:
        FlywheelError: there is no such model here, or the server does not answer.
    """
    return open_policies(ctx.config.model, ctx.config.eval, KeptAnswers(ctx.store))


def answerer(ctx: Context) -> list[dict[str, str]]:
    """Return what a key of cached answers holds of who answers; nothing for the model in this process.

    Raises:
        FlywheelError: the server does not answer.
    """
    identity = answered_by(ctx.config.model, ctx.config.eval)
    return [identity] if identity else []

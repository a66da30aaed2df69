"""Who works besides this process: processes of this machine, or tasks on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from types import TracebackType
from typing import Self

from flywheel.io.cluster import Cluster, ClusterTasks
from flywheel.io.processes import Processes


class Crew:
    """Workers that start when they are first needed, and end with it.

    Args:
        cluster: where they work; None: processes of this machine.
    """

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster = cluster
        self.pool: Executor | None = None
        self.size = 0  # how many there are

    def __enter__(self) -> Self:
        """Return it; no process has started yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """Send them away; after an error, without finishing what waits."""
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=kind is not None)

    def start(self, count: int, begin: Callable[..., object], *given: object) -> Executor:
        """Return the workers: as many as the cluster has, or `count` processes; each is prepared by `begin(*given)`.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        if self.pool is None and self.cluster is not None:
            self.pool = tasks = ClusterTasks(self.cluster, begin, *given)
            self.size = tasks.size
        elif self.pool is None:
            self.pool, self.size = Processes(count, begin, *given), count
        return self.pool

    def dismiss(self) -> None:
        """Send them away at once, without finishing what waits."""
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)
            self.pool = None

    def renew(self) -> None:
        """Send processes away once they have finished, with the memory that they keep; the next ones start when needed.

        A cluster's tasks are left: who keeps what is its business.
        """
        if self.pool is not None and self.cluster is None:
            self.pool.shutdown()
            self.pool = None

"""Commands that keep a project in order: forgetting a user, removing what nothing needs, handing a champion over."""

from __future__ import annotations

from flywheel.answers import ForgetAnswer
from flywheel.project.opened import Opened

__all__ = ["KeepCommands"]


class KeepCommands(Opened):
    """Commands that keep a project in order."""

    def forget(self, user: str, *, dry_run: bool = False) -> ForgetAnswer:
        """Take everything of a user out, and adapters that learnt from them out of service; or say what would go.

        Args:
            user: the id as logs write it, or the pseudonym as the tables show it.
            dry_run: change nothing.

        Raises:
            UsageError: nothing is theirs, and nothing ever was.
        """
        from flywheel.pipeline.forgetting import forget

        with self.locked("forget") as ctx:
            return forget(ctx, user, key=self.key(), dry_run=dry_run)

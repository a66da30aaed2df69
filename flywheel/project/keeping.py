"""Commands that keep a project in order: forgetting a user, removing what nothing needs, handing a champion over."""

from __future__ import annotations

from pathlib import Path

from flywheel.errors import UsageError
from flywheel.pipeline.admin.gc import Kept
from flywheel.project.opened import Opened
from flywheel.results import DeployAnswer, ForgetAnswer, GcAnswer, MergeAnswer

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
        from flywheel.pipeline.privacy.forget import forget

        with self.locked("forget") as ctx:
            answer = forget(ctx, user, key=self.key(), dry_run=dry_run)
            if not dry_run:
                self._tell()
            return answer

    def gc(self, kept: Kept | None = None, *, dry_run: bool = False) -> GcAnswer:
        """Remove what nothing needs any more, or count it.

        Args:
            kept: how much stays; what a round's provenance needs does by default.
            dry_run: remove nothing.
        """
        from flywheel.pipeline.admin.gc import collect

        with self.locked("gc") as ctx:
            return collect(ctx, kept if kept is not None else Kept(), dry_run=dry_run)

    def deploy_vllm(  # noqa: PLR0913 - one parameter an option
        self,
        url: str,
        *,
        target: str = "@champion",
        path: str = "",
        name: str = "",
        token: str = "",
        keep: int = 1,
        timeout_s: float = 120.0,
    ) -> DeployAnswer:
        """Have a running vLLM serve a round, and keep the one before loaded for a rollback.

        Args:
            url: the server's address.
            target: round, alias or `base`.
            path: the adapter's folder as the server sees it; '' for the same as here.
            name: what the server is to call it; '' for the project's name and the round.
            token: the server's API key; '' for none.
            keep: how many adapters that were deployed before stay loaded.
            timeout_s: for one request.

        Raises:
            UsageError: the round may not serve, or its name stands for something else.
            FlywheelError: the server refuses or does not answer.
        """
        from flywheel.pipeline.serve.deploy import deploy_vllm
        from flywheel.pipeline.serve.vllm import Server

        with self.locked("deploy") as ctx:
            server = Server(url, token, timeout_s)
            return deploy_vllm(ctx, server, ctx.registry.resolve(target), path=path, name=name, keep=keep)

    def merge(self, folder: Path | str, *, target: str = "@champion", gguf: bool = False) -> MergeAnswer:
        """Write a round merged into its base as plain transformers files; compare the logits.

        Args:
            folder: where to; must not exist, be empty, or be an earlier one of these.
            target: round or alias.
            gguf: also make `model.gguf` with llama.cpp's converter.

        Raises:
            UsageError: the folder holds something else, the round may not serve, or there is no converter.
            FlywheelError: the base is another one, or the logits differ.
        """
        from flywheel.pipeline.serve.merge import merge_round

        with self.locked("deploy") as ctx:
            number = ctx.registry.resolve(target)
            if number is None:
                raise UsageError("the base model serves: there is nothing to merge", hint="name a round with --round")
            return merge_round(ctx, number, Path(folder).resolve(), gguf=gguf)

"""A process that has imported what commands need, and forks a child for each command that a test types.

    python server.py SCRIPT PID FOLDER KIND

SCRIPT is the real console script, PID the test session's process (the server ends with it), FOLDER where its socket is,
KIND `light` (no torch) or `heavy`. The server itself only imports: it has read no table and computed nothing, so that a
child is as good as new. See `child.py` for what a child does.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import selectors
import signal
import socket
import sys
import warnings
from pathlib import Path

_LIBRARIES = {
    "light": (
        "polars",
        "polars._utils.parquet",
        "polars._utils.udfs",
        "numpy",
        "pyarrow.parquet",
        "pyarrow.dataset",
        "duckdb",
        "jsonschema",
        "jinja2",
        "filelock",
        "pydantic.type_adapter",
        "typer._adapters",
    ),
    "heavy": ("torch", "transformers", "peft", "trl", "accelerate", "datasets"),
}
# Lazy packages load a name when it is asked for.
_NAMES = (
    "transformers:Trainer",
    "transformers:LlamaForCausalLM",
    "transformers:PreTrainedTokenizerFast",
    "peft:PeftModel",
    "trl:SFTTrainer",
)
_WITH_TORCH = ("flywheel.models", "flywheel.stages.train", "flywheel.stages.evaluate")


def _load(kind: str) -> None:
    import flywheel

    for library in (*_LIBRARIES["light"], *(_LIBRARIES["heavy"] if kind == "heavy" else ())):
        importlib.import_module(library)
    for module in pkgutil.walk_packages(flywheel.__path__, "flywheel."):
        if kind == "heavy" or not module.name.startswith(_WITH_TORCH):
            importlib.import_module(module.name)
    for name in _NAMES if kind == "heavy" else ():
        library, _, attribute = name.partition(":")
        getattr(importlib.import_module(library), attribute)
    _parse_signatures()
    _compile_templates()
    _compile_patterns()


def _parse_signatures() -> None:
    """Let typer read the signatures of all commands now: each process would read the same, for a third of its time."""
    import typer.main
    from flywheel.cli.app import app

    command = typer.main.get_command(app)
    typer.main.get_command = lambda _: command  # type: ignore[assignment]


def _compile_templates() -> None:
    """Let Jinja compile the pages' templates now."""
    from flywheel.report.build import _environment

    pages = _environment()
    for name in pages.list_templates():
        pages.get_template(name)


def _compile_patterns() -> None:
    """Let `re` compile what redaction looks for now: a fifth of the time of a small ingest."""
    from flywheel.stages.ingest.redaction.patterns import KINDS

    for kind in KINDS:
        list(kind.finds("", ""))


class Server:
    """Listens, forks, and sends each client its exit code."""

    def __init__(self, session: int, listener: socket.socket) -> None:
        self._listener, self._session, self._log = listener, os.pidfd_open(session), os.dup(1)
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, tuple[int, socket.socket, Command]] = {}  # by pidfd: pid, client, what it typed
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._session, selectors.EVENT_READ)

    def serve(self) -> Command | None:
        """Return a command in the child that is to run it, None when the session is over."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._session:
                    return None
                if key.fileobj is self._listener:
                    command = self._forked()
                    if command is not None:
                        return command
                elif isinstance(key.fileobj, socket.socket):
                    self._signal(key.fileobj, key.data)
                else:
                    self._ended(key.fd)

    def _forked(self) -> Command | None:
        link, _ = self._listener.accept()
        command = received(link)
        if command is None:
            link.close()
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads: those here only wait
            pid = os.fork()
        if pid == 0:
            self._forget(link)
            return command
        for stream in command.streams:
            os.close(stream)
        child = os.pidfd_open(pid)
        self._children[child] = pid, link, command
        self._selector.register(child, selectors.EVENT_READ)
        self._selector.register(link, selectors.EVENT_READ, data=child)
        return None

    def _forget(self, link: socket.socket) -> None:
        """Close in a child what is the server's."""
        self._selector.close()
        for child, (_, other, _) in self._children.items():
            os.close(child)
            other.close()
        self._children.clear()
        link.close()
        self._listener.close()
        os.close(self._session)
        os.close(self._log)

    def _signal(self, link: socket.socket, child: int) -> None:
        """Pass a client's signals on; a client that is gone was killed, and takes its command with it."""
        numbers = link.recv(16)
        if child in self._children:
            for number in numbers or [signal.SIGKILL]:
                os.kill(self._children[child][0], number)
        if not numbers:
            self._selector.unregister(link)

    def _ended(self, child: int) -> None:
        pid, link, command = self._children.pop(child)
        _, status, used = os.wait4(pid, 0)
        words = b" ".join(command.arguments)
        os.write(self._log, b"%6.2f s  %5d  %s\n" % (used.ru_utime + used.ru_stime, status, words))
        self._selector.unregister(child)
        os.close(child)
        if link.fileno() in self._selector.get_map():
            self._selector.unregister(link)
            link.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
        link.close()


def _bound(folder: Path, kind: str) -> socket.socket:
    """Return the listening socket; of two servers that start at once the second ends here."""
    listener, mine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), folder / f"{kind}.{os.getpid()}"
    listener.bind(str(mine))
    listener.listen(64)
    try:
        (folder / f"{kind}.socket").hardlink_to(mine)
    except FileExistsError:
        sys.exit(0)
    finally:
        mine.unlink()
    return listener


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])
    from tests.forked.child import Command, received, run

    script, session, folder, kind = sys.argv[1:]
    os.fsync = lambda _: None  # type: ignore[assignment]  # as in tests/commands.py
    listener = _bound(Path(folder), kind)
    sys.path[0] = str(Path(script).parent)
    code, environment = compile(Path(script).read_bytes(), script, "exec"), dict(os.environb)
    _load(kind)
    gc.collect()
    gc.freeze()
    command = Server(int(session), listener).serve()
    if command is not None:
        run(command, code, environment)

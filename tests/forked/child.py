"""What a forked child does: become the process that a client asked for, run the command, end as an interpreter does.

It gets the client's streams, arguments, folder, umask and environment. Where the environment would have changed the
interpreter itself (`PYTHON...`, the locale), it executes the script instead: then it is a real process. The trainer's
process, which costs six seconds of imports, is forked too, from a copy of the child made before it did anything.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import inspect
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests.forked.kill import KILLS, arm

_LENGTH = 4
_STDERR = 2
_INTERPRETER = (b"PYTHON", b"LC_", b"LANG")  # what an interpreter reads when it starts
_SAFE_PATH = b"PYTHONSAFEPATH"
_KNOWN = {b"PYTHONPATH", b"PYTHONUNBUFFERED", _SAFE_PATH}  # of these, what is done by hand
_WORKER = "flywheel.stages.train.process.worker"
_TRAINING = {b"train", b"run"}


@dataclass(frozen=True)
class Command:
    """What a client sent: where, with which arguments and environment, and its three streams."""

    folder: bytes
    umask: int
    arguments: list[bytes]
    environment: dict[bytes, bytes]
    streams: list[int]


def received(link: socket.socket) -> Command | None:
    """Read a command; None where the client is gone."""
    data, streams, _, _ = socket.recv_fds(link, 1 << 16, 3)
    while data and (len(data) < _LENGTH or len(data) < _LENGTH + int.from_bytes(data[:_LENGTH], "big")):
        data += link.recv(1 << 16)
    if not data:
        return None
    folder, mask, count, *rest = data[_LENGTH:].split(b"\0")
    arguments, pairs = rest[: int(count)], rest[int(count) :]
    return Command(folder, int(mask), arguments, dict(p.split(b"=", 1) for p in pairs), streams)


def run(command: Command, code: types.CodeType, environment: Mapping[bytes, bytes]) -> NoReturn:
    """Run the console script, or the module that follows `-m`, as the client's process would.

    Args:
        command: what the client sent.
        code: the compiled console script.
        environment: the server's own.
    """
    script = code.co_filename
    for number, stream in enumerate(command.streams):
        os.dup2(stream, number, inheritable=True)
        os.close(stream)
    os.umask(command.umask)
    os.chdir(command.folder)
    asked = command.environment
    names = {n for n in environment.keys() | asked.keys() if n.startswith(_INTERPRETER)} - _KNOWN
    module = os.fsdecode(command.arguments[1]) if command.arguments[:1] == [b"-m"] else ""
    program = sys.executable if module else script
    if any(environment.get(n) != asked.get(n) for n in names):
        os.execve(program, [program.encode(), *command.arguments], asked)  # noqa: S606 - the real thing
    if KILLS in asked:
        arm(*(Path(os.fsdecode(path)) for path in asked[KILLS].split(b":")))
    if not module and "torch" in sys.modules and _TRAINING & set(command.arguments):
        _offer_worker()
    before = os.fsdecode(environment.get(b"PYTHONPATH", b"")).split(":")
    sys.path[:] = [p for p in sys.path if not p or p not in before]
    sys.path[0:1] = [os.fsdecode(command.folder) if module else str(Path(script).parent)]
    if asked.get(_SAFE_PATH):
        del sys.path[0]
    _enter(asked, [script, *map(os.fsdecode, command.arguments)])
    if module:
        del sys.argv[1:3]
        _run_module(module)
    main = types.ModuleType("__main__")
    main.__file__ = script
    sys.modules["__main__"] = main
    _end(lambda: exec(code, main.__dict__), script)  # noqa: S102 - the console script


def _enter(environment: Mapping[bytes, bytes], argv: list[str]) -> None:
    """Take over what an interpreter reads when it starts."""
    os.environb.clear()
    os.environb.update(environment)
    time.tzset()
    _streams()
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(":"))
    importlib.invalidate_caches()
    sys.argv = argv


def _streams() -> None:
    """Make `sys.stdin`, `stdout` and `stderr` again."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old, mode = getattr(sys, name), "w" if number else "r"
        raw = open(number, f"{mode}b", buffering=0, closefd=False)  # noqa: SIM115 - for as long as it lives
        raw.name = f"<{name}>"  # type: ignore[misc]
        size = os.fstat(number).st_blksize
        buffered: Any = raw
        if not number or not unbuffered:
            buffered = (io.BufferedWriter if number else io.BufferedReader)(raw, size)
        new: Any = io.TextIOWrapper(
            buffered,
            encoding=old.encoding,
            errors=old.errors,
            newline="\n",
            line_buffering=not unbuffered and (number == _STDERR or raw.isatty()),
            write_through=unbuffered,
        )
        new.mode = mode
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _end(program: Callable[[], object], file: str) -> NoReturn:
    """Run a program and end as an interpreter does after it, but for the memory that it would tidy up.

    Args:
        program: what to run.
        file: where a trace of it begins.
    """
    status, interrupted = 0, False
    try:
        program()
    except SystemExit as end:
        status = _status(end.code)
    except BaseException as error:  # noqa: BLE001 - whatever it is, an interpreter shows it
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != file:
            trace = trace.tb_next
        sys.__excepthook__(type(error), error, trace)
        status, interrupted = 1, isinstance(error, KeyboardInterrupt)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as error:
        status = 120
        with contextlib.suppress(OSError):
            sys.stderr.write(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}\n")
    try:
        sys.stderr.flush()
    except OSError:
        status = 120
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


def _status(code: object) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    sys.stderr.write(f"{code}\n")
    return 1


def _offer_worker() -> None:
    """Fork a child that becomes the trainer's process when this one starts it; it ends with this process otherwise.

    Forked now, it is as good as new: it has no threads and no tables, and its parent is the one it is to have.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        _Popen.link, _Popen.waiting = ours, pid
        subprocess.Popen = _Popen  # type: ignore[misc]
        return
    ours.close()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    asked, streams, _, _ = socket.recv_fds(theirs, 1 << 20, 3)
    if not asked:
        os._exit(0)
    theirs.close()
    request = json.loads(asked)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    del sys.path[0]
    _enter({os.fsencode(k): os.fsencode(v) for k, v in request["env"].items()}, ["-m", *request["arguments"]])
    _run_module(_WORKER)


def _run_module(name: str) -> NoReturn:
    _end(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True), "<frozen runpy>")


class _Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, but the trainer's process is the child that waits; a second one is typed as tests type it."""

    link: socket.socket
    waiting: int = 0

    def _execute_child(self, *given: Any) -> None:
        real = super()._execute_child  # type: ignore[misc]
        asked = inspect.signature(real).bind(*given).arguments
        words = asked["args"]
        if list(words[:4]) != [sys.executable, "-P", "-m", _WORKER]:
            real(*given)
            return
        if not _Popen.waiting:
            client = str(Path(os.environ["FORKED_COMMANDS"]) / "flywheel")
            real([client, "-m", _WORKER, words[4], "0"], *given[1:])
            return
        request = {
            "cwd": str(asked["cwd"] or Path.cwd()),
            "env": dict(asked["env"] or os.environ),
            "arguments": words[4:],
        }
        ends = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        ends = [number if end == -1 else end for number, end in enumerate(ends)]
        socket.send_fds(self.link, [json.dumps(request).encode()], ends)
        self.link.close()
        self.pid, _Popen.waiting, self._child_created = _Popen.waiting, 0, True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in pipes))  # type: ignore[attr-defined]

"""The `flywheel` that tests type: it hands the command to a process that has everything loaded, and ends as it does.

Typed with `-m MODULE`, it is the interpreter, for modules that need torch.

It is started without site packages (`python -ISE`) and imports nothing but built-in modules: 10 ms a command. It gives
away its arguments, environment, folder, umask and standard streams, passes signals on, and takes over the exit code or
the signal. Killed, it takes the command with it. See `server.py`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import posix
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

# Commands that load torch; the others are forked from a process without it, which is done sooner, and so are a recipe
# cut short (`--until`) and a comparison of logs (`--logs`).
_HEAVY = {"train", "eval", "run", "plan", "promote", "export", "deploy"}
_LIGHT = {"--until", "--logs"}
_PATIENCE = 2400  # looks at 50 ms for the server's socket


def _connected(folder: str, kind: str) -> _socket.socket:
    """Return a connection to the server; the first command of a kind starts it."""
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    for look in range(_PATIENCE):
        try:
            link.connect(f"{folder}/{kind}.socket")
        except FileNotFoundError:
            if look == 0:
                _start(folder, kind)
            time.sleep(0.05)
        else:
            return link
    raise SystemExit(f"no server for forked commands: see {folder}/{kind}.log")


def _read(path: str) -> list[bytes]:
    with open(path, "rb") as handle:  # noqa: PTH123 - pathlib takes longer to load than the command to run
        return handle.read().split(b"\0")


def _start(folder: str, kind: str) -> None:
    """Start a server that outlives this process, in the environment of the test session, not in that of a test."""
    log = posix.open(f"{folder}/{kind}.log", posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND, 0o600)
    arguments = [*_read(f"{folder}/server"), folder.encode(), kind.encode()]
    environment = dict(pair.split(b"=", 1) for pair in _read(f"{folder}/environment"))
    nothing = posix.open("/dev/null", posix.O_RDWR)
    streams = [(posix.POSIX_SPAWN_DUP2, nothing, 0), (posix.POSIX_SPAWN_DUP2, log, 1), (posix.POSIX_SPAWN_DUP2, log, 2)]
    posix.posix_spawn(arguments[0], arguments, environment, file_actions=streams, setsid=True)


def _request() -> bytes:
    mask = posix.umask(0o77)
    posix.umask(mask)
    arguments = [word.encode(sys.getfilesystemencoding(), "surrogateescape") for word in sys.argv[1:]]
    pairs = [name + b"=" + value for name, value in posix.environ.items()]
    fields = [posix.getcwdb(), str(mask).encode(), str(len(arguments)).encode(), *arguments, *pairs]
    body = b"\0".join(fields)
    return len(body).to_bytes(4, "big") + body


def _send(link: _socket.socket, body: bytes) -> None:
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    sent = link.sendmsg([body], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    if sent < len(body):  # to send nothing fails where the command is done and gone
        link.sendall(body[sent:])


def main() -> None:
    """Let the command be run, and end as it ended."""
    folder = sys.argv[0].rpartition("/")[0]
    words = set(sys.argv[1:])
    heavy = sys.argv[1:2] == ["-m"] or (_HEAVY & words and not _LIGHT & words)
    link = _connected(folder, "heavy" if heavy else "light")

    def forward(number: int, _: FrameType | None) -> None:
        link.sendall(bytes([number]))

    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        if _signal.getsignal(number) is not _signal.SIG_IGN:
            _signal.signal(number, forward)
    _send(link, _request())
    answer = link.recv(4)
    if len(answer) < 4:
        raise SystemExit(f"the server for forked commands died: see {folder}")
    status = int.from_bytes(answer, "big", signed=True)
    if status < 0:
        if -status not in {_signal.SIGKILL, _signal.SIGSTOP}:
            _signal.signal(-status, _signal.SIG_DFL)
        posix.kill(posix.getpid(), -status)
    posix._exit(status)


main()

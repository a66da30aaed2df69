"""The command line as tests type it.

`FLYWHEEL` behaves as the installed command does, streams, exit codes and signals included, and starts in milliseconds:
it is forked from a process that has everything loaded (`tests/forked/`). `REAL` is the installed command, for tests
whose subject is the process itself: what it imports, who its parent is, what a kill leaves. `(FLYWHEEL, "-m", MODULE)`
is the interpreter with a module that needs torch.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# One key and no network for every test and every process that a test starts.
os.environ["FLYWHEEL_KEY"] = "test-key"
os.environ["FLYWHEEL_TRUST"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # as `flywheel` sets it before torch is loaded
os.environ["OMP_NUM_THREADS"] = "1"  # tiny models are slower on two threads than on one

# A background job is begun with Ctrl-C ignored, and so would be all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A sync decides what a power cut leaves, and no test cuts the power: neither tests nor forked commands wait for one.
# `tests/io/test_files.py` checks that each file is synced before its rename.
os.fsync = lambda _: None  # type: ignore[assignment]

REAL = str(Path(sys.executable).with_name("flywheel"))
_FORKED = Path(__file__).with_name("forked")
_FOLDER = "FORKED_COMMANDS"


def _prepared() -> str:
    """Return the replacement of this test session, which the workers of pytest-xdist share."""
    if _FOLDER not in os.environ:
        folder = Path(tempfile.mkdtemp(prefix="flywheel-"))
        atexit.register(_remove, folder, os.getpid())
        program = (_FORKED / "client.py").read_text(encoding="utf-8")
        (folder / "flywheel").write_text(f"#!{os.path.realpath(sys.executable)} -ISE\n{program}", encoding="utf-8")
        (folder / "flywheel").chmod(0o700)
        server = (sys.executable, str(_FORKED / "server.py"), REAL, str(os.getpid()))
        (folder / "server").write_bytes("\0".join(server).encode())
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        (folder / "environment").write_bytes(b"\0".join(name + b"=" + value for name, value in os.environb.items()))
        os.environ[_FOLDER] = str(folder)
    return str(Path(os.environ[_FOLDER]) / "flywheel")


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


FLYWHEEL = _prepared()


class _Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, but a trainer that a test's own process starts is forked, which spares its imports."""

    def _execute_child(self, *given: Any) -> None:
        words, *rest = given
        if list(words[:4]) == [sys.executable, "-P", "-m", "flywheel.stages.train.process.worker"]:
            words = [FLYWHEEL, *words[2:5], "0"]
        super()._execute_child(words, *rest)  # type: ignore[misc]


subprocess.Popen = _Popen  # type: ignore[misc]


def flywheel(project: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line on a project."""
    done = subprocess.run([FLYWHEEL, "-C", str(project), *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"flywheel {' '.join(arguments)} → {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def killed_everywhere(
    project: Path, *arguments: str, removals: bool = False, before: bool = False, refused: int = 0, one_in: int = 1
) -> int:
    """Kill a command at every place where it changes the project, in turn, and let it finish; return the kills.

    Args:
        project: its folder.
        arguments: the command.
        removals: whether a place is also where it removes a file.
        before: whether it is killed before each change alone, not also right after it.
        refused: the exit code of a command that is done and cannot be done twice.
        one_in: at how many of its places it is killed: 3 is a third of them.
    """
    ledger = project.with_name("kills")
    ledger.unlink(missing_ok=True)
    options = f"{':removals' * removals}{':before' * before}:{one_in}"
    environment = {**os.environ, "FORKED_KILLS": f"{project}:{ledger}{options}"}
    command, killed = [FLYWHEEL, "-C", str(project), *arguments], -signal.SIGKILL
    while (done := subprocess.run(command, capture_output=True, check=False, env=environment)).returncode == killed:
        pass
    assert done.returncode in {0, 3, refused}, done.stderr.decode()
    return len(ledger.read_text(encoding="utf-8").splitlines())

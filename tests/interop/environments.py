"""`make interop`: one environment a system under `.interop/`, then its tests, then the table in docs/interop.md.

An environment that is complete is not built again. Packages come from the configured index with uv, which is found on
the PATH or put into `.interop/uv`; UV_FIND_LINKS may name a folder with a CPU build of torch.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from shutil import which
from typing import Any

from flywheel.io.files import write_json

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".interop"
_COMPLETE = ".complete"
SYSTEMS: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "systems.toml").read_text(encoding="utf-8"))


def python_of(name: str) -> Path:
    """Return the interpreter in which a system is installed."""
    return HOME / name / "bin" / "python" if SYSTEMS[name]["python"] else Path(sys.executable)


def completed(name: str) -> dict[str, Any]:
    """Return what a complete environment was asked to be, and its cost; empty where there is none."""
    path = HOME / name / _COMPLETE
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def seconds() -> float:
    """Return the seconds of CPU that ended child processes have taken: a clock would count who else works here."""
    spent = os.times()
    return spent.children_user + spent.children_system


def build(name: str) -> None:
    """Build a system's environment unless it is complete, with the packages that are asked for now.

    Raises:
        CalledProcessError: a package cannot be installed.
    """
    if "repository" in SYSTEMS[name]:
        fetch(name)
        return
    system = SYSTEMS[name]
    if not system["python"] or completed(name).get("asked") == system:
        return
    before = seconds()
    uv = which("uv") or str(HOME / "uv" / "bin" / "uv")
    if not Path(uv).is_file():
        subprocess.run([sys.executable, "-m", "venv", HOME / "uv"], check=True)
        subprocess.run([HOME / "uv" / "bin" / "pip", "install", "--quiet", "uv"], check=True)
    environment = {**os.environ, "UV_CACHE_DIR": str(HOME / "cache")}
    install = [uv, "pip", "install", "--quiet", "--python", str(python_of(name))]
    print(f"make: building .interop/{name}", flush=True)  # noqa: T201
    venv = [uv, "venv", "--quiet", "--clear", "--python", system["python"], str(HOME / name)]
    without = [*install, "--no-deps", "--python-version", "3.12", *system.get("without", [])]
    for call in (venv, [*install, *system["packages"]], *([without] if "without" in system else [])):
        subprocess.run(call, check=True, env=environment)
    write_json(HOME / name / _COMPLETE, {"asked": system, "seconds": round(seconds() - before)})


def source_of(name: str) -> Path:
    """Return where the source of a system lies that is no package: $NAME_SOURCE, else `.interop`."""
    return Path(os.environ.get(f"{name.upper()}_SOURCE") or HOME / name)


def fetch(name: str) -> None:
    """Fetch the pinned commit of a system's source with git, unless $NAME_SOURCE names a copy.

    Raises:
        CalledProcessError: it cannot be reached.
    """
    folder, system = source_of(name), SYSTEMS[name]
    if folder.is_dir() and any(folder.iterdir()):
        return
    folder.mkdir(parents=True, exist_ok=True)
    git = ["git", "-C", str(folder)]
    try:
        subprocess.run([*git, "init", "--quiet"], check=True)
        subprocess.run([*git, "fetch", "--quiet", "--depth", "1", system["repository"], system["commit"]], check=True)
        subprocess.run([*git, "checkout", "--quiet", "FETCH_HEAD"], check=True)
    except subprocess.CalledProcessError:
        shutil.rmtree(folder)
        raise


def main(names: list[str]) -> int:
    """Build the named systems' environments, or all; run their tests, and write the table."""
    names = names or list(SYSTEMS)
    failed = []
    for name in names:
        try:
            build(name)
        except subprocess.CalledProcessError:
            failed.append(name)
    built = [name for name in names if name not in failed]
    if not built:
        return len(failed)
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "interop"]
    environment = {**os.environ, "SYSTEM": " ".join(built)}
    files = ["test_systems.py", *(["test_swift_rounds.py"] if "swift" in built else [])]  # the long ones beside others
    running = [subprocess.Popen([*tests, f"tests/interop/{name}"], cwd=ROOT, env=environment) for name in files]
    code = max(process.wait() for process in running)
    subprocess.run([sys.executable, "-m", "tests.interop.table"], cwd=ROOT, check=True)
    return code or len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

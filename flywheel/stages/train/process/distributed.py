"""One process or several: the command that starts them, their rank, and what they must do together.

`train.accelerate` names a configuration made by `accelerate config`. The worker is then started once a device, under
`accelerate launch`; on CPUs under torch's own launcher, which accelerate has none for. The launcher dies with flywheel,
the workers with the launcher.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flywheel.errors import ConfigError
from flywheel.io.user_files import read_text
from flywheel.records import METHODS, Method

_PR_SET_PDEATHSIG = 1
WORKER = "flywheel.stages.train.process.worker"
_KINDS = ("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_XPU", "MULTI_NPU", "FSDP")
_SHARDED = "FSDP"


def world() -> int:
    """Return how many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def first() -> bool:
    """Return whether this process is the one that writes."""
    return int(os.environ.get("RANK", "0")) == 0


def together() -> None:
    """Wait for the other processes, where there are any."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def read_accelerate(path: Path, method: Method) -> Mapping[str, Any]:
    """Return a configuration of accelerate's, checked.

    Raises:
        ConfigError: there is no such file, it is none of accelerate's, or it asks for what flywheel does not do.
    """
    import yaml  # type: ignore[import-untyped]

    hint = "make it with `accelerate config --config_file FILE`, or leave train.accelerate out"
    try:
        accelerate = yaml.safe_load(read_text(path, ConfigError))
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"train.accelerate: `{path}` cannot be read ({type(error).__name__})", hint=hint) from error
    if not isinstance(accelerate, dict) or "distributed_type" not in accelerate:
        raise ConfigError(f"train.accelerate: `{path}` is not a configuration of accelerate's", hint=hint)
    kind, processes = str(accelerate["distributed_type"]), accelerate.get("num_processes", 1)
    if kind not in _KINDS:
        raise ConfigError(
            f"train.accelerate: distributed_type {kind[:20]} is not supported", hint=f"one of {', '.join(_KINDS)}"
        )
    if not isinstance(processes, int) or processes < 1:
        raise ConfigError("train.accelerate: num_processes is not a number of processes", hint=hint)
    if spreads(accelerate) and _yes(_fsdp(accelerate).get("fsdp_offload_params", False)):
        raise ConfigError(
            "train.accelerate: fsdp_offload_params is not supported",
            hint="set it to false; only the layers in use are on a device whole",
        )
    if kind != "NO" and processes > 1 and not METHODS[method].many_processes:
        raise ConfigError(
            f"train.accelerate: {method} on several devices is not supported",
            hint="leave train.accelerate out: its attempts are made in one process",
        )
    return accelerate


def spreads(accelerate: Mapping[str, Any]) -> bool:
    """Return whether a configuration of accelerate's spreads the model's layers over the processes."""
    return bool(accelerate["distributed_type"] == _SHARDED)


def keeps_layers(accelerate: Mapping[str, Any]) -> bool:
    """Return whether a layer's weights, once gathered, stay until its way back (`fsdp_reshard_after_forward`)."""
    return not _yes(_fsdp(accelerate).get("fsdp_reshard_after_forward", True))


def _fsdp(accelerate: Mapping[str, Any]) -> Mapping[str, Any]:
    fsdp = accelerate.get("fsdp_config")
    return fsdp if isinstance(fsdp, dict) else {}


def _yes(value: object) -> bool:
    """Return what a value of accelerate's files means: bools of FSDP 2, or the names that FSDP 1 has for them."""
    return str(value).lower() in {"true", "1", "yes", "full_shard", "hybrid_shard"}


def command(spec: Path, accelerate: str, method: Method) -> list[str]:
    """Return the command that trains a spec; under a launcher where train.accelerate names a configuration.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    parent = str(os.getpid())
    if not accelerate:
        return [sys.executable, "-P", "-m", WORKER, str(spec), parent]
    file = Path(accelerate)
    settings = read_accelerate(file, method)
    worker = ["-m", WORKER, str(spec), "0"]
    launched = ["accelerate.commands.launch", "--config_file", str(file)]
    if settings["distributed_type"] == "MULTI_CPU" or (spreads(settings) and settings.get("use_cpu")):
        processes = str(settings.get("num_processes", 1))
        launched = ["torch.distributed.run", "--standalone", "--nproc_per_node", processes]
    return [sys.executable, "-P", "-m", "flywheel.stages.train.process.distributed", parent, *launched, *worker]


def die_with(parent: int, by: int = signal.SIGKILL) -> None:
    """Ask the kernel to end this process when its parent ends, however that ends (Linux; elsewhere a no-op).

    Args:
        parent: the process that started this one; 0 where there is a launcher between.
        by: the signal that it is sent then.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by)
    if parent and os.getppid() != parent:
        sys.exit(1)


def _launch(parent: int, module: str, arguments: list[str]) -> None:
    """Become a launcher that ends with flywheel."""
    die_with(parent)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _launch(int(sys.argv[1]), sys.argv[2], sys.argv[3:])

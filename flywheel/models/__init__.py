"""Base models, chat rendering and policies: what training and evaluation share. Torch is imported inside functions."""

import sys

from flywheel.io.waiting import wait_by_load

wait_by_load()

# Where the package `kernels` is installed, bitsandbytes (on import) and transformers fetch compiled code from a hub and
# run it. To them it is not installed; a program that has imported it before keeps it.
sys.modules.setdefault("kernels", None)  # type: ignore[arg-type]

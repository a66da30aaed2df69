"""Base models, chat rendering and policies: what training and evaluation share. Torch is imported inside functions."""

import os
import sys

# Torch's threads spin while they wait for each other. On a busy machine that takes the processor from who holds them
# up: a training step next to another process took six times as long. Read when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Where the package `kernels` is installed, bitsandbytes (on import) and transformers fetch compiled code from a hub and
# run it. To them it is not installed; a program that has imported it before keeps it.
sys.modules.setdefault("kernels", None)  # type: ignore[arg-type]

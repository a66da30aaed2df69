"""Trainers, one module a method, each run in a process of its own (`process.worker`): a dataset in, a LoRA adapter out.

To read DPO from top to bottom: `losses` (the formula), `dpo` (its rows, weights and trainer), `offline` (items,
batches, limits; shared with KTO and GRPO), `reference` (log-probabilities kept between rounds). `sharing` computes what
rows have in common once: it saves time and changes no number beyond rounding, so a first reader can skip it.
"""

import flywheel.models  # noqa: F401 - its settings for torch come before torch is imported

"""What a model would run on."""

from __future__ import annotations

__all__ = ["describe"]


def describe() -> str:
    """Return the device that training and scoring would use, in words."""
    import torch

    if not torch.cuda.is_available():
        return f"no GPU: training runs on {torch.get_num_threads()} CPU threads"
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30
    more = torch.cuda.device_count() - 1
    return f"{torch.cuda.get_device_name(0)}, {memory:.0f} GiB" + (f" and {more} more" if more else "")

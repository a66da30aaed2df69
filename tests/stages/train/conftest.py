"""Training inside the tests' process: one thread, and torch's global state and the seeds left as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _global_state() -> Iterator[None]:
    """Tiny models are quickest on one thread, and several test runs on one machine do not wait for each other's."""
    import torch

    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    seeds = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - numpy's global seed
    torch.set_num_threads(1)
    yield
    assert torch.is_grad_enabled()
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
    torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
    random.setstate(seeds[0])
    np.random.set_state(seeds[1])  # noqa: NPY002
    torch.set_rng_state(seeds[2])

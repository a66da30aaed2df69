"""The training process: its specification, worker, ranks, checkpoints, tracking."""

"""Score a round against the champion on held-out tasks, or two policies from their logs."""

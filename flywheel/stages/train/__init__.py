"""Training rounds: TRL's trainers, configured, in a process of their own."""

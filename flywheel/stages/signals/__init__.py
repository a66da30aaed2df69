"""The reward signals: votes on an episode's success, its cost and its risks, each with its evidence."""

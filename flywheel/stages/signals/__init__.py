"""The reward signals: what each says of an episode's success, cost and risk, with its evidence."""

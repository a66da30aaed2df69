"""An executable example world for flywheel: database, agents, users, logs, and an evaluator."""

"""The stages: pure functions from the rows of one partition, a configuration and a funnel to rows."""

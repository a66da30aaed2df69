"""Plan a round, check that it may start, train it, and record where its rows come from."""

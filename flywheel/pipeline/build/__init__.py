"""Bring derived tables up to date: the stage table, fingerprints, partitions, worker processes."""

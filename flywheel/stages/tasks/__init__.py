"""Which episodes are attempts at the same task."""

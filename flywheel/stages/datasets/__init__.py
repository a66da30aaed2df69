"""The datasets that rounds train on: examples, pairs, groups, replay scenarios, unpaired rows."""

"""The platforms, by family: a function from a record to a `Talk` each."""

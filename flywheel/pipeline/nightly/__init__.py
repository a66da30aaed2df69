"""Run a pipeline file, record each night, notify, and schedule it."""

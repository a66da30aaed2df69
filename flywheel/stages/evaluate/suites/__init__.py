"""The evaluation suites: next action, own cases, safety, drift, replay."""

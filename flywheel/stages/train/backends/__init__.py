"""Rounds that another system trains in its own interpreter: files in, a LoRA adapter out, checked here at both ends.

`rounds` is the trainer that the worker runs; `numbers` computes what the first step must show, and measures what comes
back; `swift` and `own` are what differs between systems.
"""

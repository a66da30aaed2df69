"""flywheel: a command-line data flywheel that learns continuously from an agent's production logs."""

__version__ = "0.1.0"

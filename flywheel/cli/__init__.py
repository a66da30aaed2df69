"""The command line: a thin skin over `flywheel.Project`, one command a method."""

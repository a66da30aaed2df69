"""The installed command: what it loads takes a moment, in which Ctrl-C may come as well."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; stopped before it has begun, it ends as it does later."""
    try:
        from flywheel.cli.app import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)

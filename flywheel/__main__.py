"""`python -m flywheel`: the command line, where the `flywheel` script is not on the path."""

from __future__ import annotations

from flywheel.cli.app import main

if __name__ == "__main__":
    main()

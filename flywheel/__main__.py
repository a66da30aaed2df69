"""`python -m flywheel`: the command line, where the `flywheel` script is not on the path.

Python has put the current folder first on the path of modules; from here on nothing is imported from it. What Python
itself has imported before can only be protected by `python -P -m flywheel`.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]

from flywheel.cli.start import main

if __name__ == "__main__":
    main()

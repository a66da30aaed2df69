"""How long a user waits for an answer to a short command, compared with an interpreter that does nothing.

`python benchmarks/startup.py`: median of 9 runs each, in one process's environment, as milliseconds and as a ratio.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FLYWHEEL = str(Path(sys.executable).with_name("flywheel"))
SAMPLE_LOGS = Path(__file__).resolve().parents[1] / "sample_logs"
RUNS = 9


def median_ms(command: list[str]) -> float:
    """Return the median wall time of a command in milliseconds."""
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        for first in (["ingest", str(SAMPLE_LOGS)], ["build"]):
            subprocess.run([FLYWHEEL, "-C", folder, *first], check=True, capture_output=True)
        base = median_ms([sys.executable, "-c", "pass"])
        print(f"{'python -c pass':24}{base:8.0f} ms      1.0")
        for arguments in (["--help"], ["status"], ["log"], ["explain", "pairs"]):
            found = median_ms([FLYWHEEL, "-C", folder, *arguments])
            print(f"{'flywheel ' + ' '.join(arguments):24}{found:8.0f} ms{found / base:9.1f}")


if __name__ == "__main__":
    main()

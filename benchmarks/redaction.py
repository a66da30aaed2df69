"""How fast payloads are redacted, compared with reading them as JSON once and with another version of flywheel.

`python benchmarks/redaction.py [--against CHECKOUT] [LOGS]...`: payloads of sample_logs and LOGS, best CPU time of 7.
With --against both versions take turns in one run, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 7
MEASURE = """
import json, sys, time
import orjson
from flywheel.config import RedactConfig
from flywheel.stages.ingest.redact import Redactor
texts = json.load(open(sys.argv[1]))
def seconds(work):
    best = 9e9
    for _ in range(2):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best
redactor = Redactor(RedactConfig(), b"key")
print(seconds(lambda: redactor.payloads(texts)), seconds(lambda: [orjson.dumps(orjson.loads(t)) for t in texts]))
"""


def payloads(logs: list[Path]) -> list[str]:
    """Return the payloads of logs as readers give them, before redaction."""
    from flywheel.config import IngestConfig, RedactConfig
    from flywheel.extensions import list_extensions, load_extension
    from flywheel.stages.ingest.discovery import discover
    from flywheel.stages.ingest.events import ingest

    readers = {e.name: load_extension("readers", e.name) for e in list_extensions("readers")}
    cfg = IngestConfig(workers=1, redact=RedactConfig(kinds=[]))
    found: list[str] = []
    for batch in ingest(discover(logs), root=ROOT, known={}, cfg=cfg, key=b"key", readers=readers):
        found += batch.events["payload"].to_list()
    return found


def measured(checkout: Path, file: str) -> tuple[float, float]:
    """Return seconds of redaction and of JSON, by the flywheel in a checkout."""
    command = [sys.executable, "-c", MEASURE, file]
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env, cwd=checkout)
    redaction, reading = done.stdout.split()
    return float(redaction), float(reading)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    given = parser.parse_args()
    texts = payloads([ROOT / "sample_logs", *(path.resolve() for path in given.logs)])
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{len(texts):,} payloads, {size:.1f} MB")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(texts, file)
        file.flush()
        checkouts = [ROOT, *([given.against.resolve()] if given.against else [])]
        rounds = [[measured(checkout, file.name) for checkout in checkouts] for _ in range(ROUNDS)]
    best = [min(r[n][0] for r in rounds) for n in range(len(checkouts))]
    reading = min(r[0][1] for r in rounds)
    print(f"{'JSON read and written':28}{size / reading:8.0f} MB/s      1.00")
    for checkout, seconds in zip(checkouts, best, strict=True):
        print(f"{'redacted by ' + checkout.name:28}{size / seconds:8.0f} MB/s{seconds / reading:10.2f}")
    if given.against:
        print(f"time, this version / the other: {best[0] / best[1]:.2f}")


if __name__ == "__main__":
    main()

"""What redaction finds of planted needles, what it takes for one, and how fast it is.

`python benchmarks/redaction.py [--against CHECKOUT] [--times N] [LOGS]...`: recall by group on N needles of each family
of `needles`, replaced values in 10,000 tokens of harmless lines and of the Python files of the standard library; then
payloads of sample_logs and LOGS, best CPU time of 7, compared with reading them as JSON once and, with --against, with
another version of flywheel: both versions take turns in one run, so that a busy machine slows both.

`python benchmarks/redaction.py --ratio [FORMAT]... [--mb 20] [--runs 9]`: processor time of ingest with one process,
with redaction and without in turns, on the logs of `ingest.py`: medians, the median of the pairs' ratios with
quartiles, and the ratio by redaction's own calls (second best run), which varies less on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 7
TOKEN = re.compile(r"\w+|[^\w\s]")
MEASURE = """
import json, sys, time
import orjson
from flywheel.config import RedactConfig
from flywheel.stages.ingest.redaction.redact import Redactor
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


def found(times: int) -> None:
    """Print recall and what was replaced without need."""
    from benchmarks import needles
    from benchmarks.needles import harmless, recall
    from flywheel.config import RedactConfig
    from flywheel.stages.ingest.redaction.redact import Redactor

    ordinals = (
        "THIRD",
        "FOURTH",
        "FIFTH",
        "SIXTH",
        "SEVENTH",
        "EIGHTH",
        "NINTH",
        "TENTH",
        "ELEVENTH",
        "THIRTEENTH",
        "EIGHTEENTH",
    )
    looked_at = {"known": needles.FAMILIES, "held out": needles.HELD_OUT}
    looked_at |= {name.lower(): getattr(needles, name) for name in ordinals}
    others = {"twelfth": needles.TWELFTH, "fourteenth": needles.FOURTEENTH}
    for name, families in (looked_at | others).items():
        for group, result in recall(families, times, 1, Redactor(RedactConfig(), b"key").payloads).items():
            missed = ", ".join(
                f"{family} {count}" for family, count in result.missed.most_common(5) * (name not in others)
            )
            print(f"{name:10} {group:9} recall {result.share:.4f} of {result.planted:,}  {missed}")
    redact = Redactor(RedactConfig(), b"key").payloads
    for group, result in recall(needles.FIFTEENTH, times, 1, redact, needles.stays).items():
        print(f"fifteenth, decoded {group:9} recall {result.share:.4f} of {result.planted:,}")
    lines = harmless(random.Random(1), 12_000)  # noqa: S311 - no keys
    sources = sorted(Path(os.__file__).parent.glob("*.py"))
    code = [text for path in sources for text in _parts(path.read_text(encoding="utf-8"))]
    for name, texts in (("harmless lines", lines), ("standard library", code)):
        redactor = Redactor(RedactConfig(), b"key")
        redactor.payloads([json.dumps({"content": text}, ensure_ascii=False) for text in texts])
        tokens = sum(len(TOKEN.findall(text)) for text in texts)
        rate = redactor.counts.total() / tokens * 1e4
        print(f"{name}: {rate:.2f} in 10,000 of {tokens:,} tokens {dict(redactor.counts)}")


def _parts(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    return ["".join(lines[n : n + 100]) for n in range(0, len(lines), 100)]


def ratios(formats: list[str], megabytes: float, runs: int) -> None:
    """Print what redaction costs ingest, by format: whole runs in turns, and its own calls within them."""
    from benchmarks.ingest import write

    os.environ["FLYWHEEL_KEY"] = "benchmark"
    print(f"{'format':12}{'with, s':>9}{'without':>9}{'ratio':>7}{'quartiles':>14}{'own calls':>11}")
    for name in formats:
        with tempfile.TemporaryDirectory() as folder:
            log = write(name, megabytes, Path(folder))
            taken(log, redact=True)  # loads what is loaded once
            pairs = [(taken(log, redact=True), taken(log, redact=False)) for _ in range(runs)]
        low, middle, high = statistics.quantiles((one[0] / other[0] for one, other in pairs), n=4)
        seconds, bare = (statistics.median(pair[n][0] for pair in pairs) for n in (0, 1))
        calls, idle = (sorted(pair[n][1] for pair in pairs)[1] for n in (0, 1))
        own = 1 + (calls - idle) / sorted(other[0] for _, other in pairs)[1]
        print(f"{name:12}{seconds:9.3f}{bare:9.3f}{middle:7.3f}{low:8.3f}{high:6.3f}{own:11.3f}", flush=True)


def taken(log: Path, *, redact: bool) -> tuple[float, float]:
    """Return the processor seconds of ingest, and those of finishing its rows, which is what redaction is part of."""
    from flywheel import Project
    from flywheel.config import Config
    from flywheel.stages.ingest import normalize, workers

    finished, seconds = normalize.finished, list[float]()

    def timed(*given: Any) -> Any:  # in the place of `finished`
        started = time.process_time()
        columns = finished(*given)
        seconds.append(time.process_time() - started)
        return columns

    cfg = {"workers": 1, "format": log.stem} | ({} if redact else {"redact": {"kinds": []}})
    with tempfile.TemporaryDirectory() as folder:
        project = Project(folder, config=Config.model_validate({"ingest": cfg}))
        setattr(workers, "finished", timed)  # noqa: B010 - put back below
        started = time.process_time()
        project.ingest([log])
        whole = time.process_time() - started
        setattr(workers, "finished", finished)  # noqa: B010
        return whole, sum(seconds)


def main() -> None:
    """Measure and print."""
    sys.path.insert(0, str(ROOT))
    parser = argparse.ArgumentParser()
    parser.add_argument("--ratio", nargs="*", help="formats, by default openai, anthropic and native")
    parser.add_argument("--mb", type=float, default=20)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--times", type=int, default=6, help="needles of each family")
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    given = parser.parse_args()
    if given.ratio is not None:
        ratios(given.ratio or ["openai", "anthropic", "native"], given.mb, given.runs)
        return
    found(given.times)
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

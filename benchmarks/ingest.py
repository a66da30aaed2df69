"""How fast and how flat ingest is, compared with tools that only copy JSON into columns.

`python benchmarks/ingest.py`: for each format a log of `--mb` megabytes (records of `sample_logs/` and
`tests/fixtures/`, each time with other ids), read by flywheel into a store (parsed, normalised, redacted, deduplicated,
written) and by DuckDB (`read_json` to zstd Parquet), polars (`scan_ndjson` to zstd Parquet),
`datasets.load_dataset("json")` and a loop over `orjson.loads` (0.0 where one of them refuses the log); medians of
`--runs`, each in a process of its own whose imports are not counted. flywheel is measured with one process too: that
is one core.

`python benchmarks/ingest.py --sizes 0.1 1 5`: gigabytes of one format: seconds, MB/s, and the greatest memory of all
processes together (proportional set size, looked at up to ten times a second, for a thirtieth of the time at most:
adding up a gigabyte's pages takes the kernel 20 ms, and the rates above are measured without).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLES, FIXTURES = ROOT / "sample_logs", ROOT / "tests" / "fixtures"
SOURCES = {
    "native": SAMPLES / "native.jsonl",
    "openai": SAMPLES / "openai.jsonl",
    "anthropic": SAMPLES / "anthropic.jsonl",
    "otel": SAMPLES / "otel.jsonl.gz",
    "litellm": FIXTURES / "litellm" / "standard_logging.jsonl",
    "langsmith": FIXTURES / "langsmith" / "runs.jsonl",
    "mlflow": FIXTURES / "mlflow" / "traces.jsonl",
    "phoenix": FIXTURES / "otel" / "openinference.jsonl",
}
OWN = ("native", "openai")  # whose goal is half of DuckDB's rate; three tenths for the others
# Values, not names of fields; a word with a dash or an underscore only if it has a digit.
_ID = re.compile(
    r'(?<=")(?:conv-\d+|[a-z]+[-_](?=[A-Za-z_-]*\d)[0-9A-Za-z_-]{8,}|[0-9a-f]{16}(?:[0-9a-f]{16})?'
    r'|[0-9a-f]{8}-[0-9a-f-]{27})(?="(?!\s*:))'
)

TOOLS = {
    "duckdb": """
import duckdb
begin()
duckdb.sql(f"COPY (SELECT * FROM read_json('{log}', format='newline_delimited', maximum_object_size=100000000)) "
           f"TO '{out}/x.parquet' (FORMAT parquet, COMPRESSION zstd)")
""",
    "polars": """
import polars as pl
begin()
pl.scan_ndjson(log, infer_schema_length=1000).sink_parquet(out + "/x.parquet", compression="zstd")
""",
    "datasets": """
import datasets
datasets.disable_progress_bars()
begin()
datasets.load_dataset("json", data_files=log, cache_dir=out)
""",
    "orjson": """
import orjson
begin()
with open(log, "rb") as lines:
    for line in lines:
        orjson.loads(line)
""",
    "flywheel": """
import polars, pyarrow.parquet
from flywheel import Project
from flywheel.config import Config
if __name__ == "__main__":
    project = Project(out, config=Config.model_validate({"ingest": {"workers": workers}}))
    begin()
    answer = project.ingest([log])
    assert answer.read and not answer.quarantined, answer
""",
}
_FRAME = """
import os, sys, time
log, out, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.environ["FLYWHEEL_KEY"] = "benchmark"
started = [0.0]
def begin(): started[0] = time.perf_counter()
{body}
if __name__ == "__main__": print(time.perf_counter() - started[0])
"""


def records(source: Path) -> list[str]:
    """Return a sample's records, those that are whole JSON objects."""
    raw = source.read_bytes()
    text = (gzip.decompress(raw) if source.suffix == ".gz" else raw).decode("utf-8")
    return [line for line in text.splitlines() if _is_object(line)]


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def multiplied(source: Path, megabytes: float) -> Iterator[str]:
    """Yield the sample's records again and again, each time with other ids, up to a size."""
    size, again = 0, 0
    lines = records(source)
    while size < megabytes * 1e6:
        for line in lines:
            text = _ID.sub(partial(_renamed, again=again), line) + "\n"
            yield text
            size += len(text)
            if size >= megabytes * 1e6:
                return
        again += 1


def _renamed(found: re.Match[str], again: int) -> str:
    """Return another id for one, of random digits: those of the samples look like telephone numbers to redaction."""
    name = found[0]
    if re.fullmatch("[0-9a-f-]+", name) is None:
        return f"{name}-{again}"
    digits = iter(hashlib.blake2b(f"{name} {again}".encode()).hexdigest())
    return "".join(letter if letter == "-" else next(digits) for letter in name)


def write(name: str, megabytes: float, folder: Path) -> Path:
    """Write a log of a format."""
    path = folder / f"{name}.jsonl"
    with path.open("w", encoding="utf-8") as log:
        log.writelines(multiplied(SOURCES[name], megabytes))
    return path


def seconds(tool: str, log: Path, workers: int = 0, peak: list[float] | None = None) -> float:
    """Return how long a tool takes; with `peak`, also append its greatest memory in MB."""
    with tempfile.TemporaryDirectory() as out:
        script = Path(out) / "run.py"
        script.write_text(_FRAME.format(body=TOOLS[tool]), encoding="utf-8")
        command = [sys.executable, str(script), str(log), out, str(workers)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            watchers = [threading.Thread(target=_watch, args=(process, peak))] if peak is not None else []
            for watcher in watchers:
                watcher.start()
            printed, complained = process.communicate()
            for watcher in watchers:
                watcher.join()
        if process.returncode and tool == "flywheel":
            raise SystemExit(f"flywheel fails on {log.name}: {complained.strip().splitlines()[-1:]}")
        return float(printed.split()[-1]) if not process.returncode else math.inf  # polars refuses some nesting


def _watch(process: subprocess.Popen[str], peak: list[float]) -> None:
    most = 0.0
    while process.poll() is None:
        began = time.thread_time()
        most = max(most, sum(_memory(pid) for pid in _family(process.pid)))
        time.sleep(max(0.1, 30 * (time.thread_time() - began)))
    peak.append(most)


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _family(int(child))


def _memory(pid: int) -> float:
    """Return a process's proportional set size in MB: what it shares is counted once."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) / 1000 if found else 0.0


def compare(names: Sequence[str], megabytes: float, runs: int, folder: Path) -> None:
    """Print one row a format: MB/s of every tool, one core of flywheel, and the ratio to DuckDB."""
    tools = [*TOOLS]
    print(f"MB/s, {megabytes:g} MB, median of {runs}")
    print(f"{'format':12}" + "".join(f"{tool:>10}" for tool in tools) + f"{'one core':>10}{'of DuckDB':>11}{'goal':>6}")
    for name in names:
        log = write(name, megabytes, folder)
        size = log.stat().st_size / 1e6
        rates = {tool: size / statistics.median(_runs(tool, log, runs)) for tool in tools}
        alone = size / statistics.median(_runs("flywheel", log, runs, workers=1))
        share = rates["flywheel"] / rates["duckdb"]
        row = "".join(f"{rates[tool]:10.1f}" for tool in tools)
        print(f"{name:12}{row}{alone:10.1f}{share:11.2f}{0.5 if name in OWN else 0.3:6.1f}", flush=True)
        log.unlink()


def _runs(tool: str, log: Path, runs: int, workers: int = 0) -> list[float]:
    return [seconds(tool, log, workers) for _ in range(runs)]


def sizes(name: str, gigabytes: Sequence[float], folder: Path) -> None:
    """Print time, rate and peak memory at several sizes, and how near to a line the times are."""
    print(f"{name}: {'GB':>6}{'seconds':>10}{'MB/s':>8}{'peak MB':>10}")
    times: list[float] = []
    for amount in gigabytes:
        log = write(name, amount * 1000, folder)
        peak: list[float] = []
        took = seconds("flywheel", log, peak=peak)
        print(f"{'':{len(name) + 2}}{amount:6g}{took:10.1f}{amount * 1000 / took:8.1f}{peak[0]:10.0f}", flush=True)
        times.append(took)
        log.unlink()
    if len(times) > 1:
        squared = statistics.correlation(gigabytes, times) ** 2
        rates = [amount / took for amount, took in zip(gigabytes, times, strict=True)]
        print(f"R² of seconds to size {squared:.4f}; MB/s of the last to the first {rates[-1] / rates[0]:.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--formats", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--sizes", nargs="*", type=float, help="gigabytes; measures memory instead")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if chosen.sizes:
            sizes(chosen.formats[0], chosen.sizes, Path(folder))
        else:
            compare(chosen.formats, chosen.mb, chosen.runs, Path(folder))


if __name__ == "__main__":
    main()

"""docs/interop.md from docs/interop.json, which the last run of each system's tests writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from flywheel.io.files import atomic_write, write_json
from flywheel.pipeline.serve.targets.table import TARGETS
from tests.interop.environments import HOME, ROOT, SYSTEMS, completed

JSON, PAGE = ROOT / "docs" / "interop.json", ROOT / "docs" / "interop.md"
CELLS = {
    "read": "export read", "config": "configuration parsed", "replayed": "attempts replayed", "trained": "trained",
    "imported": "imported",
}  # fmt: skip
ALSO = {"estimates": "off-policy estimates", "rounds": "rounds of `train.backend`"}  # shown, but no column
GPU = "it trains on a GPU alone"
SAMPLES = "it learns from transitions, and samples no text to be replaced"
NONE: dict[tuple[str, str], str] = {
    ("verl", "trained"): GPU,
    ("art", "trained"): GPU,
    ("agent-lightning", "trained"): GPU,
    ("skyrl", "trained"): GPU,
    ("areal", "trained"): GPU,
    ("openrlhf", "trained"): GPU,
    ("agentfly", "trained"): GPU,
    ("agentfly", "config"): "its settings are veRL's of an own branch, which cannot be fetched",
    ("agentfly", "replayed"): "it samples all attempts itself",
    ("agentfly", "imported"): "it writes none of its attempts",
    ("openrlhf", "imported"): "it writes checkpoints and metrics alone",
    ("rllib", "replayed"): SAMPLES,
    ("rllib", "imported"): "what it writes has no text of an agent",
    ("tianshou", "config"): "its settings are arguments of Python calls",
    ("tianshou", "replayed"): SAMPLES,
    ("tianshou", "imported"): "it writes policies alone",
}
_PAGE = """# Systems

What `flywheel export --to NAME` was shown to do, by the code of the system itself: `make interop` builds an environment
for it, gives its own readers, types, parsers and trainers an export of known rows, and compares what they read with
the token rows, token by token. All on a CPU; "not yet" means that no such test has passed, "—" that there is
nothing to test, for a reason below. The checks are in `tests/interop/checks/`, one a system that can be installed;
`make interop SYSTEM=NAME` runs one. "Imported" is the way back: the system's own code writes the very rollouts in
`tests/fixtures/` on which a reader of `ingest` is tested ([formats](formats.md#rollouts-that-trainers-dump)). Generated
by `python -m tests.interop.table`. Seconds are of CPU, without the download and without the rounds of `swift`, which
run at the same time. With one cache all environments take 3.9 GB; Python 3.11 and 3.12 are found on the PATH, or
downloaded by uv.

| system | version | run | {titles} | build, s | checks, s |
|---|---|---|{dashes}|--:|--:|
{rows}

## What each cell showed

{proofs}

## Where there is nothing to test

{nothing}
"""


def merged() -> dict[str, Any]:
    """Return the recorded results, with those of systems that ran since."""
    results: dict[str, Any] = json.loads(JSON.read_text(encoding="utf-8")) if JSON.is_file() else {}
    for path in sorted((HOME / "results").glob("*.json")):
        name, found = path.stem, json.loads(path.read_text(encoding="utf-8"))
        rounds = HOME / "rounds" / path.name
        if rounds.is_file():
            found["cells"] |= json.loads(rounds.read_text(encoding="utf-8"))
        results[name] = {
            "version": SYSTEMS[name]["version"],
            "day": datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat(),
            "cells": {one: cell if cell["passed"] else {"passed": False} for one, cell in found["cells"].items()},
            "seconds": {"build": completed(name).get("seconds"), "checks": found["seconds"]},
        }
    return results


def page(results: dict[str, Any]) -> str:
    """Return docs/interop.md."""
    rows, proofs = [], []
    for name in (one for one in TARGETS if one != "jsonl"):
        result = results.get(name, {"version": TARGETS[name].title.split()[-1], "day": "not run", "cells": {}})
        passed = {cell: one["proof"] for cell, one in result["cells"].items() if one["passed"]}
        shown = ["yes" if cell in passed else "—" if (name, cell) in NONE else "not yet" for cell in CELLS]
        spent = [str(result.get("seconds", {}).get(one) or "—") for one in ("build", "checks")]
        rows.append(f"| `{name}` | {result['version']} | {result['day']} | {' | '.join([*shown, *spent])} |")
        proofs += [f"- `{name}`, {title}: {passed[cell]}." for cell, title in (CELLS | ALSO).items() if cell in passed]
    titles = " | ".join(CELLS.values())
    nothing = [f"- `{name}`, {CELLS[cell]}: {why}." for (name, cell), why in NONE.items()]
    return _PAGE.format(
        titles=titles,
        dashes="|".join("---" for _ in CELLS),
        rows="\n".join(rows),
        proofs="\n".join(_wrapped(proofs)),
        nothing="\n".join(_wrapped(nothing)),
    )


def _wrapped(lines: list[str]) -> list[str]:
    from textwrap import wrap

    return [part for line in lines for part in wrap(line, 118, subsequent_indent="  ", break_long_words=False)]


if __name__ == "__main__":
    RESULTS = merged()
    write_json(JSON, RESULTS)
    atomic_write(PAGE, page(RESULTS))

"""How long a bundle of ten thousand episodes takes to write, how large it is, and how long a browser takes to show it.

python benchmarks/viewer.py [EPISODES]; the browser's part needs Chromium and playwright (`make e2e` installs it).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from flywheel.records import content_id
from flywheel.report import BundleData, EpisodeView, StepView, bundle_pages

STEPS, RESULT_CHARS = 5, 1500


def episodes(n: int) -> Iterator[EpisodeView]:
    """Yield episodes of five steps with results of 1,500 characters."""
    for i in range(n):
        result = {"role": "tool", "name": "run_sql", "content": f"{i} " * (RESULT_CHARS // 6), "status": "ok"}
        asked = {"role": "user", "content": f"How many orders came from city {i}?"}
        call = {"role": "assistant", "tool_calls": [{"name": "run_sql", "arguments": {"sql": f"SELECT {i}"}}]}
        steps: list[StepView] = [
            {"observation": [result if step else asked], "action": call, "status": ["ok"], "credit": 0.1}
            for step in range(STEPS)
        ]
        yield {
            "id": content_id("episode", i),
            "task": f"city {i % 97}",
            "policy": "agent",
            "p_success": (i % 100) / 100,
            "steps": steps,
        }


def browsed(folder: Path) -> None:
    """Print how long the index takes to list, to search, and to open an episode."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        chromium = None
    if chromium is None:
        print("no browser to show it in")
        return
    with sync_playwright() as driver:
        page = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"]).new_page()
        acts: dict[str, Callable[[], object]] = {
            "index listed": lambda: page.goto((folder / "episodes.html").as_uri()),
            "searched": lambda: page.fill("#search", "city 4242?"),
            "opened": lambda: (page.press("#search", "Enter"), page.wait_for_selector("#episode h3")),
        }
        for name, act in acts.items():
            began = time.perf_counter()
            act()
            print(f"{name:<13} {time.perf_counter() - began:6.2f} s")


def main() -> None:
    """Write and show a bundle."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as name:
        folder, began = Path(name), time.perf_counter()
        (folder / "episodes").mkdir()
        for path, text in bundle_pages(BundleData("benchmark", episodes(n))):
            (folder / path).write_text(text, encoding="utf-8")
        sizes = sorted(p.stat().st_size for p in (folder / "episodes").iterdir())
        print(f"{n:,} episodes of {STEPS} steps: written in {time.perf_counter() - began:.1f} s")
        print(f"{len(sizes):,} pages, {sum(sizes) / 1e6:.1f} MB, the largest {sizes[-1] / 1e3:.0f} kB")
        print(f"index {(folder / 'episodes.html').stat().st_size / 1e6:.1f} MB")
        browsed(folder)


if __name__ == "__main__":
    main()

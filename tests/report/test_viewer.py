"""The page in a real browser, where one is installed: no error, no blocked block, and the viewer shows an episode."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from flywheel.records import content_id
from flywheel.report import ReportData, build_report
from tests.report.sample import full_data, hostile_data

pytestmark = pytest.mark.e2e

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
    "--virtual-time-budget=3000", "--dump-dom",
]  # fmt: skip


def _browse(data: ReportData, folder: Path, fragment: str = "") -> tuple[str, list[str]]:
    """Return the page's elements after its script ran, and what the console said."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    page = folder / "report.html"
    page.write_text(build_report(data), encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", page.as_uri() + fragment]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line or "Content Security" in line]


def test_the_viewer_opens_the_first_episode_without_a_word_on_the_console(tmp_path: Path) -> None:
    elements, console = _browse(full_data(), tmp_path)

    assert console == []
    assert "Episode 1 of 24 shown, 24 in this page" in elements
    assert "128 orders were returned in March." in elements.partition('id="episode"')[2]


def test_a_permalink_opens_its_episode(tmp_path: Path) -> None:
    elements, console = _browse(full_data(), tmp_path, f"#episode-{content_id('episode', 4)}")

    assert console == []
    assert "Episode 5 of 24 shown" in elements


def test_hostile_text_stays_text_in_the_browser(tmp_path: Path) -> None:
    text = "</script><script>console.log('owned')</script><img src=x onerror=console.log('owned')>\ud800\u202e"

    elements, console = _browse(hostile_data(text), tmp_path)

    assert console == []
    assert "<img" not in elements
    assert "&lt;img src=x onerror=" in elements.partition('id="episode"')[2]

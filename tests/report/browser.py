"""A real Chromium driven by Playwright, for the tests that look at pages; absent, those tests are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = {"desk": 1280, "phone": 380}
_ROOT = Path(__file__).resolve().parents[2]


def axe_source() -> str:
    """Return axe-core's script, which `make e2e` fetches from npm; another copy is named by FLYWHEEL_AXE."""
    path = Path(os.environ.get("FLYWHEEL_AXE", _ROOT / ".venv" / "axe-core" / "package" / "axe.min.js"))
    if not path.is_file():
        pytest.skip("axe-core is not there (make e2e fetches it)")
    return path.read_text(encoding="utf-8")


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a headless Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (make e2e installs it)")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(started: Browser, *, width: int = 1280, scheme: str = "light") -> Iterator[Page]:
    """Open a page that fails the test if anything is said on the console, or asked of the network."""
    page = started.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type,unused-ignore]
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda asked: said.extend([] if _ours(asked) else [asked.url]))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    yield page
    page.close()
    assert said == []


def _ours(asked: Request) -> bool:
    """Return whether a request is the page itself or its icon, which is within it."""
    return bool(asked.is_navigation_request() or asked.url.startswith("data:"))

"""The whole page: complete, reproducible, and deaf to what logs say."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from flywheel.records import MonitorRow
from flywheel.report import ReportData, build_report
from tests.report.sample import full_data, hostile_data, minimal_data

SECTIONS = [
    "verdict", "metrics", "cases", "pairs", "episodes", "slices",
    "funnel", "rewards", "training", "drift", "provenance",
]  # fmt: skip
HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '"><a href="javascript:alert(1)" onclick="alert(2)">x</a>',
    "javascript:alert(1)",
    "]]><!--<script>",
    "</title></textarea></noscript></svg><script>alert(1)</script>",
    "{{ 7 * 7 }}{% raw %}${1}\\u003cscript\\u003e",
    "\u202eright to left\u2066\u2028\u2029",
    "lone \ud800 surrogate and \x00 nul",
]
VOID = {"meta", "link", "input", "br", "img"}


class Page(HTMLParser):
    """What a browser's parser would see: elements with attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: list[tuple[str, dict[str, str | None], str]] = []
        self.open: list[str] = []
        self.shown: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in {"script", "style"}:
            self.blocks.append((tag, dict(attrs), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"unbalanced {tag}"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in {"script", "style"}:
            kind, attrs, text = self.blocks[-1]
            self.blocks[-1] = (kind, attrs, text + data)
        else:
            self.shown.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]

    def island(self) -> Any:
        return json.loads(next(text for _, attrs, text in self.blocks if attrs.get("id") == "data"))


def _shape(page: Page) -> list[tuple[str, tuple[str, ...]]]:
    """Elements and the names of their attributes: what hostile text must not change."""
    return [(tag, tuple(sorted(attrs))) for tag, attrs in page.elements]


@pytest.fixture(scope="module")
def full() -> Page:
    return Page(build_report(full_data()))


@pytest.mark.parametrize("data", [full_data(), minimal_data(), hostile_data("x")], ids=["full", "minimal", "hostile"])
def test_every_section_is_there_in_reading_order(data: ReportData) -> None:
    page = Page(build_report(data))

    assert [attrs["id"] for attrs in page.of("section")] == SECTIONS
    assert page.open == []
    assert [attrs["href"] for attrs in page.of("a")][1:12] == [f"#{name}" for name in SECTIONS]
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_the_same_data_gives_the_same_bytes_in_another_process() -> None:
    here = build_report(full_data()).encode("utf-8")
    program = (
        "import hashlib\nfrom tests.report.sample import full_data\nfrom flywheel.report import build_report\n"
        "print(hashlib.sha256(build_report(full_data()).encode()).hexdigest())"
    )

    root = Path(__file__).resolve().parents[2]
    there = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)

    assert build_report(full_data()).encode("utf-8") == here
    assert there.stdout.strip() == hashlib.sha256(here).hexdigest()


def test_what_a_reader_looks_for_is_on_the_page(full: Page) -> None:
    text = " ".join(" ".join(full.shown).split())

    for expected in [
        "Round 2 is held (INCONCLUSIVE); round 1 stays champion.",
        "What next Collect about 41 more cases",
        "✗ inconclusive",
        "about 41 more cases are needed",
        "Tango score, clustered by task",
        "same tool call",
        "tool_error",
        "Cases that only the baseline got right.",
        "tool=run_sql",
        "flywheel eval --round 2 --against 1",
        "adapter/adapter_model.safetensors",
    ]:
        assert expected in text, expected


def test_with_nothing_known_the_page_says_so() -> None:
    text = " ".join(Page(build_report(minimal_data())).shown)

    for expected in ["has not been evaluated", "The gate has not decided", "No training metrics", "no earlier round"]:
        assert expected in text
    assert "None" not in text
    assert "nan" not in text.lower().split()


def test_cases_link_to_episodes_on_the_page(full: Page) -> None:
    held = {"#episode-" + episode["id"] for episode in full.island()["episodes"]}
    links = {attrs["href"] for attrs in full.of("a") if (attrs["href"] or "").startswith("#episode-")}

    assert links
    assert links <= held


def test_the_policy_names_the_hashes_of_what_stands_inline(full: Page) -> None:
    policy = next(a["content"] for a in full.of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode() + "'"

    styles = [text for tag, _, text in full.blocks if tag == "style"]
    scripts = [text for tag, attrs, text in full.blocks if tag == "script" and "type" not in attrs]
    assert [f"style-src {digest(text)}" for text in styles] == [p for p in policy.split("; ") if "style" in p]
    assert [f"script-src {digest(text)}" for text in scripts] == [p for p in policy.split("; ") if "script" in p]
    assert policy.startswith("default-src 'none'; ")


def test_nothing_is_loaded_and_nothing_needs_what_the_policy_forbids(full: Page) -> None:
    for tag, attrs in full.elements:
        assert not {"style", "src", "srcset", "action"} & set(attrs), tag
        assert not [name for name in attrs if name.startswith("on")], tag
        assert (attrs.get("href") or "#").startswith(("#", "data:image/svg+xml,")), tag


def test_every_table_has_a_caption_and_every_header_a_scope(full: Page) -> None:
    assert len(full.of("table")) == len(full.of("caption"))
    assert all(attrs.get("scope") in {"col", "row"} for attrs in full.of("th"))
    assert [len(full.of(tag)) for tag in ("main", "h1")] == [1, 1]
    assert full.of("html") == [{"lang": "en"}]


def test_the_island_parses_back_to_the_same_episodes(full: Page) -> None:
    data = full_data()

    island = full.island()

    given = [{**episode, "pairs": []} for episode in json.loads(json.dumps(data.episodes))]
    assert [{**episode, "pairs": []} for episode in island["episodes"]] == given
    assert [len(episode["pairs"]) for episode in island["episodes"][:4]] == [1, 1, 0, 1]
    assert island["regressions"] == sorted({e for row in data.regressions for e in row.episodes})


@pytest.fixture(scope="module")
def harmless() -> Page:
    return Page(build_report(hostile_data("harmless")))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_changes_nothing_but_text(text: str, harmless: Page) -> None:
    hostile = Page(build_report(hostile_data(text)))

    assert _shape(hostile) == _shape(harmless)
    assert [block for _, attrs, block in hostile.blocks if "type" not in attrs] == [
        block for _, attrs, block in harmless.blocks if "type" not in attrs
    ]
    assert all((attrs["href"] or "").startswith("#") for attrs in hostile.of("a"))
    assert hostile.island()["episodes"][0]["steps"][0]["action"]["content"] == text


def test_a_page_with_any_text_can_be_written_as_utf_8() -> None:
    page = build_report(hostile_data("\ud800\udfff \x00 \ufffe"))

    assert build_report(hostile_data("\ud800\udfff \x00 \ufffe")) == page
    assert b"\x00" not in page.encode("utf-8")


def test_a_token_of_a_megabyte_is_cut_outside_the_island() -> None:
    token = "x" * 1_000_000

    page = build_report(full_data(project=token, episodes=[{"id": "e", "task": token}]))

    assert len(page) < 1_250_000
    assert Page(page).island()["episodes"][0]["task"] == token


@pytest.mark.parametrize("name", ["draw.js", "viewer.js", "index.js"])
def test_a_script_is_short_and_builds_no_html_from_text(name: str) -> None:
    folder = Path(__file__).resolve().parents[2] / "flywheel" / "report"
    script = (folder / name).read_text(encoding="utf-8")

    assert len(script.splitlines()) < 250
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", ".style"):
        assert forbidden not in script


def test_importing_the_room_loads_neither_jinja2_nor_polars() -> None:
    program = "import sys, flywheel.report\nprint(sorted({'jinja2', 'polars'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_monitors_and_a_forced_round_are_shown_and_escaped() -> None:
    data = full_data()
    row = MonitorRow(monitor="flattery", level="red", n=3, sentence="0 % → 9 % <script>alert(1)</script>")
    manifest = data.manifest.model_copy(update={"monitors": [row], "forced": "asked for <b>"})
    text = build_report(replace(data, manifest=manifest))
    page = Page(text)
    shown = " ".join(page.shown)
    assert "Monitors against gaming" in shown
    assert "0 % → 9 % <script>alert(1)</script>" in shown
    assert "Trained although a monitor was red: asked for <b>" in " ".join(shown.split())
    assert "Monitors against gaming" not in build_report(data)

"""flywheel view: pages of episodes from a real store, the same bytes each time, in a folder of their own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from flywheel.errors import StoreError, UsageError
from flywheel.io.files import hash_file
from flywheel.project import Project
from tests.projects import flywheel


class _Island(HTMLParser):
    """The JSON that a page carries."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.data: Any = None
        self._inside = False
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script" and dict(attrs).get("id") == "data"

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.data = json.loads(data)


@pytest.fixture(scope="module")
def project(projects: Callable[[str], Path]) -> Project:
    return Project(projects("built"))


@pytest.fixture(scope="module")
def bundle(project: Project) -> Path:
    return Path(project.view(bundle=project.folder / "bundle").page).parent


def _hashes(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): hash_file(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def test_every_episode_stands_on_the_page_that_the_index_names(project: Project, bundle: Path) -> None:
    index = _Island(bundle / "episodes.html").data
    rows = [dict(zip(index["columns"], row, strict=True)) for row in index["rows"]]
    on = {e["id"]: name for name in index["pages"] for e in _Island(bundle / name).data["episodes"]}

    assert on == {row["id"]: index["pages"][row["page"]] for row in rows}
    ids = project.query("SELECT episode_id FROM episodes ORDER BY started DESC NULLS LAST, episode_id").to_pylist()
    assert [row["id"] for row in rows] == [row["episode_id"] for row in ids]


def test_the_same_tables_give_the_same_bytes(project: Project, bundle: Path, tmp_path: Path) -> None:
    project.view(bundle=tmp_path / "again")

    assert _hashes(tmp_path / "again") == _hashes(bundle)


def test_pages_name_their_neighbours(bundle: Path) -> None:
    pages = [_Island(path).data for path in sorted((bundle / "episodes").iterdir())]

    names = [path.name for path in sorted((bundle / "episodes").iterdir())]
    assert [page["next"] for page in pages] == [*names[1:], ""]
    assert [page["previous"] for page in pages] == ["", *names[:-1]]


def test_chips_say_what_they_rest_on(project: Project, bundle: Path) -> None:
    episodes = [e for path in (bundle / "episodes").iterdir() for e in _Island(path).data["episodes"]]
    chips = [chip for e in episodes for chip in (*e["signals"], *(c for s in e["steps"] for c in s["signals"]))]
    says = {chip["signal"]: chip["says"] for chip in chips if chip["says"]}

    assert says["thumbs"][0].startswith("thumbs ")
    assert says["tool_error"][0].startswith("result of ")
    assert all(len(chip["says"]) == len(chip["evidence"]) for chip in chips)
    rewards = project.query("SELECT count(*) AS n FROM rewards").to_pylist()[0]["n"]
    assert len(chips) == rewards


@pytest.mark.e2e
def test_a_pair_is_cut_into_tokens_of_the_base_model(project: Project, bundle: Path) -> None:
    episodes = [e for path in (bundle / "episodes").iterdir() for e in _Island(path).data["episodes"]]
    pairs = {pair["id"]: pair for e in episodes for pair in e["pairs"]}
    shown = json.loads(flywheel(project.folder, "--json", "show", next(iter(pairs))).stdout)

    pair = pairs[shown["record"]["pair_id"]]
    trained = {side["side"]: "".join(s["text"] for s in side["segments"] if s["trained"]) for side in shown["preview"]}
    assert pair["unit"] == "tokens"
    assert {side: "".join(piece["text"] for piece in pair[side]) for side in trained} == trained
    assert len(pairs) == project.query("SELECT count(*) AS n FROM pairs").to_pylist()[0]["n"]


def test_one_episode_is_one_page(project: Project, bundle: Path) -> None:
    one = _Island(bundle / "episodes" / "00001.html").data["episodes"][0]

    found = project.view(one["id"][:8])

    assert (found.episodes, Path(found.page).name) == (1, f"{one['id']}.html")
    assert _Island(Path(found.page)).data["episodes"] == [one]
    assert project.view(one["id"][:8], bundle=bundle).page == f"{bundle / 'episodes.html'}#episode-{one['id']}"


def test_a_folder_of_somebody_else_is_left_alone(project: Project, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")

    with pytest.raises(UsageError, match="was not written by"):
        project.view(bundle=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("subject", ["7", "@champion", "ffffffffffff", "abc"])
def test_what_is_not_there_cannot_be_viewed(project: Project, subject: str, tmp_path: Path) -> None:
    if subject == "@champion":  # the base model: all episodes, and no round
        assert project.view(subject, bundle=tmp_path / "base").round is None
        return
    with pytest.raises(UsageError):
        project.view(subject)


def test_without_the_base_model_sides_are_compared_by_words(project: Project, tmp_path: Path) -> None:
    shutil.copytree(project.folder / ".flywheel", tmp_path / ".flywheel")
    (tmp_path / "flywheel.toml").write_text(f'[model]\nbase = "{tmp_path}/gone"\n')

    page = Path(Project(tmp_path).view(bundle=tmp_path / "bundle").page)

    pairs = [
        p for path in (page.parent / "episodes").iterdir() for e in _Island(path).data["episodes"] for p in e["pairs"]
    ]
    assert {pair["unit"] for pair in pairs} == {"words"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_project_that_may_only_be_read_is_shown_elsewhere(projects: Callable[[str], Path], tmp_path: Path) -> None:
    store = projects("built") / ".flywheel"
    store.chmod(0o500)
    with pytest.raises(StoreError, match="Permission denied") as refused:
        Project(store.parent).view()
    assert refused.value.hint == "`flywheel view --bundle DIR` writes the pages elsewhere"
    assert Project(store.parent).view(bundle=tmp_path / "pages").pages
    store.chmod(0o700)


def test_nothing_built_is_nothing_to_see(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no episodes and no rounds yet"):
        Project(tmp_path).view()

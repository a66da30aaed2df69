"""Writing the episodes' viewer: a folder that opens from disk or from any web server, or one episode as one file.

In: the tables, and a round. Out: `index.html`, pages of some episodes each, and the round's report; written completely
or not at all, the same tables give the same bytes. Only a folder that this wrote is replaced.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl

from flywheel.errors import UsageError
from flywheel.io import files
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.inspect.find import episode_of, round_named
from flywheel.pipeline.pages.round_page import Cases
from flywheel.pipeline.pages.views import Shower
from flywheel.report import BundleData, bundle_pages, episode_page
from flywheel.results.inspect import ViewAnswer

MANIFEST = "bundle.json"
PAGES = "view"  # in the store; what is forgotten or collected takes it along


def view(ctx: Context, subject: str | None, bundle: Path | None) -> ViewAnswer:
    """Write a viewer for a round, or for an episode by the first digits of its id; by default for the newest round.

    Raises:
        UsageError: nothing was built, nothing has that name, or the folder is not one that flywheel wrote.
    """
    number, episode = _named(ctx, subject)
    if episode and bundle is None:
        return _one(ctx, episode)
    folder = bundle or ctx.store.root / PAGES / "all"
    ids = _ids(ctx)
    if not ids:
        raise UsageError("there are no episodes yet", hint="flywheel build")
    if folder.exists() and not (folder / MANIFEST).is_file() and any(folder.iterdir()):
        raise UsageError(f"`{folder}` was not written by `flywheel view`", hint="choose a new or empty folder")
    answer = _write(ctx, folder, number, ids)
    if episode:
        answer = answer.model_copy(update={"page": f"{answer.page}#episode-{episode}"})
    return answer


def _named(ctx: Context, subject: str | None) -> tuple[int | None, str]:
    """Return the round and the episode meant."""
    numbers = ctx.registry.numbers()
    newest = numbers[-1] if numbers else None
    if subject is None:
        return newest, ""
    if subject.startswith("@") or subject in {"base", "latest"}:  # the base model: all episodes, and no round
        return ctx.registry.resolve(subject), ""
    number = round_named(ctx, subject)
    return (number, "") if number is not None else (newest, episode_of(ctx, subject))


def _ids(ctx: Context) -> list[str]:
    """Return all episodes, the newest first."""
    rows = read_table(ctx.store, "episodes").select("episode_id", "started")
    return (
        rows.sort(pl.col("started"), pl.col("episode_id"), descending=[True, False], nulls_last=True)
        .collect()["episode_id"]
        .to_list()
    )


def _data(ctx: Context, number: int | None, ids: list[str]) -> BundleData:
    report = ctx.registry.report(number) if number is not None else None
    cases = Cases(ctx, report)
    sides = {
        name: frozenset(e for row in cases.rows(found) for e in row.episodes)
        for name, found in (
            ("regressions", report.regressions if report else ()),
            ("wins", report.wins if report else ()),
        )
    }
    about = f"Trained tokens and pairs are those of round {number}." if number is not None else "No round yet."
    page = ctx.registry.folder(number) / "report.html" if number is not None else None
    return BundleData(
        project=ctx.config.name or ctx.project.name,
        episodes=Shower(ctx, number).episodes(ids),
        note=f"{len(ids):,} episodes, the newest first. {about}",
        links=[(f"Report of round {number}", "report.html")] if page and page.is_file() else [],
        **sides,
    )


def _write(ctx: Context, folder: Path, number: int | None, ids: list[str]) -> ViewAnswer:
    data = _data(ctx, number, ids)
    with files.atomic_folder(folder) as partial:
        pages = 0
        for name, text in bundle_pages(data):
            files.atomic_write(partial / name, text)
            pages += 1
        if data.links and number is not None:
            shutil.copyfile(ctx.registry.folder(number) / "report.html", partial / "report.html")
        answer = ViewAnswer(page=str(folder / "index.html"), round=number, episodes=len(ids), pages=pages - 1)
        files.write_json(partial / MANIFEST, answer.model_dump(mode="json", exclude={"page"}))
    return answer


def _one(ctx: Context, episode: str) -> ViewAnswer:
    numbers = ctx.registry.numbers()
    number = numbers[-1] if numbers else None
    path = ctx.store.root / PAGES / "episodes" / f"{episode}.html"
    files.atomic_write(path, episode_page(_data(ctx, number, [episode])))
    return ViewAnswer(page=str(path), round=number, episodes=1, pages=1)

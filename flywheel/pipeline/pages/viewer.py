"""Writing the pages: a folder that opens from disk or from any web server, or one episode as one file.

In: the tables, and a round. Out: `index.html`, the home page; `episodes.html` with pages of some episodes each; the
newest rounds' reports. Written completely or not at all, the same tables give the same bytes. Only a folder that this
wrote is replaced.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from flywheel.errors import StoreError, UsageError
from flywheel.io import files
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.inspect.find import episode_of, round_named
from flywheel.pipeline.pages.home import home
from flywheel.pipeline.pages.round_page import Cases
from flywheel.pipeline.pages.views import Shower
from flywheel.report import BundleData, bundle_pages, episode_page, home_page
from flywheel.results.inspect import ViewAnswer

MANIFEST = "bundle.json"
HOME, EPISODES = "index.html", "episodes.html"
_MOST_REPORTS = 20  # reports in the folder, the newest
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
PAGES = "view"  # in the store; what is forgotten or collected takes it along


def view(ctx: Context, subject: str | None, bundle: Path | None) -> ViewAnswer:
    """Write a viewer for a round, or for an episode by the first digits of its id; by default for the newest round.

    Raises:
        UsageError: nothing was built, nothing has that name, or the folder is not one that flywheel wrote.
        StoreError: the pages cannot be written there.
    """
    try:
        return _view(ctx, subject, bundle)
    except StoreError as error:
        refused = isinstance(error.__cause__, OSError) and error.__cause__.errno in _READ_ONLY
        if bundle is not None or not refused:
            raise
        raise StoreError(str(error), hint="`flywheel view --bundle DIR` writes the pages elsewhere") from error


def _view(ctx: Context, subject: str | None, bundle: Path | None) -> ViewAnswer:
    number, episode = _named(ctx, subject)
    if episode and bundle is None:
        return _one(ctx, episode)
    folder = bundle or ctx.store.root / PAGES / "all"
    ids = _ids(ctx)
    if not ids and not ctx.registry.numbers():
        raise UsageError("there are no episodes and no rounds yet", hint="flywheel ingest LOGS, then flywheel build")
    if folder.exists() and not (folder / MANIFEST).is_file() and any(folder.iterdir()):
        raise UsageError(f"`{folder}` was not written by `flywheel view`", hint="choose a new or empty folder")
    answer = _write(ctx, folder, number, ids)
    opened = HOME
    if episode:
        opened = f"{EPISODES}#episode-{episode}"
    elif subject is not None and number is not None and (folder / _report_page(number)).is_file():
        opened = _report_page(number)
    return answer.model_copy(update={"page": str(folder / opened)})


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


def _data(ctx: Context, number: int | None, ids: list[str], pages: Mapping[int, str]) -> BundleData:
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
    return BundleData(
        project=ctx.config.name or ctx.project.name,
        episodes=Shower(ctx, number).episodes(ids),
        note=f"{len(ids):,} episodes, the newest first. {about}",
        links=[("Home", HOME), *((f"Report of round {one}", page) for one, page in pages.items() if one == number)],
        **sides,
    )


def _write(ctx: Context, folder: Path, number: int | None, ids: list[str]) -> ViewAnswer:
    reports = _reports(ctx, number)
    data = _data(ctx, number, ids, reports)
    with files.atomic_folder(folder) as partial:
        pages = 0
        for name, text in bundle_pages(data):
            files.atomic_write(partial / name, text)
            pages += 1
        for one, page in reports.items():
            (partial / page).parent.mkdir(exist_ok=True)
            shutil.copyfile(ctx.registry.folder(one) / "report.html", partial / page)
        newest = [(f"Report of round {one}", page) for one, page in reports.items() if one == max(reports)]
        files.atomic_write(partial / HOME, home_page(home(ctx, reports, [("Episodes", EPISODES), *newest])))
        answer = ViewAnswer(page=str(folder / HOME), round=number, episodes=len(ids), pages=pages - 1)
        files.write_json(partial / MANIFEST, answer.model_dump(mode="json", exclude={"page"}))
    return answer


def _report_page(number: int) -> str:
    return f"rounds/{number:04d}.html"


def _reports(ctx: Context, number: int | None) -> dict[int, str]:
    """Return the address of each report in the folder: the newest rounds', and that of the round asked for."""
    written = [n for n in ctx.registry.numbers() if (ctx.registry.folder(n) / "report.html").is_file()]
    kept = [n for n in written if n in written[-_MOST_REPORTS:] or n in {number, ctx.registry.champion}]
    return {n: _report_page(n) for n in kept}


def _one(ctx: Context, episode: str) -> ViewAnswer:
    numbers = ctx.registry.numbers()
    number = numbers[-1] if numbers else None
    path = ctx.store.root / PAGES / "episodes" / f"{episode}.html"
    files.atomic_write(path, episode_page(_data(ctx, number, [episode], {})))
    return ViewAnswer(page=str(path), round=number, episodes=1, pages=1)

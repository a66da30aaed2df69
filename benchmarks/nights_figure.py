"""What `nights.py` measured, as tables of arms and nights and a figure: production success, night by night.

`python benchmarks/nights_figure.py RESULTS FIGURE` draws what is done while a benchmark runs.

In: the lines of nights. An arm that ran again on newer code is a row of its own, and what ran on older code than the
newest of all is dashed. Area: the mean production success of the nights after the first, which a script serves; its
difference from expert iteration on the same code is over seeds and nights, paired, with seeds as clusters where there
are several.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flywheel.io import files
from flywheel.report.svg import ACCENT, BROKEN, FOURTH, GOOD, INK, LINE, SECOND, Drawing, Panel
from flywheel.stats.clusters import cluster, paired_t_interval

Line = Mapping[str, Any]
LOOKS = {
    "flywheel": (GOOD, "flywheel"), "sft": (SECOND, "expert iteration"), "dpo": (ACCENT, "TRL's DPO, random pairs"),
    "oracle": (FOURTH, "flywheel, knows the truth"), "frozen": (LINE, "learns on the first night only"),
}  # fmt: skip
_WIDTH, _HEIGHT, _LEGEND = 460.0, 250.0, 270.0  # of a world, and next to the last one of a row, in pixels
_COLUMNS = 2  # worlds in a row: more are too small to read on a page
BESIDE = "sft"


def _of(lines: Sequence[Line], world: str, arm: str, code: str) -> list[Line]:
    return [line for line in lines if (line["world"], line["arm"], line["code"]) == (world, arm, code)]


def _codes(lines: Sequence[Line], arm: str) -> list[str]:
    """Return the codes that an arm ran on, newest first."""
    return sorted({line["code"] for line in lines if line["arm"] == arm}, reverse=True)


def _served(lines: Sequence[Line]) -> dict[tuple[int, int], float]:
    """Return production success by seed and night, without the first night."""
    return {(x["seed"], x["night"]): float(x["production"]["success"]) for x in lines if x["night"] > 1}


def area_over(ours: Sequence[Line], theirs: Sequence[Line]) -> tuple[float, float, float] | None:
    """Return the mean difference of production success over the nights that both have, and its 95 % interval."""
    mine, other = _served(ours), _served(theirs)
    both = sorted(mine.keys() & other.keys())
    if not both:
        return None
    seeds = [str(seed) for seed, _ in both]
    units = seeds if len(set(seeds)) > 1 else [str(night) for _, night in both]
    data = cluster([mine[key] - other[key] for key in both], units)
    return (data.mean, *paired_t_interval(data))


def table(lines: Sequence[Line]) -> str:
    """Return the arms as a Markdown table."""
    head = ("world", "arm", "code", "seeds", "nights", "area", "over expert iteration", "last night", "last held-out",
            "harm", "promotions: better, same, worse", "KL", "perplexity", "tokens", "seconds a night")  # fmt: skip
    rows = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for world in sorted({line["world"] for line in lines}):
        of_world = [line for line in lines if line["world"] == world]
        runs = [(arm, code) for arm in LOOKS for code in _codes(of_world, arm)]
        rows += [f"| {' | '.join(_cells(of_world, world, arm, code))} |" for arm, code in runs]
    return "\n".join(rows)


def by_night(lines: Sequence[Line]) -> str:
    """Return what each night served and learned as a Markdown table."""
    head = (
        "world",
        "arm",
        "code",
        "seed",
        "night",
        "serves",
        "success in production",
        "rows",
        "what the night decided",
    )
    rows = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for line in sorted(lines, key=lambda x: (x["world"], x["code"], x["seed"], x["arm"], x["night"])):
        served, learned = line["production"], line["learned"]
        low, high = served["interval"]
        mix = ", ".join(f"{n} {kind}" for kind, n in learned.get("rows", {}).items()) or "-"
        decided = learned.get("text", learned["outcome"]).partition(": ")[2] or learned["outcome"]
        success = f"{served['success']:.2f} [{low:.2f}, {high:.2f}] of {served['talks']}"
        shown = (*(line[name] for name in head[:5]), served["policy"], success, mix, decided)
        rows.append(f"| {' | '.join(map(str, shown))} |")
    return "\n".join(rows)


def _cells(of_world: Sequence[Line], world: str, arm: str, code: str) -> list[str]:
    lines, beside = (_of(of_world, world, name, code) for name in (arm, BESIDE))
    served = list(_served(lines).values())
    last = [line for line in lines if line["night"] == max(x["night"] for x in lines if x["seed"] == line["seed"])]
    over = area_over(lines, beside) if arm != BESIDE else None
    better = [line["better"] for line in lines if line["better"] is not None]
    signs = [(b["won"] > b["lost"]) - (b["won"] < b["lost"]) for b in better]

    def mean(*path: str) -> str:
        values = [_at(line, path) for line in last]
        known = [float(value) for value in values if value is not None]
        return f"{math.fsum(known) / len(known):.3g}" if known else "-"

    return [
        world, arm, code, str(len({line["seed"] for line in lines})), str(max(line["night"] for line in lines)),
        f"{math.fsum(served) / len(served):.3f}" if served else "-",
        f"{over[0]:+.3f} [{over[1]:+.3f}, {over[2]:+.3f}]" if over else "-",
        mean("production", "success"), mean("held_out", "success"), mean("production", "harm"),
        f"{signs.count(1)}, {signs.count(0)}, {signs.count(-1)}",
        mean("held_out", "kl"), mean("held_out", "perplexity"),
        f"{sum(line['learned'].get('trained_tokens', 0) for line in lines):,}",
        f"{math.fsum(line['seconds'] for line in lines) / len(lines):.0f}",
    ]  # fmt: skip


def _at(line: Any, path: Sequence[str]) -> Any:
    for name in path:
        line = line.get(name, {})
    return None if line == {} else line


def plot(lines: Sequence[Line], path: Path) -> None:
    """Draw production success by night, a line a seed, and dots where a promotion serves first.

    The newest flywheel has a band, its interval, where it has one seed. An arm that never gets another champion lies on
    top. The first night is the script's, and what the base model scores when the gate looks at it for the first time.
    """
    worlds = sorted({line["world"] for line in lines}, reverse=True)
    columns = min(len(worlds), _COLUMNS)
    drawing = Drawing(
        _WIDTH * columns + _LEGEND, _HEIGHT * math.ceil(len(worlds) / columns), "Production success, night by night"
    )
    panels: list[Panel] = []
    for place, world in enumerate(worlds):
        row, column = divmod(place, columns)
        of_world = [line for line in lines if line["world"] == world]
        nights = [line["night"] for line in of_world]
        across = (0.8, max(nights) + 0.2)
        panel = Panel(drawing, _WIDTH * column + 50, _HEIGHT * row + 26, _WIDTH - 66, _HEIGHT - 70, across, (0, 1))
        panels.append(panel)
        title = "success in production, %" if not column else ""
        panel.axis_left([(share / 4, str(25 * share)) for share in range(5)], title=title, grid=True)
        panel.axis_below([(night, str(night)) for night in sorted(set(nights))], title="night")
        drawing.text((panel.left, _HEIGHT * row + 12), world, bold=True)
        for arm in ("oracle", "dpo", "sft", "flywheel", "frozen"):
            _arm(panel, [line for line in of_world if line["arm"] == arm], arm, lines)
    runs = [(arm, code) for arm in LOOKS for code in _codes(lines, arm)]
    for row, (arm, code) in enumerate(runs):
        seeds = len({line["seed"] for line in lines if (line["arm"], line["code"]) == (arm, code)})
        dash = _dash(lines, code)
        more = (f", code of {code}" if dash else "") + (f", {seeds} seeds" if seeds > 1 else "")
        _legend(panels[columns - 1], row, LOOKS[arm][1] + more, LOOKS[arm][0], dash)
    _legend(panels[columns - 1], len(runs), "first night of a promoted round", INK, "o")
    files.atomic_write(path, drawing.svg() + "\n")


def _dash(lines: Sequence[Line], code: str) -> str:
    return BROKEN if code != max(line["code"] for line in lines) else ""


def _legend(panel: Panel, row: int, text: str, colour: str, look: str) -> None:
    left, y = panel.left + panel.width + 20, panel.top + 30 + 16 * row
    if look == "o":
        panel.drawing.marker((left + 9, y), look, 6, colour)
    else:
        panel.drawing.line([(left, y), (left + 18, y)], colour, 2, dash=look)
    panel.drawing.text((left + 24, y), text)


def _arm(panel: Panel, lines: Sequence[Line], arm: str, every: Sequence[Line]) -> None:
    for code in _codes(lines, arm):
        seeds = sorted({line["seed"] for line in lines if line["code"] == code})
        dash = _dash(every, code)
        for seed in seeds:
            by_night = {line["night"]: line for line in lines if (line["code"], line["seed"]) == (code, seed)}
            newest = arm == "flywheel" and not dash
            if newest and len(seeds) == 1:
                bounds = {night: by_night[night]["production"]["interval"] for night in sorted(by_night) if night > 1}
                lows, highs = ([(night, bound[side]) for night, bound in bounds.items()] for side in (0, 1))
                panel.band(lows, highs, LOOKS[arm][0], opacity=0.12)
            _curve(panel, by_night, LOOKS[arm][0], dash=dash, named=newest and seed == seeds[0])


def _curve(panel: Panel, by_night: Mapping[int, Line], colour: str, *, dash: str, named: bool) -> None:
    served = {night: float(line["production"]["success"]) for night, line in by_night.items()}
    script = served.pop(1, None)
    if named and script is not None:
        panel.marker((1, script), "D", 4, INK)
        panel.drawing.text((panel.x(1) + 6, panel.y(script)), "script")
    scores = by_night[1]["learned"].get("scores") if 1 in by_night else None
    if scores:
        served[1] = scores[0]
        if named:
            panel.drawing.text((panel.x(1) + 14, panel.y(served[1]) - 6), "base model")
    panel.line([(night, served[night]) for night in sorted(served)], colour, 1.6, dash=dash)
    for night, success in served.items():
        if night - 1 in by_night and by_night[night - 1]["learned"]["outcome"] == "promoted":
            panel.marker((night, success), "o", 6, colour)


def main() -> None:
    """Print the tables and draw the figure of the nights that are done."""
    parser = argparse.ArgumentParser(description="Draw the nights that are done.")
    parser.add_argument("results", type=Path, help="what nights.py wrote")
    parser.add_argument("figure", type=Path, help="SVG file to draw to")
    given = parser.parse_args()
    lines = list(files.read_rows(given.results))
    print(f"{by_night(lines)}\n\n{table(lines)}")
    plot(lines, given.figure)


if __name__ == "__main__":
    main()

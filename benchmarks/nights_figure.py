"""What `nights.py` measured, as tables of arms and nights and a figure: production success, night by night.

`python benchmarks/nights_figure.py RESULTS FIGURE` draws what is done while a benchmark runs.

In: the lines of nights. Area: the mean production success of the nights after the first, which a script serves; its
difference from expert iteration is over seeds and nights, paired, with seeds as clusters where there are several.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flywheel.io import files
from flywheel.report.svg import ACCENT, FOURTH, GOOD, INK, LINE, SECOND, Drawing, Panel
from flywheel.stats.clusters import cluster, paired_t_interval

Line = Mapping[str, Any]
LOOKS = {
    "flywheel": (GOOD, "flywheel"), "sft": (SECOND, "expert iteration"), "dpo": (ACCENT, "TRL's DPO, random pairs"),
    "oracle": (FOURTH, "flywheel, knows the truth"), "frozen": (LINE, "learns on the first night only"),
}  # fmt: skip
_WIDTH, _HEIGHT, _LEGEND = 460.0, 250.0, 270.0  # of a world, and next to the last one, in pixels
BESIDE = "sft"


def _of(lines: Sequence[Line], world: str, arm: str) -> list[Line]:
    return [line for line in lines if (line["world"], line["arm"]) == (world, arm)]


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
    head = ("world", "arm", "seeds", "nights", "area", "over expert iteration", "last night", "last held-out", "harm",
            "promotions: better, same, worse", "KL", "perplexity", "tokens", "seconds a night")  # fmt: skip
    rows = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for world in sorted({line["world"] for line in lines}):
        by_arm = {arm: _of(lines, world, arm) for arm in LOOKS}
        rows += [
            f"| {' | '.join(_cells(world, arm, nights, by_arm[BESIDE]))} |" for arm, nights in by_arm.items() if nights
        ]
    return "\n".join(rows)


def by_night(lines: Sequence[Line]) -> str:
    """Return what each night served and learned as a Markdown table."""
    head = ("world", "arm", "seed", "night", "serves", "success in production", "rows", "what the night decided")
    rows = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for line in sorted(lines, key=lambda x: (x["world"], x["seed"], x["arm"], x["night"])):
        served, learned = line["production"], line["learned"]
        low, high = served["interval"]
        mix = ", ".join(f"{n} {kind}" for kind, n in learned.get("rows", {}).items()) or "-"
        decided = learned.get("text", learned["outcome"]).partition(": ")[2] or learned["outcome"]
        success = f"{served['success']:.2f} [{low:.2f}, {high:.2f}] of {served['talks']}"
        shown = (line["world"], line["arm"], line["seed"], line["night"], served["policy"], success, mix, decided)
        rows.append(f"| {' | '.join(map(str, shown))} |")
    return "\n".join(rows)


def _cells(world: str, arm: str, lines: Sequence[Line], beside: Sequence[Line]) -> list[str]:
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
        world, arm, str(len({line["seed"] for line in lines})), str(max(line["night"] for line in lines)),
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
    """Draw production success by night, the mean over seeds, and dots where a promotion serves first.

    Flywheel has a band, its interval, where there is one seed. An arm that never gets another champion lies on top.
    The first night is the script's, and what the base model scores when the gate looks at it for the first time.
    """
    worlds = sorted({line["world"] for line in lines}, reverse=True)
    drawing = Drawing(_WIDTH * len(worlds) + _LEGEND, _HEIGHT, "Production success, night by night")
    for place, world in enumerate(worlds):
        of_world = [line for line in lines if line["world"] == world]
        nights = [line["night"] for line in of_world]
        across = (0.8, max(nights) + 0.2)
        panel = Panel(drawing, _WIDTH * place + 50, 26, _WIDTH - 66, _HEIGHT - 70, across, (0, 1))
        title = "success in production, %" if not place else ""
        panel.axis_left([(share / 4, str(25 * share)) for share in range(5)], title=title, grid=True)
        panel.axis_below([(night, str(night)) for night in sorted(set(nights))], title="night")
        drawing.text((panel.left, 12), world, bold=True)
        arms = [arm for arm in LOOKS if _of(of_world, world, arm)]
        for arm in sorted(arms, key=("oracle", "dpo", "sft", "flywheel", "frozen").index):
            _curve(panel, _of(of_world, world, arm), LOOKS[arm][0], band=arm == "flywheel")
    for row, arm in enumerate(arm for arm in LOOKS if any(line["arm"] == arm for line in lines)):
        _legend(panel, row, LOOKS[arm][1], LOOKS[arm][0], "line")
    _legend(panel, row + 1, "first night of a promoted round", INK, "o")
    files.atomic_write(path, drawing.svg() + "\n")


def _legend(panel: Panel, row: int, text: str, colour: str, look: str) -> None:
    left, y = panel.left + panel.width + 20, panel.top + 30 + 16 * row
    if look == "line":
        panel.drawing.line([(left, y), (left + 18, y)], colour, 2)
    else:
        panel.drawing.marker((left + 9, y), look, 6, colour)
    panel.drawing.text((left + 24, y), text)


def _curve(panel: Panel, lines: Sequence[Line], colour: str, *, band: bool) -> None:
    by_night: dict[int, list[Line]] = {}
    for line in lines:
        by_night.setdefault(line["night"], []).append(line)
    served = {night: math.fsum(x["production"]["success"] for x in of) / len(of) for night, of in by_night.items()}
    first = by_night.get(1, [])
    script = served.pop(1, None)
    if script is not None:
        panel.marker((1, script), "D", 4, INK)
        panel.drawing.text((panel.x(1) + 6, panel.y(script)), "script")
    before = [line["learned"]["scores"][0] for line in first if line["learned"].get("scores")]
    if before:
        served[1] = math.fsum(before) / len(before)
        panel.drawing.text((panel.x(1) + 14, panel.y(served[1]) - 6), "base model")
    nights = sorted(served)
    if band and len({line["seed"] for line in lines}) == 1:
        bounds = {night: by_night[night][0]["production"]["interval"] for night in nights if night > 1}
        lows, highs = ([(night, bound[side]) for night, bound in bounds.items()] for side in (0, 1))
        panel.band(lows, highs, colour, opacity=0.12)
    panel.line([(night, served[night]) for night in nights], colour, 1.6)
    for night in nights:
        if any(x["learned"]["outcome"] == "promoted" for x in by_night.get(night - 1, [])):
            panel.marker((night, served[night]), "o", 6, colour)


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

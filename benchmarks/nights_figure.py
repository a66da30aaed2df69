"""What `nights.py` measured, as a table of arms and a figure: production success, night by night.

In: the lines of nights. Area: the mean production success of the nights after the first, which a script serves; its
difference from expert iteration is over seeds and nights, paired, with seeds as clusters where there are several.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flywheel.stats.clusters import cluster, paired_t_interval

Line = Mapping[str, Any]
LOOKS = {
    "flywheel": ("#0b6e4f", "flywheel"), "sft": ("#b5651d", "expert iteration"),
    "dpo": ("#3b5b92", "TRL's DPO, random pairs"), "oracle": ("#8b63c9", "flywheel, knows the truth"),
    "frozen": ("#73787e", "no learning"),
}  # fmt: skip
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
    """Draw production success of each arm by night, the mean over seeds, each seed faintly, promotions as dots."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "nights"
    worlds = sorted({line["world"] for line in lines}, reverse=True)
    figure = Figure(figsize=(3.7 * len(worlds) + 0.6, 3.4), layout="constrained")
    for ax, world in zip(figure.subplots(1, len(worlds), squeeze=False)[0], worlds, strict=True):
        for arm, (colour, label) in LOOKS.items():
            if found := _of(lines, world, arm):
                _curve(ax, found, colour, label)
        ax.set_title(world, fontsize=10)
        ax.set_xlabel("night")
        ax.set_ylim(-0.02, 1.02)
        ax.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("production success; dots: promoted", fontsize=8)
    figure.axes[-1].legend(fontsize=7, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _curve(ax: Any, lines: Sequence[Line], colour: str, label: str) -> None:
    by_night: dict[int, list[Line]] = {}
    for line in lines:
        by_night.setdefault(line["night"], []).append(line)
    nights = sorted(by_night)
    if len({line["seed"] for line in lines}) == 1:
        bounds = [by_night[n][0]["production"]["interval"] for n in nights]
        ax.fill_between(nights, [low for low, _ in bounds], [high for _, high in bounds], color=colour, alpha=0.1, lw=0)
    means = {n: math.fsum(x["production"]["success"] for x in by_night[n]) / len(by_night[n]) for n in nights}
    ax.plot(nights, list(means.values()), color=colour, label=label, linewidth=1.5)
    promoted = sorted({line["night"] + 1 for line in lines if line["learned"]["outcome"] == "promoted"} & set(means))
    ax.plot(promoted, [means[n] for n in promoted], "o", color=colour, markersize=4)

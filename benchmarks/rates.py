"""Which learning rate, and how far from its parent: what each method learns of training tasks, by the KL it costs.

`python benchmarks/rates.py --work DIR [--minutes N]` trains what is missing in the results, a line a run, and stops
after so many minutes; `--draw` makes the figure. The world is the example warehouse of sample_logs, the base model
SmolLM2-135M, the rows those that `flywheel plan` chooses. The tasks of the training split are halved: a round trains on
one half, and is scored on the other, so no held-out task is touched. SFT starts from the base; the other methods start
from one short round of SFT.

Each run is scored at some of the steps where `KlStop` measures the distance from the parent, in states of the other
half's tasks in which some attempts acted well and others did not:

    good         chance that an answer (sampled at temperature 1) is one of the state's good actions, word by word
    log_prob     of the likeliest good action, a token
    margin       log-probability of the likeliest good action less that of the likeliest bad one
    preference   share of states in which that is positive
    perplexity   of a text that has nothing to do with the tasks, over that of the run's start
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flywheel.extensions import TrainSpec
    from flywheel.pipeline.context import Context

ROOT = Path(__file__).resolve().parents[1]
RESULTS, FIGURE = ROOT / "docs" / "rates.jsonl", ROOT / "docs" / "rates.svg"
PLAIN = Path(__file__).with_name("plain_text.txt")
CONFIG = """
name = "rates"

[pairs]
max_per_task = 2
min_p_better = 0.6
"""
ROWS, STATES = 48, 20
_PLAIN = 400  # tokens of the unrelated text
FAR = 4.0  # nats a token at which a run of the study ends
GRID: dict[str, tuple[float, ...]] = {
    "sft": (2e-4, 5e-4, 1e-3, 2e-3, 4e-3),
    "dpo": (5e-5, 2e-4, 5e-4, 1e-3, 2e-3),
    "grpo": (5e-6, 1e-4, 3e-4, 1e-3, 3e-3),
    "kto": (5e-5, 2e-4, 5e-4, 1e-3, 2e-3),
}
SHORT = {"grpo": {"batch_size": 2, "max_steps": 12}}  # a group has six attempts of several steps each


@dataclass(frozen=True)
class Run:
    """One round: its method, and what of [train] differs from the study's."""

    method: str
    rate: float
    part: str = "rate"
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def key(self) -> str:
        """What names it in the results."""
        return json.dumps([self.part, self.method, self.rate, self.settings, self.seed], sort_keys=True)


PARENT = Run("sft", 1e-3, "parent", {"max_steps": 12}, seed=7)  # makes calls, and most of them wrong


def runs() -> Iterator[Run]:
    """Yield the study's runs: first what decides between methods and rules, then the rest of the grid."""
    grid = [(method, rates, SHORT.get(method, {})) for method, rates in GRID.items()]
    for place in (1, 3):
        yield from (Run(method, rates[place], settings=settings) for method, rates, settings in grid)
    for demonstrations in (0.0, 3.0):
        yield Run("dpo", 2e-4, "mix", {"dpo_demonstrations": demonstrations})
    yield Run("sft", 1e-3)  # what the next four are compared with
    for batch, scaled, steps in ((1, 0.5, 80), (16, 2.0, 5)):  # the same rows
        yield Run("sft", 1e-3 * scaled, "batch", {"batch_size": batch, "max_steps": steps})
    for rank, alpha in ((4, 32), (16, 8)):
        yield Run("sft", 1e-3 * 32 / alpha, "rank", {"lora": {"r": rank, "alpha": alpha}})
    for seed in (1, 2):
        yield Run("sft", 1e-3, seed=seed)
        yield Run("dpo", 2e-4, seed=seed)
    for place in (2, 4, 0):
        yield from (Run(method, rates[place], settings=settings) for method, rates, settings in grid)
    yield from (Run(method, rate, settings=settings, seed=1) for method, rates, settings in grid for rate in rates[1:4])


# --- the world -------------------------------------------------------------------------------------------------------


def project(work: Path) -> Path:
    """Make the project of the sample logs once."""
    folder = work / "project"
    if not (folder / "built").exists():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "logs").mkdir(parents=True)
        for log in sorted((ROOT / "sample_logs").glob("*.jsonl*")):
            shutil.copyfile(log, folder / "logs" / log.name)
        (folder / "flywheel.toml").write_text(CONFIG, encoding="utf-8")
        command = [str(Path(sys.executable).with_name("flywheel")), "-C", str(folder)]
        for arguments in (["ingest", str(folder / "logs")], ["build"]):
            subprocess.run([*command, *arguments], check=True, env={**os.environ, "FLYWHEEL_KEY": "rates"})
        (folder / "built").touch()
    return folder


def halves(ctx: Context) -> tuple[set[str], set[str]]:
    """Return the tasks of the training split that rounds train on, and those that they are scored on."""
    import polars as pl
    from flywheel.pipeline.build.tables import read_table

    examples = read_table(ctx.store, "examples").filter(pl.col("split") == "train").collect()
    tasks = sorted(set(examples["task_id"]))
    random.Random(0).shuffle(tasks)  # noqa: S311 - reproducible
    return set(tasks[: len(tasks) // 2]), set(tasks[len(tasks) // 2 :])


def planned(ctx: Context, run: Run, tasks: set[str]) -> list[dict[str, Any]]:
    """Return the rows of a round of a method, as `flywheel plan` chooses them, of some tasks."""
    from flywheel.pipeline.train.plan import make_plan

    plan = make_plan(ctx, 1)
    rows = [json.loads(line) for line in plan.dataset.splitlines()]
    own = [row for row in rows if row["task_id"] in tasks]
    return random.Random(run.seed).sample(own, min(ROWS, len(own)))  # noqa: S311 - reproducible


@dataclass(frozen=True)
class State:
    """A prompt of a task that no run trains on, with its distinct good and bad actions."""

    prompt: list[dict[str, Any]]
    tools: Any
    good: list[dict[str, Any]]
    bad: list[dict[str, Any]]


def states(ctx: Context, tasks: set[str]) -> list[State]:
    """Return states of some tasks in which there are actions of both kinds; an action of both kinds is of neither."""
    import polars as pl
    from flywheel.pipeline.build.tables import read_table

    examples = read_table(ctx.store, "examples").filter(pl.col("split") == "train").collect()
    found: dict[tuple[str, str | None], dict[bool, set[str]]] = {}
    for row in examples.sort("example_id").iter_rows(named=True):
        if row["task_id"] in tasks:
            kinds = found.setdefault((row["prompt"], row["tools"]), {True: set(), False: set()})
            kinds[row["label"]].add(row["completion"])
    mixed = []
    for (prompt, tools), kinds in sorted(found.items(), key=lambda item: item[0][0]):
        good, bad = sorted(kinds[True] - kinds[False]), sorted(kinds[False] - kinds[True])
        if good and bad:
            shown = json.loads(tools) if tools else None
            mixed.append(
                State(json.loads(prompt), shown, [json.loads(a)[0] for a in good], [json.loads(a)[0] for a in bad])
            )
    return random.Random(0).sample(mixed, min(STATES, len(mixed)))  # noqa: S311 - reproducible


class Score:
    """What a policy would do in the states; `measure` asks the model as it is."""

    def __init__(self, config: Any, states: Sequence[State]) -> None:
        from flywheel.models.chat import ChatFormat
        from flywheel.models.load import load_tokenizer
        from flywheel.stages.train.sharing.tree import Row

        tokenizer = load_tokenizer(config.model)
        chat = ChatFormat(tokenizer)
        self._rows: list[list[tuple[bool, Any]]] = []
        for state in states:
            prompt = chat.ids(chat.prompt(state.prompt, state.tools))
            self._rows.append([])
            for good, actions in ((True, state.good[:2]), (False, state.bad[:2])):
                for action in actions:
                    ids = chat.ids(chat.completion(state.prompt, state.tools, action))
                    row = Row((*prompt, *ids), ((len(prompt), len(prompt) + len(ids)),))
                    self._rows[-1].append((good, row))
        text = tuple(tokenizer(PLAIN.read_text(encoding="utf-8"))["input_ids"])
        self._plain = Row(text[:_PLAIN], ((1, _PLAIN),))
        self._starts: dict[str, dict[str, float]] = {}

    def start(self, model: Any, name: str) -> dict[str, float]:
        """Return the scores of a policy that several runs start from, measured once."""
        if name not in self._starts:
            self._starts[name] = self.measure(model)
        return self._starts[name]

    def measure(self, model: Any) -> dict[str, float]:
        """Return the scores; the perplexity is not yet over the start's."""
        import torch
        from flywheel.stages.train.sharing.packed import Scorer

        scorer, training = Scorer(model), model.training
        model.eval()
        good, likelihood, margin = [], [], []
        with torch.no_grad():
            every = iter(scorer.shared([row for state in self._rows for _, row in state]))
            for state in self._rows:
                scores = [next(every) for _ in state]
                found = [(float(s.sum()), len(s), is_good) for s, (is_good, _) in zip(scores, state, strict=True)]
                best, tokens = max((total, n) for total, n, is_good in found if is_good)
                good.append(math.fsum(math.exp(total) for total, _, is_good in found if is_good))
                likelihood.append(best / tokens)
                margin.append(best - max(total for total, _, is_good in found if not is_good))
            perplexity = math.exp(-float(scorer.plain([self._plain])[0].mean()))
        model.train(training)
        preferred = [float(m > 0) for m in margin]
        means = {"good": good, "log_prob": likelihood, "margin": margin, "preference": preferred}
        return {name: round(math.fsum(of) / len(of), 5) for name, of in means.items()} | {
            "perplexity": round(perplexity, 4)
        }


# --- runs ------------------------------------------------------------------------------------------------------------


def spec_of(ctx: Context, run: Run, work: Path, rows: list[dict[str, Any]], parent: Path | None) -> TrainSpec:
    """Write a run's rows and return what its trainer gets."""
    from flywheel.extensions import TrainSpec
    from flywheel.io.files import atomic_write
    from flywheel.records import METHODS, canonical_json

    folder = work / "run"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "work").mkdir(parents=True)
    atomic_write(folder / "train.jsonl", "".join(canonical_json(row) + "\n" for row in rows))
    return TrainSpec(
        round=1,
        method=run.method,
        data=folder / "train.jsonl",
        out_dir=folder / "adapter",
        work_dir=folder / "work",
        base_model=ctx.config.model.base,
        start_adapter=parent,
        reference="parent" if METHODS[run.method].reference else "none",
        config=ctx.config,
        seed=run.seed,
        cache_dir=work / "cache",
    )


def train(ctx: Context, run: Run, work: Path, score: Score, tasks: tuple[set[str], set[str]]) -> dict[str, Any]:
    """Train one run; return its curve: steps, KL and scores."""
    from flywheel.records import METHODS
    from flywheel.stages.train import dpo, grpo, kl, kto, sft

    parent = None if run.method == "sft" else work / "start"
    if parent is not None and not parent.is_dir():
        train(ctx, PARENT, work, score, tasks)
        (work / "run" / "adapter").rename(parent)
    settings = {
        "method": run.method, METHODS[run.method].rate: run.rate, "max_rows": 2 * ROWS, "max_kl": FAR, "batch_size": 4,
        "checkpoint_every": 10_000, "sft_epochs": 2.0, "dpo_epochs": 3.0, "grpo_epochs": 3.0, "max_steps": 20,
        "grpo_min_ess": 0.0, "max_chosen_drop": 1e9, "dpo_demonstrations": 1.0, **run.settings,
    }  # fmt: skip
    train_config = type(ctx.config.train).model_validate({**ctx.config.train.model_dump(), **settings})
    ctx = ctx_with(ctx, train_config)
    curve: list[dict[str, float]] = []

    class Scored(kl.KlStop):
        """Scores the policy where its distance is measured, now and then."""

        def begin(self, model: Any, state: Any) -> None:
            curve.append({"step": 0, "kl": 0.0, **score.start(model, "base" if parent is None else "parent")})
            super().begin(model, state)

        def after(self, model: Any, state: Any, control: Any) -> None:
            super().after(model, state, control)
            measured = self._measured.get(kl.COLUMN)
            self.times = getattr(self, "times", 0) + (measured is not None)
            if measured is not None and (self.times in (1, 3) or state.global_step >= state.max_steps):
                curve.append({"step": state.global_step, "kl": measured, **score.measure(model)})

    for module in (sft, dpo, kto, grpo):
        module.KlStop = Scored  # type: ignore[attr-defined]
    rows, started = planned(ctx, run, tasks[0]), time.monotonic()
    spec = spec_of(ctx, run, work, rows, parent)
    result = {"sft": sft, "dpo": dpo, "kto": kto, "grpo": grpo}[run.method].train(spec)
    return {
        "part": run.part, "method": run.method, "rate": run.rate, "settings": run.settings, "seed": run.seed,
        "rows": len(rows), "steps": result.steps, "stopped": result.stopped, "curve": curve,
        "kl": [list(point) for point in result.kl], "seconds": round(time.monotonic() - started),
    }  # fmt: skip


def ctx_with(ctx: Context, train_config: Any) -> Context:
    """Return the project with another [train]."""
    import dataclasses

    return dataclasses.replace(ctx, config=ctx.config.model_copy(update={"train": train_config}))


# --- what was found --------------------------------------------------------------------------------------------------


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Return each run's points as Markdown, the perplexity over the start's."""
    rows = ["| run | steps | KL | good | log_prob | margin | preference | perplexity |", "|" + "---|" * 8]
    for line in sorted(
        lines, key=lambda one: (one["part"] != "rate", one["part"], list(GRID).index(one["method"]), one["rate"])
    ):
        settings = "".join(f", {k} {v}" for k, v in line["settings"].items())
        for point in line["curve"]:
            cells = [
                f"{line['method']} {line['rate']:.0e}{settings}", f"{point['step']:.0f}", f"{point['kl']:.3f}",
                f"{point['good']:.3f}", f"{point['log_prob']:.3f}", f"{point['margin']:.2f}",
                f"{point['preference']:.2f}",
                f"{point['perplexity'] / line['curve'][0]['perplexity']:.3f}",
            ]  # fmt: skip
            rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw scores against the distance from the parent, a panel for each method and score, a line for each run."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "rates"
    figure = Figure(figsize=(9.6, 5.4), layout="constrained")
    scores = {"log_prob": "log-probability of a good action, a token", "margin": "good over bad action, nats"}
    colors = ("#c9c2b8", "#8fb8a8", "#0b6e4f", "#3b5b92", "#b5651d")
    drawn = [method for method in GRID if any(one["method"] == method for one in lines)]
    panels = figure.subplots(len(scores), len(drawn), squeeze=False)
    for row, (name, title) in zip(panels, scores.items(), strict=True):
        for ax, method in zip(row, drawn, strict=True):
            for line in (one for one in lines if one["part"] == "rate" and one["method"] == method):
                color = colors[GRID[method].index(line["rate"])]
                points = [(p["kl"], p[name]) for p in line["curve"]]
                label = f"{line['rate']:.0e}".replace("e-0", "e-") if line["seed"] == 0 else None
                style = "-" if line["seed"] == 0 else ":"
                ax.plot(
                    *zip(*points, strict=True), style, marker="o", markersize=3, color=color, label=label, linewidth=1.4
                )
            ax.set_title(method if name == "log_prob" else "", fontsize=10)
            ax.tick_params(labelsize=7)
            ax.spines[["top", "right"]].set_visible(False)
            if name == "log_prob":
                ax.legend(fontsize=7, frameon=False, title="rate", title_fontsize=7)
        row[0].set_ylabel(title, fontsize=8)
    figure.supxlabel("nats a token from the parent", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    """Train what is missing, for so many minutes; or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("rates"), help="folder of the project and the parent")
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--methods", nargs="+", default=list(GRID), choices=list(GRID))
    parser.add_argument("--draw", action="store_true")
    args = parser.parse_args()
    from flywheel.io.files import read_rows
    from flywheel.project import Project

    if args.draw:
        lines = read_rows(args.results)
        draw(lines, FIGURE)
        print(table(lines))
        return
    until, args.work = time.monotonic() + 60 * args.minutes, args.work.resolve()
    os.environ.setdefault("FLYWHEEL_KEY", "rates")
    ctx = Project(project(args.work)).context
    tasks = halves(ctx)
    found = states(ctx, tasks[1])
    print(f"{len(tasks[0])} tasks to train on, {len(tasks[1])} to score on, {len(found)} states", file=sys.stderr)
    score = Score(ctx.config, found)
    known = {
        Run(r["method"], r["rate"], r["part"], r["settings"], r["seed"]).key
        for r in read_rows(args.results, optional=True)
    }
    for run in runs():
        if run.key in known or run.method not in args.methods:
            continue
        if time.monotonic() > until:
            break
        line = train(ctx, run, args.work, score, tasks)
        with args.results.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(line, sort_keys=True) + "\n")
        print(
            f"{run.key}: {line['steps']} steps, {line['stopped']}, {line['seconds']} s, {line['curve'][-1]}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()

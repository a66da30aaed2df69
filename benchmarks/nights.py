"""Does the wheel keep turning: a champion serves, users react, a night learns, the new champion serves tomorrow.

`python benchmarks/nights.py [--quick | --small | --medium] [--worlds warehouse desk] [--arms ...] [--seeds 0 1 2]
[--nights 10] [--days 5] [--temperature 1] [--endpoint URL] [--base MODEL --chat-template FILE] [--work FOLDER]
[--results FILE] [--plot FILE]`: each night a policy serves its tasks in a world, sampled; the log goes into a project;
`flywheel run nightly` does the rest. With --endpoint a server answers wherever a policy acts, and `second_base.py`
fetches a base of another family. Before the first night a scripted policy has served some days, because the base model
knows no tools; from then on the champion does. All arms serve equal tasks a night, and a round of any arm trains on at
most as many tokens (`train.max_tokens`); what the race of `auto` costs is counted apart. The last night is only served:
no later one would show what it taught.

    flywheel  as shipped, with attempts of the champion at training tasks, kept where execution shows success; the
              method by `auto`, with --small SFT, as in the demo
    sft       expert iteration: SFT on what the logs show to have succeeded, without attempts
    dpo       TRL's DPO on random pairs of a success and a failure, after a first round of SFT (`nights_dpo.py`)
    oracle    flywheel, with the world's truth in the log as a verifier's outcome: an upper bound
    frozen    learns on the first night, and never again

Measured each night: success, content users and harm in production; then, greedy, on tasks that no gate sees, success
and harm of the champion, its KL from the base and its perplexity on a fixed text, and for each promotion whether it was
truly better. With --small a person labels forty of the script's talks before the first night, as `flywheel rewards`
asks for. Every finished night is one line of --results, a killed run goes on where it was, and --plot draws
whatever --results holds. --small is what a core without AMX does in minutes a night: the counter, a world of the
warehouse's easier questions. Arms whose first night is the same share it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import nights_figure
from flywheel import Project
from flywheel.config import Config, EvalConfig
from flywheel.io import files
from flywheel.models.policy import PolicySet
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.train.mix import mix_of
from flywheel.records import METHODS
from flywheel.registry.registry import DATASET
from flywheel.stats.paired import mcnemar_better, wilson
from learn_arms import trained_tokens
from learn_measure import plain_text

ROOT = Path(__file__).resolve().parents[1]
WORLDS = {  # module that serves it, suite and world for attempts, policy of the first night
    "warehouse": ("flywheel_warehouse.serve", "shop", "agent-v2"),
    "counter": ("flywheel_warehouse.serve", "counter", "agent-v2"),
    "desk": ("flywheel_desk.serve", "desk", "hasty"),
}
ARMS = ("flywheel", "sft", "dpo", "oracle", "frozen")
FLYWHEEL = Path(sys.executable).with_name("flywheel")
FAILED, HELD, WAITING = 1, 3, 99
# What a world's customers say misleads at a desk: they complain about refusals that the rules ask for, and praise what
# the rules forbid. So it has what such a desk would have: its rules as a signal, read from the log.
RULES = {
    "desk": f"[rewards]\nsignals = {json.dumps([*Config().rewards.signals, 'flywheel_desk.rules:rules'])}\n",
}
# A first champion acts otherwise than the script that it replaces, and worse: `action_mix` is red every night, until a
# person has looked and forces a round. No one is there to look, so no window is large enough to be compared.
UNWATCHED = 1_000_000
CODE = "0151"  # newest decision that changes what a night does: what an older one's code served is a run of its own
KEY = ("world", "arm", "seed", "night", "code")


@dataclass(frozen=True)
class Settings:
    """What the figures depend on, besides world, arm and seed."""

    base: str
    dtype: str
    nights: int
    history: tuple[int, int]  # days that a script has served before the first night, and its attempts at each task
    tasks: int
    attempts: int
    exam: int
    max_rows: tuple[int, int]  # of the first round, and of later ones
    max_tokens: int
    max_cases: int
    max_new_tokens: int
    max_steps: int
    method: str = "auto"  # of the arms that have none of their own
    again: tuple[int, int] = (2, 32)  # attempts of the champion, and tasks that it attempts (train.attempts)
    temperature: float = 1.0
    rates: tuple[float, float] = (2e-3, 2e-3)  # of SFT on the first night, and later
    older_rows: float = 0.3
    rebase_every: int = 4
    epochs: tuple[float, float] = (2, 2)  # passes of SFT over a round's rows, on the first night and later
    batch: int = 50  # talks of the gate's that are written together
    audited: int = 0  # talks of the script that a person labels before the first night (`flywheel audit`)
    chat_template: str = ""  # of a base model that has none

    def config(self, world: str, arm: str, seed: int, night: int) -> str:
        """Return a project's flywheel.toml: what differs from the defaults; rates and adapter are the demo's."""
        method = f'method = "{"sft" if arm == "sft" else self.method}"\n'
        if arm == "dpo":
            method = 'trainer = "nights_dpo:train"\n'
        elif arm in {"flywheel", "oracle"}:
            attempts, tasks = self.again
            method += f'attempts = {attempts}\nattempt_tasks = {tasks}\nworld = "{WORLDS[world][1]}"\n'
        return f"""name = "{world}-{arm}-{seed}"
[model]
base = "{self.base}"
chat_template = "{self.chat_template}"
dtype = "{self.dtype}"
[train]
{method}seed = {seed}
max_rows = {self.max_rows[night > 1]}
max_tokens = {self.max_tokens}
max_steps = {self.max_steps}
on_the_way = true
batch_size = 2
probe_prompts = 8
sft_learning_rate = {self.rates[night > 1]}
sft_epochs = {self.epochs[night > 1]}
older_rows = {self.older_rows}
rebase_every = {self.rebase_every}
[train.lora]
target_modules = ["q_proj", "k_proj", "v_proj", "o_proj"]
[monitors]
min_episodes = {UNWATCHED}
{RULES.get(world, "")}[eval]
suites = ["{WORLDS[world][1]}"]
baselines = []
max_cases = {self.max_cases}
max_new_tokens = {self.max_new_tokens}
batch_size = {min(self.max_cases, self.batch)}
"""


FULL = Settings("embedded", "auto", 10, (2, 3), 60, 2, 120, (192, 192), 16_000, 120, 96, -1)
SMALL = Settings("embedded", "auto", 8, (5, 1), 42, 1, 42, (192, 128), 32_000, 112, 60, -1, "sft", (8, 16), 0.5,
                 (2e-3, 1e-3), 0.5, 100, (3, 2), audited=40)  # fmt: skip
# For a GPU: all seventeen families of the warehouse, six questions of each a night.
MEDIUM = Settings("embedded", "auto", 10, (5, 1), 102, 1, 102, (384, 256), 64_000, 204, 96, -1, "sft", (8, 34), 0.5,
                  (2e-3, 1e-3), 0.5, 100, (3, 2), batch=128, audited=40)  # fmt: skip
# A desk's answers have many kinds (refuse, ask, act, tell), and a talk has several of them: more rows, longer ones.
AT_THE_DESK = replace(SMALL, max_rows=(120, 120), max_tokens=48_000, max_cases=60)
QUICK = Settings("", "float32", 4, (5, 3), 12, 2, 10, (8, 8), 0, 10, 8, 2, again=(1, 4))
SIZES = {"full": FULL, "medium": MEDIUM, "small": SMALL, "quick": QUICK}
SHORTER = {
    "quick": "a tiny random model, four nights: does everything run",
    "small": "eight nights of 42 tasks at the counter, short rounds",
    "medium": "ten nights of 102 tasks in the warehouse, for a GPU",
}


def settings_of(size: str, world: str, **changes: Any) -> Settings:
    """Return a size's settings in a world, changed where something else was asked for."""
    return replace(AT_THE_DESK if (size, world) == ("small", "desk") else SIZES[size], **changes)


def _run(command: Sequence[str | Path], allow: Sequence[int] = (0,)) -> str:
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]  # of the arm's own trainer
    environment = {**os.environ, "FLYWHEEL_KEY": "nights", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([*map(str, command)], check=False, capture_output=True, text=True, env=environment)
    if done.returncode not in allow:
        sys.exit(f"{' '.join(map(str, command))} ended with exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


@dataclass(frozen=True)
class Arm:
    """One project: a world, an arm, a seed."""

    world: str
    arm: str
    seed: int
    settings: Settings
    folder: Path
    endpoint: str = ""

    def serve(self, policy: str, night: int, *more: str) -> dict[str, Any]:
        """Let a policy serve; return the shares of talks."""
        module, folder = WORLDS[self.world][0], self.folder
        return dict(
            json.loads(
                _run(
                    [sys.executable, "-m", module, "--world", self.world, "--policy", policy, "--project", folder,
                     "--night", str(night), "--seed", str(self.seed), "--out", folder / "logs", "--truth",
                     folder / "truth", *more]
                )
            )
        )  # fmt: skip

    def serve_days(self, number: int) -> dict[str, Any]:
        """Serve the days before a night, the script's before the first; return the last one's shares of talks."""
        settings, policy = self.settings, WORLDS[self.world][2] if number == 1 else "champion"
        days = settings.history[0]
        attempts = settings.history[1] if number == 1 else settings.attempts
        more = ("--tasks", str(settings.tasks), "--attempts", str(attempts), "--temperature", str(settings.temperature))
        served: dict[str, Any] = {}
        for day in range(1 if number == 1 else days + number - 1, days + number):  # of the world
            served = self._once(f"served{day:02d}", partial(self.serve, policy, day, *more))
            if self.arm == "oracle":
                self._tell(day)
        return served

    def night(self, number: int, before: dict[str, Any] | None) -> dict[str, Any]:
        """Serve, learn, measure; return the night's line."""
        started, settings = time.monotonic(), self.settings
        self.begin(number)
        served = self.serve_days(number)
        if number == 1 and settings.audited and self.arm != "oracle":
            self._once("audited", self.audit)
        learned = self._once(f"learned{number:02d}", lambda: self._learn(number))
        if before is None or learned["outcome"] == "promoted":
            held_out = self._once(f"exam{number:02d}", lambda: self._exam(number))
        else:
            held_out = before["held_out"]
        return {
            "world": self.world, "arm": self.arm, "seed": self.seed, "night": number, "code": CODE,
            "settings": asdict(settings),
            "production": {**served, "interval": _interval(served)}, "learned": learned, "held_out": held_out,
            "better": _better(before["held_out"], held_out) if before and learned["outcome"] == "promoted" else None,
            "seconds": round(time.monotonic() - started, 1),
        }  # fmt: skip

    def _next(self, folder: Path) -> Path:
        """Return what shows that a project has begun its second night."""
        return folder / "done" / f"served{self.settings.history[0] + 1:02d}.json"

    def begin(self, number: int) -> None:
        """Write the configuration; begin with another arm's first night where this one's would be the same."""
        other = self.folder.with_name(f"{self.world}-flywheel-{self.seed}")
        alike = self.settings.method == "sft" and self.arm in {"sft", "frozen"}
        first = (other / "done" / "exam01.json").exists() and not self._next(other).exists()
        if alike and first and not self.folder.exists():
            copying = self.folder.with_name(f"{self.folder.name}.copying")
            shutil.rmtree(copying, ignore_errors=True)
            shutil.copytree(other, copying, symlinks=True)
            copying.rename(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.settings.config(self.world, self.arm, self.seed, number)
        config += f'endpoint = "{self.endpoint}"\n' if self.endpoint else ""
        files.atomic_write(self.folder / "flywheel.toml", config)

    def _exam(self, number: int) -> dict[str, Any]:
        """Let the champion sit the exam; return its results, and what it has forgotten."""
        exam = self.serve("champion", number, "--exam", str(self.settings.exam), "--temperature", "0")
        truth = files.read_rows(self.folder / "truth" / f"exam{number:02d}.jsonl")
        return {
            "success": exam["success"], "harm": exam["harm"], "interval": _interval(exam), "exam": number,
            "won": [row["task"] for row in truth if row["success"]],
            **self._forgotten(),
        }  # fmt: skip

    def _once(self, name: str, do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what was done before the benchmark was killed, else do it: who is promoted serves from tomorrow."""
        path = self.folder / "done" / f"{name}.json"
        if not path.exists():
            files.write_json(path, do())
        return dict(files.read_json(path))

    def _tell(self, day: int) -> None:
        """Write the truth of a night's talks as a verifier's outcomes."""
        from flywheel_worlds.nights import START

        when = (START + timedelta(days=day, hours=6)).isoformat()
        rows = [
            {"conversation_id": row["conversation_id"], "seq": 20_000, "ts": when, "kind": "outcome",
             "payload": {"name": "truth", "value": float(row["success"] and not row["harm"]), "scale": [0, 1],
                         "source": "verifier"}}
            for row in files.read_rows(self.folder / "truth" / f"night{day:02d}.jsonl")
        ]  # fmt: skip
        path = self.folder / "logs" / f"night{day:02d}-outcomes.jsonl"
        files.atomic_write(path, "".join(json.dumps(row) + "\n" for row in rows))

    def audit(self) -> dict[str, Any]:
        """Let a person who knows the truth answer `flywheel audit`; return how many talks succeeded, of how many."""
        asked = self.folder / "audit.jsonl"
        _run([FLYWHEEL, "-C", self.folder, "ingest", self.folder / "logs"])
        _run([FLYWHEEL, "-C", self.folder, "audit", "--new", "--n", str(self.settings.audited), "--out", asked])
        rows = [row for path in sorted((self.folder / "truth").glob("night*.jsonl")) for row in files.read_rows(path)]
        true = {row["conversation_id"]: float(row["success"] and not row["harm"]) for row in rows}
        table = read_table(Project(self.folder).context.store, "episodes").select("episode_id", "conversation_id")
        talks = dict(table.collect().iter_rows())
        answered = [{**row, "success": true[talks[row["episode_id"]]]} for row in files.read_rows(asked)]
        files.atomic_write(asked, "".join(json.dumps(row) + "\n" for row in answered))
        _run([FLYWHEEL, "-C", self.folder, "audit", "--answers", asked])
        return {"succeeded": sum(row["success"] for row in answered), "of": len(answered)}

    def _learn(self, number: int) -> dict[str, Any]:
        """Run the night as shipped; return what it did."""
        if (self.arm == "frozen" and number > 1) or number == self.settings.nights:
            return {"outcome": "only served", "champion": None}
        path = self.folder / ".flywheel" / "night.json"
        before = files.read_json(path)["began_at"] if path.exists() else None
        _run([FLYWHEEL, "-C", self.folder, "run", "nightly"], allow=(0, FAILED, HELD, WAITING))
        journal = files.read_json(path)
        if journal["began_at"] == before:
            sys.exit(f"`flywheel -C {self.folder} run nightly` did not begin a night; run it to see why")
        learned = {name: journal[name] for name in ("outcome", "round", "champion", "verdict", "text", "error")}
        if learned["outcome"] == "failed":  # a monitor is red, say: the champion serves on, and the line shows why
            return learned
        if journal["round"] is not None:
            project = Project(self.folder)
            manifest = project.registry.manifest(journal["round"])
            passes = project.config.train.epochs(manifest.method)
            candidates = manifest.race.candidates if manifest.race else []
            raced = sum(heat.tokens for candidate in candidates for heat in candidate.heats)
            tokens = trained_tokens(project, manifest.round, METHODS[manifest.method].dataset.sides)
            learned |= {
                "method": manifest.method, "reason": manifest.method_reason, "steps": manifest.steps_taken,
                "stopped": manifest.stopped, "trained_tokens": round(tokens * passes), "race_tokens": raced,
                "kl": manifest.kl_curve[-1].kl if manifest.kl_curve else None,
                "scores": _scores(project, manifest.round), "rows": mix_of(_rows(project, manifest.round)),
                "attempts": {key: n for key, n in manifest.counts.items() if "attempt" in key},
            }  # fmt: skip
        return learned

    def _forgotten(self) -> dict[str, float]:
        """Return the champion's perplexity on a fixed text, and its KL from the base there in nats a token."""
        project = Project(self.folder)
        policies = _policies(self.settings.base, self.settings.dtype, self.settings.chat_template)
        return {
            name: round(x, 4)
            for name, x in plain_text(policies, project.registry.sound_adapter(project.registry.champion)).items()
        }


def _rows(project: Project, number: int) -> list[dict[str, Any]]:
    return list(files.read_rows(project.registry.folder(number) / DATASET))


def _scores(project: Project, number: int) -> list[float | int | None] | None:
    """Return what the champion and the round scored before the gate, and in how many cases; None: no evaluation."""
    report = project.registry.report(number)
    rows = [row for row in report.metrics if row.primary and row.slice == "all"] if report is not None else []
    return [rows[0].baseline, rows[0].value, rows[0].n] if rows else None


@cache
def _policies(base: str, dtype: str, chat_template: str) -> PolicySet:
    model = {"base": base, "dtype": dtype, "chat_template": chat_template}
    return PolicySet(Config.model_validate({"model": model}).model, EvalConfig())


def _interval(shares: dict[str, Any]) -> list[float]:
    """Return Wilson's interval of the share of successes."""
    bounds = wilson(shares["success"] * shares["talks"], shares["talks"])
    return [round(bounds.low, 4), round(bounds.high, 4)]


def _better(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the exam's tasks that a promotion won and lost, and McNemar's one-sided p."""
    old, new = set(before["won"]), set(after["won"])
    won, lost = len(new - old), len(old - new)
    return {"won": won, "lost": lost, "p": round(mcnemar_better(won, lost), 4)}


_UNSET = {"chat_template": ""}  # in lines of before there were such settings


def finished(results: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the nights that are done, by world, arm, seed, night and code."""
    return {tuple(row[name] for name in KEY): row for row in files.read_rows(results, optional=True)}


def run(arm: Arm, results: Path) -> Iterator[dict[str, Any]]:
    """Yield an arm's nights, those that are done already from the results."""
    done, before = finished(results), None
    for number in range(1, arm.settings.nights + 1):
        line = done.get((arm.world, arm.arm, arm.seed, number, CODE))
        if line is None:
            line = arm.night(number, before)
            files.append_line(results, json.dumps(line))
        elif {**_UNSET, **line["settings"]} != json.loads(json.dumps(asdict(arm.settings))):
            sys.exit(f"{results} holds nights with other settings; name another file with --results")
        before = line
        yield line


def _shown(line: dict[str, Any]) -> str:
    production, held_out, learned = line["production"], line["held_out"], line["learned"]
    return (
        f"{line['world']:<9} {line['arm']:<8} seed {line['seed']} night {line['night']:>2}  "
        f"{production['policy']:<24} success {production['success']:.2f} content {production['content']:.2f} "
        f"harm {production['harm']:.2f}  held-out {held_out['success']:.2f} harm {held_out['harm']:.2f}  "
        f"{learned['outcome']:<8} {learned.get('method', '')} {line['seconds']:.0f} s"
    )


def _tiny_model(work: Path) -> str:
    sys.path.insert(0, str(ROOT))
    from tests.projects import make_tiny_model

    folder = work / "tiny"
    if not (folder / "config.json").exists():
        make_tiny_model(folder, sharpness=20.0)
    return str(folder)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    for name, what in SHORTER.items():
        size.add_argument(f"--{name}", dest="size", action="store_const", const=name, help=what)
    parser.add_argument("--worlds", nargs="*", choices=list(WORLDS), help="warehouse, desk; with --small counter")
    parser.add_argument("--arms", nargs="*", choices=ARMS, help="all of them; with --quick flywheel")
    parser.add_argument("--seeds", nargs="*", type=int, help="0 1 2; with --quick 0")
    parser.add_argument("--nights", type=int)
    parser.add_argument("--days", type=int, help="that the script has served before the first night: 5 unless given")
    parser.add_argument("--temperature", type=float, help="of production's sampling; 0 is greedy")
    parser.add_argument("--endpoint", default="", metavar="URL", help="the server that answers for every policy")
    parser.add_argument("--base", metavar="MODEL", help="another base model, such as `second_base.py` fetches")
    parser.add_argument("--chat-template", metavar="FILE", help="the chat template of a base model that has none")
    parser.add_argument("--work", type=Path, default=ROOT / ".learn" / "nights")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--plot", type=Path, help="draw the results to this SVG file")
    parser.set_defaults(size="full")
    return parser.parse_args()


def main() -> None:
    """Run what is not done yet, and print every night."""
    given = _asked()
    os.environ["FLYWHEEL_TRUST"] = "1"  # of the arm that names its own trainer
    quick, work = given.size == "quick", given.work / (f"{given.size}-served" if given.endpoint else given.size)
    work.mkdir(parents=True, exist_ok=True)
    changes: dict[str, Any] = {"base": _tiny_model(work)} if quick else {}
    changes |= {name: value for name in ("nights", "temperature") if (value := getattr(given, name)) is not None}
    if given.days is not None:
        changes["history"] = (given.days, SIZES[given.size].history[1])
    files_given = {name: getattr(given, name) for name in ("base", "chat_template")}
    changes |= {name: str(Path(value).resolve()) for name, value in files_given.items() if value}
    results = given.results or work / "nights.jsonl"
    for seed in given.seeds or ((0,) if quick else (0, 1, 2)):
        for world in given.worlds or (("counter",) if given.size == "small" else ("warehouse", "desk")):
            names = given.arms or (("flywheel",) if quick else ARMS)
            folders = {name: work / f"{world}-{name}-{seed}" for name in names}
            settings = settings_of(given.size, world, **changes)
            arms = [Arm(world, name, seed, settings, folder, given.endpoint) for name, folder in folders.items()]
            for nights in zip(*(run(arm, results) for arm in arms), strict=True):  # in turns: what is done is of all
                print("\n".join(map(_shown, nights)), flush=True)
    print(nights_figure.table(list(finished(results).values())))
    if given.plot is not None:
        nights_figure.plot(list(finished(results).values()), given.plot)


if __name__ == "__main__":
    main()

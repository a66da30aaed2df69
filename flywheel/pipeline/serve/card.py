"""The card of a pushed adapter: what it learnt from, how it was evaluated, where it comes from, whose licence it has.

In: a round's manifest, its report and the decisions. Out: Markdown with the front matter of model hubs. It holds
numbers and hashes, and no word of a log; equal rounds have equal cards.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from flywheel.errors import FlywheelError
from flywheel.models.load import base_identity
from flywheel.pipeline.context import Context, served_name
from flywheel.present import count, decision, metric_evidence, number, reasons, round_name
from flywheel.records import Promotion, RoundManifest

_LICENCE = re.compile(r"^license: *['\"]?([\w.+-]+)['\"]? *$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_REWARDS = ("signals", "scheme", "alpha", "beta", "gamma", "credit", "omega")


def base_name(ctx: Context, manifest: RoundManifest) -> tuple[str, str]:
    """Return the base model's name without a path of this machine, and its licence; '' where its folder has none."""
    cfg = ctx.config.model
    name = manifest.base_model
    local = cfg.place(name)
    try:
        place = base_identity(cfg.model_copy(update={"base": name, "download": False})).path
        front = _FRONT_MATTER.match((place / "README.md").read_text(encoding="utf-8")) if place.is_dir() else None
    except (FlywheelError, OSError, UnicodeError):
        front = None
    licence = _LICENCE.search(front[1]) if front is not None else None
    is_file = local.exists() or Path(name).expanduser().is_absolute()
    return local.name if is_file else name, licence[1] if licence is not None else ""


def card(ctx: Context, manifest: RoundManifest, base: str, licence: str, *, n_rows: int | None) -> str:
    """Return the card of a round.

    Args:
        ctx: the project.
        manifest: the round's.
        base: the base model, as `base_name` has it.
        licence: the base model's, or ''.
        n_rows: rows of the dataset that goes along; None for none.
    """
    name = served_name(ctx, manifest.round)
    about = (
        f"A LoRA adapter of `{base}` (SHA-256 `{manifest.base_model_sha256[:16]}`), trained on an agent's production "
        f"logs by flywheel as {round_name(manifest.round)}. Log `{name}` as the policy."
    )
    stated = (
        f"The base model's is `{licence}`, as its own card states."
        if licence
        else "The base model's is not stated with its files: look at where it came from."
    )
    lines = [
        "---",
        "library_name: peft",
        *([f"base_model: {base}"] if re.fullmatch(r"[\w.-]+/[\w.-]+", base) else []),
        *([f"license: {licence}"] if licence else []),
        "tags: [flywheel, lora]",
        *(["configs:", "- config_name: default", "  data_files: data/train.jsonl"] if n_rows is not None else []),
        "---",
        f"# {name}",
        "",
        about,
        "",
        *_data(manifest, n_rows),
        *_rewards(ctx.registry.folder(manifest.round) / "config.toml"),
        *_verdict(ctx, manifest.round),
        *_lineage(ctx, manifest),
        "## Licence",
        "",
        stated,
        "The adapter was made from it and from the logs of whoever pushed it.",
        "",
    ]
    return "\n".join(lines)


def _data(manifest: RoundManifest, n_rows: int | None) -> Iterator[str]:
    counts = manifest.counts
    dropped = {k.removeprefix("dropped: "): n for k, n in counts.items() if k.startswith("dropped: ") and n}
    yield from ("## Data", "")
    yield f"- method `{manifest.method}`, seed {manifest.seed}, peak learning rate {number(manifest.learning_rate)}"
    yield f"- rows: {count(counts.get('kept', 0))} of {count(counts.get('considered', 0))} considered"
    yield from (f"  - {count(n)} {why}" for why, n in sorted(dropped.items(), key=lambda item: (-item[1], item[0])))
    yield from (f"- file trained on: SHA-256 `{data.sha256}`" for data in manifest.dataset)
    yield from (f"- table {table}: `{one['sha256'][:16]}`" for table, one in sorted(manifest.inputs.items()))
    if n_rows is not None:
        yield f"- `data/train.jsonl`: {count(n_rows)} rows as trained on, without users, tasks and times"
    yield "- personal data were replaced before anything was stored; what no pattern knows may still be there"
    yield ""


def _rewards(configuration: Path) -> Iterator[str]:
    """Yield how rewards were made, by the configuration that the round keeps."""
    yield from ("## Rewards", "")
    cfg = tomllib.loads(configuration.read_text(encoding="utf-8")).get("rewards", {}) if configuration.is_file() else {}
    if not cfg:
        yield "- not known: the round keeps no configuration"
    for name in _REWARDS:
        if name in cfg:
            value = cfg[name]
            yield f"- {name}: {', '.join(map(str, value)) if isinstance(value, list) else value}"
    yield ""


def _verdict(ctx: Context, of: int) -> Iterator[str]:
    report, decided = ctx.registry.report(of), [p for p in ctx.registry.promotions() if p.round == of]
    yield from ("## Verdict", "")
    yield from (f"- {_at(promotion)}" for promotion in decided)
    yield from (f"  - {reason}" for reason in reasons(decided[-1] if decided else None))
    if report is None:
        yield "- it was not evaluated"
    else:
        yield f"- compared with {round_name(report.baseline)}: {count(report.n_cases)} held-out cases"
        yield from (f"  - {row.suite}: {metric_evidence(row)}" for row in report.metrics if row.slice == "all")
    yield ""


def _at(promotion: Promotion) -> str:
    return f"{promotion.at.date().isoformat()}: {decision(promotion.model_copy(update={'reason': ''}))}"


def _lineage(ctx: Context, manifest: RoundManifest) -> Iterator[str]:
    yield from ("## Lineage", "")
    for ancestor in ctx.registry.lineage(manifest.round):
        one = ctx.registry.manifest(ancestor)
        yield f"- {round_name(ancestor)}: `{one.method}`, adapter SHA-256 `{one.adapter_sha256}`"
    yield f"- base model: SHA-256 `{manifest.base_model_sha256}`"
    yield from (f"- {name} {version}" for name, version in sorted(manifest.versions.items()))
    yield ""

"""What a round is evaluated and decided by, fixed when it is trained: nothing is chosen after its scores are seen.

The manifest keeps the protocol: suites in order, the project's own cases by hash, slices, the sampling of actions,
`[gate]`, the base model, whether a server answers, and the code of rules and suites that are files of the project. A
round without one (of an older version) takes what the configuration holds when it is first evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flywheel.config import Config, GateConfig
from flywheel.io import files
from flywheel.models.load import base_identity
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.suites import Suite, chosen_suites, open_suite
from flywheel.records import RoundManifest, content_id

# Settings of [eval] that change a score or a row which a rule reads; the others cost or show something.
_SCORED_BY = ("max_new_tokens", "seed", "slices", "user_tiers", "replay_cases")
_DRAWN_BY = ("samples", "temperature")  # not in the protocol where answers are greedy, as they were in older versions

_NEW_RULES = {"min_effect": 0.0}  # settings of [gate] that older versions lack, as they decided


def protocol_of(ctx: Context, suites: Sequence[Suite] | None = None) -> dict[str, Any]:
    """Return the protocol of the configuration, or of the suites that were asked for by name."""
    chosen = chosen_suites(ctx, None) if suites is None else suites
    drawn_by = _DRAWN_BY if ctx.config.eval.samples > 1 else ()
    evaluation = ctx.config.eval.model_dump(mode="json", include={*_SCORED_BY, *drawn_by})
    own_code = code_of(ctx, [*ctx.config.gate.rules, *(suite.name for suite in chosen)])
    return (
        {
            "suites": [{"name": s.name, "cases": s.depends_on if s.fixed else ""} for s in chosen],
            "eval": evaluation,
            "gate": ctx.config.gate.model_dump(mode="json"),
            "holdout": ctx.config.episodes.holdout_share,
            "model": base_identity(ctx.config.model).sha256,
        }
        | ({"code": own_code} if own_code else {})
        | ({"answers": {"server": ctx.config.eval.server.api}} if ctx.config.eval.endpoint else {})
    )


def code_of(ctx: Context, names: Iterable[str]) -> dict[str, str]:
    """Return the hash of each module of the project, of names like `module:function`: a file, or a package's files."""
    hashes: dict[str, str] = {}
    for module in sorted({name.partition(":")[0] for name in names if ":" in name}):
        place = ctx.project.joinpath(*module.split("."))
        sources = [path for path in (place.with_suffix(".py"), *sorted(place.rglob("*.py"))) if path.is_file()]
        if sources == [place.with_suffix(".py")]:
            hashes[module] = files.hash_file(sources[0])
        elif sources:
            hashes[module] = content_id([[p.relative_to(ctx.project).as_posix(), files.hash_file(p)] for p in sources])
    return hashes


def as_registered(protocol: Mapping[str, Any], manifest: RoundManifest) -> dict[str, Any]:
    """Return a protocol, or parts of one, without what the version that trained a round did not register."""
    older = bool(manifest.protocol) and "model" not in manifest.protocol
    kept = {part: value for part, value in protocol.items() if not (older and part in {"model", "code"})}
    if "gate" not in kept or "gate" not in manifest.protocol:
        return kept
    unknown = _NEW_RULES.keys() - manifest.protocol["gate"].keys()
    return {**kept, "gate": {name: value for name, value in kept["gate"].items() if name not in unknown}}


def sha256_of(protocol: dict[str, Any]) -> str:
    """Identify a protocol; '' for none."""
    return content_id("protocol", protocol) if protocol else ""


def registered_suites(ctx: Context, manifest: RoundManifest) -> list[Suite]:
    """Return the suites that a round was registered with, those of the configuration where it was not."""
    if not manifest.protocol:
        return chosen_suites(ctx, None)
    return [open_suite(ctx, suite["name"]) for suite in manifest.protocol["suites"]]


def registered(ctx: Context, manifest: RoundManifest) -> Config:
    """Return the configuration with the gate and the evaluation that a round was registered with."""
    if not manifest.protocol:
        return ctx.config
    evaluation = ctx.config.eval.model_validate(
        {**ctx.config.eval.model_dump(mode="json"), "samples": 1, **manifest.protocol["eval"]}
    )
    gate = GateConfig.model_validate({**_NEW_RULES, **manifest.protocol["gate"]})
    return ctx.config.model_copy(update={"eval": evaluation, "gate": gate})


def differences(registered_protocol: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Return what differs between two protocols, by name: 'suites', 'eval.seed', 'gate.margin'."""
    differing = []
    for part in sorted(registered_protocol.keys() | current.keys()):
        old, new = registered_protocol.get(part), current.get(part)
        if isinstance(old, dict) and isinstance(new, dict):
            differing += [f"{part}.{key}" for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
        elif old != new:
            differing.append(part)
    return differing

"""By which method a round is trained where no race decides: the configured one, or SFT and then DPO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flywheel.config import TrainConfig
from flywheel.errors import EvidenceError
from flywheel.present import count, percent
from flywheel.records import METHODS, Method

_MADE_BY = {"scenarios": "fixtures"}  # tables that are not named as their stage


@dataclass(frozen=True)
class MethodChoice:
    """What a round trains, and a sentence with the reason."""

    method: Method
    reason: str


def choose_method(
    rows: Callable[[Method], int],
    well_formed_rate: float | None,
    cfg: TrainConfig,
    dropped: Callable[[Method], Mapping[str, int]] = lambda _: {},
    *,
    unclear: int = 0,
) -> MethodChoice:
    """Choose SFT or DPO; every other method only where `train.method` asks for it.

    DPO cannot teach a format that the start policy never produces, so a low rate of well-formed calls means SFT first.

    Args:
        rows: counts the rows from the logs that a round of a method would hold; asked only for methods that fit.
        well_formed_rate: of the start policy; None when it was not measured, which does not argue for a cold start.
        cfg: the method asked for and the thresholds.
        dropped: how many rows of a method's dataset were left out, by reason.
        unclear: episodes without a clear outcome, which a person's answers would lend one.

    Raises:
        EvidenceError: too few rows for any method that fits.
    """
    cold = is_cold(well_formed_rate, cfg)
    if well_formed_rate is None:
        rate = "rate of well-formed calls not measured"
    else:
        side = "under" if cold else "not under"
        rate = (
            f"the start policy makes {percent(well_formed_rate, 0)} well-formed calls, "
            f"{side} train.cold_start_below {percent(cfg.cold_start_below, 0)}"
        )
    methods = (cfg.method,) if cfg.method != "auto" else ("sft",) if cold else ("dpo", "sft")
    counts: dict[Method, int] = {}
    for method in methods:
        counts[method] = have = rows(method)
        if have >= cfg.min_rows:
            why = "train.method asks for it" if cfg.method != "auto" else rate
            name = METHODS[method].dataset.name
            other = f"; pairs: {counts['dpo']:,}, too few" if method != methods[0] else ""
            return MethodChoice(method, f"{why}; {name}: {have:,}, train.min_rows {cfg.min_rows:,}{other}")
    missing = " and ".join(f"{have:,} {short_of(method, dropped(method))}" for method, have in counts.items())
    tables = [METHODS[method].dataset.table.name for method in counts]
    stages = " and ".join(f"`flywheel explain {_MADE_BY.get(table, table)}`" for table in tables)
    audit = f", or `flywheel audit` some of {count(unclear, 'episode')} without a clear outcome" if unclear else ""
    raise EvidenceError(
        f"too little to train on: {missing}, train.min_rows is {cfg.min_rows:,} ({rate})",
        hint=f"`flywheel ingest` more logs or feedback{audit}; what was dropped before: {stages}",
        have=max(counts.values()),
        need=cfg.min_rows,
    )


def is_cold(well_formed_rate: float | None, cfg: TrainConfig) -> bool:
    """Return whether the start policy must learn to make calls before preferences can teach it anything."""
    return well_formed_rate is not None and well_formed_rate < cfg.cold_start_below


def short_of(method: Method, dropped: Mapping[str, int]) -> str:
    """Return the rows of a method, and why there are not more of them, the commonest reason first."""
    reasons = sorted(((n, why) for why, n in dropped.items() if n), reverse=True)
    return METHODS[method].dataset.name + (
        f" (dropped: {', '.join(f'{why} {n:,}' for n, why in reasons)})" if reasons else ""
    )

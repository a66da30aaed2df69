"""Patterns of votes with their counts: a bit a voter, so that a million episodes are a few hundred rows.

In: episodes with their source and scope, and their votes. Out: the distinct patterns, how many episodes have each, and
what is known of these: by a reviewer who looked at a random sample, or by a verdict that was recorded for some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from flywheel.stages.labelling.votes import LEAST_VOTE
from flywheel.stages.signals.rows import AUDIT, VERIFIER

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

ENOUGH_GOLD = 30  # known outcomes, ten of each kind at least
ENOUGH_OF_EACH = 10
DECIDING = (AUDIT, VERIFIER)
_MOST_VOTERS = 60  # bits of a pattern
_VOTER = ["signal", "family", "sign"]


class Voter(NamedTuple):
    """One sign of one signal's vote."""

    signal: str
    family: str
    sign: int


@dataclass(frozen=True)
class Patterns:
    """Distinct patterns (n) of votes (J).

    Audited episodes count by the number of episodes they represent, see `_masses`.
    """

    voted: Bools  # (n, J) who voted
    counts: Floats  # (n) how many episodes
    gold: Floats  # (n) their outcome in [0, 1], or NaN
    drawn: Bools  # (n) whether that is a reviewer's answer on a random sample
    sources: list[str]
    scopes: list[str]

    @property
    def known(self) -> Bools:
        """Which patterns have a known outcome."""
        return np.isfinite(self.gold)

    @property
    def outcomes(self) -> tuple[float, float]:
        """Known successes and failures."""
        known = self.known
        good = float((self.counts[known] * self.gold[known]).sum())
        return good, float(self.counts[known].sum()) - good

    @property
    def has_gold(self) -> bool:
        """Whether enough outcomes of both kinds are known."""
        return sum(self.outcomes) >= ENOUGH_GOLD and min(self.outcomes) >= ENOUGH_OF_EACH

    @property
    def votes_by_voter(self) -> Floats:
        """How many episodes each voter voted on (J)."""
        return np.asarray((self.voted * self.counts[:, None]).sum(axis=0), dtype=np.float64)

    @property
    def checked_by_voter(self) -> Floats:
        """The same among the episodes with a known outcome."""
        return np.asarray((self.voted * (self.counts * self.known)[:, None]).sum(axis=0), dtype=np.float64)

    def where(self, mask: Bools) -> Patterns:
        """Return some of the patterns."""
        rows = np.flatnonzero(mask)
        return Patterns(
            self.voted[rows], self.counts[rows], self.gold[rows], self.drawn[rows],
            [self.sources[i] for i in rows], [self.scopes[i] for i in rows],
        )  # fmt: skip

    def of(self, source: str | None = None, scope: str | None = None) -> Patterns:
        """Return the patterns of one source, of one scope, or of both."""
        pairs = zip(self.sources, self.scopes, strict=True)
        return self.where(np.array([source in {None, s} and scope in {None, c} for s, c in pairs], dtype=bool))


class Observed(NamedTuple):
    """What a piece of the log shows of its votes; `voters` are numbers of rows of the first frame."""

    voters: pl.DataFrame  # signal, family, sign, n
    patterns: pl.DataFrame  # source, scope, voters, gold, n
    drawn: pl.DataFrame  # an audited episode: episode_id, source, scope, voters, gold, inclusion


def observed(base: pl.DataFrame, votes: pl.DataFrame) -> Observed:
    """Return the patterns of the votes on the episodes of `base`, which has `episode_id`, `source` and `scope`."""
    clear = _clear(votes).filter(~pl.col("family").is_in(DECIDING))
    voters = clear.group_by(_VOTER).agg(n=pl.len()).sort(_VOTER)
    voted = clear.join(voters.with_row_index("voter").drop("n"), on=_VOTER)
    sampled = votes.filter((pl.col("family") == AUDIT) & pl.col("inclusion").is_not_null())
    episodes = (
        base.select("episode_id", "source", "scope")
        .join(voted.group_by("episode_id").agg(voters=pl.col("voter").unique().sort()), on="episode_id", how="left")
        .join(_gold(votes), on="episode_id", how="left")
        .with_columns(pl.col("voters").fill_null([]))
        .join(sampled.select("episode_id", "inclusion"), on="episode_id", how="left")
    )
    drawn = pl.col("inclusion").is_not_null()
    patterns = episodes.filter(~drawn).group_by("source", "scope", "voters", "gold").agg(n=pl.len())
    return Observed(voters, patterns, episodes.filter(drawn))


def voters_of(pieces: Sequence[Observed]) -> list[Voter]:
    """Return the voters, those with most votes if there are too many."""
    by = pl.concat([piece.voters for piece in pieces]).group_by(_VOTER).agg(pl.col("n").sum())
    most = by.sort("n", *_VOTER, descending=[True, False, False, False]).head(_MOST_VOTERS)
    return [Voter(*row) for row in most.sort("family", "signal", "sign").select(Voter._fields).iter_rows()]


def patterns_of(pieces: Sequence[Observed], voters: Sequence[Voter]) -> Patterns:
    """Return the patterns of the votes of all pieces."""
    names = pl.DataFrame(
        [(*voter, 1 << bit) for bit, voter in enumerate(voters)],
        schema={"signal": pl.String, "family": pl.String, "sign": pl.Int64, "bit": pl.Int64},
        orient="row",
    )
    many = pl.concat([_in_bits(piece.patterns, piece.voters, names) for piece in pieces])
    drawn = _masses(pl.concat([_in_bits(piece.drawn, piece.voters, names) for piece in pieces], rechunk=True))
    key = ["source", "scope", "bit", "gold", "drawn"]
    grouped = (
        pl.concat([table.select(*key, pl.col("n").cast(pl.Float64)) for table in (many, drawn)])
        .group_by(key)
        .agg(pl.col("n").sum())
        .sort(key, nulls_last=False)
    )
    codes = grouped["bit"].to_numpy()
    return Patterns(
        (codes[:, None] >> np.arange(len(voters), dtype=np.int64)[None, :]) & 1 == 1,
        grouped["n"].to_numpy(),
        grouped["gold"].cast(pl.Float64).fill_null(float("nan")).to_numpy(),
        grouped["drawn"].to_numpy(),
        grouped["source"].to_list(),
        grouped["scope"].to_list(),
    )


def _in_bits(rows: pl.DataFrame, own: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Return rows with their voters as bits; `own` are the voters of their piece."""
    bits = own.with_row_index("voters").join(names, on=_VOTER, how="left").select("voters", "bit")
    numbered = rows.with_row_index("row")
    voted = numbered.select("row", "voters").explode("voters").join(bits, on="voters", how="left")
    summed = voted.group_by("row").agg(pl.col("bit").sum())
    return numbered.join(summed, on="row", how="left", maintain_order="left").with_columns(
        pl.col("bit").fill_null(0), drawn=pl.lit("inclusion" in rows.columns)
    )


def _clear(votes: pl.DataFrame) -> pl.DataFrame:
    """Return the votes that are strong enough to learn from, with their sign."""
    sign = pl.when(pl.col("score") > 0).then(1).otherwise(-1).cast(pl.Int64)
    return votes.filter((pl.col("score") * pl.col("weight")).abs() >= LEAST_VOTE).with_columns(sign=sign)


def _masses(sampled: pl.DataFrame) -> pl.DataFrame:
    """Return audited episodes with how many each represents; the sum is the number of audited episodes.

    A sample with many rare patterns must not make them seem frequent. Multiples of 1/1024: such sums are exact, so the
    order of rows cannot matter.
    """
    weight = 1 / pl.col("inclusion")
    share = weight / weight.sum() * pl.len()
    return sampled.sort("episode_id").with_columns(n=((share * 1024).round() / 1024).clip(1 / 1024))


def _gold(votes: pl.DataFrame) -> pl.DataFrame:
    """Return the episodes whose outcome is known: by a reviewer, else by a verifier; rounded to two digits."""
    known = votes.filter(pl.col("family").is_in(DECIDING)).group_by("episode_id", "family")
    mean = (pl.col("score") * pl.col("weight")).sum() / pl.col("weight").sum()
    scores = known.agg(score=mean).sort("episode_id", "family")  # "audit" sorts before "verifier"
    return scores.unique("episode_id", keep="first", maintain_order=True).select(
        "episode_id", gold=((pl.col("score") + 1) / 2).round(2)
    )

"""How far a round has moved from where it began, and the end of training where that is far enough.

The distance is KL(parent ‖ policy) in nats a token, exact over the vocabulary, at fixed positions of some training rows
(`Probe`); the parent is the policy that training starts from. It predicts what a policy forgets, whatever the method
(Shenfeld et al. 2025, arXiv 2509.04259). `KlStop` measures it every few steps; past the limit training ends with the
adapter of the last measurement within it.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from typing import Any

import torch

from flywheel.config import TrainConfig
from flywheel.errors import TrainError
from flywheel.extensions import TrainSpec
from flywheel.io.files import read_rows
from flywheel.records import Method
from flywheel.stages.train.process.distributed import world
from flywheel.stages.train.sharing.packed import Scorer
from flywheel.stages.train.sharing.tree import Row

COLUMN = "kl_parent"  # in metrics.jsonl, at the steps where it was measured
_ROWS, _POSITIONS = 6, 40  # of the probe, and of each of its rows: 50 MB for 49 thousand tokens of vocabulary
_MEASUREMENTS = 6  # of a short round; a long one has one at every checkpoint


class Probe:
    """Positions of some training rows, and the parent's distributions there.

    Args:
        scorer: the model, as it is before the first step.
        rows: a round's rows; some of the shorter half are used, at a seeded choice of their trained positions.
        seed: of the choice.
        temperatures: of sampling, one a row; none: 1.
    """

    def __init__(self, scorer: Scorer, rows: Sequence[Row], seed: int, temperatures: Sequence[float] = ()) -> None:
        chance = random.Random(seed)  # noqa: S311 - reproducible
        trained = sorted((i for i, row in enumerate(rows) if row.trained), key=lambda i: (len(rows[i].ids), i))
        shorter = trained[: max(_ROWS, len(trained) // 2)]
        self._rows: dict[float, list[Row]] = {}  # by temperature: a pass each
        for i in sorted(chance.sample(shorter, min(_ROWS, len(shorter)))):
            self._rows.setdefault(temperatures[i] if temperatures else 1.0, []).append(_some(rows[i], chance))
        self._scorer = scorer
        self._parent = self._distributions()

    def kl(self) -> float:
        """Return the mean KL divergence from the parent to the current policy, in nats a token."""
        policy = self._distributions()
        apart = zip(self._parent, policy, strict=True)
        mean = torch.cat([(before.exp() * (before - now)).sum(-1) for before, now in apart]).mean()
        if world() > 1:
            torch.distributed.broadcast(mean, 0)  # rounding must not let processes decide differently
        return max(0.0, float(mean))

    def _distributions(self) -> list[torch.Tensor]:
        """Return the log-probabilities of the vocabulary at the rows' positions, (positions, vocabulary) a pass."""
        model = self._scorer.model
        training = model.training
        model.eval()
        found = []
        with torch.no_grad():
            for temperature, rows in self._rows.items():
                with self._scorer.at(temperature):
                    found.append(self._scorer.distributions(rows))
        model.train(training)
        return found


def _some(row: Row, chance: random.Random) -> Row:
    """Return a row of which some of the trained tokens are windows of their own, without what follows them."""
    places = sorted(chance.sample(row.trained, min(_POSITIONS, len(row.trained))))
    return Row(row.ids[: places[-1] + 1], tuple((p, p + 1) for p in places))


def slower(cfg: TrainConfig, method: Method) -> str:
    """Return the advice to lower a method's rate, with the rate that it has."""
    return f"set train.{cfg.rate_key(method)} below {cfg.learning_rate(method):.2g}"


class KlStop:
    """Ends training where the policy is further from its parent than `train.max_kl`; keeps the adapter before that.

    What it decides depends on the steps alone, and every checkpoint is measured before it is written, so that a round
    that was killed ends as one that was not.

    Args:
        spec: the round.
        probe: measured against.
    """

    def __init__(self, spec: TrainSpec, probe: Probe) -> None:
        self._train, self._method = spec.config.train, spec.method
        self._metrics = spec.work_dir / "metrics.jsonl"
        self._probe = probe
        self._kept: tuple[int, list[torch.Tensor]] = (0, [])
        self._measured: dict[str, float] = {}
        self.seconds = 0.0  # spent on measuring

    @property
    def limit(self) -> float:
        """Nats a token."""
        return self._train.kl_limit(self._method)

    def begin(self, model: Any, state: Any) -> None:
        """Keep the adapter that training goes on from, and place checkpoints at steps that are measured."""
        self._keep(model, int(state.global_step))
        checkpoint = self._train.checkpoint_every
        self._every = min(math.ceil(state.max_steps / _MEASUREMENTS), checkpoint)
        state.save_steps = checkpoint // self._every * self._every

    def after(self, model: Any, state: Any, control: Any) -> None:
        """Measure after a step where that is due, and end training past the limit with the adapter before.

        Raises:
            TrainError: the first measurement is past the limit, so that there is no adapter within it.
        """
        step = int(state.global_step)
        if step % self._every and step < state.max_steps:
            return
        started = time.monotonic()
        kl = round(self._probe.kl(), 6)
        self.seconds += time.monotonic() - started
        self._measured = {COLUMN: kl}
        if kl <= self.limit:
            self._keep(model, step)
            return
        kept, weights = self._kept
        if kept == 0:
            raise TrainError(
                f"step {step}: the policy is {kl:.3g} nats a token from its parent already, the limit is "
                f"{self.limit:g}",
                hint=f"{slower(self._train, self._method)} or raise train.max_kl",
            )
        with torch.no_grad():
            for parameter, before in zip(_trained(model), weights, strict=True):
                parameter.copy_(before)
        control.should_training_stop, control.should_save = True, False

    def _keep(self, model: Any, step: int) -> None:
        self._kept = step, [p.detach().clone() for p in _trained(model)]

    def news(self) -> dict[str, float]:
        """Return what was measured since the last call, for the metrics of this step."""
        news, self._measured = self._measured, {}
        return news

    def curve(self) -> list[tuple[int, float]]:
        """Return each measured step with its KL, those before a restart included."""
        rows = read_rows(self._metrics, optional=True)
        return [(int(row["step"]), float(row[COLUMN])) for row in rows if COLUMN in row]


def _trained(model: Any) -> list[torch.nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]

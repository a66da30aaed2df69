"""What SFT, DPO, KTO and offline GRPO share: items of rows in batches, metrics of a step, and when to stop.

An item is what one loss term needs: the two rows of a pair, the attempts of a group. `prepare_items` scores them once
under the reference. `Logged` is mixed into a trainer of transformers (or TRL): its dataset is positions of items, and
the method computes the loss from their rows' log-probabilities. Each pass has its own order (`Order`), with items of
one state next to one another, so that a batch shares what they have in common.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from flywheel.errors import TrainError
from flywheel.extensions import TrainSpec
from flywheel.io.files import hash_file, read_rows
from flywheel.models.load import base_identity, weights_type
from flywheel.stages.train.process.distributed import world
from flywheel.stages.train.reference import LogProbs, ReferenceCache, neighbours, score_once
from flywheel.stages.train.sharing.decide import Sharing, decide
from flywheel.stages.train.sharing.packed import Scorer
from flywheel.stages.train.sharing.tree import Row, grow, padded, pays

PASS_TOKENS = 8192  # of a pass without gradients
_WINDOW = 4  # steps over which a limit must be passed before a round is stopped


@dataclass(frozen=True)
class Items:
    """What is trained: rows that belong together, their reference, and how they are computed."""

    rows: list[list[Row]]
    reference: list[list[torch.Tensor]]
    scorer: Scorer
    sharing: Sharing
    computed: int = 0  # rows whose reference was not kept from before
    units: Sequence[Sequence[int]] = ()  # rows, counted through all items, whose reference was scored together
    temperatures: Sequence[Sequence[float]] = ()  # of sampling, for each row of each item; none: 1

    @property
    def longest(self) -> int:
        """Tokens of the costliest item."""
        return max(cost(item, shared=self.sharing.on) for item in self.rows)

    @property
    def tokens(self) -> int:
        """Tokens that one pass over the items computes."""
        return sum(cost(item, shared=self.sharing.on) for item in self.rows)

    def scores(self, chosen: Sequence[int]) -> list[list[torch.Tensor]]:
        """Return the log-probabilities of some items' rows under the current model, each at its temperature."""
        rows = [row for i in chosen for row in self.rows[i]]
        at = [t for i in chosen for t in self.temperatures[i]] if self.temperatures else [1.0] * len(rows)
        flat = iter(self.scorer.at_each(rows, at))
        return [[next(flat) for _ in self.rows[i]] for i in chosen]

    def again(self, place: int) -> list[torch.Tensor]:
        """Return the log-probabilities of one item's rows under the current model, computed as the reference was.

        In the same units, so that equal policies give equal numbers whatever the weights' type rounds.
        """
        flat = [row for item in self.rows for row in item]
        first = sum(len(item) for item in self.rows[:place])
        wanted = range(first, first + len(self.rows[place]))
        units = [unit for unit in self.units if not set(wanted).isdisjoint(unit)]
        scores = {i: s for unit in units for i, s in zip(unit, self.scorer([flat[i] for i in unit]), strict=True)}
        return [scores[i] for i in wanted]

    def numbers(self) -> dict[str, float]:
        """Return what the manifest records: how rows were shared and the share of tokens that are trained."""
        trained = sum(len(row.trained) for item in self.rows for row in item)
        return {
            **self.sharing.checks(),
            **({"reference_computed": float(self.computed)} if self.reference else {}),
            "useful_tokens": round(trained / max(1, self.tokens), 4),
        }


def cost(rows: Sequence[Row], *, shared: bool) -> int:
    """Return the tokens that a pass over rows computes, padding included; `shared` where trees are used that pay."""
    tree = grow(rows) if shared else None
    return len(tree.ids) if tree is not None and pays(tree, rows) else padded(rows)


class Order:
    """The order of items in each pass: runs of neighbours shuffled by the seed and the number of the pass.

    Attributes:
        epoch: which pass follows, asked for when it begins. accelerate would set it, but reaches no sampler behind both
            a share for each process and the batches that a resumed pass skips.
    """

    def __init__(self, rows: Sequence[Sequence[Row]], most: int, seed: int) -> None:
        self._runs = list(neighbours(rows, most))
        self._seed = seed
        self.epoch: Callable[[], int] = lambda: 0

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def __iter__(self) -> Iterator[int]:
        chance = torch.Generator().manual_seed(self._seed * 1_000_003 + self.epoch())
        for run in torch.randperm(len(self._runs), generator=chance).tolist():
            yield from self._runs[run]


def reference_scores(scorer: Scorer, spec: TrainSpec, rows: Sequence[Row], temperature: float = 1.0) -> LogProbs:
    """Return the log-probabilities of rows under the reference that the round names, kept between rounds."""
    import transformers

    base_only = spec.reference == "base" or spec.start_adapter is None
    adapter = spec.start_adapter
    weights = "" if base_only or adapter is None else hash_file(adapter / "adapter_model.safetensors")
    identity = (
        base_identity(spec.config.model).sha256, weights, weights_type(spec.config.model),
        scorer.sharing and scorer.kernel,
        torch.get_num_threads(),
        str(next(scorer.model.parameters()).device), torch.__version__, transformers.__version__,
        *(() if temperature == 1 else (f"temperature {temperature}",)),
    )  # fmt: skip
    cache = ReferenceCache(spec.cache_dir / "reference" if spec.cache_dir else None, identity)
    scorer.model.eval()
    with scorer.model.disable_adapter() if base_only else contextlib.nullcontext(), scorer.at(temperature):
        scores = score_once(scorer, rows, cache, PASS_TOKENS)
    scorer.model.train()
    return scores


def prepare_items(
    spec: TrainSpec,
    model: Any,
    rows: list[list[Row]],
    *,
    together: Sequence[Sequence[Row]] = (),
    reference: bool = True,
    temperatures: Sequence[Sequence[float]] = (),
) -> Items:
    """Decide whether rows share, and score them once under the reference, before anything is trained.

    Rows share with those of their item, or as `together` has them.
    Where rows have sampling temperatures, both the policy and the reference are the model at these.
    """
    scorer = Scorer(model.train())
    sharing = decide(scorer, together or rows, dropout=spec.config.train.lora.dropout)
    scorer.sharing = sharing.on
    print(f"shared beginnings: {'computed once' if sharing.on else 'computed for every row'}; {sharing.reason}")  # noqa: T201 - train.log
    if not reference:
        return Items(rows, [], scorer, sharing)
    every = [row for item in rows for row in item]
    at = [t for item in temperatures for t in item] if temperatures else [1.0] * len(every)
    found, computed, units = dict[int, torch.Tensor](), 0, list[list[int]]()
    for temperature in sorted(set(at)):
        places = [i for i, own in enumerate(at) if own == temperature]
        scores = reference_scores(scorer, spec, [every[i] for i in places], temperature)
        found |= zip(places, scores.rows, strict=True)
        computed += scores.computed
        units += [[places[i] for i in unit] for unit in scores.units]
    flat = (found[i] for i in range(len(every)))
    return Items(rows, [[next(flat) for _ in item] for item in rows], scorer, sharing, computed, units, temperatures)


class Limits:
    """Stops a round when a metric's mean over a few steps passes its limit.

    Args:
        limits: by the metric's name, its limit and advice for the error.
        metrics: the round's metrics.jsonl. Steps before a restart count: a round that was stopped is stopped again.
    """

    def __init__(self, limits: Mapping[str, tuple[float, str]], metrics: Path) -> None:
        self._limits = limits
        self._past: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_WINDOW))
        for row in read_rows(metrics, optional=True):
            for name in limits.keys() & row.keys():
                self._past[name].append(row[name])

    def check(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Add a step's metrics.

        Raises:
            TrainError: a limit is passed; names the step, the metric and what to change.
        """
        for name, (limit, advice) in self._limits.items():
            if (value := metrics.get(name)) is None:
                continue
            past = self._past[name]
            past.append(value)
            mean = math.fsum(past) / len(past)
            if len(past) == _WINDOW and mean > limit:
                raise TrainError(
                    f"step {step}: {name} was {mean:.3f} over {_WINDOW} steps, its limit is {limit:g}",
                    hint=f"{advice}; the last good checkpoint is kept",
                )


class Logged:
    """Mixed into a transformers trainer; each method has its own `item_loss`.

    Attributes:
        items: what is trained.
    """

    items: Items

    def setup(self, spec: TrainSpec, items: Items, limits: dict[str, tuple[float, str]], order: Order) -> None:
        """Set what a trainer's own constructor does not take; call it before `train`."""
        self.items, self._limits, self._order = items, Limits(limits, spec.work_dir / "metrics.jsonl"), order
        self._seen: dict[str, list[float]] = defaultdict(list)

    def item_loss(self, chosen: list[int], scores: list[list[torch.Tensor]]) -> torch.Tensor:
        """Return the mean loss of items from the log-probabilities of their rows."""
        raise NotImplementedError

    def note(self, **numbers: float) -> None:
        """Add to this step's metrics; a step's passes are averaged."""
        for name, value in numbers.items():
            self._seen[name.replace("__", "/")].append(float(value))

    def compute_loss(self, model: Any, inputs: dict[str, Any], *_: Any, **__: Any) -> torch.Tensor:  # noqa: ARG002
        """Score the rows of a batch's items, together where they share, and return the method's loss."""
        chosen: list[int] = inputs["item"].tolist()
        with self.accelerator.autocast():  # type: ignore[attr-defined]
            scores = self.items.scores(chosen)
        loss = self.item_loss(chosen, scores)
        if not bool(loss.isfinite()):
            raise TrainError(
                f"step {self.state.global_step + 1}: the loss is {float(loss.detach())}, not a number",  # type: ignore[attr-defined]
                hint="lower the learning rate; the last good checkpoint is kept",
            )
        return loss

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Take a pass; after a step's last one the processes that share the step agree on its gradient.

        The rows are scored by the model itself, past DDP's wrapper, whose own averaging therefore never begins.
        """
        loss: torch.Tensor = super().training_step(*args, **kwargs)  # type: ignore[misc]
        if world() > 1 and self.accelerator.sync_gradients:  # type: ignore[attr-defined]
            _average([p for p in self.items.scorer.model.parameters() if p.grad is not None])
        return loss

    def _get_train_sampler(self, *_: Any, **__: Any) -> Order:
        self._order.epoch = lambda: int(self.state.epoch or 0)  # type: ignore[attr-defined]
        return self._order

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add the step's metrics, and stop where a limit is passed."""
        seen = _gathered(self._seen)
        logs |= {name: math.fsum(values) / len(values) for name, values in sorted(seen.items())}
        self._seen.clear()
        super().log(logs, *args, **kwargs)  # type: ignore[misc]
        step = int(self.state.global_step)  # type: ignore[attr-defined]
        if not math.isfinite(logs.get("grad_norm", 0.0)):
            raise TrainError(f"step {step}: the gradient is not a number", hint="lower the learning rate")
        self._limits.check(step, logs)


def _average(trained: Sequence[torch.nn.Parameter]) -> None:
    """Replace each gradient by its mean over the processes."""
    import torch.distributed as dist

    for parameter in trained:
        dist.all_reduce(parameter.grad)
        if parameter.grad is not None:
            parameter.grad /= world()


def _gathered(seen: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return a step's metrics from all processes, so that all of them check the same numbers."""
    import torch.distributed as dist

    if world() == 1:
        return dict(seen)
    parts: list[dict[str, list[float]]] = [{} for _ in range(world())]
    dist.all_gather_object(parts, dict(seen))
    return {name: [v for part in parts for v in part.get(name, [])] for name in sorted({n for p in parts for n in p})}


def collate(rows: Sequence[dict[str, int]]) -> dict[str, Any]:
    """Return the positions of a batch's items."""
    return {"item": torch.tensor([row["item"] for row in rows])}

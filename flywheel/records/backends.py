"""Where a round can be trained, in one table that everything reads: planning, the worker, `doctor`, the docs.

TRL trains in our own environment and has no row. Another system trains in an interpreter of its own, as a process that
gets files and leaves a LoRA adapter. What it has no place for is refused where it was asked for, and listed in the plan
where it is a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flywheel.records.methods import ACTIONS, EXAMPLES, PAIRS, SUCCESSES

TRL = "trl"
_FORMS = {PAIRS: PAIRS.exported, ACTIONS: ACTIONS.exported, EXAMPLES: EXAMPLES.exported, SUCCESSES: EXAMPLES.exported}
FORM_OF = {dataset.name: form for dataset, form in _FORMS.items()}  # of a dataset's rows, as `flywheel export` has them

# Settings of [train] that only TRL's trainers in our own environment follow, with values other than the default that
# ask for nothing.
NOT_FOLLOWED: Mapping[str, tuple[object, ...]] = {
    "trainer": (),
    "trl": (),
    "accelerate": (),
    "report_to": (),
    "max_chosen_drop": (),
    "thoughts": (),
    "dpo_demonstrations": (0.0,),
    "dpo_sft_weight": (0.0,),
    "dpo_verified_sft_weight": (0.0,),
}
# What rows have, by form: the field, and how it is called where it is lost.
_OF_ROWS = {
    "preference": {"weight": "weights", "p_better": "soft labels", "nll_weight": "the likelihood of chosen actions"},
    "unpaired": {"weight": "weights"},
    "sft": {"weight": "weights"},
}


@dataclass(frozen=True)
class Backend:
    """A system that trains rounds in a process of its own.

    Attributes:
        title: how messages name it.
        package: the distribution whose version is recorded; "" where the user's own command trains.
        shown: the version that it was tested with.
        forms: of rows that it trains on.
        target: whose files it reads (`flywheel export --to`); "": the tokens alone.
        least: rows of a step, by form, where it needs more than one.
        shuffles: forms whose rows its loader shuffles by the seed, whatever its settings.
        runs_code: whether it runs code that a base model's folder brings, with no switch against it.
        by_batch: whether the loss of a step is the mean of its batches' means, whatever their sizes.
        lost: fields of rows that it has no place for, by form: the field, and what it means.
        refused: why no round is trained in it.
    """

    title: str
    package: str = ""
    shown: str = ""
    forms: tuple[str, ...] = ()
    target: str = ""
    least: Mapping[str, int] = field(default_factory=dict)
    shuffles: tuple[str, ...] = ()
    runs_code: bool = False
    by_batch: bool = False
    lost: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    refused: str = ""


def _needs_gpu(title: str, target: str) -> Backend:
    return Backend(title, refused=f"it needs a GPU; `flywheel export --to {target}` writes its files and launch files")


OWN = Backend("a command of your own", forms=("preference", "unpaired", "sft"))
BACKENDS: dict[str, Backend] = {
    "swift": Backend(
        "ms-swift",
        package="ms-swift",
        shown="4.6.0",
        forms=("preference", "unpaired", "sft"),
        target="swift",
        least={"unpaired": 2},  # its KL is estimated on other rows' actions
        shuffles=("unpaired",),
        runs_code=True,
        by_batch=True,
        lost=_OF_ROWS,
    ),
    "verl": _needs_gpu("veRL", "verl"),
    "openrlhf": _needs_gpu("OpenRLHF", "openrlhf"),
    "skyrl": _needs_gpu("SkyRL", "skyrl"),
    "areal": _needs_gpu("AReaL", "areal"),
    "art": _needs_gpu("ART", "art"),
}

"""The common currency of trainers: one row of tokens, what of it is trained, and what is known of it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from flywheel.records.base import Document


class TokenRow(Document):
    """One sequence as a trainer reads it, rendered by the base model's own template; a line of `tokens.jsonl`.

    An attempt is one row where its steps continue one another, else several.
    """

    document: ClassVar[str] = "token_row"

    id: str = Field(description="The mined row, the side of it, and the part of that side where it falls into several.")
    form: str = Field(description="preference, unpaired, sft or groups.")
    row: str = Field(description="Id of the pair, the example or the group.")
    side: str = Field(description="chosen, rejected, completion, or the member's number in its group from 0.")
    part: int = Field(ge=0, description="Which of the side's rows, from 0.")
    task_id: str
    episode: str = Field(description="The attempt it comes from: the way back to the log.")
    policy: str | None = Field(description="What acted; null where the log does not say.")
    prompt_ids: list[int] = Field(description="Tokens before the first action.")
    completion_ids: list[int] = Field(description="All tokens from the first action on, results between actions too.")
    windows: list[tuple[int, int]] = Field(
        description="[start, end) in completion_ids of each action; nothing else is trained."
    )
    log_probs: list[float] | None = Field(
        default=None, description="Of each trained token under the policy that acted; null where not logged."
    )
    temperature: float | None = Field(default=None, description="At which the tokens were sampled, where known.")
    reward: float | None = Field(default=None, description="Return of the attempt (groups).")
    advantage: float | None = Field(default=None, description="The attempt's within its group (groups).")
    step_advantages: list[float] | None = Field(
        default=None, description="One a window: the training signal of that step (groups)."
    )
    label: bool | None = Field(default=None, description="Whether the action is desirable (unpaired).")
    margin: float | None = Field(default=None, description="Return of chosen minus return of rejected (preference).")
    weight: float = Field(default=1.0, ge=0, description="Training weight of the mined row.")

    @property
    def ids(self) -> list[int]:
        """All tokens."""
        return self.prompt_ids + self.completion_ids

    @property
    def mask(self) -> list[int]:
        """One number a token of the completion: 1 where it is trained."""
        mask = [0] * len(self.completion_ids)
        for start, end in self.windows:
            mask[start:end] = [1] * (end - start)
        return mask

    def spread(self, by_trained: list[float], rest: float = 0.0) -> list[float]:
        """Return one number a token of the completion from one a trained token; `rest` for the others."""
        values = iter(by_trained)
        return [next(values) if trained else rest for trained in self.mask]

"""One attempt in the replay environment by tokens: what a sampler writes goes in, what it reads next comes out.

In: a scenario (a line of `scenarios.jsonl` in an export, or of a round's dataset) and a tokenizer. Out: ids, mask,
log-probabilities and a reward, as every trainer's rollout has them. Exports carry this module, so that a trainer which
samples itself meets the recorded results without flywheel installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.config import ReplayConfig
from flywheel.errors import PrefixError
from flywheel.models.chat import ChatFormat
from flywheel.replay.environment import Outcome, ReplayEnvironment
from flywheel.replay.scenario import read_scenario

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEMPLATE = "chat_template.jinja"  # in an export: of production, where it is not the model's own
_ASK = [{"role": "user", "content": "x"}]


class Attempt:
    """One attempt, whoever samples it.

    Attributes:
        prompt_ids: tokens before the first action.
        completion_ids: what was sampled so far, and the tokens of the recorded results between.
        mask: 1 where a token was sampled; nothing else is to be trained.
        log_probs: of sampled tokens as the sampler gave them, 0 elsewhere.
    """

    def __init__(self, row: Mapping[str, Any], chat: ChatFormat, limits: ReplayConfig, most: int) -> None:
        self._environment = ReplayEnvironment(read_scenario(row), limits)
        self._chat, self._tools, self._most = chat, row["tools"], most
        self.prompt_ids = chat.ids(chat.prompt(row["prompt"], row["tools"]))
        self.completion_ids: list[int] = []
        self.mask: list[int] = []
        self.log_probs: list[float] = []

    @property
    def ids(self) -> list[int]:
        """Everything that the sampler reads before its next action."""
        return self.prompt_ids + self.completion_ids

    @property
    def room(self) -> int:
        """Tokens that the attempt may still have."""
        return self._most - len(self.completion_ids)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._environment.over

    @property
    def outcome(self) -> Outcome | None:
        """Its reward, and why it ended; None while it goes on."""
        return self._environment.outcome

    @property
    def reward(self) -> float | None:
        """Mean return of the recorded attempts that ended like this; None where the log knows none: it is no 0."""
        return self.outcome.reward if self.outcome is not None else None

    def take(self, ids: Sequence[int], log_probs: Sequence[float] | None = None) -> None:
        """Take what was sampled, up to and with the end of the turn; add the results of its calls."""
        self._add(ids, trained=1, log_probs=log_probs)
        text, end, _ = str(self._chat.tokenizer.decode(list(ids))).partition(str(self._chat.tokenizer.eos_token))
        if not end or self.room < 0:
            self._environment.stop("over budget")
            return
        action, *results = self._environment.take(self._chat.parse(text, self._tools).message)
        if not self.over and action.get("tool_calls"):
            self._add(result_ids(self._chat, results), trained=0)
            if self.room <= 0:
                self._environment.stop("over budget")

    def _add(self, ids: Sequence[int], *, trained: int, log_probs: Sequence[float] | None = None) -> None:
        self.completion_ids += ids
        self.mask += [trained] * len(ids)
        self.log_probs += log_probs if log_probs is not None else [0.0] * len(ids)


class Recorded:
    """The scenarios of a file, to be attempted any number of times.

    Args:
        path: `scenarios.jsonl` of an export.
        tokenizer: of the model that is trained; it takes what ends a turn from the file, and the chat template that
            lies next to it, if one does.
        most: tokens of one attempt, results included.
    """

    def __init__(self, path: Path | str, tokenizer: PreTrainedTokenizerBase, most: int = 512) -> None:
        with Path(path).open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        self._rows = {str(row["id"]): row for row in rows}
        if rows:
            tokenizer.eos_token = rows[0]["end"]
        template = Path(path).with_name(TEMPLATE)
        if template.is_file():
            tokenizer.chat_template = template.read_text(encoding="utf-8")
        self._chat, self._most = ChatFormat(tokenizer), most

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def begin(self, name: str) -> Attempt:
        """Begin an attempt at the scenario of that id."""
        row = self._rows[name]
        limits = row["limits"]
        return Attempt(row, self._chat, ReplayConfig(**limits), self._most)


def result_ids(chat: ChatFormat, results: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the tokens that come after an action's end: its results, and the beginning of the next action.

    Args:
        chat: how the base model reads and writes.
        results: messages of the role `tool`, in the order of the calls.

    Raises:
        TemplateError: the template raises, or renders the action differently when results follow.
    """
    calls = [{"id": f"call{i:05d}", "name": m["name"], "arguments": {}} for i, m in enumerate(results)]
    action = {"role": "assistant", "content": "", "tool_calls": calls}
    answered = [{**m, "tool_call_id": call["id"]} for m, call in zip(results, calls, strict=True)]
    before = chat.prompt(_ASK, None) + chat.completion(_ASK, None, action)
    text = chat.prompt([*_ASK, action, *answered], None)
    if not text.startswith(before):
        raise PrefixError(
            "the chat template is not prefix-preserving: an action renders differently when its result follows",
            hint="use a chat template that does not rewrite earlier turns, or train.method = 'grpo' on logged groups",
        )
    return chat.ids(text[len(before) :])

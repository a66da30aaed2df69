"""What a target is, what it is made of, and the formats that targets share.

In: mined rows by form, with their messages and their tokens. Out: the files of one system. A target is a thin map from
either; templates of launch files and scripts lie in `scripts/`, in a folder a target.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from flywheel.models.chat import ChatFormat
from flywheel.models.token_rows import prompts_of
from flywheel.records import canonical_json
from flywheel.records.token_rows import TokenRow
from flywheel.stages.datasets.export import FORMS, native
from flywheel.stages.train.backends.swift import family

_SCRIPTS = Path(__file__).parent / "scripts"
_WITH_SCENARIOS = "# with scenarios\n"  # of a launch file: what follows needs them
ENVIRONMENT = "environment.py"  # the script with which a system samples attempts in the replay environment

Row = dict[str, Any]

PINNED = "base"  # in the exported folder: a hub's model in the configured revision


class Lost(NamedTuple):
    """Something that a system has no place for."""

    field: str
    forms: tuple[str, ...]  # of the rows that have it
    why: str
    partly: bool = False  # lost only where some of the groups' rows have none


OWN_ADVANTAGE = Lost("advantage", ("groups",), "it computes its own from the rewards")
ONE_TEMPERATURE = Lost("temperature", ("groups",), "it scores all attempts at the one temperature of its settings")
UNKNOWN_ACTOR = Lost(
    "log_probs", ("groups",), "other attempts have none, so all count as on-policy in the launch file", partly=True
)
LONGEST_PART = Lost("part", ("groups",), "a rollout is one sequence; of an attempt in several, the longest is replayed")
SMALLER_GROUPS = "Where a group has fewer attempts than the largest, its first ones are played back again."


class DataFile(NamedTuple):
    """One file of an export."""

    path: str
    form: str
    rows: int | None  # None of a file that describes others
    content: bytes


@dataclass(frozen=True)
class Mined:
    """What is exported: rows by form, their tokens, and the model whose tokens they are.

    Attributes:
        rows: mined rows by form.
        tokens: their token rows.
        chat: how the model reads and writes.
        model: its name, as configured.
        weights: what to load it by in the exported folder.
        name: of the project.
        base: its folder, unless a hub has it.
        revision: of a hub's model, if one is pinned; it is downloaded first, because few systems know revisions.
        template: the chat template that was configured, with its arguments; '' where it is the model's own.
        scenarios: where a policy's own attempts begin, with the recorded results that answer their calls.
    """

    rows: Mapping[str, list[Row]]
    tokens: Mapping[str, list[TokenRow]]
    chat: ChatFormat
    model: str
    weights: str
    name: str
    revision: str = ""
    base: Path | None = None
    template: str = ""
    scenarios: Sequence[Row] = ()

    @property
    def fetch(self) -> str:
        """The command that downloads a pinned base into the exported folder."""
        return shlex.join(["hf", "download", self.model, "--revision", self.revision, "--local-dir", PINNED])

    @property
    def corrected(self) -> bool:
        """Whether all groups have log-probabilities: without them no system can correct for who acted."""
        return all(row.log_probs is not None for row in self.tokens.get("groups", ()))

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest row, at least 2: no launch file allows fewer, so nothing is cut."""
        return max((len(row.ids) for rows in self.tokens.values() for row in rows), default=2)

    def of(self, form: str) -> Iterator[tuple[Row, list[TokenRow]]]:
        """Yield each mined row of a form that has tokens, with them."""
        by_row: dict[str, list[TokenRow]] = {}
        for row in self.tokens.get(form, ()):
            by_row.setdefault(row.row, []).append(row)
        for mined in self.rows.get(form, ()):
            if mined["id"] in by_row:
                yield mined, by_row[mined["id"]]

    def attempts(self) -> Iterator[tuple[Row, list[list[TokenRow]]]]:
        """Yield each group with the token rows of each of its members, in their order."""
        for row, parts in self.of("groups"):
            yield row, [[p for p in parts if p.side == str(n)] for n in range(len(row["completions"]))]

    def prompt_text(self, row: Row) -> str:
        """Return the rendered text before the action, tools included."""
        return self.chat.prompt(row["prompt"], row["tools"])

    def completed_prompt(self, row: Row) -> str:
        """Return the rendered text before the action, for systems that tokenize it with special tokens."""
        return self.completed(self.prompt_text(row))

    def completed(self, text: str) -> str:
        """Return a rendered text without the tokens that the tokenizer itself begins a text with: else it has two."""
        alone, with_special = self.chat.ids("a"), self.chat.tokenizer("a")["input_ids"]
        beginning = with_special[: with_special.index(alone[0])]
        return text.removeprefix(str(self.chat.tokenizer.decode(beginning)) if beginning else "")

    def action_text(self, row: Row, side: str) -> str:
        """Return the rendered text of an action, ending with the end of its turn."""
        return self.chat.completion(row["prompt"], row["tools"], row[side][0])

    def text_messages(self, row: Row) -> list[dict[str, str]]:
        """Return the prompt as messages of text alone, for systems that know neither tools nor calls."""
        return self.chat.text_messages(row["prompt"], row["tools"])

    def values(self) -> dict[str, Any]:
        """Return what templates of launch files name."""
        every = [row for rows in self.tokens.values() for row in rows]
        groups = self.rows.get("groups", ())
        told = family(self.base) if self.base else {}
        prompts = max((len(row.prompt_ids) for row in every), default=1)
        completions = max((len(row.completion_ids) for row in every), default=1)
        return {
            "model": self.weights,
            "model_quoted": shlex.quote(self.weights),
            "swift_family": "".join(f"{name}: {value}\n" for name, value in told.items()),
            "longest": self.longest,
            "longest_mixed": prompts + completions,
            "longest_and_two": self.longest + 2,
            "longest_twice": 2 * self.longest,
            "longest_prompt": prompts,
            "longest_completion": completions,
            "members": max((len(row["completions"]) for row in groups), default=1),
            "groups": len(groups),
            "correction": "token" if self.corrected else "null",
            "correction_or_off": "token" if self.corrected else "off",
            **{f"batch_{form}": max(1, min(8, len(self.rows.get(form, ())))) for form in FORMS},
        }


@dataclass(frozen=True)
class Target:
    """One system.

    Attributes:
        name: as in `--to`.
        title: of the system, with the version that this was written for.
        forms: what of the mined rows it takes.
        data: makes its files of rows.
        command: what to run in the folder: a form of rows and the line that trains on them; `$$` is a dollar.
        environment: whether it gets the replay environment, to sample attempts in it itself.
        trains: what the rows are for, where it is not what their form is made for.
        lost: what it has no place for.
        notes: what its user must know.
        tokens: whether it reads tokens or texts of the base model.
    """

    name: str
    title: str
    forms: tuple[str, ...]
    data: Callable[[Mined], Iterator[DataFile]]
    command: tuple[tuple[str, str], ...]
    lost: tuple[Lost, ...] = ()
    notes: tuple[str, ...] = field(default=())
    tokens: bool = True
    environment: bool = False
    trains: str = ""

    def commands(self, mined: Mined) -> list[str]:
        """Return what to run in the folder, for the forms that have rows."""
        values = mined.values()
        lines = [Template(line).substitute(values) for form, line in self.command if mined.rows.get(form)]
        return [mined.fetch, *lines] if mined.revision and lines else lines

    def launch_files(self, mined: Mined) -> Iterator[tuple[str, str]]:
        """Yield its launch files and scripts with the values of this export; `$$` is a dollar."""
        folder = _SCRIPTS / self.name.replace("-", "_")
        values = mined.values()
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            if path.is_file() and (mined.scenarios or path.name != ENVIRONMENT):
                text = path.read_text(encoding="utf-8")
                text = text if path.suffix == ".py" else Template(text).substitute(values)
                yield path.name, text if mined.scenarios else text.partition(_WITH_SCENARIOS)[0]


def json_lines(path: str, form: str, rows: Sequence[Mapping[str, Any]]) -> DataFile:
    """Return rows as a JSON Lines file."""
    text = "".join(canonical_json(row) + "\n" for row in rows)
    return DataFile(path, form, len(rows), text.encode("utf-8", "surrogatepass"))


def parquet(path: str, form: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None = None) -> DataFile:
    """Return rows as a Parquet file; what has not the same fields in every row goes in as JSON text."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), sink, compression="zstd")
    return DataFile(path, form, len(rows), sink.getvalue())


def openai_messages(messages: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return messages as OpenAI's API has them: arguments are a JSON text."""
    return [
        {**message, "tool_calls": [_as_text(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in native(messages)
    ]


def openai_tools(tools: Sequence[Row]) -> list[Row]:
    """Return tool schemas as OpenAI's API has them."""
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools]


def _as_text(call: Mapping[str, Any]) -> Row:
    function = call["function"]
    return {**call, "function": {**function, "arguments": canonical_json(function["arguments"])}}


def rollout(row: TokenRow) -> Row:
    """Return what a replay gives a trainer for one attempt: one number a token of the completion."""
    steps = [0.0] * len(row.completion_ids)
    for (_, end), advantage in zip(row.windows, row.step_advantages or [], strict=False):
        steps[end - 1] = advantage  # a step's credit at its last token
    return {
        "episode": row.episode,
        "policy": row.policy,
        "prompt_ids": row.prompt_ids,
        "completion_ids": row.completion_ids,
        "mask": row.mask,
        "log_probs": None if row.log_probs is None else row.spread(row.log_probs),
        "reward": row.reward,
        "advantage": row.advantage,
        "step_advantages": steps if row.step_advantages is not None else None,
    }


def longest_parts(members: Sequence[Sequence[TokenRow]]) -> list[Row]:
    """Return each member as one rollout: of an attempt that the template renders in several, the longest."""
    return [rollout(max(parts, key=lambda part: len(part.ids))) for parts in members if parts]


def calls(row: Row, member: int, parts: Sequence[TokenRow]) -> Iterator[tuple[list[Row], Row, TokenRow, slice]]:
    """Yield each model call of an attempt: the messages before, the answer, and where its tokens are.

    The slice is the action's place in all tokens of the row; what is before it is the call's prompt.
    """
    windows = [(part, window) for part in parts for window in part.windows]
    before = list(prompts_of(row)[member])
    for message in row["completions"][member]:
        if message["role"] == "assistant":
            part, (start, end) = windows.pop(0)
            offset = len(part.prompt_ids)
            yield list(before), message, part, slice(offset + start, offset + end)
        before.append(message)


def call_log_probs(part: TokenRow, action: slice) -> list[float] | None:
    """Return the logged log-probabilities of one call's tokens."""
    if part.log_probs is None:
        return None
    offset = len(part.prompt_ids)
    return part.spread(part.log_probs)[action.start - offset : action.stop - offset]


def chat_exchange(mined: Mined, row: Row, member: int, parts: Sequence[TokenRow]) -> Iterator[tuple[Row, Row]]:
    """Yield request and response of each call of an attempt, as OpenAI's API has them, with vLLM's token ids."""
    for before, message, part, action in calls(row, member, parts):
        ids, known = part.ids[action], call_log_probs(part, action)
        answer = openai_messages([message])[0]
        model = part.policy or mined.model
        choice: Row = {"index": 0, "message": answer, "token_ids": ids}
        choice["finish_reason"] = "tool_calls" if answer.get("tool_calls") else "stop"
        if known is not None:
            tokens = mined.chat.tokenizer.convert_ids_to_tokens(ids)
            shown: list[Row] = [
                {"token": str(t), "logprob": x, "bytes": None, "top_logprobs": []}
                for t, x in zip(tokens, known, strict=True)
            ]
            choice["logprobs"] = {"content": shown, "refusal": None}
        request: Row = {"model": model, "messages": openai_messages(before)}
        if part.temperature is not None:
            request["temperature"] = part.temperature
        if row["tools"]:
            request["tools"] = openai_tools(row["tools"])
        yield (
            request,
            {
                "id": f"{part.episode}-{action.start}",
                "object": "chat.completion",
                "created": 0,
                "model": model,
                "prompt_token_ids": part.ids[: action.start],
                "choices": [choice],
            },
        )

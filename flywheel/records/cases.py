"""What a user writes by hand: evaluation cases, a line each of `evals/*.jsonl`, and golden rows of `golden/*.jsonl`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from flywheel.records.base import Document, Record
from flywheel.records.events import Message

_ON = (
    "What is checked: 'text' (the answer's text), 'json' (that text, or its one code block, as JSON), 'call' (the "
    "first tool call as {name, arguments}), 'calls' (all of them), or 'arguments.NAME' (an argument of the first call; "
    "dots go deeper)."
)


class _Check(Record):
    model_config = ConfigDict(populate_by_name=True)

    on: str = Field(default="text", pattern=r"^(text|json|call|calls|arguments(\..+)?)$", description=_ON)


class ExactCheck(_Check):
    """It equals one of the values; texts after Unicode's compatibility form and without outer blanks."""

    check: Literal["exact"]
    any_of: list[Any] = Field(min_length=1, description="Accepted values; JSON values where `on` is not a text.")
    free_text: bool = Field(default=False, description="Ignore case, blanks and light punctuation.")


class RegexCheck(_Check):
    """A pattern is found in it, or is not."""

    check: Literal["regex"]
    pattern: str = Field(
        min_length=1,
        description="Rust's syntax: time grows with the text's length only, so no look-around and no back-references.",
    )
    absent: bool = Field(default=False, description="It must not be found.")


class SchemaCheck(_Check):
    """It is a JSON value that fits a JSON Schema (2020-12)."""

    check: Literal["json_schema"]
    on: str = Field(default="json", pattern=r"^(json|call|calls|arguments(\..+)?)$", description=_ON)
    of: dict[str, Any] = Field(alias="schema", description="The schema; references only within it.")


class SqlCheck(_Check):
    """It is a query that gives the expected rows on given tables."""

    check: Literal["sql"]
    tables: dict[str, list[dict[str, Any]] | str] = Field(
        description="Name → rows, or a .csv, .jsonl or .parquet file next to the file of cases."
    )
    rows: list[list[Any]] | None = Field(default=None, description="The rows it must give; or `reference`.")
    reference: str | None = Field(default=None, description="A query that gives the rows it must give.")
    ordered: bool = Field(default=False, description="Whether the order of rows counts.")


class CallCheck(Record):
    """The answer makes exactly these tool calls, in any order; compared as logged calls are."""

    check: Literal["calls"]
    any_of: list[list[dict[str, Any]]] = Field(
        min_length=1, description="Accepted answers, each a list of {name, arguments}; [] for no calls."
    )
    free_text: list[str] = Field(default=[], description="Arguments, as tool.argument, that are compared as prose.")
    ignore: list[str] = Field(default=[], description="Arguments, as tool.argument, that are not compared.")


class PythonCheck(Record):
    """A function of the configuration or a plugin accepts it; a file of cases never holds code."""

    check: Literal["python"]
    name: str = Field(pattern=r"^[\w.-]+$", description="A key of eval.checks, or a name in the flywheel.checks group.")
    given: dict[str, Any] = Field(default={}, description="Further arguments of the function, next to the answer.")


Check = Annotated[
    ExactCheck | RegexCheck | SchemaCheck | SqlCheck | CallCheck | PythonCheck, Field(discriminator="check")
]


class Asked(Document):
    """The prompt of a line that a user wrote."""

    id: str = Field(default="", description="Name of the line, unique over all files; '' is its file and line.")
    prompt: str | list[Message] = Field(description="A user's message, or the messages before the answer.")
    system: str = Field(default="", description="System message before a prompt that is a text.")
    tools: list[dict[str, Any]] | None = Field(default=None, description="OpenAI function schemas that are offered.")

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages before the answer, absent fields left out."""
        if isinstance(self.prompt, str):
            system = [{"role": "system", "content": self.system}] if self.system else []
            return [*system, {"role": "user", "content": self.prompt}]
        return [m.model_dump(mode="json", exclude_none=True) for m in self.prompt]


class EvalCase(Asked):
    """A case of the user's own: what the model is asked, and the checks that its answer must all pass."""

    document: ClassVar[str] = "eval_case"

    checks: list[Check] = Field(min_length=1, description="All must pass.")
    task: str = Field(default="", description="Cases of one task count as one in a test's error; '' is the case's own.")
    slices: dict[str, str] = Field(default={}, description="Slices that the case is in, name → value.")
    max_new_tokens: int = Field(default=0, ge=0, description="Longest answer in tokens; 0 is eval.max_new_tokens.")


class GoldenRow(Asked):
    """A row of the user's own that rounds are trained on as well: the right answer, or a better and a worse one."""

    document: ClassVar[str] = "golden_row"

    completion: Message | None = Field(default=None, description="The right answer, an assistant message.")
    chosen: Message | None = Field(default=None, description="Instead of it: the better answer of a pair.")
    rejected: Message | None = Field(default=None, description="The worse one.")

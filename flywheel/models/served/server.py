"""A server that speaks OpenAI's API: its names, its adapters, what it is asked and what its replies hold.

In: a target (the base, or an adapter), a prompt and how to sample. Out: a request, and the answer that a reply holds. A
reply by another model than was asked is an error. What kinds of server add is in `servers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from flywheel.config import EvalConfig, ModelConfig
from flywheel.errors import EvalError, FlywheelError
from flywheel.models.load import require_safetensors
from flywheel.models.served.answers import NO_FORM, Answer, chosen_answer, count, require_whole
from flywheel.models.served.transport import Refused, Request, Transport

Body = dict[str, Any]


def adapter_name(sha256: str) -> str:
    """Return the name under which an adapter is loaded: its weights' hash is in it, so that no other is meant."""
    return f"flywheel-{sha256[:16]}"


class Prompt(NamedTuple):
    """What is read: as tokens and text of flywheel's rendering, and as messages for the server's."""

    ids: list[int]
    text: str
    messages: Sequence[Mapping[str, Any]]
    tools: list[Body] | None


class Sampling(NamedTuple):
    """How an answer is chosen: every setting, so that no default of a server has a part in it."""

    most: int  # tokens
    end: int  # token that ends a turn
    pad: int
    penalty: float  # on repetition, of the model's own generation settings
    temperature: float = 0.0  # 0: greedy
    seed: int = 0
    answers: int = 1  # sampled after one reading of the prompt, each with the next seed


class Target(NamedTuple):
    """Who is asked: the base model or an adapter."""

    name: str  # in the server's words
    fields: Body  # that choose it, in a request
    ours: bool = False  # whether flywheel loaded it


@dataclass
class Server:
    """A server that speaks OpenAI's API and nothing else; the others add to it."""

    transport: Transport
    cfg: EvalConfig
    model: ModelConfig
    base: str = ""  # the base model's name there
    version: str = ""
    weights: str = ""  # what it was started with, where it reports that: one name may be given to several
    window: int = 0  # tokens that it reads and writes at most; 0 where it is unknown
    rows: list[Body] = field(default_factory=list)  # what it lists

    kind = "openai"
    log_probs = False  # whether it gives those of a prompt
    most_answers = 1  # in one request, each sampled with the next seed

    def start(self) -> None:
        """Find out the base model's name and the version.

        Raises:
            EvalError: it lists no model, or several and none is chosen.
        """
        names = [str(row["id"]) for row in self.rows if not row.get("parent")]
        self.base = self.cfg.server.model or (names[0] if len(names) == 1 else "")
        if not self.base:
            shown = ", ".join(f"`{name[:80]}`" for name in names[:5]) or "none"
            raise EvalError(
                f"{self.transport.address} lists {len(names)} models ({shown})",
                hint="set [eval.server] model to the base model's name",
            )

    def asked(self, path: str, body: Any = None, *, again: bool = True) -> Any:
        """Send one request; a refusal is an error."""
        request = Request(path, body)
        try:
            return self.transport.ask(request, again=again)
        except Refused as refusal:
            raise self.transport.error(request, refusal) from None

    def seen(self, adapter: Path) -> str:
        """Return a folder as the server sees it."""
        folder = adapter.resolve()
        for here, there in self.cfg.server.paths.items():
            if folder.is_relative_to(Path(here).resolve()):
                return str(PurePath(there) / folder.relative_to(Path(here).resolve()))
        return str(folder)

    def plain(self) -> Target:
        """Return the base model."""
        return self._named(self.base)

    def load(self, adapter: Path, name: str, sha256: str) -> Target:
        """Return an adapter: one that the server has under a name, or one that it loads now.

        Args:
            adapter: its folder here.
            name: of the round, 'round 3'.
            sha256: of its weights, which its name at the server then holds.

        Raises:
            EvalError: the server does not have it, or refuses it.
        """
        if known := self.cfg.server.models.get(name.removeprefix("round ")):
            return self._found(known)
        require_safetensors(adapter)
        return self._loaded(adapter, adapter_name(sha256))

    def unload(self, target: Target) -> None:
        """Take an adapter out that `load` put in."""

    def lacks(self, target: Target) -> bool:
        """Return whether an adapter that `load` put in is no longer there."""
        return target.name not in self._roots()

    def _roots(self) -> dict[str, str]:
        """Return the names that the server lists, with their folders."""
        return {str(row["id"]): str(row.get("root") or "") for row in listed(self.asked("/v1/models"))}

    def _named(self, name: str) -> Target:
        return Target(name, {"model": name})

    def _found(self, known: str) -> Target:
        if self.rows and known not in {str(row["id"]) for row in self.rows}:
            raise EvalError(
                f"{self.transport.address} does not list `{known}` of [eval.server.models]",
                hint="load the adapter under that name, or remove the line so that flywheel loads it",
            )
        return self._named(known)

    def _loaded(self, adapter: Path, name: str) -> Target:
        del adapter, name
        raise EvalError(
            f"a server of the kind `{self.kind}` has no route that loads an adapter",
            hint="name the round's model there with [eval.server.models], or set kind",
        )

    # --- questions -------------------------------------------------------------------------------------------------

    def question(self, target: Target, prompt: Prompt, sampling: Sampling) -> Request:
        """Return what asks for an answer to a prompt of tokens."""
        body = {**target.fields, "prompt": prompt.text, "max_tokens": sampling.most, **self._chosen(sampling)}
        return Request("/v1/completions", body)

    def chat(self, target: Target, prompt: Prompt, sampling: Sampling) -> Request:
        """Return what asks for an answer to messages."""
        body = {
            **target.fields,
            "messages": list(prompt.messages),
            "max_tokens": sampling.most,
            **self._chosen(sampling),
        }
        return Request("/v1/chat/completions", body | ({"tools": prompt.tools} if prompt.tools else {}))

    def _chosen(self, sampling: Sampling) -> Body:
        settings = {"temperature": sampling.temperature, "top_p": 1.0}
        return settings | ({"seed": sampling.seed} if sampling.temperature else {})

    def answers(self, target: Target, reply: Any, most: int) -> list[Answer]:
        """Return what a reply holds: one answer, or as many as were asked for, each of so many tokens at most.

        Raises:
            EvalError: another model answered, or the reply has another form.
            Unfinished: the server broke an answer off.
        """
        try:
            answers, model = self._read(reply)
        except NO_FORM:
            raise self.no_answer() from None
        self._refuse_other(self._signature(target), model)
        for answer, why in answers:
            require_whole(answer.tokens, why, most)
        return [answer for answer, _ in answers]

    def _read(self, reply: Any) -> tuple[list[tuple[Answer, str]], str]:
        """Return the answers, each with why it ended, and the model that a reply names."""
        model, choices, usage = str(reply["model"]), reply["choices"], reply.get("usage") or {}
        written, read = count(usage.get("completion_tokens") or 0), count(usage.get("prompt_tokens") or 0)
        rows = [
            (chosen_answer(choice, written if len(choices) == 1 else len(choice["token_ids"]), read), choice)
            for choice in sorted(choices, key=lambda choice: count(choice.get("index") or 0))
        ]
        return [(answer, str(choice.get("finish_reason") or "")) for answer, choice in rows], model

    def _signature(self, target: Target) -> str:
        """Return what a reply of a target names as its model."""
        return target.name

    def _refuse_other(self, wanted: str, model: str) -> None:
        if model != wanted:
            raise EvalError(
                f"`{wanted}` was asked, and `{model[:120]}` answered",
                hint="does a gateway route by itself? Name the server itself as eval.endpoint",
            )

    def no_answer(self) -> EvalError:
        """Return the error for a reply of another form."""
        kinds = "vllm, sglang, llama.cpp, transformers or openai"
        return EvalError(
            f"{self.transport.address} sent no answer in the form of {self.kind}", hint=f"[eval.server] kind: {kinds}"
        )

    def scoring(self, target: Target, ids: list[int]) -> Request:
        """Return what asks for the log-probabilities of tokens."""
        raise NotImplementedError

    def scores(self, target: Target, reply: Any, ids: list[int]) -> list[float]:
        """Return the log-probability of each token but the first, in nats."""
        raise NotImplementedError


def listed(reply: Any) -> list[Body]:
    """Return the models that a server lists.

    Raises:
        EvalError: it lists none.
    """
    try:
        return [{**row, "id": str(row["id"])} for row in reply["data"]]
    except (KeyError, TypeError):
        raise EvalError("the server at eval.endpoint lists no models", hint="is it an OpenAI-compatible one?") from None


def text_at(transport: Transport, path: str, name: str) -> str:
    """Return one text of a page that a server may lack."""
    try:
        reply = transport.ask(Request(path))
    except Refused:
        return ""
    return str(reply.get(name) or "") if isinstance(reply, Mapping) else ""


def ask_in_vain(transport: Transport, request: Request) -> None:
    """Send what may fail without harm: what is not loaded, or on a server that is gone, need not be unloaded."""
    try:
        transport.ask(request, again=False)
    except (Refused, FlywheelError):
        return

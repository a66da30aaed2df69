"""Policies behind the server at `eval.endpoint`, with the face of those in this process.

Prompts are rendered here and sent as tokens, so that the server continues what training showed, and answers are parsed
here; with `[eval.server] api = "chat"` both are the server's. Answers are remembered in pieces, each under everything
that was asked, so that an evaluation goes on where its server went away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from flywheel.config import EvalConfig, ModelConfig
from flywheel.errors import EvalError, LikelihoodError
from flywheel.extensions import Generation
from flywheel.models.chat import well_formed
from flywheel.models.load import base_folder
from flywheel.models.policy import Policies, PolicySet, Prompts, TextPolicy, ToolLists
from flywheel.models.scoring import Draw
from flywheel.models.served.answers import Answer, parsed_calls
from flywheel.models.served.server import Prompt, Sampling, Server, Target
from flywheel.models.served.servers import open_server
from flywheel.models.served.transport import Refused, Request, Transport, chunks
from flywheel.records import content_id

_MOST_GIVEN = 20_000  # answers in memory, some 3 KB each; those of the draws that follow a first are among them
PIECE = 64  # answers that are remembered together: at most so many are asked again after a break
_SEEDS = 0x7FFFFFFF


class Memory(Protocol):
    """Keeps values by a key."""

    def get(self, key: str) -> Any:
        """Return the value, or None."""
        ...

    def put(self, key: str, value: Any) -> None:
        """Keep a value."""
        ...


class _Nothing:
    """Keeps nothing."""

    def get(self, key: str) -> Any:
        del key

    def put(self, key: str, value: Any) -> None:
        del key, value


def open_policies(model: ModelConfig, evaluation: EvalConfig, memory: Memory | None = None) -> PolicySet | ServedSet:
    """Return the base model and its adapters: on the server that is configured, else in this process.

    Args:
        model: the base model.
        evaluation: the section with the server.
        memory: where answers of a server are kept.

    Raises:
        FlywheelError: there is no such model here, or the server does not answer.
    """
    return ServedSet(model, evaluation, memory) if evaluation.endpoint else PolicySet(model, evaluation)


def answered_by(model: ModelConfig, evaluation: EvalConfig) -> dict[str, str]:
    """Return who answers, as far as an answer may depend on it; nothing for the model in this process."""
    if not evaluation.endpoint:
        return {}
    server = open_server(Transport(evaluation), evaluation, model)
    server.transport.close()
    return _identity(server, evaluation)


def _identity(server: Server, evaluation: EvalConfig) -> dict[str, str]:
    facts = {"kind": server.kind, "version": server.version, "model": server.base, "api": evaluation.server.api}
    facts |= {"weights": server.weights} if server.weights else {}
    return facts | {f"round {number}": name for number, name in sorted(evaluation.server.models.items())}


class ServedSet(Policies):
    """A base model and its adapters on a server; the tokenizer and the template are those of the base model here."""

    def __init__(self, model: ModelConfig, evaluation: EvalConfig, memory: Memory | None = None) -> None:
        super().__init__(model, evaluation)
        self.watch = lambda _done, _of: None
        self.server = open_server(Transport(evaluation), evaluation, model)
        self.identity = _identity(self.server, evaluation)
        self.memory: Memory = _Nothing() if memory is None else memory
        self.rendered_otherwise: set[str] = set()  # policies for which the server made other tokens of a prompt
        longest, self.penalty = _settings(model)
        self.window = min((n for n in (longest, self.server.window) if n), default=0)
        self.given: dict[str, Answer] = {}  # by what was asked, the newest last
        self._targets: dict[str, Target] = {}
        self._brought_back: set[str] = set()

    def policy(self, adapter: Path | None, name: str, sha256: str = "") -> ServedPolicy:
        """Return the base model with an adapter folder, or the plain base; loaded when it is first asked."""
        return ServedPolicy(self, adapter, name, sha256 or self.base_sha256)

    def target(self, adapter: Path | None, name: str, sha256: str) -> Target:
        """Return what the server knows a policy by, loading its adapter if need be."""
        key = "" if adapter is None else sha256
        if key not in self._targets:
            server = self.server
            self._targets[key] = server.plain() if adapter is None else server.load(adapter, name, sha256)
        return self._targets[key]

    def brought_back(self, adapter: Path | None, name: str, sha256: str) -> bool:
        """Load an adapter again that another evaluation has unloaded; return whether one had, for the first time."""
        target = self.target(adapter, name, sha256)
        lost = target.ours and sha256 not in self._brought_back and self.server.lacks(target)
        if lost:
            self._brought_back.add(sha256)
            del self._targets[sha256]
            self.target(adapter, name, sha256)
        return lost

    def close(self) -> None:
        """Unload the adapters that were loaded."""
        for target in self._targets.values():
            if target.ours:
                self.server.unload(target)
        self._targets = {}
        self.server.transport.close()


def _settings(model: ModelConfig) -> tuple[int, float]:
    """Return the longest text in tokens, and the penalty on repetition that the model's makers set."""
    from transformers import AutoConfig, GenerationConfig

    folder = str(base_folder(model))
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    longest = int(getattr(config.get_text_config(), "max_position_embeddings", 0) or 0)
    try:
        settings = GenerationConfig.from_pretrained(folder, local_files_only=True)
    except OSError:
        return longest, 1.0
    return longest, float(settings.repetition_penalty or 1.0)


class ServedPolicy(TextPolicy):
    """One policy of a `ServedSet`; implements `flywheel.extensions.Policy`."""

    def __init__(
        self, owner: ServedSet, adapter: Path | None, name: str, sha256: str, draw: Draw | None = None
    ) -> None:
        super().__init__(owner, name, sha256)
        self._set, self._adapter, self._draw = owner, adapter, draw
        kind = owner.server.kind
        self.no_log_probs = "" if owner.server.log_probs else f"{kind} gives no log-probabilities of a prompt"

    def drawing(self, draw: Draw) -> ServedPolicy:
        """Return the same policy, with actions sampled instead of greedy."""
        return ServedPolicy(self._set, self._adapter, self.name, self.sha256, draw)

    def generate(self, prompts: Prompts, tools: ToolLists, *, max_new_tokens: int) -> list[Generation]:
        """Return the next action after each prompt, in order: the greedy one, or one that is sampled."""
        self.wrote = True
        asked = [self._prompt(messages, offered) for messages, offered in zip(prompts, tools, strict=True)]
        samplings = [self._sampling(prompt, max_new_tokens) for prompt in asked]
        answers = self._answers(asked, samplings) if asked else []
        if self._draw is not None:  # what follows a first answer differs from draw to draw
            self._draw = self._draw._replace(ahead=0)
        return [self._parsed(answer, offered) for answer, offered in zip(answers, tools, strict=True)]

    def _prompt(self, messages: Sequence[dict[str, Any]], tools: list[dict[str, Any]] | None) -> Prompt:
        text = self._set.chat.prompt(messages, tools)
        return Prompt(self._set.ids(text), text, *self._set.chat.api_messages(messages, tools))

    def _sampling(self, prompt: Prompt, most: int) -> Sampling:
        tokenizer = self._set.tokenizer
        greedy = Sampling(most, int(tokenizer.eos_token_id), int(tokenizer.pad_token_id), self._set.penalty)
        if self._draw is None:
            return greedy
        seed = (int(content_id("draw", prompt.ids)[:8], 16) + self._draw.seed) & _SEEDS
        return greedy._replace(temperature=self._draw.temperature, seed=seed)

    def _together(self, sampling: Sampling) -> Iterator[Sampling]:
        """Yield what is asked to get an answer and those of the draws that will follow."""
        after = self._draw.ahead if self._draw is not None else 0
        most = 1 if self._set.config.server.api == "chat" else self._set.server.most_answers
        for places in chunks(most, 1 + after):
            yield sampling._replace(seed=(sampling.seed + places[0]) & _SEEDS, answers=len(places))

    def _name(self, prompt: Prompt, sampling: Sampling, place: int = 0) -> str:
        seed = (sampling.seed + place) & _SEEDS
        return content_id(self.sha256, prompt, sampling._replace(seed=seed, answers=1))

    def _answers(self, prompts: Sequence[Prompt], samplings: Sequence[Sampling]) -> list[Answer]:
        given = self._set.given
        names = [self._name(prompt, sampling) for prompt, sampling in zip(prompts, samplings, strict=True)]
        missing = {n: (p, s) for n, p, s in zip(names, prompts, samplings, strict=True) if n not in given}
        asks = [(prompt, some) for prompt, sampling in missing.values() for some in self._together(sampling)]
        most = max((sampling.answers for _, sampling in asks), default=1)
        for piece in chunks(max(1, PIECE // most), len(asks)):
            some = [asks[place] for place in piece]
            for (prompt, sampling), answers in zip(some, self._piece(some, piece[0], len(asks)), strict=True):
                given |= {self._name(prompt, sampling, place): answer for place, answer in enumerate(answers)}
        answers = [given[name] for name in names]
        while len(given) > _MOST_GIVEN:
            del given[next(iter(given))]
        return answers

    def _piece(self, asks: Sequence[tuple[Prompt, Sampling]], before: int, of: int) -> list[list[Answer]]:
        """Return the answers to each of a few prompts, as they were remembered or as they are given now."""
        server, target = self._set.server, self._set.target(self._adapter, self.name, self.sha256)
        question = server.chat if self._set.config.server.api == "chat" else self._question
        requests = [question(target, prompt, sampling) for prompt, sampling in asks]
        key = content_id("answers", 2, self._set.identity, self.sha256, [[r.path, r.body] for r in requests])
        kept = self._set.memory.get(key)
        if kept is None:
            most = asks[0][1].most
            answers = self._asked(requests, lambda reply: server.answers(target, reply, most), before, of)
        else:
            answers = [[Answer(*answer) for answer in some] for some in kept]
        for (prompt, sampling), some in zip(asks, answers, strict=True):
            if len(some) != sampling.answers:
                raise server.no_answer()
            for answer in some:
                self._check_reading(prompt, answer)
        if kept is None:  # what was refused is asked again: the server may then be the right one
            self._set.memory.put(key, [[list(answer) for answer in some] for some in answers])
        self._set.watch(before + len(asks), of)
        return answers

    def _question(self, target: Target, prompt: Prompt, sampling: Sampling) -> Request:
        """Return a request for a completion; a text is sent such that the server's tokenizer makes these tokens of it.

        Some servers only take a text, to which their tokenizer adds what begins every text.
        """
        tokenizer = self._set.tokenizer
        if tokenizer(prompt.text)["input_ids"] != prompt.ids:
            without = prompt.text.removeprefix(str(tokenizer.bos_token or ""))
            if tokenizer(without)["input_ids"] == prompt.ids:
                prompt = prompt._replace(text=without)
        return self._set.server.question(target, prompt, sampling)

    def _asked(self, requests: Sequence[Request], read: Callable[[Any], Any], before: int, of: int) -> list[Any]:
        """Return what is read in each reply, in order."""
        transport, watch = self._set.server.transport, self._set.watch
        try:
            return transport.each(requests, read, lambda done: watch(before + done, of))
        except Refused as refusal:
            if not self._set.brought_back(self._adapter, self.name, self.sha256):
                raise transport.error(requests[0], refusal) from None
        return self._asked(requests, read, before, of)

    def _check_reading(self, prompt: Prompt, answer: Answer) -> None:
        """Refuse an answer to other tokens than were meant; in the server's own rendering, count it."""
        if not answer.read or answer.read == len(prompt.ids):
            return
        if self._set.config.server.api == "chat":
            self._set.rendered_otherwise.add(self.sha256)
            return
        raise EvalError(
            f"the server read {answer.read:,} tokens where the base model's tokenizer makes {len(prompt.ids):,}",
            hint="does it serve [model] base? Its tokenizer must be the one that rounds are trained with",
        )

    def _parsed(self, answer: Answer, tools: list[dict[str, Any]] | None) -> Generation:
        chat, tokenizer = self._set.chat, self._set.tokenizer
        text = str(tokenizer.decode(answer.ids)) if answer.ids else answer.text
        made = chat.parse(text.split(str(tokenizer.eos_token), 1)[0], tools)
        message = answer.message or {}
        if thoughts := message.get("reasoning_content") or message.get("reasoning"):
            made = replace(made, message={**made.message, "reasoning": str(thoughts)})
        if calls := parsed_calls(message):
            spoken = {"content": answer.text} if answer.text.strip() else {}
            kept = {k: v for k, v in made.message.items() if k in {"role", "reasoning"}}
            made = Generation(text, {**kept, **spoken, "tool_calls": calls}, well_formed(calls, tools))
        return replace(made, tokens=answer.tokens)

    def log_prob(
        self, prompts: Prompts, tools: ToolLists, completions: Sequence[dict[str, Any]], *, temperature: float = 1.0
    ) -> list[tuple[float, int]]:
        """Return (sum of log-probabilities in nats, number of tokens) of each completion's tokens, in order.

        Raises:
            LikelihoodError: the server gives none, or only those at temperature 1.
        """
        if self.no_log_probs or temperature != 1.0:
            why = self.no_log_probs or f"a server gives no log-probabilities at temperature {temperature:g}"
            raise LikelihoodError(why, hint="leave out suites that need them, or score in this process (eval.endpoint)")
        server, target = self._set.server, self._set.target(self._adapter, self.name, self.sha256)
        chat, ids = self._set.chat, self._set.ids
        rows = [
            (ids(chat.prompt(p, t)), ids(chat.completion(p, t, c)))
            for p, t, c in zip(prompts, tools, completions, strict=True)
        ]
        scores: list[float] = []
        for piece in chunks(PIECE, len(rows)):
            some = [rows[n] for n in piece]
            key = content_id("likely", 1, self._set.identity, self.sha256, some)
            remembered = self._set.memory.get(key)
            if remembered is None:
                requests = [server.scoring(target, before + after) for before, after in some]
                replies = self._asked(requests, lambda reply: reply, len(scores), len(rows))
                remembered = [
                    sum(server.scores(target, reply, b + a)[-len(a) :]) if a else 0.0
                    for reply, (b, a) in zip(replies, some, strict=True)
                ]
                self._set.memory.put(key, remembered)
            scores += remembered
        return [(score, len(after)) for score, (_, after) in zip(scores, rows, strict=True)]

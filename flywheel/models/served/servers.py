"""What each kind of server takes and gives: adapters, prompts as tokens, log-probabilities of a prompt.

The shapes are those of the sources: vLLM's entrypoints/openai and entrypoints/serve/lora, SGLang's http_server.py and
io_struct.py, llama.cpp's tools/server, and the module `transformers.cli.serving`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from flywheel.config import EvalConfig, ModelConfig
from flywheel.errors import EvalError
from flywheel.io.files import atomic_folder
from flywheel.models.load import base_folder, cache_folder
from flywheel.models.served.answers import NO_FORM, Answer, count, require_whole, token_ids
from flywheel.models.served.server import Body, Prompt, Sampling, Server, Target, ask_in_vain, listed, text_at
from flywheel.models.served.transport import Refused, Request, Transport
from flywheel.records import canonical_json

ADAPTER = "adapter_model.safetensors"

_ONE_WORKER = "is it one server with one worker? Behind several, name each of them as eval.endpoint, one at a time"


class VLLM(Server):
    """vLLM's OpenAI-compatible server, started with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True."""

    kind = "vllm"
    log_probs = True
    most_answers = 64

    def start(self) -> None:
        """Find out the base model's name, the version and the window."""
        super().start()
        row = next((row for row in self.rows if row["id"] == self.base), {})
        self.window, self.weights = int(row.get("max_model_len") or 0), str(row.get("root") or "")
        self.version = text_at(self.transport, "/version", "version")

    def _loaded(self, adapter: Path, name: str) -> Target:
        folder = self.seen(adapter)
        if name not in self._roots():
            self.asked("/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder}, again=False)
        if (root := self._roots().get(name)) != folder:
            if root is None:
                raise EvalError(f"{self.transport.address} took the adapter and does not list it", hint=_ONE_WORKER)
            raise EvalError(
                f"the server has `{name}` from another folder ({root[:200]})", hint="unload that adapter there"
            )
        return self._named(name)._replace(ours=True)

    def unload(self, target: Target) -> None:
        """Take an adapter out."""
        ask_in_vain(self.transport, Request("/v1/unload_lora_adapter", {"lora_name": target.name}))

    def question(self, target: Target, prompt: Prompt, sampling: Sampling) -> Request:
        """Return what asks for an answer to a prompt of tokens."""
        body = {**target.fields, "prompt": prompt.ids, "max_tokens": sampling.most, **self._chosen(sampling)}
        return Request("/v1/completions", body | ({"n": sampling.answers} if sampling.answers > 1 else {}))

    def _chosen(self, sampling: Sampling) -> Body:
        return super()._chosen(sampling) | {
            "top_k": 0, "min_p": 0.0, "repetition_penalty": sampling.penalty, "stop_token_ids": [sampling.end],
            "skip_special_tokens": False, "spaces_between_special_tokens": False, "return_token_ids": True,
        }  # fmt: skip

    def scoring(self, target: Target, ids: list[int]) -> Request:
        """Return what asks for the log-probabilities of tokens."""
        body = {**target.fields, "prompt": ids, "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
        return Request("/v1/completions", body)

    def scores(self, target: Target, reply: Any, ids: list[int]) -> list[float]:
        """Return the log-probability of each token but the first."""
        self.answers(target, reply, 1)
        try:
            rows = reply["choices"][0]["prompt_logprobs"]
            return [float(row[str(token)]["logprob"]) for row, token in zip(rows[1:], ids[1:], strict=True)]
        except NO_FORM:
            raise self.no_answer() from None


class SGLang(Server):
    """SGLang's server, started with --enable-lora; tokens go to its own route /generate."""

    kind = "sglang"
    log_probs = True

    def start(self) -> None:
        """Find out the base model's name, the version and the window."""
        super().start()
        row = next((row for row in self.rows if row["id"] == self.base), {})
        self.window, self.weights = int(row.get("max_model_len") or 0), str(row.get("root") or "")
        places = ("/server_info", "/get_server_info")
        self.version = next((text for place in places if (text := text_at(self.transport, place, "version"))), "")

    def _named(self, name: str) -> Target:
        return Target(name, {"lora_path": name} if name != self.base else {})

    def _loaded(self, adapter: Path, name: str) -> Target:
        listed, folder = self._roots(), self.seen(adapter)
        if name not in listed:
            reply = self.asked("/load_lora_adapter", {"lora_name": name, "lora_path": folder}, again=False)
            if not isinstance(reply, Mapping) or not reply.get("success"):
                raise EvalError(f"{self.transport.address} did not load the adapter", hint="see the server's log")
        elif listed[name] != folder:
            raise EvalError(f"the server has `{name}` from another folder", hint="unload that adapter there")
        return self._named(name)._replace(ours=True)

    def unload(self, target: Target) -> None:
        """Take an adapter out."""
        ask_in_vain(self.transport, Request("/unload_lora_adapter", {"lora_name": target.name}))

    def question(self, target: Target, prompt: Prompt, sampling: Sampling) -> Request:
        """Return what asks for an answer to a prompt of tokens."""
        seed = {"sampling_seed": sampling.seed} if sampling.temperature else {}
        settings = {
            "max_new_tokens": sampling.most, "temperature": sampling.temperature, "top_p": 1.0, "top_k": -1,
            "min_p": 0.0, "repetition_penalty": sampling.penalty, "stop_token_ids": [sampling.end],
            "skip_special_tokens": False, "spaces_between_special_tokens": False,
        }  # fmt: skip
        return Request("/generate", {"input_ids": prompt.ids, "sampling_params": settings | seed, **target.fields})

    def chat(self, target: Target, prompt: Prompt, sampling: Sampling) -> Request:
        """Return what asks for an answer to messages."""
        request = super().chat(target, prompt, sampling)
        return Request(request.path, {"model": self.base, **dict(request.body or {})})

    def _signature(self, target: Target) -> str:
        del target
        return self.base

    def _chosen(self, sampling: Sampling) -> Body:
        more = {"top_k": -1, "min_p": 0.0, "repetition_penalty": sampling.penalty, "stop_token_ids": [sampling.end]}
        return super()._chosen(sampling) | more | {"skip_special_tokens": False}

    def _read(self, reply: Any) -> tuple[list[tuple[Answer, str]], str]:
        if "choices" in reply:
            return super()._read(reply)
        facts = reply["meta_info"]
        written, read = count(facts["completion_tokens"]), count(facts["prompt_tokens"])
        answer = Answer(str(reply["text"]), token_ids(reply.get("output_ids")), written, read)
        return [(answer, str((facts.get("finish_reason") or {}).get("type") or ""))], self.base

    def scoring(self, target: Target, ids: list[int]) -> Request:
        """Return what asks for the log-probabilities of tokens."""
        settings = {"max_new_tokens": 1, "temperature": 0.0}
        body = {"input_ids": ids, "sampling_params": settings, "return_logprob": True, "logprob_start_len": 0}
        return Request("/generate", {**body, **target.fields})

    def scores(self, target: Target, reply: Any, ids: list[int]) -> list[float]:
        """Return the log-probability of each token but the first."""
        del target
        try:
            rows = reply["meta_info"]["input_token_logprobs"]
            if [row[1] for row in rows] != ids:
                raise self.no_answer()
            return [float(row[0]) for row in rows[1:]]
        except NO_FORM:
            raise self.no_answer() from None


class LlamaCpp(Server):
    """llama.cpp's server: adapters are GGUF files given at its start, and each request states which of them counts."""

    kind = "llama.cpp"

    def start(self) -> None:
        """Find out the model's name, the version, the window and the adapters."""
        super().start()
        props = self.asked("/props")
        self.version, self.weights = str(props.get("build_info") or ""), str(props.get("model_path") or "")
        self.window = int((props.get("default_generation_settings") or {}).get("n_ctx") or 0)
        self.most_answers = int(props.get("total_slots") or 1)
        self._files = {int(row["id"]): str(row["path"]) for row in self.asked("/lora-adapters")}

    def plain(self) -> Target:
        """Return the base model: every adapter at scale 0, whatever the server's default is."""
        return Target(self.base, {"lora": self._scales(None)})

    def _scales(self, used: int | None) -> list[Body]:
        return [{"id": n, "scale": 1.0 if n == used else 0.0} for n in sorted(self._files)]

    def _found(self, known: str) -> Target:
        places = [n for n, path in self._files.items() if known in {path, PurePath(path).name, PurePath(path).stem}]
        if len(places) != 1:
            raise EvalError(
                f"the server has {'no' if not places else 'more than one'} adapter `{known}`",
                hint="start llama-server with --lora FILE --lora-init-without-apply; a file of convert_lora_to_gguf.py",
            )
        return Target(known, {"lora": self._scales(places[0])})

    def _loaded(self, adapter: Path, name: str) -> Target:
        del adapter
        return self._found(name)

    def question(self, target: Target, prompt: Prompt, sampling: Sampling) -> Request:
        """Return what asks for an answer to a prompt of tokens."""
        body = {"prompt": prompt.ids, "n_predict": sampling.most, "return_tokens": True, "cache_prompt": True}
        body |= {"n_cmpl": sampling.answers} if sampling.answers > 1 else {}
        return Request("/completion", {**body, **target.fields, **self._chosen(sampling)})

    def _chosen(self, sampling: Sampling) -> Body:
        return super()._chosen(sampling) | {
            "top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": sampling.penalty,
            "repeat_last_n": self.window, "presence_penalty": 0.0, "frequency_penalty": 0.0, "dry_multiplier": 0.0,
            "xtc_probability": 0.0,
        }  # fmt: skip

    def answers(self, target: Target, reply: Any, most: int) -> list[Answer]:
        """Return what a reply of either route holds; one under other adapters than were asked is an error."""
        if isinstance(reply, Mapping) and "choices" in reply:
            return super().answers(target, reply, most)
        return [self._answer(target, row, most) for row in (reply if isinstance(reply, list) else [reply])]

    def _answer(self, target: Target, reply: Any, most: int) -> Answer:
        try:
            model, ids = str(reply["model"]), token_ids(reply.get("tokens") or None)
            written, read = count(reply["tokens_predicted"]), count(reply["tokens_evaluated"])
            used = {int(row["id"]): float(row["scale"]) for row in reply["generation_settings"]["lora"]}
            text, why = str(reply["content"]), str(reply.get("stop_type") or "")
        except NO_FORM:
            raise self.no_answer() from None
        self._refuse_other(self.base, model)
        wanted = {row["id"]: row["scale"] for row in target.fields["lora"]}
        if {n: s for n, s in used.items() if s} != {n: s for n, s in wanted.items() if s}:
            raise EvalError(f"`{target.name}` was asked, and other adapters answered", hint="see the server's log")
        require_whole(written, why, most)
        return Answer(text, ids, written, read)

    def _signature(self, target: Target) -> str:
        del target
        return self.base


class Transformers(Server):
    """`transformers serve` on this machine: a model is a folder, loaded when it is first asked."""

    kind = "transformers"

    def start(self) -> None:
        """Take the base model's folder as its name, unless the configuration has another."""
        self.base = self.cfg.server.model or self.seen(base_folder(self.model))

    def _loaded(self, adapter: Path, name: str) -> Target:
        """Return a folder of links to the adapter and its base, which transformers loads as one model."""
        folder = _links(name)
        linked = {file.name: file for file in base_folder(self.model).iterdir()}
        linked |= {file.name: file for file in map(adapter.joinpath, ("adapter_config.json", ADAPTER))}
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        with atomic_folder(folder) as partial:
            for file_name, file in sorted(linked.items()):
                (partial / file_name).symlink_to(file.resolve())
        return self._named(self.seen(folder))._replace(ours=True)

    def unload(self, target: Target) -> None:
        """Remove the links; the server unloads what is idle by itself."""
        shutil.rmtree(_links(target.name), ignore_errors=True)

    def lacks(self, target: Target) -> bool:
        """Return whether the links are gone."""
        return not _links(target.name).exists()

    def _found(self, known: str) -> Target:
        return self._named(known)

    def _chosen(self, sampling: Sampling) -> Body:
        """Return all settings of a generation: what is not in them is the model's own default."""
        sampled = {"do_sample": True, "temperature": sampling.temperature, "top_p": 1.0, "top_k": 0}
        settings = {
            "max_new_tokens": sampling.most, "eos_token_id": sampling.end, "pad_token_id": sampling.pad,
            "repetition_penalty": sampling.penalty,
        }  # fmt: skip
        chosen = sampled if sampling.temperature else {"do_sample": False}
        seed = {"seed": sampling.seed} if sampling.temperature else {}
        return {"generation_config": canonical_json(settings | chosen), **seed}

    def _signature(self, target: Target) -> str:
        return target.name if "@" in target.name else f"{target.name}@main"


_KINDS: dict[str, type[Server]] = {kind.kind: kind for kind in (VLLM, SGLang, LlamaCpp, Transformers, Server)}
LOADING = frozenset({"vllm", "sglang", "transformers"})  # kinds that load an adapter when they are asked
_OWNERS = {"vllm": VLLM, "sglang": SGLang, "llamacpp": LlamaCpp}


def open_server(transport: Transport, cfg: EvalConfig, model: ModelConfig) -> Server:
    """Return the server at the endpoint, of the kind that is configured or found.

    Raises:
        EvalError: it does not answer, or lists no models.
    """
    try:
        return _opened(transport, cfg, model)
    except BaseException:
        transport.close()
        raise


def _opened(transport: Transport, cfg: EvalConfig, model: ModelConfig) -> Server:
    kind = _KINDS.get(cfg.server.kind)
    if kind is None and _is_transformers(transport):
        kind = Transformers
    rows: list[Body] = []
    if kind is not Transformers:
        request = Request("/v1/models")
        try:
            rows = listed(transport.ask(request))
        except Refused as refusal:
            raise transport.error(request, refusal) from None
        kind = kind or next((_OWNERS[o] for row in rows if (o := str(row.get("owned_by"))) in _OWNERS), Server)
    server = kind(transport, cfg, model, rows=rows)
    server.start()
    return server


def _links(name: str) -> Path:
    """Return the folder of links to an adapter and its base, by its name or its place there."""
    return cache_folder() / "served" / PurePath(name).name


def _is_transformers(transport: Transport) -> bool:
    """Return whether the server's routes are those of `transformers serve`."""
    try:
        routes = transport.ask(Request("/openapi.json"))
    except Refused:
        return False
    return isinstance(routes, Mapping) and {"/load_model", "/reset"} <= set(routes.get("paths") or ())

"""A real HTTP server with a small model behind it, which speaks as vLLM, SGLang, llama.cpp or an OpenAI server does.

Shapes are those of their sources: vLLM's entrypoints/openai/completion/protocol.py and entrypoints/serve/lora, SGLang's
srt/entrypoints/http_server.py and managers/io_struct.py, llama.cpp's tools/server/server-task.cpp and README.md.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from flywheel.config import EvalConfig, ModelConfig
from flywheel.models.policy import PolicySet
from flywheel.models.scoring import Draw

BASE = "tiny"


@cache
def _behind(model: Path) -> tuple[PolicySet, threading.Lock]:
    """Return the model behind all servers of a folder, and who may use it.

    A request may outlive its client and its server: switching adapters in two threads leaves PEFT half switched.
    """
    return PolicySet(ModelConfig(base=str(model), dtype="float32"), EvalConfig()), threading.Lock()


@dataclass
class PolicyServer:
    """The server's settings and state; `url` is its endpoint."""

    model: Path
    kind: str = "vllm"
    weights: str = BASE  # that it says it was started with
    adapters: dict[str, str] = field(default_factory=dict)  # name: folder
    key: str = ""
    busy: int = 0  # requests that it refuses as too many, first
    refuses: int = 429  # with this status
    after: str = "1"  # when they may come again
    ends: list[str] = field(default_factory=list)  # why its next answers ended
    raw: str = ""  # its answer, instead
    limit: int = 0  # tokens of its own that an answer may have
    forgets: bool = False  # adapters that it takes
    elsewhere: str = ""  # where it sends all requests
    dies_after: int = -1  # answers
    answers_as: str = ""  # another model's name
    holds: threading.Event | None = None  # until which it answers nothing
    begins: int = 0  # tokens that it puts before a prompt
    calls: list[dict[str, Any]] = field(default_factory=list)  # that its parser finds in every answer of the chat API
    seen: list[tuple[str, Any]] = field(default_factory=list)
    most_at_once: int = 0
    url: str = ""

    def __post_init__(self) -> None:
        self.owner, self.lock = _behind(self.model)
        self.counting, self.at_once = threading.Lock(), 0

    def write(self, ids: list[int], folder: str, most: int, temperature: float, seed: int) -> list[int]:
        """Return a continuation, its end included."""
        import torch

        draw, most = Draw(temperature, seed) if temperature else None, min(most, self.limit or most)
        with self.lock, self.owner.active(Path(folder) if folder else None) as model, torch.inference_mode():
            (written,) = self.owner.batches.written(model, [ids], most, draw)
        end = int(self.owner.tokenizer.eos_token_id)
        return written[: written.index(end) + 1] if end in written else written

    def drawn(self, ids: list[int], folder: str, body: Any, most: int, answers: int) -> list[list[int]]:
        """Return continuations, each drawn with the next seed."""
        seeds = range(body.get("seed", 0), body.get("seed", 0) + answers)
        return [self.write(ids, folder, most, body["temperature"], seed) for seed in seeds]

    def likely(self, ids: list[int], folder: str) -> list[float]:
        """Return the log-probability of each token but the first."""
        import torch

        with self.lock, self.owner.active(Path(folder) if folder else None) as model, torch.inference_mode():
            logits = torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), -1)
        return [float(logits[n, token]) for n, token in enumerate(ids[1:])]

    def why(self, usual: str = "stop") -> str:
        """Return why an answer ended."""
        return self.ends.pop(0) if self.ends else usual

    def text(self, ids: list[int]) -> str:
        """Return what tokens say, control tokens left out."""
        return str(self.owner.tokenizer.decode(ids, skip_special_tokens=True))


class _Error(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@contextmanager
def serving(state: PolicyServer) -> Iterator[PolicyServer]:
    """Serve on a free port until the block ends."""

    class Handler(_Handler):
        served = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    served: PolicyServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body sent after its headers would wait 40 ms

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._respond(None)

    def do_POST(self) -> None:
        self._respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _respond(self, body: Any) -> None:
        state = self.served
        with state.counting:
            state.seen.append((self.path, body))
            state.at_once += 1
            state.most_at_once = max(state.most_at_once, state.at_once)
            busy, state.busy = state.busy > 0, max(0, state.busy - 1)
            answers = len([1 for path, _ in state.seen if path in _ANSWERING])
        if state.holds is not None and self.path in _ANSWERING:
            state.holds.wait(20)
        known = not state.key or self.headers.get("Authorization") == f"Bearer {state.key}"
        try:
            if 0 <= state.dies_after < answers:
                self.close_connection = True
            elif state.elsewhere:
                self._send(307, {}, Location=state.elsewhere + self.path)
            elif busy:
                self._send(state.refuses, {"error": {"message": "no"}}, **{"Retry-After": state.after})
            elif not known:
                self._send(401, {"error": {"message": "no"}})
            else:
                self._send(200, state.raw if state.raw and self.path in _ANSWERING else self._route(body))
        except _Error as error:
            self._send(error.code, {"error": {"message": error.message, "code": error.code}})
        finally:
            with state.counting:
                state.at_once -= 1

    def _send(self, code: int, answer: object, **headers: str) -> None:
        text = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
        self.send_header("Content-Length", str(len(text)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def _route(self, body: Any) -> object:
        name = f"_{self.served.kind.replace('.', '')}"
        routes: dict[str, Any] = getattr(self, name)()
        if self.path not in routes:
            raise _Error(404, "Not Found")
        return routes[self.path](body)

    # --- OpenAI ----------------------------------------------------------------------------------------------------

    def _openai(self) -> dict[str, Any]:
        names = [BASE, *self.served.adapters]
        rows = [{"id": name, "object": "model", "owned_by": "someone"} for name in names[: 1 if BASE else None]]
        rows += [{"id": name, "object": "model", "owned_by": "someone", "parent": BASE} for name in names[1:]]
        return {
            "/v1/models": lambda _: {"object": "list", "data": rows},
            "/v1/completions": self._completion,
            "/v1/chat/completions": self._chat,
        }

    def _folder(self, name: str) -> str:
        if name not in {BASE, *self.served.adapters}:
            raise _Error(404, f"The model `{name}` does not exist.")
        return self.served.adapters.get(name, "")

    def _asked(self, body: Any) -> str:
        return self._folder(body.get("lora_path") or body["model"])

    def _usage(self, read: list[int], written: list[int]) -> dict[str, int]:
        return {"prompt_tokens": len(read) + self.served.begins, "completion_tokens": len(written)}

    def _completion(self, body: Any) -> dict[str, Any]:
        prompt, state = body["prompt"], self.served
        ids = state.owner.ids(prompt) if isinstance(prompt, str) else prompt
        folder = self._asked(body)
        drawn = state.drawn(ids, folder, body, body["max_tokens"], body.get("n", 1))
        choices: list[dict[str, Any]] = [
            {"index": n, "text": state.text(written), "finish_reason": state.why()} for n, written in enumerate(drawn)
        ]
        if body.get("return_token_ids"):
            choices = [{**choice, "token_ids": written} for choice, written in zip(choices, drawn, strict=True)]
        if body.get("prompt_logprobs") is not None:
            values = zip(ids[1:], state.likely(ids, folder), strict=True)
            choices[0]["prompt_logprobs"] = [None, *({str(i): {"logprob": p, "rank": 1}} for i, p in values)]
        model, usage = state.answers_as or body["model"], self._usage(ids, [token for one in drawn for token in one])
        return {"object": "text_completion", "model": model, "choices": choices[::-1], "usage": usage}

    def _chat(self, body: Any) -> dict[str, Any]:
        state = self.served
        messages = [{**m, "content": m.get("content") or ""} for m in body["messages"]]
        prompt = state.owner.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = state.owner.ids(prompt)
        written = state.write(ids, self._asked(body), body["max_tokens"], body["temperature"], body.get("seed", 0))
        message: dict[str, Any] = {"role": "assistant", "content": state.text(written)}
        if state.calls:
            message |= {"content": None, "tool_calls": state.calls, "reasoning_content": "I look it up."}
        choice = {"index": 0, "message": message, "finish_reason": state.why()}
        model = state.answers_as or body["model"]
        return {"object": "chat.completion", "model": model, "choices": [choice], "usage": self._usage(ids, written)}

    # --- vLLM ------------------------------------------------------------------------------------------------------

    def _vllm(self) -> dict[str, Any]:
        def card(name: str, root: str, parent: str | None) -> dict[str, Any]:
            row = {"id": name, "object": "model", "owned_by": "vllm", "root": root, "parent": parent}
            return row | ({} if parent else {"max_model_len": 4096})

        rows = [card(BASE, self.served.weights, None), *(card(n, f, BASE) for n, f in self.served.adapters.items())]
        return self._openai() | {
            "/v1/models": lambda _: {"object": "list", "data": rows},
            "/version": lambda _: {"version": "0.20.0"},
            "/v1/load_lora_adapter": self._load,
            "/v1/unload_lora_adapter": self._unload,
        }

    def _load(self, body: Any) -> Any:
        name, path = body["lora_name"], body["lora_path"]
        if not (Path(path) / "adapter_config.json").is_file():
            raise _Error(404, f"Loading lora {name} failed: No adapter found for {path}")
        if not self.served.forgets:
            self.served.adapters[name] = path
        return f"Success: LoRA adapter '{name}' added successfully."

    def _unload(self, body: Any) -> Any:
        del self.served.adapters[body["lora_name"]]
        return f"Success: LoRA adapter '{body['lora_name']}' removed successfully."

    # --- SGLang ----------------------------------------------------------------------------------------------------

    def _sglang(self) -> dict[str, Any]:
        rows = [
            {"id": BASE, "object": "model", "owned_by": "sglang", "root": self.served.weights, "max_model_len": 4096}
        ]
        more = [{"id": n, "owned_by": "sglang", "root": f, "parent": BASE} for n, f in self.served.adapters.items()]
        return self._openai() | {
            "/v1/models": lambda _: {"object": "list", "data": [*rows, *more]},
            "/get_server_info": lambda _: {"version": "0.5.6", "model_path": BASE},
            "/load_lora_adapter": lambda body: {"success": bool(self._load(body)), "loaded_adapters": {}},
            "/unload_lora_adapter": lambda body: {"success": bool(self._unload(body)), "loaded_adapters": {}},
            "/generate": self._generate,
        }

    def _generate(self, body: Any) -> dict[str, Any]:
        ids, how, state = body["input_ids"], body["sampling_params"], self.served
        folder = self._folder(body.get("lora_path") or BASE)
        written = state.write(ids, folder, how["max_new_tokens"], how["temperature"], how.get("sampling_seed", 0))
        facts: dict[str, Any] = {"finish_reason": {"type": state.why()}, **self._usage(ids, written)}
        if body.get("return_logprob"):
            facts["input_token_logprobs"] = [
                [p, i, None] for p, i in zip([None, *state.likely(ids, folder)], ids, strict=True)
            ]
        return {"text": state.text(written), "output_ids": written, "meta_info": facts}

    # --- llama.cpp -------------------------------------------------------------------------------------------------

    def _llamacpp(self) -> dict[str, Any]:
        files = [{"id": n, "path": f"/loras/{name}.gguf", "scale": 1.0} for n, name in enumerate(self.served.adapters)]
        return self._openai() | {
            "/v1/models": lambda _: {"data": [{"id": BASE, "owned_by": "llamacpp", "meta": {"n_ctx_train": 8192}}]},
            "/props": lambda _: {
                "build_info": "b11434-0",
                "model_path": self.served.weights,
                "total_slots": 2,
                "default_generation_settings": {"n_ctx": 4096},
            },
            "/lora-adapters": lambda _: files,
            "/completion": self._native,
        }

    def _native(self, body: Any) -> Any:
        ids, state = body["prompt"], self.served
        folders = list(state.adapters.values())
        used = [folders[row["id"]] for row in body.get("lora") or [] if row["scale"]]
        drawn = state.drawn(ids, used[0] if used else "", body, body["n_predict"], body.get("n_cmpl", 1))
        rows = [{
            "content": state.text(written), "tokens": written, "model": state.answers_as or BASE,
            "tokens_predicted": len(written), "tokens_evaluated": len(ids) + state.begins,
            "generation_settings": {"lora": body.get("lora") or []}, "stop_type": state.why("eos"),
        } for written in drawn]  # fmt: skip
        return rows if len(rows) > 1 else rows[0]


_ANSWERING = frozenset({"/v1/completions", "/v1/chat/completions", "/generate", "/completion"})

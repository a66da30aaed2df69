"""A real HTTP server that answers as vLLM does: the models it lists, its LoRA endpoints, completions, and its errors.

Shapes and sentences are those of vLLM's source: entrypoints/serve/lora/api_router.py, entrypoints/openai/models/
serving.py, exceptions.py, lora/worker_manager.py and the authentication middleware. No model runs behind it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class VLLM:
    """The server's settings and state."""

    base: str = "meta-llama/Llama-3.2-1B"
    runtime_updating: bool = True  # VLLM_ALLOW_RUNTIME_LORA_UPDATING
    enable_lora: bool = True
    max_lora_rank: int = 16
    api_key: str = ""
    flat_errors: bool = False  # as up to 0.10
    template: bool = True
    broken: bool = False  # adapters load and do not answer
    adapters: dict[str, str] = field(default_factory=dict)
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    url: str = ""


class _Error(Exception):
    def __init__(self, code: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.code, self.kind, self.message = code, kind, message


@contextmanager
def serving(state: VLLM) -> Iterator[VLLM]:
    """Serve on a free port until the block ends."""

    class Handler(_Handler):
        vllm = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    vllm: VLLM

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._respond("GET", {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._respond("POST", json.loads(body))

    def _respond(self, method: str, body: dict[str, Any]) -> None:
        self.vllm.seen.append((self.path, body))
        try:
            if self.vllm.api_key and self.headers.get("Authorization") != f"Bearer {self.vllm.api_key}":
                self._send(401, {"error": "Unauthorized"})
                return
            self._send(200, self._route(method, body))
        except _Error as error:
            info = {"message": error.message, "type": error.kind, "param": None, "code": error.code}
            self._send(error.code, {"object": "error", **info} if self.vllm.flat_errors else {"error": info})

    def _send(self, code: int, answer: object) -> None:
        text = answer if isinstance(answer, str) else json.dumps(answer)
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
        self.end_headers()
        self.wfile.write(text.encode())

    def _route(self, method: str, body: dict[str, Any]) -> object:
        if method == "POST" and self.headers.get("Content-Type") != "application/json":
            raise _Error(400, "Bad Request", "Unsupported Media Type: Only 'application/json' is allowed")
        routes: dict[tuple[str, str], Callable[[dict[str, Any]], object]] = {
            ("GET", "/v1/models"): lambda _: self._models(),
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/completions"): self._completion,
        }
        if self.vllm.runtime_updating:
            routes |= {
                ("POST", "/v1/load_lora_adapter"): self._load,
                ("POST", "/v1/unload_lora_adapter"): self._unload,
            }
        if (method, self.path) not in routes:
            raise _Error(404, "Not Found", "Not Found")
        return routes[method, self.path](body)

    def _models(self) -> dict[str, Any]:
        def card(name: str, root: str, parent: str | None) -> dict[str, Any]:
            return {"id": name, "object": "model", "owned_by": "vllm", "root": root, "parent": parent}

        base = self.vllm.base
        return {
            "object": "list",
            "data": [card(base, base, None), *(card(n, p, base) for n, p in self.vllm.adapters.items())],
        }

    def _load(self, body: dict[str, Any]) -> str:
        name, path = body["lora_name"], body["lora_path"]
        if not name or not path:
            raise _Error(400, "InvalidUserInput", "Both 'lora_name' and 'lora_path' must be provided.")
        if name in self.vllm.adapters:
            raise _Error(400, "InvalidUserInput", f"The lora adapter '{name}' has already been loaded. If you want to "
                         "load the adapter in place, set 'load_inplace' to True.")  # fmt: skip
        if not self.vllm.enable_lora:
            raise _Error(500, "InternalServerError", "Call to add_lora method failed: LoRA is not enabled")
        config = Path(path) / "adapter_config.json"
        if not config.is_file():
            raise _Error(404, "NotFoundError", f"Loading lora {name} failed: No adapter found for {path}")
        rank = json.loads(config.read_text())["r"]
        if rank > self.vllm.max_lora_rank:
            message = f"LoRA rank {rank} is greater than max_lora_rank {self.vllm.max_lora_rank}."
            raise _Error(500, "InternalServerError", f"Call to add_lora method failed: {message}")
        self.vllm.adapters[name] = path
        return f"Success: LoRA adapter '{name}' added successfully."

    def _unload(self, body: dict[str, Any]) -> str:
        name = body["lora_name"]
        if name not in self.vllm.adapters:
            raise _Error(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
        del self.vllm.adapters[name]
        return f"Success: LoRA adapter '{name}' removed successfully."

    def _known(self, body: dict[str, Any]) -> str:
        name = str(body["model"])
        if name not in {self.vllm.base, *self.vllm.adapters}:
            raise _Error(404, "NotFoundError", f"The model `{name}` does not exist.")
        if self.vllm.broken and name in self.vllm.adapters:
            raise _Error(500, "InternalServerError", "EngineCore encountered an issue.")
        return name

    def _chat(self, body: dict[str, Any]) -> dict[str, Any]:
        name = self._known(body)
        if not self.vllm.template:
            raise _Error(400, "BadRequestError", "As of transformers v4.44, default chat template is no longer "
                         "allowed, so you must provide a chat template if the tokenizer has none.")  # fmt: skip
        message = {"role": "assistant", "content": "po"}
        return {
            "object": "chat.completion",
            "model": name,
            "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
        }

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        name = self._known(body)
        return {
            "object": "text_completion",
            "model": name,
            "choices": [{"index": 0, "text": "po", "finish_reason": "length"}],
        }

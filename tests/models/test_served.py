"""Policies behind a server: what each kind is asked and answers is what the same model answers in this process."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import Config, EvalConfig, ModelConfig
from flywheel.errors import ConfigError, EvalError, LikelihoodError, UsageError
from flywheel.models.policy import PolicySet
from flywheel.models.scoring import Draw
from flywheel.models.served.policy import PIECE, ServedSet, open_policies
from flywheel.models.served.transport import Request
from pydantic import ValidationError
from tests.policy_server import PolicyServer, serving

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]
PROMPTS: list[list[dict[str, Any]]] = [[{"role": "user", "content": "word " * n}] for n in (3, 40, 1, 12)]
OFFERED: list[Any] = [TOOLS, None, TOOLS, None]
ANSWERS: list[dict[str, Any]] = [{"role": "assistant", "content": "yes " * n} for n in (1, 2, 9, 4)]
_ANSWERING = {"/v1/completions", "/generate", "/completion"}
KINDS = ("vllm", "sglang", "llama.cpp", "openai")
SHA256 = "a" * 64


@pytest.fixture(scope="module")
def adapter(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA with random weights on both sides."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("adapter")
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    made = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    made.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def here(tiny_model: Path) -> PolicySet:
    return PolicySet(ModelConfig(base=str(tiny_model), dtype="float32"), EvalConfig())


@pytest.fixture
def server(tiny_model: Path) -> Iterator[PolicyServer]:
    with serving(PolicyServer(tiny_model)) as state:
        yield state


def served(server: PolicyServer, memory: Any = None, **settings: Any) -> ServedSet:
    cfg = EvalConfig.model_validate({"endpoint": server.url, "server": {"retries": 1, **settings}})
    owner = open_policies(ModelConfig(base=str(server.model), dtype="float32"), cfg, memory)
    assert isinstance(owner, ServedSet)
    return owner


class Kept(dict[str, Any]):
    """A memory."""

    def put(self, key: str, value: Any) -> None:
        self[key] = value


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_answers_are_those_of_the_model_here(
    kind: str, server: PolicyServer, here: PolicySet, adapter: Path
) -> None:
    server.kind = kind
    if kind in {"openai", "llama.cpp"}:
        server.adapters["shop-round-3"] = str(adapter)
    with served(server, models={"3": "shop-round-3"} if server.adapters else {}) as owner:
        assert owner.identity["kind"] == kind
        for folder, sha256 in ((adapter, SHA256), (None, "")):
            policy = owner.policy(folder, "round 3", sha256)
            told = policy.generate(PROMPTS, OFFERED, max_new_tokens=8)
            meant = here.policy(folder, "round 3", sha256).generate(PROMPTS, OFFERED, max_new_tokens=8)
            assert [(a.message, a.tokens, a.well_formed) for a in told] == [
                (a.message, a.tokens, a.well_formed) for a in meant
            ]


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_adapters_are_loaded_under_their_hash_and_unloaded(kind: str, server: PolicyServer, adapter: Path) -> None:
    server.kind = kind
    with served(server) as owner:
        owner.policy(adapter, "round 3", SHA256).generate(PROMPTS, OFFERED, max_new_tokens=2)
        assert server.adapters == {"flywheel-" + "a" * 16: str(adapter.resolve())}
    assert server.adapters == {}


def test_an_adapter_of_that_name_from_another_folder_is_refused(server: PolicyServer, adapter: Path) -> None:
    server.adapters["flywheel-" + "a" * 16] = "/elsewhere"
    with served(server) as owner, pytest.raises(EvalError, match="from another folder"):
        owner.policy(adapter, "round 3", SHA256).generate(PROMPTS, OFFERED, max_new_tokens=2)


def test_an_adapter_that_is_taken_and_not_listed_is_refused(server: PolicyServer, adapter: Path) -> None:
    server.forgets = True
    with served(server) as owner, pytest.raises(EvalError, match="took the adapter and does not list it"):
        owner.policy(adapter, "round 3", SHA256).generate(PROMPTS, OFFERED, max_new_tokens=2)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_an_adapter_that_another_evaluation_unloads_is_loaded_again(
    kind: str, server: PolicyServer, adapter: Path
) -> None:
    server.kind = kind
    with served(server) as owner:
        policy = owner.policy(adapter, "round 3", SHA256)
        first = policy.generate(PROMPTS[:1], [None], max_new_tokens=2)
        with served(server) as other:
            assert other.policy(adapter, "round 3", SHA256).generate(PROMPTS[:1], [None], max_new_tokens=2) == first
        assert server.adapters == {}
        assert policy.generate(PROMPTS[:1], [None], max_new_tokens=3)
        server.adapters.clear()  # once more is not another evaluation's end
        with pytest.raises(EvalError, match="answered 404"):
            policy.generate(PROMPTS[:1], [None], max_new_tokens=4)


def test_a_folder_is_named_as_the_server_sees_it(server: PolicyServer, adapter: Path, tmp_path: Path) -> None:
    (tmp_path / "mount").symlink_to(adapter.parent)
    with served(server, paths={str(adapter.parent): str(tmp_path / "mount")}) as owner:
        owner.policy(adapter, "round 3", SHA256).generate(PROMPTS, OFFERED, max_new_tokens=2)
        assert list(server.adapters.values()) == [str(tmp_path / "mount" / adapter.name)]


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_log_probabilities_are_those_of_the_model_here(
    kind: str, server: PolicyServer, here: PolicySet, adapter: Path
) -> None:
    server.kind = kind
    with served(server) as owner:
        told = owner.policy(adapter, "round 3", SHA256).log_prob(PROMPTS, OFFERED, ANSWERS)
    meant = here.policy(adapter, "round 3", SHA256).log_prob(PROMPTS, OFFERED, ANSWERS)
    assert [n for _, n in told] == [n for _, n in meant]
    assert [p for p, _ in told] == pytest.approx([p for p, _ in meant], abs=1e-3)


@pytest.mark.parametrize("kind", ["llama.cpp", "openai"])
def test_a_server_without_log_probabilities_says_so(kind: str, server: PolicyServer) -> None:
    server.kind = kind
    with served(server) as owner, pytest.raises(LikelihoodError, match=f"{kind} gives no log-probabilities"):
        owner.policy(None, "base").log_prob(PROMPTS, OFFERED, ANSWERS)


def test_draws_are_repeatable_and_differ_by_seed(server: PolicyServer) -> None:
    with served(server) as owner:
        drawn = [
            [
                a.text
                for a in owner.policy(None, "base")
                .drawing(Draw(2.0, seed))
                .generate(PROMPTS, OFFERED, max_new_tokens=6)
            ]
            for seed in (1, 1, 2)
        ]
    assert drawn[0] == drawn[1] != drawn[2]
    bodies = [body for path, body in server.seen if path == "/v1/completions"]
    assert {(b["temperature"], b["top_p"], b["top_k"], b["repetition_penalty"]) for b in bodies} == {(2.0, 1.0, 0, 1.0)}
    assert len({body["seed"] for body in bodies}) == 2 * len(PROMPTS)


@pytest.mark.parametrize(("kind", "requests"), [("vllm", 1), ("llama.cpp", 2), ("sglang", 3)])
def test_samples_of_a_prompt_are_asked_for_together(kind: str, requests: int, server: PolicyServer) -> None:
    """A first answer comes with those of the draws that follow; what follows it differs, and is asked for alone."""
    server.kind, kept = kind, Kept()
    texts, asked = [], []
    for ahead in (0, 2, 2):
        server.seen = []
        with served(server, kept) as owner:
            policies = [owner.policy(None, "base").drawing(Draw(2.0, n, ahead and ahead - n)) for n in range(3)]
            answers = [p.generate(PROMPTS[k : k + 1], [None], max_new_tokens=3) for p in policies for k in (0, 2)]
        texts.append([answer.text for (answer,) in answers])
        paths = [path for path, _ in server.seen if path in _ANSWERING]
        asked.append(len(paths))
    assert texts[0] == texts[1] == texts[2]
    assert len(set(texts[0][::2])) == 3
    assert asked == [6, requests, 0]  # second answers are remembered from the first time


def test_the_chat_api_renders_and_parses_on_the_server(server: PolicyServer, here: PolicySet) -> None:
    with served(server, api="chat") as owner:
        policy = owner.policy(None, "base")
        told = policy.generate(PROMPTS, OFFERED, max_new_tokens=8)
        assert [a.message for a in told] == [
            a.message for a in here.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=8)
        ]
        server.calls = [{"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}]
        (call,) = policy.generate(PROMPTS[:1], OFFERED[:1], max_new_tokens=7)
        assert call.well_formed
        assert call.message["tool_calls"] == [{"id": "c1", "name": "look_up", "arguments": {}}]
        assert call.message["reasoning"] == "I look it up."
        for most, arguments in ((6, '{"a": '), (9, '{"a": ' * 400 + "1" + "}" * 400), (10, '{"a": NaN}')):
            server.calls[0]["function"]["arguments"] = arguments
            (broken,) = policy.generate(PROMPTS[:1], OFFERED[:1], max_new_tokens=most)
            assert not broken.well_formed
            assert broken.message["tool_calls"][0]["arguments"] is None
        server.calls = [{"id": "c1", "function": "look_up"}]
        with pytest.raises(EvalError, match="no answer in the form of vllm"):
            policy.generate(PROMPTS[:1], OFFERED[:1], max_new_tokens=4)
        server.calls = []
        thought = {"role": "assistant", "content": "yes", "reasoning": "It may."}
        owner.chat._thinks = "thinking"
        policy.generate([[*PROMPTS[0], thought, *PROMPTS[2]]], [None], max_new_tokens=5)
        sent = server.seen[-1][1]["messages"][1]
        assert (sent["thinking"], sent["reasoning_content"]) == ("It may.", "It may.")
        owner.chat._thinks = ""
        owner.rendered_otherwise.clear()
        server.begins = 1
        policy.generate(PROMPTS, OFFERED, max_new_tokens=5)
        assert owner.rendered_otherwise == {owner.base_sha256}


@pytest.mark.parametrize("kind", ["vllm", "llama.cpp"])
def test_another_model_that_answers_is_an_error(kind: str, server: PolicyServer) -> None:
    server.kind, server.answers_as = kind, "gpt-5"
    with served(server) as owner, pytest.raises(EvalError, match="`gpt-5` answered"):
        owner.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=2)


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llama.cpp"])
def test_answers_of_other_weights_under_the_same_name_are_not_taken(kind: str, server: PolicyServer) -> None:
    server.kind, kept = kind, Kept()
    for weights in ("/models/tiny", "/models/tiny-four-bits"):
        server.weights, server.seen = weights, []
        with served(server, kept) as owner:
            owner.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=2)
        assert len([path for path, _ in server.seen if path in _ANSWERING]) == 4


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llama.cpp"])
def test_an_answer_that_the_server_broke_off_is_asked_for_again(
    kind: str, server: PolicyServer, here: PolicySet
) -> None:
    server.kind, server.ends = kind, ["abort"]
    with served(server) as owner:
        told = owner.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=3)
        meant = here.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=3)
        assert [a.message for a in told] == [a.message for a in meant]
        assert len([path for path, _ in server.seen if path in _ANSWERING]) == len(PROMPTS) + 1

        server.ends = ["length"] * 4  # at what was asked for: as in this process
        assert owner.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=2)
        server.ends, server.limit = ["limit" if kind == "llama.cpp" else "length"] * 4, 3
        with pytest.raises(EvalError, match="cut an answer at 3 of 9 tokens"):
            owner.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=9)


def test_an_answer_that_a_server_never_finishes_is_an_error(server: PolicyServer) -> None:
    kept, server.ends = Kept(), ["content_filter"] * 2
    with served(server, kept) as owner, pytest.raises(EvalError, match="did not finish an answer \\(content_filter"):
        owner.policy(None, "base").generate(PROMPTS[:1], [None], max_new_tokens=3)
    assert not kept


@pytest.mark.parametrize(
    "raw",
    [
        "[" * 2000,
        '{"model": "tiny", "choices": ' + "[" * 400 + "]" * 400 + "}",
        '{"model": "tiny", "choices": [{"text": "a", "token_ids": [-1]}]}',
        '{"model": "tiny", "choices": [{"text": "a"}], "usage": {"completion_tokens": 1e999}}',
        '{"model": "tiny", "choices": [{"text": "a"}], "usage": {"completion_tokens": Infinity}}',
        '{"model": "tiny", "choices": [{"text": "a"}], "usage": {"prompt_tokens": -1}}',
        '{"model": "tiny", "choices": [{"text": "\\ud83d"}]}',
        '{"model": "tiny", "choices": [7]}',
    ],
)
def test_a_reply_that_no_server_sends_is_an_error(raw: str, server: PolicyServer) -> None:
    server.raw = raw
    with served(server) as owner, pytest.raises(EvalError, match="no answer in the form of vllm"):
        owner.policy(None, "base").generate(PROMPTS[:1], [None], max_new_tokens=3)


def test_answers_in_memory_are_bounded(server: PolicyServer, here: PolicySet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flywheel.models.served.policy._MOST_GIVEN", 2)
    with served(server) as owner:
        told = owner.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=3)
        assert len(owner.given) == 2
    meant = here.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=3)
    assert [a.message for a in told] == [a.message for a in meant]


def test_another_tokenizer_is_an_error(server: PolicyServer) -> None:
    server.begins = 1
    with served(server) as owner, pytest.raises(EvalError, match="tokenizer"):
        owner.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=2)


def test_an_answer_that_is_refused_is_not_remembered(server: PolicyServer, here: PolicySet) -> None:
    kept, server.begins = Kept(), 1
    with served(server, kept) as owner, pytest.raises(EvalError, match="tokenizer"):
        owner.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=2)
    assert not kept
    server.begins = 0  # started again, with the right model
    with served(server, kept) as owner:
        answers = owner.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=2)
    meant = here.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=2)
    assert [a.message for a in answers] == [a.message for a in meant]


@pytest.mark.parametrize(("status", "after"), [(429, "1.1"), pytest.param(503, "a date", marks=pytest.mark.e2e)])
def test_a_busy_server_is_asked_again_and_never_more_at_once_than_allowed(
    status: int, after: str, server: PolicyServer
) -> None:
    with served(server, at_once=3) as owner:
        server.refuses = status
        server.after = after if status == 429 else formatdate(time.time() + 2, usegmt=True)
        server.busy, server.most_at_once = 1, 0  # the others go on while it waits
        server.holds, started = threading.Event(), time.monotonic()  # until two have come
        threading.Thread(target=release_two, args=(server, server.holds)).start()
        assert len(owner.policy(None, "base").generate(PROMPTS * 3, OFFERED * 3, max_new_tokens=2)) == 12
        assert time.monotonic() - started >= 1  # as its Retry-After asks
    assert 1 < server.most_at_once <= 3


def release_two(server: PolicyServer, released: threading.Event) -> None:
    while server.most_at_once < 2:
        time.sleep(0.01)
    released.set()


def test_a_server_that_is_too_slow_is_named_with_what_gives_it_time(server: PolicyServer) -> None:
    server.holds = threading.Event()
    with served(server, retries=0, timeout_s=1) as owner, pytest.raises(EvalError, match="in 1 s, 1 try") as told:
        owner.policy(None, "base").generate(PROMPTS[:1], [None], max_new_tokens=2)
    server.holds.set()
    assert "timeout_s" in (told.value.hint or "")


def test_a_server_that_was_never_there_is_named_at_once(tiny_model: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    started = time.monotonic()
    cfg = EvalConfig.model_validate({"endpoint": nobody, "server": {"kind": "sglang"}})
    with pytest.raises(EvalError, match=re.escape(f"no server at {nobody.removesuffix('/v1')}")) as told:
        open_policies(ModelConfig(base=str(tiny_model), dtype="float32"), cfg)
    assert time.monotonic() - started < 5
    assert "sglang.launch_server" in (told.value.hint or "")


def test_a_server_that_speaks_something_else_is_named_at_once(server: PolicyServer, tiny_model: Path) -> None:
    mute = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=greet, args=(mute,), daemon=True).start()
    addresses = {
        server.url.replace("http:", "https:"): "does not speak TLS",
        f"http://127.0.0.1:{mute.getsockname()[1]}": "does not speak HTTP",
        f"http://{'a' * 70}.example": "has no address",
    }
    for address, why in addresses.items():
        hosts = [f"{'a' * 70}.example"]
        cfg = EvalConfig.model_validate({"endpoint": address, "endpoint_hosts": hosts, "server": {"kind": "sglang"}})
        started = time.monotonic()
        with pytest.raises(EvalError, match=f"no server at .*{why}"):
            open_policies(ModelConfig(base=str(tiny_model), dtype="float32"), cfg)
        assert time.monotonic() - started < 5
    mute.close()


def greet(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
    connection.close()


def test_ctrl_c_does_not_wait_for_answers_under_way(server: PolicyServer) -> None:
    with served(server, at_once=2, retries=6) as owner:
        transport = owner.server.transport
        released = threading.Event()
        server.holds = released
        timer = threading.Timer(1.0, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
        started = time.monotonic()
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            owner.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=2)
        assert time.monotonic() - started < 5
        asked = [path for path, _ in server.seen if path == "/v1/completions"]
        released.set()
        assert len(asked) == 2
        assert transport.ask(Request("/v1/models"))


def test_a_server_that_dies_is_gone_on_with_where_it_was(server: PolicyServer, here: PolicySet) -> None:
    prompts = [[{"role": "user", "content": f"word {n}"}] for n in range(PIECE + 8)]
    none: list[None] = [None] * len(prompts)
    kept, server.dies_after = Kept(), PIECE + 2
    with served(server, kept, retries=0, at_once=2) as owner, pytest.raises(EvalError, match="does not answer") as told:
        owner.policy(None, "base").generate(prompts, none, max_new_tokens=2)
    assert "goes on from there" in (told.value.hint or "")
    assert len(kept) == 1

    server.dies_after, server.seen = -1, []
    with served(server, kept) as owner:
        answers = owner.policy(None, "base").generate(prompts, none, max_new_tokens=2)
    assert len([path for path, _ in server.seen if path == "/v1/completions"]) == 8
    meant = here.policy(None, "base").generate(prompts, none, max_new_tokens=2)
    assert [a.message for a in answers] == [a.message for a in meant]


def test_no_error_quotes_a_prompt(server: PolicyServer) -> None:
    secret = [[{"role": "user", "content": "s3cret"}]]
    with served(server, model="s3cret-model") as owner, pytest.raises(EvalError) as told:
        owner.policy(None, "base").generate(secret, [None], max_new_tokens=2)
    assert "404" in told.value.message
    assert "s3cret" not in f"{told.value.message} {told.value.hint}"


def test_the_key_comes_from_the_environment_alone(server: PolicyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.key = "k3y"
    with pytest.raises(EvalError, match="refuses the key"):
        served(server)
    with pytest.raises(UsageError, match="`MY_KEY` is not set"):
        served(server, key_env="MY_KEY")
    for wrong in ("k3y\nHost: evil.example", "k3y k3y", "k3y\u2013"):
        monkeypatch.setenv("MY_KEY", wrong)
        with pytest.raises(UsageError, match="`MY_KEY` holds no API key") as told:
            served(server, key_env="MY_KEY")
        assert "k3y" not in f"{told.value} {told.value.hint}"
    monkeypatch.setenv("MY_KEY", "k3y\n")
    with served(server, key_env="MY_KEY") as owner:
        assert "k3y" not in str(owner.identity)


@pytest.mark.parametrize(
    ("endpoint", "hosts", "allowed"),
    [
        ("http://localhost:8000/v1", [], True),
        ("http://127.0.0.1:8000", [], True),
        ("http://[::1]:8000/v1", [], True),
        ("https://gpu.internal/v1", [], False),
        ("https://gpu.internal/v1", ["gpu.internal"], True),
        ("http://localhost.evil.example/v1", [], False),
        ("http://127.0.0.1@evil.example/v1", [], False),
        ("http://10.0.0.7/v1", ["localhost"], False),
        ("ftp://localhost/v1", [], False),
        ("http://localhost/v 1", [], False),
        ("http://localhost/v1\u2013", [], False),
    ],
)
def test_prompts_go_to_this_machine_or_to_a_host_that_is_named(
    endpoint: str,
    hosts: list[str],
    allowed: bool,  # noqa: FBT001
) -> None:
    settings = {"eval": {"endpoint": endpoint, "endpoint_hosts": hosts}}
    if allowed:
        assert Config.model_validate(settings).eval.endpoint == endpoint
        return
    with pytest.raises((ValidationError, ConfigError)):
        Config.model_validate(settings)


def test_no_redirect_leads_a_prompt_or_the_key_elsewhere(
    server: PolicyServer, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "k3y")
    with serving(PolicyServer(tiny_model)) as other, served(server, key_env="MY_KEY") as owner:
        server.elsewhere = other.url.removesuffix("/v1")
        with pytest.raises(EvalError, match="sends elsewhere \\(307\\)"):
            owner.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=2)
    assert other.seen == []


def test_no_proxy_of_the_environment_sees_a_prompt(server: PolicyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with served(server) as owner:
        assert owner.policy(None, "base").generate(PROMPTS, OFFERED, max_new_tokens=2)

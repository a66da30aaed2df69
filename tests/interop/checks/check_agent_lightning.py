"""agent-lightning: its types take the events of the replay, and its own code makes triplets of them."""

import os
import sys

from _common import FOLDER, actions, ids, lines, mask, run, same, tokens

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))


def read():
    from agentlightning.schemas import EventCreate, RolloutCreate
    from agentlightning.hooks import load_hooks
    from replay import attempt, events

    hooks, count = load_hooks("hooks.py"), 0
    asked = [hooks.on_enqueue(RolloutCreate(input={"instance_id": "a"}, is_train=True)).input["member"] for _ in "ab"]
    same(asked, [0, 1], "members")
    for own in tokens("groups"):
        row = attempt("attempts.jsonl", own["row"], int(own["side"]))
        made = [EventCreate(**event) for event in events(row)]
        RolloutCreate(input={"instance_id": own["row"]}, is_train=True)
        response = made[-2].data["response"]
        same(response["prompt_token_ids"] + response["choices"][0]["token_ids"], ids(own), "tokens")
        same(made[-1].data["value"], own["reward"], "reward")
        sampled = sum(len(event.data["response"]["choices"][0]["token_ids"]) for event in made[:-1])
        same(sampled, sum(mask(own)), "sampled tokens")
        count += 1
    return f"EventCreate takes the events of {count} logged attempts with ids and rewards"


def config():
    """veRL's files are read where they lie, because veRL itself needs torch."""
    from importlib.util import find_spec
    from pathlib import Path

    from environment import AGENT
    from train import composed

    verl = Path(find_spec("verl").origin).parent / "trainer" / "config"
    there = [f"hydra.searchpath=[file://{verl}]"]
    settings = composed(there)
    same(settings.agentlightning.local.agent_class, "replay:Replay", "agent")
    assert settings.data.max_response_length >= max(len(row["completion_ids"]) for row in tokens("groups"))
    same(composed(there, AGENT).agentlightning.local.env_map.FLY_SCENARIO, "input.scenario", "the environment's agent")
    try:
        composed([*there, "algorithm.no_such_key=1"])
    except Exception:
        return "Hydra composes its config.yaml over veRL 0.8's with rl.args, and refuses an unknown key"
    raise AssertionError("an unknown key was taken")


def served(port):
    """Start its server and its controller with the local runner, in this folder."""
    import subprocess
    import time
    import urllib.request
    from pathlib import Path

    where, key = f"http://127.0.0.1:{port}", ""  # as the README starts it
    tools = Path(sys.executable).parent
    environment = {**os.environ, "PYTHONPATH": str(FOLDER), "NO_PROXY": "127.0.0.1"}
    calls = (
        ["agl-server", "host=127.0.0.1", f"port={port}", f"key={key}", "default_proxy.model_name=tiny"],
        ["agl-controller", "runner_type=local", f"agl_server.url={where}", f"agl_server.key={key}",
         "local_runner.poll_interval=1"],
    )  # fmt: skip
    started = []
    for name, *rest in calls:
        started.append(subprocess.Popen([tools / name, *rest], env=environment, stdout=sys.stderr, stderr=sys.stderr))
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{where}/docs", timeout=2)
                break
            except OSError:
                time.sleep(0.5)
    return started, where, key


def manager(where, key, most, agent, env_map, hooks=None):
    from agentlightning.hooks import load_hooks
    from agentlightning.verl.agl_rollout_manager import AglRolloutManager

    return AglRolloutManager(
        agl_base_url=where,
        agl_key=key,
        model="tiny",
        step=0,
        train_rollout_n=most,
        rollout_timeout_seconds=240,
        hooks=load_hooks(hooks) if hooks else None,
        local_agent_class=agent,
        local_env_map=env_map,
    )


def free():
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def replay():
    os.environ["NO_PROXY"] = "127.0.0.1"
    started, where, key = served(free())
    try:
        return f"{played(where, key)}; {sampled(where, key)}"
    finally:
        for process in started:
            process.terminate()
            process.wait()


def played(where, key):
    tasks = lines(FOLDER / "tasks.jsonl")
    most = max(task["n"] for task in tasks)
    variables = {"FLY_FILE": "input.file", "FLY_INSTANCE": "input.instance_id", "FLY_MEMBER": "input.member"}
    one = manager(where, key, most, "replay:Replay", variables, "hooks.py")
    data = {name: [task[name] for task in tasks] for name in tasks[0]}
    rollouts = one.enqueue_and_wait_until_completed(data, is_train=True)
    written = {(row["row"], int(row["side"])): row for row in tokens("groups")}
    sizes = {task["instance_id"]: task["n"] for task in tasks}
    same(len(rollouts), most * len(tasks), "rollouts")
    for one in rollouts:
        group = one.input["instance_id"]
        own = written[group, one.input["member"] % sizes[group]]
        same(one.final_reward, own["reward"], "reward")
        same(len(one.triplets), len(own["windows"]), "calls")
        for call, (start, end) in zip(one.triplets, own["windows"]):
            place = len(own["prompt_ids"])
            same(call.prompt["token_ids"], ids(own)[: place + start], "tokens before the call")
            same(call.response["token_ids"], ids(own)[place + start : place + end], "tokens of the call")
    return f"its server and local runner play {len(rollouts)} attempts: triplets with the tokens and rewards of the log"


class Model:
    """An OpenAI server that lists the orders, then answers, with the tokens of the log."""

    def __init__(self):
        self.asked = []

    def answer(self, body):
        self.asked.append(body)
        written, own = actions()
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        call = {"id": "x", "type": "function", "function": {"name": "list_orders", "arguments": "{}"}}
        message = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "assistant", "content": "It was sent on Monday."},
        ][turn]
        start = own["windows"][turn][0]
        choice = {"index": 0, "message": message, "finish_reason": "stop", "token_ids": written[turn]}
        return {
            "id": "one", "object": "chat.completion", "created": 0, "model": "tiny", "choices": [choice],
            "prompt_token_ids": own["prompt_ids"] + own["completion_ids"][:start],
        }  # fmt: skip

    def served(self):
        """Serve in a thread, and return the address."""
        import json
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
        from threading import Thread

        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                text = json.dumps(model.answer(body)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        return f"127.0.0.1:{server.server_address[1]}"


def sampled(where, key):
    """Its proxy, its events and its local runner between the agent and a model that writes what was recorded."""
    from environment import scenarios

    model, names = Model(), list(scenarios())
    one = manager(where, key, 2, "environment:Environment", {"FLY_SCENARIO": "input.scenario"})
    one.register_model([model.served()])
    rollouts = one.enqueue_and_wait_until_completed({"scenario": names}, is_train=True)
    same(len(rollouts), 2 * len(names), "rollouts")
    _, own = actions()
    for rollout in rollouts:
        same(rollout.final_reward, 1.0, "reward")
        last = rollout.triplets[-1]
        same(last.prompt["token_ids"] + last.response["token_ids"], ids(own), "tokens")
    results = {m["content"] for body in model.asked for m in body["messages"] if m["role"] == "tool"}
    same(results, {"order 7: sent on Monday"}, "what the model was told")
    return (
        f"{len(rollouts)} more it samples through its proxy, answered by the log's results and rewarded as in the log"
    )


run(read=read, config=config, replayed=replay)

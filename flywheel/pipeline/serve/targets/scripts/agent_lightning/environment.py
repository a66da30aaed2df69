"""An agent whose calls recorded results answer, while agent-lightning's policy samples: `python environment.py`.

It speaks through the server's proxy, which keeps the tokens. An attempt that leaves the log sends no reward, for which
agent-lightning puts its `reward_fillna_value`: its group's mean counts that.
"""

import json
import os
import sys
from pathlib import Path

from flywheel_replay.base import ReplayConfig
from flywheel_replay.environment import ReplayEnvironment
from flywheel_replay.scenario import read_scenario

_FILE = Path(__file__).parent / "scenarios.jsonl"
AGENT = [
    "agentlightning.local.agent_class=environment:Environment",
    "+agentlightning.local.env_map.FLY_SCENARIO=input.scenario",
]


def scenarios():
    """Return the recorded scenarios by their ids."""
    rows = map(json.loads, _FILE.read_text(encoding="utf-8").splitlines())
    return {row["id"]: row for row in rows}


def shown(message):
    """Return a message as OpenAI's API has it."""
    calls = [
        {
            "id": one["id"],
            "type": "function",
            "function": {"name": one["name"], "arguments": json.dumps(one["arguments"])},
        }
        for one in message.get("tool_calls") or ()
    ]
    kept = {name: value for name, value in message.items() if name in ("role", "content", "tool_call_id", "name")}
    return {"content": None, **kept, "tool_calls": calls} if calls else kept


def said(message):
    """Return an answer of OpenAI's API as the environment takes it; malformed arguments end the attempt."""
    calls = []
    for one in message.get("tool_calls") or ():
        try:
            arguments = json.loads(one["function"]["arguments"] or "{}")
        except ValueError:
            arguments = None
        calls.append({"name": one["function"]["name"], "arguments": arguments if isinstance(arguments, dict) else None})
    action = {"role": "assistant", "content": message.get("content") or ""}
    return {**action, "tool_calls": calls} if calls else action


class Environment:
    def run(self):
        import httpx

        row = scenarios()[os.environ["FLY_SCENARIO"]]
        attempt, messages = ReplayEnvironment(read_scenario(row), ReplayConfig(**row["limits"])), list(row["prompt"])
        tools = [one if "function" in one else {"type": "function", "function": one} for one in row["tools"] or ()]
        key = {"Authorization": f"Bearer {os.environ['AGL_KEY']}"} if os.environ.get("AGL_KEY") else {}
        while not attempt.over:
            asked = {"messages": [shown(message) for message in messages], **({"tools": tools} if tools else {})}
            url = f"{os.environ['AGL_OPENAI_BASE_URL']}/chat/completions"
            answer = httpx.post(url, json=asked, headers=key, timeout=600).raise_for_status().json()
            messages += attempt.take(said(answer["choices"][0]["message"]))
        if attempt.outcome.reward is not None:
            event = {"event_type": "reward", "data": {"value": attempt.outcome.reward, "source": "flywheel"}}
            httpx.post(os.environ["AGL_EVENT_URL"], json=event, headers=key).raise_for_status()


if __name__ == "__main__":
    from train import main

    main(sys.argv[1:], AGENT, [{"scenario": name} for name in scenarios()])

"""agent-lightning: its types take the events of the replay, and its own code makes triplets of them."""

import os
import sys

from _common import FOLDER, ids, mask, run, same, tokens

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))


def replayed():
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
    return f"EventCreate takes the events of {count} logged attempts with ids and rewards (its server was not started)"


def config():
    """veRL's files are read where they lie, because veRL itself needs torch."""
    from importlib.util import find_spec
    from pathlib import Path

    from train import composed

    verl = Path(find_spec("verl").origin).parent / "trainer" / "config"
    there = [f"hydra.searchpath=[file://{verl}]"]
    settings = composed(there)
    same(settings.agentlightning.local.agent_class, "replay:Replay", "agent")
    assert settings.data.max_response_length >= max(len(row["completion_ids"]) for row in tokens("groups"))
    try:
        composed([*there, "algorithm.no_such_key=1"])
    except Exception:
        return "Hydra composes its config.yaml over veRL 0.8's with rl.args, and refuses an unknown key"
    raise AssertionError("an unknown key was taken")


run(read=replayed, config=config)

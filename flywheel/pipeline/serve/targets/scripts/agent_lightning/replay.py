"""An agent that plays back a logged attempt through agent-lightning's events: `runner_type=local`."""

import json
import os


def attempt(file, instance_id, member):
    """Return a member of a group; a group with fewer members repeats them."""
    with open(file, encoding="utf-8") as lines:
        members = [row for row in map(json.loads, lines) if row["instance_id"] == instance_id]
    return members[member % len(members)]


def events(row):
    """Return the events of a logged attempt: each call as the gateway would have recorded it, then the reward."""
    calls = [
        {
            "event_type": "model_request",
            "data": {
                "model": call["request"]["model"],
                "request": call["request"],
                "response": call["response"],
                "finish_reason": call["response"]["choices"][0]["finish_reason"],
            },
        }
        for call in row["calls"]
    ]
    return [*calls, {"event_type": "reward", "data": {"value": row["reward"], "source": "flywheel"}}]


class Replay:
    def run(self):
        import httpx

        row = attempt(os.environ["FLY_FILE"], os.environ["FLY_INSTANCE"], int(os.environ.get("FLY_MEMBER", "0")))
        key = {"Authorization": f"Bearer {os.environ['AGL_KEY']}"} if os.environ.get("AGL_KEY") else {}
        for event in events(row):
            httpx.post(os.environ["AGL_EVENT_URL"], json=event, headers=key).raise_for_status()

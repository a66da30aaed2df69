"""Numbers the rollouts of a task, so that the n-th plays back the n-th attempt: `agentlightning.hooks=hooks.py`."""

from collections import Counter

from agentlightning.hooks import RolloutHooks


class Numbered(RolloutHooks):
    def __init__(self):
        self.asked = Counter()

    def on_enqueue(self, request):
        name = request.input["instance_id"]
        member = self.asked[name]
        self.asked[name] += 1
        return request.model_copy(update={"input": {**request.input, "member": member}})

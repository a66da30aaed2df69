"""A reward that compares an answer with the best logged one, by their words (F1). Put your own check here."""

from collections import Counter

from agentfly.rewards import reward


@reward(name="logged_reference")
def logged_reference(final_response: str, reference: str) -> float:
    given, wanted = Counter(final_response.lower().split()), Counter(reference.lower().split())
    common = sum((given & wanted).values())
    return 2 * common / (given.total() + wanted.total()) if common else 0.0

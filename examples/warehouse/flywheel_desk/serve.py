"""`python -m flywheel_desk.serve`: a policy serves the desk for a night.

Scripted policies: `careful` looks up, asks and refuses as the policy wants; `hasty` forgets either now and then;
`careless` does at once whatever is asked; `random` does anything.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from flywheel_worlds.evaluate import Executed, Practice
from flywheel_worlds.serve import main
from flywheel_worlds.talk import Message, Rule, Task, called, said
from flywheel_worlds.users import PLEASED, Character

from flywheel_desk.customers import Customer
from flywheel_desk.world import DAYS, HOURS, ORDERS, REFUND_DAYS, SYSTEM, TOOLS, Wish, tasks

_SHOWN = re.compile(r"\w+ of (?P<owner>\w+), (?P<status>\w+)(?: (?P<days>\d+) days ago)?")


class SupportDesk:
    """The desk as a world that serves."""

    name = "desk"
    system = SYSTEM
    tools = TOOLS
    last: frozenset[str] = frozenset()

    @property
    def policies(self) -> Mapping[str, Rule]:
        """The scripted policies, by how often they look up and how often they ask."""
        habits = {"careful": (1.0, 1.0), "hasty": (0.8, 0.7), "careless": (0.0, 0.0)}
        clerks: dict[str, Rule] = {name: partial(_clerk, habit) for name, habit in habits.items()}
        return {**clerks, "random": _at_random}

    def tasks(self) -> Sequence[Task]:
        """Return every request."""
        return tasks()

    def open(self, task: Task, rng: random.Random, character: Character) -> Customer:
        """Let a customer ask."""
        return Customer(task.about, rng, character)


def _wish(messages: Sequence[Message]) -> Wish:
    """Return what the customer wants by now: the order that they named last."""
    turns = [str(message["content"]) for message in messages if message["role"] == "user"]
    order = [number for turn in turns for number in re.findall(r"\b\d{3}\b", turn)][-1]
    request = turns[0].lower()
    if "refund" in request:
        return Wish("refund_order", order)
    if "cancel" in request:
        return Wish("cancel_order", order)
    if to := re.search(r"Please send order \d+ to (\w+)", turns[0]):
        return Wish("set_address", order, (to[1],))
    if at := re.search(r"on (\w+) at (\d+)", turns[0]):
        return Wish("book_visit", order, (at[1], at[2]))
    return Wish("find_order", order)


def _results(messages: Sequence[Message]) -> dict[tuple[str, str], str]:
    """Return what each call gave, by its tool and its first argument."""
    calls = {call["id"]: call for message in messages for call in message.get("tool_calls") or []}
    results = {}
    for message in messages:
        if message["role"] == "tool":
            call = calls[message["tool_call_id"]]
            results[call["name"], str(next(iter(call["arguments"].values())))] = str(message["content"])
    return results


def _answer(wish: Wish, person: str, shown: re.Match[str]) -> str:
    """Return where a shown order is, or why the policy forbids the change; '' where it allows it."""
    if wish.tool == "find_order":
        return f"Order {wish.order} is {shown['status']}."
    wanted = "delivered" if wish.tool in {"refund_order", "book_visit"} else "open"
    why = f"it is {shown['status']}" if shown["status"] != wanted else ""
    if not why and wish.tool == "refund_order" and int(shown["days"]) > REFUND_DAYS:
        why = f"{REFUND_DAYS} days are over"
    if shown["owner"] != person:
        why = "it is not your order"
    return f"Sorry, I cannot do that with order {wish.order}: {why}." if why else ""


def _clerk(habit: tuple[float, float], messages: Sequence[Message], rng: random.Random) -> Message:
    """Look up, refuse or ask, act; a clerk without these habits acts at once."""
    last, wish, results = messages[-1], _wish(messages), _results(messages)
    looks, asks = (rng.random() < share for share in habit)
    looked_up = ("find_order", wish.order)
    shown = _SHOWN.match(results.get(looked_up, ""))
    person = str(messages[1]["content"]).removeprefix("I am ").split(".")[0]
    done = wish.tool != "find_order" and (wish.tool, wish.order) in results
    if done or last["content"] in PLEASED or str(last["content"]).startswith("No, leave"):
        return said(f"All right, order {wish.order} is {'changed' if done else 'as it was'}.")
    if looked_up not in results and (looks or wish.tool == "find_order"):
        return called("find_order", order=wish.order)
    if shown and (words := _answer(wish, person, shown)):
        return said(words)
    if wish.tool == "book_visit" and shown:
        day, hour = wish.rest
        if ("list_hours", day) not in results:
            return called("list_hours", day=day)
        free = results["list_hours", day].split(", ")
        wish = wish._replace(rest=(day, hour if hour in free else free[0]))
    if asks and last["content"] != "Yes, please.":
        return said(f"Shall I {_in_words(wish)}?")
    return called(wish.tool, **wish.arguments)


def _in_words(wish: Wish) -> str:
    words = {
        "refund_order": f"refund order {wish.order}",
        "cancel_order": f"cancel order {wish.order}",
        "set_address": f"send order {wish.order} to {' '.join(wish.rest)}",
        "book_visit": f"book a visit for order {wish.order} on {' at '.join(wish.rest)}",
    }
    return words[wish.tool]


def _at_random(messages: Sequence[Message], rng: random.Random) -> Message:
    """Call any tool for any order, or speak."""
    del messages
    function = rng.choice(TOOLS)["function"]
    values = {"order": str(100 + rng.randrange(ORDERS)), "day": rng.choice(DAYS), "hour": str(rng.choice(HOURS))}
    required = function["parameters"]["required"]
    return rng.choice((called(function["name"], **{key: values.get(key, "Lima") for key in required}), said("Hello.")))


DESK = SupportDesk()
executed = Executed(DESK, harm=True)
practice = Practice(DESK)

if __name__ == "__main__":
    sys.exit(main(DESK))

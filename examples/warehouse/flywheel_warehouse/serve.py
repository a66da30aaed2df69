"""`python -m flywheel_warehouse.serve`: a policy answers the shop's questions for a night, and users react.

Scripted policies are the three agents of the sample logs, one that makes no mistake, and one that acts at random.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from flywheel_worlds.evaluate import Executed, Practice
from flywheel_worlds.serve import main
from flywheel_worlds.talk import Deed, Message, Rule, Task, Verdict, called, said
from flywheel_worlds.users import PLEASED, Character, react

from flywheel_warehouse.agents import AGENTS, Agent, broken
from flywheel_warehouse.shop import SHOP_TOOLS, Shop, answer_of, same_answer, shop_questions, shop_tasks
from flywheel_warehouse.world import SYSTEM, Question

EXPERT = Agent("expert", "shop-70b", 0, 0, 0, 0, 0, 0, 1)


class Asking:
    """A user with one question, who may ask it again."""

    def __init__(self, shop: Shop, question: Question, rng: random.Random, character: Character) -> None:
        self.deeds: list[Deed] = []
        self._shop, self._question, self._rng, self._character = shop, question, rng, character
        self._answer: str | None = None
        self._reacted = self._asks_again = False

    def call(self, name: str, arguments: dict[str, Any] | None) -> tuple[str, bool]:
        """Execute a call, and keep the answer."""
        text, ok = self._shop.call(name, arguments)
        if name == "answer" and ok and arguments is not None and (not self._reacted or self._asks_again):
            self._answer = str(arguments["value"]).strip()
        return text, ok

    def hears(self, text: str) -> str | None:
        """React once."""
        del text
        if self._reacted:
            return None
        self._reacted = True
        reaction = react(self._question.text, self._rng, correct=self._right, character=self._character)
        if reaction.deed is not None:
            self.deeds.append(Deed(*reaction.deed, late=reaction.late))
        self._asks_again = reaction.again
        if reaction.again:
            self._answer = None
        return reaction.words

    @property
    def _right(self) -> bool:
        return self._answer is not None and same_answer(self._answer, self._shop.truth(self._question))

    def verdict(self) -> Verdict:
        """Return whether the last answer is true; a question cannot do harm."""
        return Verdict(self._right, self._right)


class Warehouse:
    """The grown warehouse as a world that serves."""

    name = "warehouse"
    system = SYSTEM
    tools = SHOP_TOOLS
    last = frozenset({"answer"})

    @cached_property
    def _shop(self) -> Shop:
        return Shop()

    @property
    def policies(self) -> Mapping[str, Rule]:
        """The scripted policies."""
        agents: dict[str, Rule] = {agent.name: partial(_as_habits, agent) for agent in (*AGENTS, EXPERT)}
        return {**agents, "random": _at_random}

    def tasks(self) -> Sequence[Task]:
        """Return every question."""
        return shop_tasks()

    def open(self, task: Task, rng: random.Random, character: Character) -> Asking:
        """Let a user ask."""
        return Asking(self._shop, task.about, rng, character)


def _asked(messages: Sequence[Message]) -> Question:
    return shop_questions()[str(messages[1]["content"])]


def _as_habits(agent: Agent, messages: Sequence[Message], rng: random.Random) -> Message:
    """Write a query, mend it after an error, read the answer off its result."""
    last, question = messages[-1], _asked(messages)
    if last["role"] == "user":
        if last is not messages[1] and question.text not in str(last["content"]):
            return said("You're welcome." if last["content"] in PLEASED else "I am sorry about that.")
        if rng.random() < agent.explore:
            return called("list_tables")
    elif last["name"] == "run_sql" and last["status"] == "ok":
        return called("answer", value=answer_of(last["content"]) or "none")
    elif last["name"] == "run_sql" and rng.random() < agent.mend:
        return called("run_sql", sql=question.sql)
    arguments, raw = broken(agent, question, rng)
    message = called("run_sql", **arguments or {})
    if raw is not None:
        message["tool_calls"][0] |= {"arguments": None, "arguments_raw": raw}
    return message


def _at_random(messages: Sequence[Message], rng: random.Random) -> Message:
    """Call any tool with a number."""
    del messages
    function = rng.choice(SHOP_TOOLS)["function"]
    return called(function["name"], **{key: str(rng.randrange(99)) for key in function["parameters"]["required"]})


WAREHOUSE = Warehouse()
executed = Executed(WAREHOUSE)
practice = Practice(WAREHOUSE)

if __name__ == "__main__":
    sys.exit(main(WAREHOUSE))

"""`python -m flywheel_warehouse.serve`: a policy answers questions for a night, and users react.

The questions are the shop's, with `--world counter` its easier ones, or with `--world sample` those of the sample logs:
what was asked there is asked again.
Scripted policies are the three agents of the sample logs, one that makes no mistake, and one that acts at random.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

from flywheel_worlds.evaluate import Executed, Practice
from flywheel_worlds.serve import main
from flywheel_worlds.talk import Deed, Message, Rule, Task, Verdict, called, said
from flywheel_worlds.users import PLEASED, Character, react

from flywheel_warehouse.agents import AGENTS, Agent, broken
from flywheel_warehouse.generate import logged_questions
from flywheel_warehouse.shop import SHOP_TOOLS, Shop, answer_of, counter_tasks, same_answer, shop_tasks
from flywheel_warehouse.world import SYSTEM, TOOLS, Question, World, questions

EXPERT = Agent("expert", "shop-70b", 0, 0, 0, 0, 0, 0, 1)


class Asking:
    """A user with one question, who may ask it again."""

    def __init__(self, database: World, question: Question, rng: random.Random, character: Character) -> None:
        self.deeds: list[Deed] = []
        self._database, self._question, self._rng, self._character = database, question, rng, character
        self._answer: str | None = None
        self._reacted = self._asks_again = False

    def call(self, name: str, arguments: dict[str, Any] | None) -> tuple[str, bool]:
        """Execute a call, and keep the answer."""
        text, ok = self._database.call(name, arguments)
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
        return self._answer is not None and same_answer(self._answer, self._database.truth(self._question))

    def verdict(self) -> Verdict:
        """Return whether the last answer is true; a question cannot do harm."""
        return Verdict(self._right, self._right)


class Warehouse:
    """A database with its questions, as a world that serves.

    Args:
        name: of the world.
        tools: what a policy may call.
        database: opens the database.
        tasks: the questions.
    """

    system = SYSTEM
    last = frozenset({"answer"})

    def __init__(
        self, name: str, tools: list[dict[str, Any]], database: Callable[[], World], tasks: Callable[[], list[Task]]
    ) -> None:
        self.name, self.tools, self.tasks = name, tools, tasks
        self._open = database

    @cached_property
    def _database(self) -> World:
        return self._open()

    @cached_property
    def policies(self) -> Mapping[str, Rule]:
        """The scripted policies."""
        asked = {task.text: task.about for task in self.tasks()}
        agents: dict[str, Rule] = {agent.name: partial(_as_habits, agent, asked) for agent in (*AGENTS, EXPERT)}
        return {**agents, "random": _at_random}

    def open(self, task: Task, rng: random.Random, character: Character) -> Asking:
        """Let a user ask."""
        return Asking(self._database, task.about, rng, character)


@lru_cache(maxsize=1)
def sample_tasks() -> list[Task]:
    """Return the questions of the sample logs' world; those that no log ever asked are the gate's."""
    logged = {question.text for question in logged_questions()}
    return [
        Task(question.text, question.family, question, "served" if question.text in logged else "gate")
        for question in questions().values()
    ]


def _as_habits(agent: Agent, asked: Mapping[str, Question], messages: Sequence[Message], rng: random.Random) -> Message:
    """Write a query, mend it after an error, read the answer off its result."""
    last, question = messages[-1], asked[str(messages[1]["content"])]
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


WAREHOUSE = Warehouse("warehouse", SHOP_TOOLS, Shop, shop_tasks)
COUNTER = Warehouse("counter", SHOP_TOOLS, Shop, counter_tasks)
SAMPLE = Warehouse("sample", TOOLS, World, sample_tasks)
executed = Executed(WAREHOUSE)
executed_counter = Executed(COUNTER)
practice = Practice(WAREHOUSE)
counter_practice = Practice(COUNTER)
sample_practice = Practice(SAMPLE)

if __name__ == "__main__":
    sys.exit(main(WAREHOUSE, COUNTER, SAMPLE))

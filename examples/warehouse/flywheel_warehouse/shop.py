"""The warehouse, grown: a larger database and some ten thousand questions in seventeen families, easy to hard.

The questions of `world.py` are those of the sample logs and stay as they are; these are asked night after night.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import Any

from flywheel_worlds.nights import share
from flywheel_worlds.talk import Purpose, Task

from flywheel_warehouse.world import CITIES, MONTHS, PRODUCTS, TOOLS, Question, World

SHOP_ORDERS = 6000
RETURNED = 0.15
YEAR = date(2025, 1, 1)
KINDS = ("light", "seat", "table", "decor")
KIND_OF = dict(zip(PRODUCTS, ("light", "table", "seat", "table", "decor", "decor", "seat", "decor", "seat", "decor",
                              "seat", "decor"), strict=True))  # fmt: skip
DAYS = tuple(YEAR + timedelta(days=n) for n in range(5, 360, 3))
LIMITS = tuple(range(150, 1350, 50))
SCHEMA = "Queries orders(city product day quantity amount returned), products(product kind price stock)."

# The counter's: one or two conditions, a query of 36 to 46 tokens; a small model can learn them.
COUNTER_FAMILIES = (
    "revenue_city_product", "units_product_month", "returned_city_month", "above", "since", "before", "average",
)  # fmt: skip

# Up to which share of its questions each purpose goes. Many are the gate's: a look at a candidate takes 200, and of a
# family with 144 questions none would be fresh after the first.
SHOP_SHARES: tuple[tuple[Purpose, float], ...] = (("gate", 0.3), ("exam", 0.35), ("served", 1.0))
COUNTER_SHARES: tuple[tuple[Purpose, float], ...] = (("gate", 0.3), ("exam", 0.5), ("served", 1.0))

SHOP_TOOLS = [
    {**tool, "function": {**tool["function"], "description": SCHEMA}} if tool["function"]["name"] == "run_sql" else tool
    for tool in TOOLS
]


def _all(*wheres: str) -> str:
    return " AND ".join(wheres)


def _city(city: str) -> str:
    return f"city = '{city}'"


def _product(name: str) -> str:
    return f"product = '{name}'"


def _month(month: str) -> str:
    return f"month(day) = {MONTHS.index(month) + 1}"


def _orders(what: str, *wheres: str, tail: str = "") -> str:
    return f"SELECT {what} FROM orders WHERE {_all(*wheres)}{tail}"


def _top(what: str, by: str, rows: int, *wheres: str) -> str:
    return _orders(what, *wheres, tail=f" GROUP BY {what} ORDER BY sum({by}) DESC LIMIT {rows}")


def _last(what: str, by: str, *wheres: str) -> str:
    return _orders(what, *wheres, tail=f" GROUP BY {what} ORDER BY sum({by}) LIMIT 1")


def _joined(what: str, kind: str, *wheres: str) -> str:
    where = _all(f"kind = '{kind}'", *wheres)
    return f"SELECT {what} FROM orders JOIN products USING (product) WHERE {where}"


# Of each family: the words, the query, a query that runs and answers something else, and the values of its parameters.
Family = tuple[Callable[..., tuple[str, str, str]], Callable[[], Iterator[tuple[Any, ...]]]]

SHOP_FAMILIES: dict[str, Family] = {
    "orders_city": (
        lambda c: (
            f"How many orders came from {c}?",
            _orders("count(*)", _city(c)),
            _orders("sum(quantity)", _city(c)),
        ),
        lambda: product(CITIES),
    ),
    "price": (
        lambda p, what: (
            f"What is the {what} of the {p}?",
            f"SELECT {what} FROM products WHERE {_product(p)}",
            f"SELECT {'stock' if what == 'price' else 'price'} FROM products WHERE {_product(p)}",
        ),
        lambda: product(PRODUCTS, ("price", "stock")),
    ),
    "revenue_city_product": (
        lambda c, p: (
            f"What was the revenue from {p} orders in {c}?",
            _orders("sum(amount)", _city(c), _product(p)),
            _orders("sum(amount)", _city(c)),
        ),
        lambda: product(CITIES, PRODUCTS),
    ),
    "units_product_month": (
        lambda p, m: (
            f"How many units of {p} were sold in {m}?",
            _orders("sum(quantity)", _product(p), _month(m)),
            _orders("count(*)", _product(p), _month(m)),
        ),
        lambda: product(PRODUCTS, MONTHS),
    ),
    "returned_city_month": (
        lambda c, m: (
            f"How many orders from {c} in {m} were returned?",
            _orders("count(*)", _city(c), _month(m), "returned"),
            _orders("count(*)", _city(c), _month(m)),
        ),
        lambda: product(CITIES, MONTHS),
    ),
    "above": (
        lambda c, n: (
            f"How many orders from {c} were above {n}?",
            _orders("count(*)", _city(c), f"amount > {n}"),
            _orders("count(*)", _city(c), f"amount < {n}"),
        ),
        lambda: product(CITIES, LIMITS),
    ),
    "since": (
        lambda p, d: (
            f"How many {p} orders were there since {d}?",
            _orders("count(*)", _product(p), f"day >= '{d}'"),
            _orders("count(*)", _product(p), f"day < '{d}'"),
        ),
        lambda: product(PRODUCTS, DAYS),
    ),
    "before": (
        lambda c, d: (
            f"What was the revenue in {c} before {d}?",
            _orders("sum(amount)", _city(c), f"day < '{d}'"),
            _orders("sum(amount)", _city(c), f"day > '{d}'"),
        ),
        lambda: product(CITIES, DAYS),
    ),
    "between": (
        lambda c, d: (
            f"How many units did {c} order between {d} and {d + timedelta(days=30)}?",
            _orders("sum(quantity)", _city(c), f"day BETWEEN '{d}' AND '{d + timedelta(days=30)}'"),
            _orders("sum(quantity)", _city(c), f"day >= '{d}'"),
        ),
        lambda: product(CITIES, DAYS[:-10]),
    ),
    "average": (
        lambda c, p: (
            f"What was the average amount of {p} orders in {c}, rounded?",
            _orders("round(avg(amount))", _city(c), _product(p)),
            _orders("max(amount)", _city(c), _product(p)),
        ),
        lambda: product(CITIES, PRODUCTS),
    ),
    "largest": (
        lambda c, p, m: (
            f"What was the largest {p} order from {c} in {m}?",
            _orders("max(amount)", _city(c), _product(p), _month(m)),
            _orders("count(*)", _city(c), _product(p), _month(m)),
        ),
        lambda: product(CITIES, PRODUCTS, MONTHS),
    ),
    "distinct": (
        lambda c, m: (
            f"How many different products did {c} order in {m}?",
            _orders("count(DISTINCT product)", _city(c), _month(m)),
            _orders("count(product)", _city(c), _month(m)),
        ),
        lambda: product(CITIES, MONTHS),
    ),
    "compare_cities": (
        lambda c, other, p: (
            f"Which bought more {p} units, {c} or {other}?",
            _top("city", "quantity", 1, f"city IN ('{c}', '{other}')", _product(p)),
            _last("city", "quantity", f"city IN ('{c}', '{other}')", _product(p)),
        ),
        lambda: ((a, b, p) for (a, b), p in product(combinations(CITIES, 2), PRODUCTS)),
    ),
    "change": (
        lambda c, m, n: (
            f"By how much did the revenue in {c} change from {m} to {n}?",
            f"SELECT ({_orders('sum(amount)', _city(c), _month(n))}) - ({_orders('sum(amount)', _city(c), _month(m))})",
            _orders("sum(amount)", _city(c), _month(n)),
        ),
        lambda: ((c, m, n) for c, (m, n) in product(CITIES, permutations(MONTHS, 2))),
    ),
    "join_kind": (
        lambda k, c, m: (
            f"What was the revenue from {k} products in {c} in {m}?",
            _joined("sum(amount)", k, _city(c), _month(m)),
            _orders("sum(amount)", _city(c), _month(m)),
        ),
        lambda: product(KINDS, CITIES, MONTHS),
    ),
    "join_price": (
        lambda n, c: (
            f"How many orders from {c} were for products that cost more than {n}?",
            f"SELECT count(*) FROM orders JOIN products USING (product) WHERE {_city(c)} AND price > {n}",
            _orders("count(*)", _city(c), f"amount > {n}"),
        ),
        lambda: product(range(40, 400, 20), CITIES),
    ),
    "top": (
        lambda n, p, m: (
            f"Which {n} cities brought the most {p} revenue in {m}?",
            _top("city", "amount", n, _product(p), _month(m)),
            _top("city", "amount", n, _month(m)),
        ),
        lambda: product((2, 3), PRODUCTS, MONTHS),
    ),
}  # fmt: skip


@lru_cache(maxsize=1)
def shop_questions() -> dict[str, Question]:
    """Return every question by its text."""
    made = (
        Question(family, *words(*values), table="products" if family == "price" else "orders")
        for family, (words, every) in SHOP_FAMILIES.items()
        for values in every()
    )
    return {question.text: question for question in made}


@lru_cache(maxsize=1)
def shop_tasks() -> list[Task]:
    """Return every question as a task, with its purpose."""
    return [
        Task(question.text, question.family, question, _purpose(question.text, SHOP_SHARES))
        for question in shop_questions().values()
    ]


@lru_cache(maxsize=1)
def counter_tasks() -> list[Task]:
    """Return the counter's questions, with their purposes."""
    tasks = (task for task in shop_tasks() if task.family in COUNTER_FAMILIES)
    return [task._replace(purpose=_purpose(task.text, COUNTER_SHARES)) for task in tasks]


def _purpose(text: str, shares: Sequence[tuple[Purpose, float]]) -> Purpose:
    return next(purpose for purpose, up_to in shares if share(text) < up_to)


class Shop(World):
    """The larger database; the tools of the warehouse."""

    def _fill(self) -> None:
        rng = random.Random(5)  # noqa: S311 - a reproducible world
        self._db.execute("CREATE TABLE products (product TEXT, kind TEXT, price INTEGER, stock INTEGER)")
        prices = {name: rng.randrange(20, 400) for name in PRODUCTS}
        rows = [[name, KIND_OF[name], prices[name], rng.randrange(1, 90)] for name in PRODUCTS]
        self._db.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", rows)
        orders = []
        for _ in range(SHOP_ORDERS):
            name, quantity = rng.choice(PRODUCTS), rng.randrange(1, 6)
            day = YEAR + timedelta(days=rng.randrange(365))
            amount, returned = quantity * prices[name], rng.random() < RETURNED
            orders.append(f"('{rng.choice(CITIES)}', '{name}', '{day}', {quantity}, {amount}, {returned})")
        numbers = "quantity INTEGER, amount INTEGER"
        self._db.execute(f"CREATE TABLE orders (city TEXT, product TEXT, day DATE, {numbers}, returned BOOLEAN)")
        self._db.execute(f"INSERT INTO orders VALUES {', '.join(orders)}")
        self._truth: dict[str, str] = {}

    def truth(self, question: Question) -> str:
        """Return the true answer: the cells of the result, in order."""
        if question.sql not in self._truth:
            self._truth[question.sql] = answer_of(json.dumps(self._db.execute(question.sql).fetchall(), default=str))
        return self._truth[question.sql]


def answer_of(result: str) -> str:
    """Return the answer that a query's printed result shows: its cells, in order."""
    return ", ".join("none" if cell is None else str(cell) for row in json.loads(result) for cell in row)


def same_answer(answer: str, true: str) -> bool:
    """Return whether two answers have equal cells: numbers by value, words whatever their case; nothing is 0."""

    def cells(text: str) -> list[str]:
        words = [cell.strip().lower() for cell in text.split(",")]
        return [_number("0" if word in {"none", "null", ""} else word) for word in words]

    return cells(answer) == cells(true)


def _number(word: str) -> str:
    try:
        return f"{float(word):.6g}"
    except ValueError:
        return word

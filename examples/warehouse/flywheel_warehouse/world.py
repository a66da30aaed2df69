"""The database, its tools and the questions: everything is executed for real, and the world knows the true answers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import duckdb

__all__ = ["FAMILIES", "SYSTEM", "TOOLS", "Question", "World", "first_questions", "questions"]

CITIES = ("Lima", "Oslo", "Kyoto", "Cairo", "Quito", "Turin", "Hanoi", "Perth", "Lagos", "Minsk", "Porto", "Dakar")
PRODUCTS = ("lamp", "desk", "chair", "shelf", "clock", "rug", "sofa", "mirror", "stool", "vase", "bench", "frame")
NEW_CITIES = ("Riga", "Bern", "Doha", "Kyiv", "Baku", "Lodz", "Malmo", "Izmir", "Delhi", "Seoul", "Tokyo", "Miami")
NEW_PRODUCTS = (
    "tray", "fan", "plant", "ladder", "basket", "candle", "carpet", "pillow", "bucket", "hook", "bin", "bar",
)  # fmt: skip
LATEST_CITIES = (
    "Accra", "Bogota", "Cusco", "Dublin", "Genoa", "Haifa", "Leeds", "Lyon", "Nice", "Osaka", "Tunis", "Zagreb",
)  # fmt: skip
LATEST_PRODUCTS = (
    "kettle", "towel", "pan", "bowl", "broom", "easel", "globe", "radio", "scale", "tent", "toaster", "wagon",
)  # fmt: skip
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
ORDERS = 240
RETURNED = 0.2
SEED = 11
MOST_ROWS = 5
MOST_TEXT = 90

SYSTEM = "Answer questions about a shop's database."
SCHEMA = "Queries orders(city product month quantity amount returned), products(product price stock)."


def _tool(name: str, description: str, **arguments: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in arguments.items()}
    parameters = {"type": "object", "properties": properties, "required": list(arguments)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    _tool("list_tables", "Lists tables."),
    _tool("describe_table", "Lists columns.", table="string"),
    _tool("run_sql", SCHEMA, sql="string"),
    _tool("answer", "Final answer.", value="string"),
]


@dataclass(frozen=True)
class Question:
    """A question, the query that answers it, and how wrong agents go wrong on it."""

    family: str
    text: str
    sql: str
    slip: str  # a query that runs and answers something else
    table: str


def _count_city(city: str) -> Question:
    where = f"FROM orders WHERE city = '{city}'"
    return Question(
        "orders_city", f"How many orders came from {city}?", f"SELECT count(*) {where}",
        f"SELECT sum(quantity) {where}",
        "orders",
    )  # fmt: skip


def _units_product(product: str) -> Question:
    where = f"FROM orders WHERE product = '{product}'"
    return Question(
        "units_product", f"How many units of {product} were sold?", f"SELECT sum(quantity) {where}",
        f"SELECT count(*) {where}", "orders",
    )  # fmt: skip


def _revenue_month(month: str) -> Question:
    where = f"FROM orders WHERE month = '{month}'"
    return Question(
        "revenue_month", f"What was the revenue in {month}?", f"SELECT sum(amount) {where}",
        f"SELECT max(amount) {where}",
        "orders",
    )  # fmt: skip


def _returns_product(product: str) -> Question:
    where = f"FROM orders WHERE product = '{product}'"
    return Question(
        "returns_product", f"How many orders of {product} were returned?", f"SELECT count(*) {where} AND returned",
        f"SELECT count(*) {where}", "orders",
    )  # fmt: skip


def _largest_city(city: str) -> Question:
    where = f"FROM orders WHERE city = '{city}'"
    return Question(
        "largest_city", f"What was the largest order amount from {city}?", f"SELECT max(amount) {where}",
        f"SELECT sum(amount) {where}", "orders",
    )  # fmt: skip


def _price(product: str) -> Question:
    where = f"FROM products WHERE product = '{product}'"
    return Question(
        "price", f"What does a {product} cost?", f"SELECT price {where}", f"SELECT stock {where}", "products"
    )  # fmt: skip


def _stock(product: str) -> Question:
    where = f"FROM products WHERE product = '{product}'"
    return Question(
        "stock", f"How many of {product} are in stock?", f"SELECT stock {where}", f"SELECT price {where}", "products"
    )  # fmt: skip


FAMILIES = {
    "orders_city": (_count_city, CITIES),
    "units_product": (_units_product, PRODUCTS),
    "revenue_month": (_revenue_month, MONTHS),
    "returns_product": (_returns_product, PRODUCTS),
    "largest_city": (_largest_city, CITIES),
    "price": (_price, PRODUCTS),
    "stock": (_stock, PRODUCTS),
}


@lru_cache(maxsize=1)
def first_questions() -> dict[str, Question]:
    """Return the questions that the sample logs choose from by their text, in a fixed order."""
    made = [make(value) for make, values in FAMILIES.values() for value in values]
    return {question.text: question for question in made}


@lru_cache(maxsize=1)
def questions() -> dict[str, Question]:
    """Return every question of the world by its text: the first ones, then those about what came later."""
    came_later = {CITIES: NEW_CITIES + LATEST_CITIES, PRODUCTS: NEW_PRODUCTS + LATEST_PRODUCTS}
    later = [make(value) for make, values in FAMILIES.values() for value in came_later.get(values, ())]
    return first_questions() | {question.text: question for question in later}


class World:
    """The database with its tools. Queries run in memory, without access to files or the network."""

    def __init__(self) -> None:
        self._db = duckdb.connect(":memory:", config={"enable_external_access": "false", "threads": "1"})
        self._fill()

    def _fill(self) -> None:
        rng = random.Random(SEED)  # noqa: S311 - a reproducible world
        self._db.execute("CREATE TABLE products (product TEXT, price INTEGER, stock INTEGER)")
        prices = {product: rng.randrange(20, 400) for product in PRODUCTS}
        self._db.executemany(
            "INSERT INTO products VALUES (?, ?, ?)", [(p, prices[p], rng.randrange(1, 90)) for p in PRODUCTS]
        )
        self._db.execute(
            "CREATE TABLE orders (id INTEGER, city TEXT, product TEXT, month TEXT, quantity INTEGER, amount INTEGER, "
            "returned BOOLEAN)"
        )
        rows: list[tuple[object, ...]] = []
        for number in range(ORDERS):
            product, quantity = rng.choice(PRODUCTS), rng.randrange(1, 6)
            city, month = rng.choice(CITIES), rng.choice(MONTHS)
            rows.append((number, city, product, month, quantity, quantity * prices[product], rng.random() < RETURNED))
        # What came later changes no answer to the questions before.
        generations = ((NEW_PRODUCTS, NEW_CITIES), (LATEST_PRODUCTS, LATEST_CITIES))
        for first, (products, cities) in zip((ORDERS, 2 * ORDERS), generations, strict=True):
            for product in products:
                prices[product] = rng.randrange(20, 400)
                self._db.execute(
                    "INSERT INTO products VALUES (?, ?, ?)", [product, prices[product], rng.randrange(1, 90)]
                )
            for number in range(first, first + ORDERS):
                product, quantity, city = rng.choice(products), rng.randrange(1, 6), rng.choice(cities)
                amount, returned = quantity * prices[product], rng.random() < RETURNED
                rows.append((number, city, product, None, quantity, amount, returned))
        self._db.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def truth(self, question: Question) -> str:
        """Return the true answer."""
        found = self._db.execute(question.sql).fetchone()
        return str(found[0]) if found else ""

    def call(self, name: str, arguments: dict[str, Any] | None) -> tuple[str, bool]:
        """Execute a tool call; return its text and whether it worked."""
        tools: dict[str, Callable[..., str]] = {
            "list_tables": self._list,
            "describe_table": self._describe,
            "run_sql": self._run,
            "answer": self._answer,
        }
        if name not in tools:
            return f"Error: no tool named {name[:20]}", False
        wanted = next(t["function"]["parameters"]["required"] for t in TOOLS if t["function"]["name"] == name)
        if arguments is None:
            return "Error: arguments are not valid JSON", False
        if sorted(arguments) != sorted(wanted):
            return f"Error: {name} takes {', '.join(wanted) or 'no arguments'}", False
        try:
            return tools[name](*(str(arguments[key]) for key in wanted)), True
        except duckdb.Error as error:
            return f"Error: {str(error).splitlines()[0]}"[:MOST_TEXT], False

    def _list(self) -> str:
        return "orders, products"

    def _describe(self, table: str) -> str:
        names = self._db.execute("SELECT column_name FROM information_schema.columns WHERE table_name = ?", [table])
        found = [row[0] for row in names.fetchall()]
        if not found:
            raise duckdb.CatalogException(f"Table {table[:20]} does not exist")
        return ", ".join(found)

    def _run(self, sql: str) -> str:
        if not sql.lstrip().lower().startswith("select"):
            raise duckdb.PermissionException("only SELECT is allowed")
        rows = self._db.execute(sql).fetchmany(MOST_ROWS)
        return json.dumps([list(row) for row in rows], default=str)[:MOST_TEXT]

    def _answer(self, value: str) -> str:
        del value
        return "done"

"""No information leak: what a chosen action names must have been visible."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.records import canonical_json
from flywheel.stages.datasets.grounding import guessed, is_prose, named_tokens, ungrounded
from flywheel.stages.datasets.sql_names import schema_names

NOTHING: dict[str, Any] = {"role": "assistant"}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "call00000", "name": name, "arguments": arguments}]}


def prompt(*texts: str) -> str:
    return canonical_json([{"role": "user", "content": text} for text in texts])


TOOLS = canonical_json(
    [{"type": "function", "function": {"name": name}} for name in ("run_sql", "book", "note", "f")]
    + [{"enum": ["economy", "query", "date", "n", "text", "city", "where"]}]
)


def test_a_column_that_only_the_error_named_is_a_leak() -> None:
    before = prompt("Total revenue by region? Table sales has column region.")
    failed = call("run_sql", query="SELECT region, SUM(revenue) FROM sales GROUP BY region")
    fixed = call("run_sql", query="SELECT region, SUM(amount_usd) FROM sales GROUP BY region")
    assert ungrounded(fixed, failed, before, TOOLS) == {"amount_usd"}
    assert ungrounded(fixed, failed, prompt("sales has columns region, amount_usd"), TOOLS) == set()


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("2024-05-20", "on May 20th, 2024"),
        ("2024-05-20", "date: 2024-05-20"),
        ("1234.50", "a total of 1,234.5 dollars"),
        ("New York", "from new york to Seattle"),
        ("gift_card_88", "my gift card 88"),
        ("Ünal", "ich heiße ünal"),
        ("top\nten", '{"a":"top\\nten"}'),
        ("SELECT COUNT(*) FROM sales s WHERE s.region = 'West' LIMIT 1", "sales in region West"),
        ("WITH x AS (SELECT region FROM sales) SELECT region AS area FROM x", "sales by region"),
        ("limit 5", "the five best"),
    ],
)
def test_equal_in_another_form_is_grounded(value: str, seen: str) -> None:
    assert ungrounded(call("f", text=value), NOTHING, prompt(seen), TOOLS) == set()


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        ("2024-05-21", {"2024-05-21"}),
        ("12345", {"12345"}),
        ("HAT045", {"hat045"}),
        ("SELECT region FROM returns_2023", {"returns_2023"}),
        ("SELECT region FROM returns", {"returns"}),
        ("I will book the flight HAT045 for you because you are a gold member", {"hat045"}),
        ("I will look at what was said and then do the right thing for you", set()),
    ],
)
def test_what_was_never_seen_is_not_grounded(value: str, missing: set[str]) -> None:
    seen = prompt("Sales by region on May 20th, 2024. I have 1234 points.")
    assert ungrounded(call("f", text=value), NOTHING, seen, TOOLS) == missing


def test_a_plain_word_of_code_is_a_leak_only_if_it_was_shown_in_between() -> None:
    chosen, rejected = call("f", text="grep -rn hello /tmp | sort"), call("f", text="find /tmp")
    assert ungrounded(chosen, rejected, prompt("look for hello in /tmp"), TOOLS) == set()
    shown = prompt("look for hello in /tmp", "unknown command; try grep")
    assert ungrounded(chosen, rejected, prompt("look for hello in /tmp"), TOOLS, shown) == {"grep"}


def test_what_the_rejected_action_names_needs_no_source() -> None:
    assert ungrounded(call("f", n=77, city="Rome"), call("f", n=77, city="Oslo"), prompt("hi"), TOOLS) == {"rome"}


def test_numbers_and_nested_values_count() -> None:
    chosen = call("book", passengers=[{"age": 42}], total=-31.50, sure=True, note=None)
    assert {"42", "31.5"} <= named_tokens(chosen)
    assert ungrounded(chosen, NOTHING, prompt("age 42, 31.50, total, sure, note, passengers"), TOOLS) == set()


def test_unknown_tools_excuse_the_name_and_keys_of_another_tool_only() -> None:
    other = call("lookup", key="Rome")
    assert ungrounded(other, call("guess", city="Rome"), prompt("hi"), None) == set()
    assert ungrounded(call("lookup", key="Rome"), call("lookup", city="Rome"), prompt("hi"), None) == {"key"}
    assert ungrounded(other, call("guess", city="Rome"), prompt("hi"), TOOLS) == {"lookup", "key"}


def test_text_answers_are_held_to_the_same_rule() -> None:
    answer = {"role": "assistant", "content": "The total that you asked for is 480 for the region"}
    assert ungrounded(answer, NOTHING, prompt("total by region?"), TOOLS) == {"480"}


def test_prose_is_told_from_values_and_code() -> None:
    assert is_prose("The user wants to change the name on a reservation and asks for help")
    assert not is_prose("SELECT a, b FROM t WHERE c IS NOT NULL AND d IN (1, 2) ORDER BY a LIMIT 5")
    assert not is_prose("New York")
    assert not is_prose(
        "SELECT cost_of_visit FROM visits ORDER BY date_of_visit DESC LIMIT 1"
    )  # no words of the language


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT region, SUM(revenue) total FROM sales GROUP BY 1 ORDER BY total", "region revenue sales"),
        (
            "select o.id, c.* from orders as o, customers c where o.at > now() - interval '3 days'",
            "id orders customers at",
        ),
        ("WITH t(z) AS (SELECT a FROM x) SELECT z FROM t", "a x"),
        ("SELECT revenue AS revenue FROM (SELECT 1) s", "revenue"),
        ("SELECT a.b FROM s.t AS a WHERE a.c IN (SELECT id FROM u)", "b s t c id u"),
        ('SELECT "Order Id", `b c` FROM [My Table] m -- x y', "order id,b c,my table"),
        ("UPDATE users SET last = $1 WHERE user_id = :id AND note = 'x.y'", "users user_id note"),
        ("INSERT INTO t (a, b) SELECT c, d FROM returns", "t a b c d returns"),
        ("DELETE FROM logs WHERE date < '2020-01-01'", "logs date"),
        ("CREATE TABLE mine AS SELECT c FROM t; SELECT c FROM mine", "c t"),
        ("SELECT CAST(x AS date), y::numeric(10,2), EXTRACT(year FROM d), COUNT(*) FROM t", "x y d t"),
        ("SELECT * FROM plain", "plain"),
        ("SELECT COUNT(DISTINCT language) FROM talks", "language talks"),
        ('sqlite3 shop.db "SELECT kind FROM goods;" | sort -k 2 && echo done', "kind goods"),
        ("SELECT table_name FROM information_schema.tables", ""),
        ("SELECT name, sql FROM sqlite_master", ""),
        ("PRAGMA table_info(orders)", ""),
        ("SHOW COLUMNS FROM orders", ""),
        ("grep -rn select . | head", ""),
    ],
)
def test_the_names_that_a_query_takes_from_a_schema(query: str, names: str) -> None:
    wanted = set(names.split(",") if "," in names else names.split())
    assert schema_names(query) == wanted


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ("SELECT amount FROM sales", {"amount"}),  # a word of nobody
        ("SELECT total_amount FROM sales", {"total_amount"}),  # its parts were said, the name was not
        ("SELECT region FROM sales", set()),
        ("SELECT COUNT(*) AS n FROM sales HAVING n > 1", set()),
        ('SELECT "Order Id" FROM sales', set()),
        ("SELECT 1 FROM refunds", {"refunds"}),
    ],
)
def test_names_of_a_schema_were_seen_as_they_are_written(query: str, missing: set[str]) -> None:
    seen = prompt('The total amounts of sales by region; the table has a column "Order Id".')
    rejected = call("run_sql", query="SELECT amount, total_amount FROM refunds")  # that it guessed too is no source
    assert ungrounded(call("run_sql", query=query), rejected, seen, TOOLS) == missing


@pytest.mark.parametrize(
    ("status", "result", "missing"),
    [
        ("failed", "no such column: amount", {"amount", "bills"}),  # an earlier guess, and the error that quotes it
        ("unknown", "Unknown column 'amount' in field list", {"amount", "bills"}),
        ("ok", "amount\n12", set()),  # what worked is there
    ],
)
def test_an_earlier_guess_that_failed_shows_no_names(status: str, result: str, missing: set[str]) -> None:
    guess = call("run_sql", query="SELECT amount FROM bills")["tool_calls"]
    messages = [
        {"role": "user", "content": "What did they pay?"},
        {"role": "assistant", "tool_calls": guess},
        {"role": "tool", "tool_call_id": guess[0]["id"], "status": status, "content": result},
    ]
    query = call("run_sql", query="SELECT SUM(amount) FROM bills")
    assert ungrounded(query, NOTHING, canonical_json(messages), TOOLS) == missing


def test_a_guess_has_only_a_requests_plain_words() -> None:
    query = call("run_sql", query="SELECT COUNT(*) FROM players")
    assert guessed(query, prompt("How many players are there?"), TOOLS) == {"players"}
    assert guessed(query, prompt("How many rows has the table players?"), TOOLS) == set()
    assert ungrounded(query, NOTHING, prompt("How many players are there?"), TOOLS) == set()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("The codename of the new chip is Raptor Lake, and it is made by Intel.", {"raptor", "lake", "intel"}),
        ("Raptor Lake", {"lake"}),
        ("I will look. Then I tell you. Yes, I am sure that it is there.", set()),
        ("Here is the list:\n- Apples\n* Pears", set()),
        ("Ich habe die Bestellung von Frau Meier gefunden und schicke die Rechnung", set()),
    ],
)
def test_names_in_sentences_need_a_source(text: str, names: set[str]) -> None:
    message = {"role": "assistant", "content": text}
    assert ungrounded(message, NOTHING, prompt("tell me more"), None) == names
    assert ungrounded(message, NOTHING, prompt(text), None) == set()


@pytest.mark.parametrize(
    ("code", "missing"),
    [
        ("take('cup 2')", {"cup 2"}),
        ("take('cup 1')", set()),
        ("take('bowl 2')", set()),  # no bowls were numbered
        ("take('bowl 2', 'cup 3')", {"cup 3"}),
    ],
)
def test_one_of_many_was_seen_by_its_number(code: str, missing: set[str]) -> None:
    before = prompt("On shelf 2 is the cup 1 and a bowl. Shelf 3 is empty. Take it.")
    assert ungrounded(call("f", text=code), NOTHING, before, TOOLS) == missing

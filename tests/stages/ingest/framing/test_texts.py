"""Chats that Aider writes as text: its history, and its log of what the model read and wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGUN = "\n# aider chat started at 2026-10-01 09:00:00\n\n> Aider v0.86.1  \n> Main model: acme with diff format  \n"
TALK = f"""{BEGUN}
#### Sort the orders  
#### by date.  

I sort them:

> a quote of the model's, which is no line of Aider's

orders.py

> Tokens: 2.1k sent, 12 received.  
> Applied edit to orders.py  

#### /undo  
> Removed: 1a2b3c4 feat: sort  

#### <blank>  

#### Then only the late ones.  

Done.

#### /clear  
> All chat history cleared.  

#### Who are you?  

Acme.
"""  # noqa: W291 - Aider breaks lines so


def payloads(taken: Any, kind: str) -> list[dict[str, Any]]:
    return [payload for payload, of in zip(taken.payloads(), taken.events["kind"], strict=True) if of == kind]


def test_what_the_program_shows_of_an_edit_that_fits_nothing_is_no_answer(
    tmp_path: Path, take: Callable[..., Any]
) -> None:
    unfit = (
        "> Tokens: 9 sent.  \n> # 1 SEARCH/REPLACE block failed to match!\n\n"
        "## SearchReplaceNoExactMatch: This block failed\n<<<<\n\n"
    )
    (tmp_path / "chat.history.md").write_text(
        TALK.replace("Done.\n", f"Done.\n\n{unfit}> The other blocks were applied.  \n")
    )
    plain = [payload["message"]["content"] for payload in payloads(take(), "model_call")]
    assert plain[1:] == ["Done.", "Acme."]


def test_a_history_is_its_chats(tmp_path: Path, take: Callable[..., Any]) -> None:
    """What was typed over several lines is one request, a command is none, and what was cleared begins anew."""
    (tmp_path / ".aider.chat.history.md").write_text(TALK, encoding="utf-8")
    taken = take(tmp_path / ".aider.chat.history.md")
    assert taken.adds_up()
    asked = [payload["messages"][0]["content"] for payload in payloads(taken, "request")]
    assert sorted(asked) == ["Sort the orders\nby date.", "Then only the late ones.", "Who are you?"]
    answers = {payload["message"]["content"]: payload for payload in payloads(taken, "model_call")}
    assert any("a quote of the model's" in words and words.endswith("orders.py") for words in answers)
    assert all("history_missing" in payload["tags"] for payload in answers.values())
    assert set(taken.events["model"].drop_nulls()) == {"acme"}
    assert taken.events["conversation_id"].n_unique() == 2


def test_an_edit_that_was_undone_is_a_word_of_the_user(tmp_path: Path, take: Callable[..., Any]) -> None:
    (tmp_path / "history.md").write_text(TALK, encoding="utf-8")
    (said,) = payloads(take(), "feedback")
    assert (said["name"], said["value"], said["scale"], said["target"]) == ("undo", 0.0, [0, 1], "response")


def test_a_history_that_has_grown_is_read_again_and_stored_once(tmp_path: Path, take: Callable[..., Any]) -> None:
    history = tmp_path / "history.md"
    history.write_text(TALK, encoding="utf-8")
    first = take()
    history.write_text(TALK + BEGUN + "\n#### And now?  \n\nNow too.\n", encoding="utf-8")
    again = take(known=first.states)
    assert set(first.events["event_id"]) <= set(again.events["event_id"])
    assert again.events.height == first.events.height + 2


def test_other_documents_stay_documents(tmp_path: Path, take: Callable[..., Any]) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n\n#### A heading  \n\nWords.\n", encoding="utf-8")
    assert take().events.is_empty()


CALL = "TO LLM 2026-10-01T09:00:00\n-------\nSYSTEM Be kind.\nSYSTEM \nSYSTEM Be brief.\n-------\nUSER Hi\n"


def test_a_log_of_calls_has_what_the_model_read(tmp_path: Path, take: Callable[..., Any]) -> None:
    """A call without an answer, or with a blank one, failed; the words of its prompt are no acts of the agent."""
    answered = CALL + "LLM RESPONSE 2026-10-01T09:00:02\nASSISTANT Hello.\nASSISTANT \nASSISTANT -------\n"
    failed = CALL.replace("Hi", "Still there?").replace("09:00:00", "09:01:00") + "LLM RESPONSE 2026-10-01T09:01:02\n"
    (tmp_path / "llm.history").write_text(answered + failed, encoding="utf-8")
    taken = take()
    (call,) = payloads(taken, "model_call")
    assert call["message"]["content"] == "Hello.\n\n-------"
    assert call["input"][0] == {"role": "system", "content": "Be kind.\n\nBe brief."}
    (asked,) = payloads(taken, "request")
    assert (asked["messages"][-1]["content"], "call_failed" in asked["tags"]) == ("Still there?", True)


def test_a_line_that_is_no_text_ends_the_reading_with_its_reason(tmp_path: Path, take: Callable[..., Any]) -> None:
    (tmp_path / "llm.history").write_bytes(CALL.encode() * 30 + b"USER \xff\xfe\n")
    taken = take()
    assert taken.quarantined["reason"].to_list() == ["bad_encoding"]
    assert taken.adds_up()

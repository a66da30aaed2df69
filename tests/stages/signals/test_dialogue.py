"""Users' turns and the events that prove them."""

from __future__ import annotations

from flywheel.stages.signals.dialogue import user_turns
from tests.stages.talks import Talk, made, user


def test_turns_with_the_requests_that_brought_them() -> None:
    talk = Talk("a").ask("Hi").act("Yes?").ask("Find 7").use("find", {}).ask("Thanks")
    ((_, turns),) = user_turns(*made(talk)[:3]).items()
    assert [(t.before_step, t.text, t.reaction, t.answered) for t in turns] == [
        (0, "hi", False, True),
        (1, "find 7", True, True),
        (2, "thanks", True, False),
    ]
    assert [t.evidence.event_id for t in turns] == [talk.rows[n]["event_id"] for n in (0, 2, 5)]
    assert turns[1].evidence.ts == talk.rows[2]["ts"]


def test_in_a_repeated_history_the_model_call_is_the_proof() -> None:
    said = {"role": "assistant", "content": "Yes?"}
    talk = Talk("a").act("Yes?", input=[user("Hi")]).act("Ok", input=[user("Hi"), said, user("Find 7")])
    talk.act("Again", input=[user("Hi"), user("summary")])
    ((_, turns),) = user_turns(*made(talk)[:3]).items()
    assert [t.text for t in turns] == ["hi", "find 7", "summary"]
    assert [t.evidence.event_id for t in turns] == [row["event_id"] for row in talk.rows]


def test_episodes_without_a_user_have_no_turns() -> None:
    assert user_turns(*made(Talk("a").ask({"role": "system", "content": '"role":"user"'}).act("x"))[:3]) == {}


def test_nobody_reacts_in_a_form_that_a_program_fills() -> None:
    rules = "\n\nConversation history:\n{}\n\nName one emotion of the user, and answer in JSON with message and act.\n"
    rules += "Keep the message short and warm."
    asked = ["Can you play music?", "It rained all day.", "I do not like it."]
    forms = Talk("a")
    plain = Talk("b")
    for n, words in enumerate(asked):
        forms.act(f"answer {n}", input=[user(f'Current user message: "{words}"{rules.format(" ".join(asked[:n]))}')])
        plain.act(f"answer {n}", input=[user(words)])
    pages = Talk("c").act("Done", input=[user("Go on")]).act("Done", input=[user("a long rule of the program\n" * 40)])
    found = {
        turns[0].text: [t.reaction for t in turns] for turns in user_turns(*made(forms, plain, pages)[:3]).values()
    }
    assert sorted(found.values()) == [[False] * 2, [False] * 3, [False, True, True]]

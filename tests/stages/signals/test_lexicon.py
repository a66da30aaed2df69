"""What users' words do, in English and Chinese."""

from __future__ import annotations

import pytest
from flywheel.stages.signals.lexicon import Act, expresses, fold, orders

YES: list[tuple[Act, str]] = [
    ("complaint", "This is useless."),
    ("complaint", "It still doesn\u2019t work!! This isn't working"),
    ("complaint", "I'm really frustrated with this"),
    ("complaint", "我要投诉\uff0c太差了"),
    ("correction", "No, I meant the other table"),
    ("correction", "That's wrong"),
    ("correction", "that is not what I asked for"),
    ("correction", "You forgot the second passenger"),
    ("correction", "不对\uff0c我说的是上海"),
    ("thanks", "Great, thank you so much!"),
    ("thanks", "exactly what I needed"),
    ("thanks", "太好了\uff0c谢谢\uff01"),
    ("confirm", "Yes, go ahead."),
    ("confirm", "好的\uff0c确认"),
    ("human", "let me speak to a real person"),
    ("human", "can you transfer me to an agent?"),
    ("human", "转人工"),
    ("correction", "Observation:\nYour answer is wrong."),
    ("correction", "No, that's not it"),
    ("praise", "Perfect, that works"),
    ("praise", "太好了"),
    ("undo", "please undo that"),
    ("undo", "撤销刚才的修改"),
]
NO: list[tuple[Act, str]] = [
    ("complaint", "I want a refund for order 7"),
    ("complaint", "The package was not delivered"),
    ("complaint", "谢谢"),
    ("correction", "No problem"),
    ("correction", "What is the order number?"),
    ("correction", "对的"),
    ("correction", "No, that's all I need"),
    ("correction", "your answer is correct"),
    ("praise", "thanks, bye"),
    ("undo", "how do I undo a commit?"),
    ("thanks", "no thanks"),
    ("thanks", "Thanks for nothing"),
    ("thanks", "不用了\uff0c谢谢"),
    ("confirm", "No, don't do it, that's not ok"),
    ("confirm", "不可以"),
    ("human", "what is the agent's name?"),
]


@pytest.mark.parametrize(("act", "text"), YES)
def test_says(act: Act, text: str) -> None:
    assert expresses(act, fold(text))


@pytest.mark.parametrize(("act", "text"), NO)
def test_does_not_say(act: Act, text: str) -> None:
    assert not expresses(act, fold(text))


def test_pasted_material_is_not_read() -> None:
    assert not expresses("complaint", fold("log: " + "x " * 1000 + "useless"))
    assert fold("\uff34\uff28\uff21\uff2e\uff2b\uff33\u3000a") == "thanks a"


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("cancel_order", "Cancel order 7"),
        ("cancelOrder", "请取消订单"),
        ("book_flight", "I need a flight"),
        ("frob", "frob it"),
    ],
)
def test_a_turn_that_orders_what_a_tool_does(tool: str, text: str) -> None:
    assert orders(tool, fold(text))


def test_a_turn_that_orders_something_else() -> None:
    assert not orders("cancel_order", fold("Where is order 7?"))
    assert not orders("delete_file", fold("打开文件"))

"""Words by which users say how it went, in English and Chinese, as data.

In: a user's turn. Out: whether it complains, corrects, thanks, confirms or asks for a human. To add a language, add a
line to each table; patterns are matched against NFKC, case-folded text with plain apostrophes. A phrase in `_UNLESS`
cancels the match. Words that name everyday business (refund, cancel) are left out on purpose: they are tasks.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Literal

__all__ = ["Act", "fold", "says"]

Act = Literal["complaint", "correction", "thanks", "confirm", "human"]

READ_AT_MOST = 1000  # characters of a turn: what follows is pasted material more often than opinion

_SAYS: dict[Act, dict[str, tuple[str, ...]]] = {
    "complaint": {
        "en": (
            r"\b(?:useless|terrible|awful|horrible|ridiculous|unacceptable|pathetic|nonsense|garbage|rubbish)\b",
            r"\b(?:frustrat|disappoint|annoy)(?:ed|ing)\b",
            r"\bwast(?:e|ing) (?:of )?(?:my )?time\b",
            r"\b(?:is|are|does|did|do|was)(?:n't| not) (?:work|working|help|helping|helpful|good enough|acceptable)\b",
            r"\bnot (?:working|helpful|helping|good enough|acceptable)\b",
            r"\bstill (?:wrong|broken|fail(?:s|ing)|not)\b",
            r"\byou(?:'re| are) (?:wrong|useless|not (?:listening|helping))\b",
            r"\b(?:file|make|have) a complaint\b",
        ),
        "zh": (
            r"没用|没有用|太差|垃圾|失望|投诉|不满意|浪费(?:我的)?时间|胡说|答非所问|糟糕|气死|无语|什么破|还是不行",
        ),
    },
    "correction": {
        "en": (
            r"^(?:no|nope|wrong)\b[,.! ]+(?:i|that|it|this|you|not|wrong)\b",
            r"\bi (?:meant|mean|said|asked (?:for|about|you))\b",
            r"\b(?:that|this|it)(?:'s| is) (?:not (?:what|right|correct|it)\b|wrong|incorrect)",
            r"\b(?:that|this|it) isn't (?:what|right|correct|it)\b",
            r"\bnot what i (?:asked|meant|wanted|said|need)",
            r"\byou (?:misunderst(?:oo|an)d|misread|forgot|missed|ignored|got (?:it|that) wrong)\b",
            r"\bwrong (?:answer|table|column|one|number|file|order|result|date|name)\b",
            r"\btry again\b",
        ),
        "zh": (
            r"不对|不是这个|不是这样|我的意思是|我是说|我说的是|我要的是|我问的是|搞错|弄错|错了|理解错|重新(?:来|做|查|算)|再试一次",
        ),
    },
    "thanks": {
        "en": (
            r"\b(?:thanks|thank you|thx|much appreciated|appreciate (?:it|that|your)|cheers)\b",
            r"\b(?:perfect|awesome|excellent|well done|great (?:job|work)|that works|lifesaver)\b",
            r"\bexactly what i (?:need|want)",
        ),
        "zh": (r"谢谢|多谢|感谢|太好了|完美|太棒|辛苦了|(?<!不)(?<!不是)很好|正是我(?:想|需)要的",),
    },
    "confirm": {
        "en": (
            r"\b(?:yes|yep|yeah|yup|sure|ok|okay|confirm|confirmed|proceed|agreed|approved|correct)\b",
            r"\b(?:go ahead|do it|please do|sounds good|that(?:'s| is) (?:fine|right|ok))\b",
        ),
        "zh": (r"是的|好的|确认|同意|没问题|继续|对的|^对|^行|^好|(?<!不)可以(?!吗)",),
    },
    "human": {
        "en": (
            (
                r"\b(?:speak|talk|connect|transfer|escalate|put)(?: me)?(?: through)? (?:to|with) (?:an? |the |your )?"
                r"(?:human|real person|person|someone|agent|representative|manager|supervisor|operator)\b"
            ),
            r"\b(?:human|live) (?:agent|support|representative|operator)\b",
        ),
        "zh": (r"转人工|人工客服|找人工|真人|找(?:你们)?(?:经理|主管|领导)",),
    },
}

_UNLESS: dict[Act, dict[str, tuple[str, ...]]] = {
    "thanks": {
        "en": (r"\bno,? (?:thanks|thank you)\b|\bthank(?:s| you) for nothing\b|\bnot (?:perfect|excellent)\b",),
        "zh": (r"不用了|谢谢但|不完美",),
    },
    "confirm": {
        "en": (r"\b(?:no|not|don't|do not|stop|wait|hold on|never mind)\b",),
        "zh": (r"不要|不用|不行|别|等等|先等|取消吧",),
    },
}


@cache
def _pattern(act: Act, *, unless: bool) -> re.Pattern[str]:
    table = (_UNLESS if unless else _SAYS).get(act, {})
    alternatives = [f"(?:{pattern})" for patterns in table.values() for pattern in patterns]
    return re.compile("|".join(alternatives) or r"(?!)")


def fold(text: str) -> str:
    """Return the beginning of a turn as the tables read it."""
    plain = text[:READ_AT_MOST].replace("\u2019", "'").strip()
    return plain.lower() if plain.isascii() else unicodedata.normalize("NFKC", plain).casefold()


def says(act: Act, folded: str) -> bool:
    """Return whether a folded turn performs the act."""
    return bool(_pattern(act, unless=False).search(folded)) and not _pattern(act, unless=True).search(folded)

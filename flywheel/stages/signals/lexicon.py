"""Words that express how it went, in English and Chinese, as data.

In: a user's turn. Out: whether it complains, corrects, thanks, confirms or asks for a human or to undo it. To add a
language, add a line to each table; patterns are matched against NFKC, case-folded text with plain apostrophes. A phrase
in `_UNLESS` cancels the match. Words that name everyday business (refund, cancel) are left out on purpose: they are
tasks.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Literal

Act = Literal["complaint", "correction", "thanks", "praise", "confirm", "human", "undo"]

READ_AT_MOST = 1000  # characters of a turn: what follows is pasted material more often than opinion

_EXPRESSIONS: dict[Act, dict[str, tuple[str, ...]]] = {
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
            (
                r"^(?:no|nope|wrong)\b[,.! ]+(?:not|wrong|you|i (?:meant|mean|said|asked|wanted)"
                r"|(?:that|this|it)(?:'s| is| was)(?: not|n't| wrong| incorrect))\b"
            ),
            r"\bi (?:meant|mean|said|asked (?:for|about|you))\b",
            r"\b(?:that|this|it)(?:'s| is) (?:not (?:what|right|correct|it)\b|wrong|incorrect)",
            r"\b(?:that|this|it) isn't (?:what|right|correct|it)\b",
            r"\bnot what i (?:asked|meant|wanted|said|need)",
            r"\byou (?:misunderst(?:oo|an)d|misread|forgot|missed|ignored|got (?:it|that) wrong)\b",
            r"\bwrong (?:answer|table|column|one|number|file|order|result|date|name)\b",
            (
                r"\byour (?:last |final |previous )?(?:answer|solution|result|response|output|query|code) (?:is|was) "
                r"(?:wrong|incorrect|not (?:right|correct))"
            ),
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
    "praise": {
        "en": (
            r"\b(?:perfect|awesome|excellent|amazing|well done|great (?:job|work)|that works|it works|lifesaver)\b",
            r"\bexactly what i (?:need|want)",
        ),
        "zh": (r"太好了|完美|太棒|(?<!不)(?<!不是)很好|正是我(?:想|需)要的|解决了",),
    },
    "confirm": {
        "en": (
            r"\b(?:yes|yep|yeah|yup|sure|ok|okay|confirm|confirmed|proceed|agreed|approved|correct)\b",
            r"\b(?:go ahead|do it|please do|sounds good|that(?:'s| is) (?:fine|right|ok))\b",
        ),
        "zh": (r"是的|好的|确认|同意|没问题|继续|对的|^对|^行|^好|(?<!不)可以(?!吗)",),
    },
    "undo": {
        "en": (
            r"\b(?:undo|revert|roll back|take back) (?:that|it|this|the (?:last )?(?:change|changes|edit|edits))\b",
            r"\b(?:change|put|set|switch) (?:it|that|this|them) back\b",
        ),
        "zh": (r"撤销|撤回|改回(?:来|去|原)|恢复(?:原来|原样|成原)|还原",),
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
    "praise": {"en": (r"\bnot (?:perfect|excellent)\b",), "zh": (r"不完美|没解决|解决了吗",)},
    "confirm": {
        "en": (r"\b(?:no|not|don't|do not|stop|wait|hold on|never mind)\b",),
        "zh": (r"不要|不用|不行|别|等等|先等|取消吧",),
    },
}


# What a tool does, in words of users: any of a row's words in the name, any of its patterns in the turn.
_ORDERS: tuple[tuple[frozenset[str], str], ...] = tuple(
    (frozenset(verbs.split()), pattern)
    for verbs, pattern in (
        ("cancel terminate revoke", r"cancel|call off|terminate|revoke|end my|取消|退订|终止"),
        (
            "delete remove erase wipe purge drop destroy",
            r"delet|remov|eras|wip(?:e|ing)|purge|drop|destroy|get rid|删|移除|清除|清空",
        ),
        ("refund return", r"refund|return|money back|send (?:it|them) back|退"),
        ("pay buy purchase order redeem", r"\bpay|purchas|\bbuy|order|\bget me\b|redeem|付|买|购|下单"),
        ("transfer", r"transfer|\bsend|\bmove|wire|转"),
        (
            "book reserve schedule register create add insert open issue",
            (
                r"\bbook|reserv|schedul|appointment|regist|sign up|creat|\badd|\bmake|\bnew\b|open"
                r"|issue|plan|\bneed|\bwant|订|预约|安排|注册|创建|新建|添加|加|开"
            ),
        ),
        (
            "update modify change edit set rename move reset assign exchange",
            (
                r"updat|modif|chang|edit|\bset|renam|\bmove|reset|assign|exchang|swap|switch"
                r"|instead|upgrad|downgrad|改|更|换|设|移"
            ),
        ),
        (
            "send reply forward publish post submit upload report",
            (
                r"\bsend|\btell|repl|forward|publish|\bpost|submit|upload|report|e-?mail|message|发"
                r"|回复|提交|上传|报"
            ),
        ),
        ("write save put patch apply", r"writ|sav(?:e|ing)|\bput|appl|stor|fix|写|存|保存|应用"),
        ("approve grant enable", r"approv|grant|allow|enabl|turn on|activat|批准|允许|启用|开通"),
        ("reject disable close", r"reject|declin|disabl|turn off|clos|deactivat|拒绝|停用|关"),
        ("merge deploy", r"merg|deploy|releas|ship|合并|部署|发布|上线"),
    )
)  # fmt: skip


@cache
def _order(tool: str) -> re.Pattern[str]:
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", tool).lower())
    known = (pattern for word in words for verbs, pattern in _ORDERS if word in verbs)  # a verb comes before its object
    return re.compile(next(known, None) or "|".join(map(re.escape, words)) or r"(?!)")


def orders(tool: str, folded: str) -> bool:
    """Return whether a folded turn names what a tool's name says it does, in English or Chinese."""
    return bool(_order(tool).search(folded))


@cache
def _pattern(act: Act, *, unless: bool) -> re.Pattern[str]:
    table = (_UNLESS if unless else _EXPRESSIONS).get(act, {})
    alternatives = [f"(?:{pattern})" for patterns in table.values() for pattern in patterns]
    return re.compile("|".join(alternatives) or r"(?!)")


def fold(text: str) -> str:
    """Return the beginning of a turn as the tables read it."""
    plain = text[:READ_AT_MOST].replace("\u2019", "'").strip()
    return plain.lower() if plain.isascii() else unicodedata.normalize("NFKC", plain).casefold()


def expresses(act: Act, folded: str) -> bool:
    """Return whether a folded turn performs the act."""
    return bool(_pattern(act, unless=False).search(folded)) and not _pattern(act, unless=True).search(folded)

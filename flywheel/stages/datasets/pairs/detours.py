"""Whether what two calls gave shows that the one was enough and the other was not: the evidence of `efficiency`.

In: a pair and the log around it. Out: a reason to refuse it, or none. That attempts differ in length, or that one of
them failed, shows nothing of a single call; an error, or an answer that one of two results has, does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.reading.status import says_nothing
from flywheel.records import ToolStatus, texts_in
from flywheel.stages.common.tools import changes, is_handoff, looks_up
from flywheel.stages.datasets.grounding import guessed, named_tokens, plain_forms, shown
from flywheel.stages.datasets.pairs.across import SUCCEEDS
from flywheel.stages.datasets.pairs.believed import CHEAPER
from flywheel.stages.datasets.pairs.facts import Facts, Pair, calls_of, key_of, message_of, plain_words
from flywheel.stages.datasets.pairs.within import overlap

SAME_RESULT, SHORT_RESULT = 0.9, 600  # overlap from which two results are one; characters of one that is a verdict
FEW_WORDS, SUBMITTED = 5, 0.8  # words of a call, and their share in the answer, from which the call was the answer
RECEIPT = 8  # words of a result that confirms an answer: "Task completed. Final answer: ..."
MOSTLY = 2  # an answer rests on a result that has at least one in so many of what it names

_SAYS_FAILED = re.compile(
    r"\b(?:failed|(?:did|does) not pass|(?:not |in)correct|invalid|try again|traceback|(?:syntax|type|name)error)\b",
    re.IGNORECASE,
)
_ANSWERS = re.compile(r"finish|answer|submit|final|respon[ds]|done|complete|conclu|terminat|stop", re.IGNORECASE)
_COMPLAINS = re.compile(  # a line of a program that did not run
    r"\s*(?:[\w./$(){}'\"-]{1,60}: .*\b(?:missing|extra|unexpected|unknown|unrecognized|illegal|invalid|bad|malformed"
    r"|cannot|can't|could not|unable|not (?:known|found|permitted|supported|allowed|a)|no such|must|denied|refused"
    r"|error|requires)\b.*|(?:try|usage:?) .*)",
    re.IGNORECASE,
)
_PASSES = re.compile(  # a fault that is not the call's
    r"\btime(?:d[ -]?)?[ -]?out\b|\brate[ -]?limit|\btoo many requests\b|\btemporar|\bunavailable\b|\boverloaded\b"
    r"|\bconnection (?:was )?(?:error|reset|refused|aborted|lost)\b|\b(?:bad gateway|internal server error)\b",
    re.IGNORECASE,
)


def no_detour(pair: Pair, facts: Facts) -> bool:
    """Whether nothing shows that the other way was longer, or led nowhere, because of its first call.

    Attempts differ in length, and fail, for many reasons. The call was a detour where its attempt had to make the
    chosen call after all, and succeeded then. It fell short where it did not give what the chosen one gave, which was
    the last that its attempt needed. To hand over is not a cheaper way to do it, and to look before a change, or
    before a guess at a schema, is not a detour. Nor is it, unless nothing new came of it, to look once more before an
    answer that tools have shown, or to look up what the request names: of two things, either may be first.
    """
    if pair["builder"] != CHEAPER:
        return False
    chosen, rejected = ([call["name"] for call in calls_of(message_of(pair, side))] for side in ("chosen", "rejected"))
    careless = any(map(changes, chosen)) and all(map(looks_up, rejected))
    hasty = _ends(pair, facts) and not (_in_vain(pair, facts) and _was_shown(pair))
    if careless or hasty or any(map(is_handoff, chosen)) or _guesses(pair, facts):
        return True
    action, _ = facts.action.get(key_of(pair, "chosen"), (None, []))
    made_later = facts.last_made.get((pair["rejected_episode"], str(action)), -1) > pair["rejected_step"]
    if made_later and _succeeded(pair, facts):
        return _of_the_request(pair, rejected) and not _in_vain(pair, facts)
    return not _sufficed(pair, facts) or not _fell_short(pair, facts)


def _ends(pair: Pair, facts: Facts) -> bool:
    """Whether the chosen call is the answer that ends its attempt: it gave nothing, or a receipt that repeats it."""
    episode, step = key_of(pair, "chosen")
    made = (text for call in calls_of(message_of(pair, "chosen")) for text in texts_in(call.get("arguments")))
    own = {word for text in made for word in plain_words(text).split()}
    gave = {*plain_words(facts.results((episode, step))).split()}
    names = " ".join(call["name"] for call in calls_of(message_of(pair, "chosen")))
    is_receipt = (own <= gave and len(gave - own) <= RECEIPT) if gave else bool(_ANSWERS.search(names))
    return facts.last_step[episode] == step and is_receipt


def _was_shown(pair: Pair) -> bool:
    """Whether tools had shown all that the chosen call names."""
    read = [str(m.get("content") or "") for m in json.loads(pair["prompt"]) if m["role"] == "tool"]
    return _named(pair, "chosen") <= plain_forms(" ".join(read))


def _named(pair: Pair, side: str) -> set[str]:
    """Return what the arguments of a side's calls name."""
    calls = calls_of(message_of(pair, side))
    return named_tokens({"content": " ".join(text for call in calls for text in texts_in(call.get("arguments")))})


def _of_the_request(pair: Pair, tools: Sequence[str]) -> bool:
    """Whether the rejected call looks up what users named, and nothing else."""
    if not all(map(looks_up, tools)):
        return False
    said = " ".join(str(m.get("content") or "") for m in json.loads(pair["prompt"]) if m["role"] == "user")
    named = _named(pair, "rejected")
    return bool(named) and named <= plain_forms(said)


def _in_vain(pair: Pair, facts: Facts) -> bool:
    """Whether the rejected call showed nothing that its attempt had not seen: it failed, or repeats a result."""
    episode, step = key_of(pair, "rejected")
    result = facts.results((episode, step))
    before = [text for n, text in facts.seen[episode] if n < step]
    return says_nothing(result) or bool(_at_fault(pair, facts)) or is_among(result, before)


def _sufficed(pair: Pair, facts: Facts) -> bool:
    """Whether the chosen call is the last that its attempt made, and the answer came right after it.

    After another turn, an answer may be what that turn taught.
    """
    episode, step = key_of(pair, "chosen")
    return facts.last_call.get(episode) == step and facts.last_step[episode] <= step + 1


def _guesses(pair: Pair, facts: Facts) -> bool:
    """Whether the chosen call guesses at a schema, and the other was not a guess that failed."""
    return not _at_fault(pair, facts) and bool(guessed(message_of(pair, "chosen"), pair["prompt"], pair["tools"]))


def _succeeded(pair: Pair, facts: Facts) -> bool:
    """Whether the rejected call's attempt succeeded."""
    return facts.p_success.get(pair["rejected_episode"], 0.0) >= SUCCEEDS


def _fell_short(pair: Pair, facts: Facts) -> bool:
    """Whether the rejected call failed, or did not give the answer, or what its attempt got later, and the chosen did.

    An answer that names nothing that the chosen call showed was known without it, and for the most part where it names
    more that the call did not show, or where its conclusion does not: then only an error separates the two. What its
    attempt got later was missing where it succeeded by it, and is not a result that chance gives as well.
    """
    gave, other = (facts.results(key_of(pair, side)) for side in ("chosen", "rejected"))
    words, asked = facts.answer(pair["chosen_episode"]), shown(str(pair["prompt"]))
    named = named_tokens({"content": words})
    answer = named - asked or named  # one of the options, where it names nothing new
    told = answer & plain_forms(gave)
    silent = says_nothing(gave) and is_submitted(calls_of(message_of(pair, "chosen")), words)
    if answer and not told and not silent:
        return False
    at_fault = _at_fault(pair, facts)
    if at_fault or at_fault is None:
        return at_fault is not None
    if answer & plain_forms(other) - told or _led_there_too(pair, facts):
        return False  # it gave a part of the answer that the chosen one did not, or all that is needed
    concluded = _conclusion(words)
    shows = (concluded - asked or concluded - _asked_by_both(pair)) & plain_forms(gave)
    if concluded and not shows and not silent:
        return False
    if shows - plain_forms(other) and MOSTLY * len(told) >= len(answer):
        return True
    later = [text for n, text in facts.seen[pair["rejected_episode"]] if n > pair["rejected_step"]]
    return _succeeded(pair, facts) and len(gave.strip()) > 1 and is_among(gave, later)


def _conclusion(words: str) -> set[str]:
    """Return what the last line of an answer that names anything names."""
    lines = (named_tokens({"content": line}) for line in reversed(words.splitlines()))
    return next(filter(None, lines), set())


def _asked_by_both(pair: Pair) -> set[str]:
    """Return the words that both calls name: a result that repeats them does not answer, as a number may."""
    sides = []
    for side in ("chosen", "rejected"):
        texts = (text for call in calls_of(message_of(pair, side)) for text in texts_in(call.get("arguments")))
        sides.append(frozenset[str]().union(*map(plain_forms, texts)))
    return {word for word in sides[0] & sides[1] if not word[0].isdigit()}


def _led_there_too(pair: Pair, facts: Facts) -> bool:
    """Whether the rejected call led to the same answer, with which its attempt failed: its verifier saw a difference.

    One answer then has all that the other names beyond the request, and a part of it is in what the call gave.
    """
    asked = shown(str(pair["prompt"]))
    named = (_conclusion(facts.answer(pair[f"{side}_episode"])) for side in ("chosen", "rejected"))
    ours, theirs = (names - asked or names for names in named)
    both = ours & theirs
    same = bool(both) and both in (ours, theirs)
    return same and not _succeeded(pair, facts) and bool(both & plain_forms(facts.results(key_of(pair, "rejected"))))


def _at_fault(pair: Pair, facts: Facts) -> bool | None:
    """Whether the rejected call failed, with a message that states it; None where it failed by no fault of its own."""
    key = key_of(pair, "rejected")
    result = facts.results(key)
    action, status = facts.action.get(key, (None, []))
    stated = ToolStatus.FAILED.value in status and any(word.isalpha() for word in plain_words(result).split())
    passes = len(result) < SHORT_RESULT and _PASSES.search(result)
    if not (stated or passes or says_failed(result)):
        return False
    return None if passes or (stated and action in facts.worked) else True


def is_submitted(calls: Sequence[Mapping[str, Any]], answer: str) -> bool:
    """Return whether calls were the answer themselves: it repeats nearly all of their words."""
    texts = (text for call in calls for text in texts_in(call.get("arguments")))
    words = {word for text in texts for word in plain_words(text).split()}
    repeated = words & set(plain_words(answer).split())
    return len(words) >= FEW_WORDS and len(repeated) >= SUBMITTED * len(words)


def is_among(result: str, results: Sequence[str]) -> bool:
    """Return whether a result is one of others, in nearly the same words."""
    return not says_nothing(result) and any(
        overlap(plain_words(result), plain_words(r)) >= SAME_RESULT for r in results
    )


def says_failed(result: str) -> bool:
    """Return whether a short result is a verdict that something failed, or nothing but a program's complaints."""
    if len(result) >= SHORT_RESULT:
        return False
    lines = [line for line in result.splitlines() if line.strip()]
    return bool(_SAYS_FAILED.search(result)) or (bool(lines) and all(map(_COMPLAINS.fullmatch, lines)))

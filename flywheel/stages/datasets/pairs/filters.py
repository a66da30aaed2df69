"""Filters of candidate pairs: first by their numbers, all at once, then by their actions, one pair at a time.

In: candidates with what is known of their steps and episodes. Out: the first reason to refuse. Facts beyond the pair
itself are looked up in the steps and returns; a pair whose sides are not in the log (an edited answer, for example)
passes the filters that need them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import polars as pl

from flywheel.config import PairsConfig
from flywheel.models.calls import is_reproducible
from flywheel.reading.status import says_nothing
from flywheel.records import Split, ToolStatus, texts_in
from flywheel.stages.common.canonical import call_key
from flywheel.stages.common.memo import cached_by_identity
from flywheel.stages.common.tools import changes, looks_up
from flywheel.stages.credit.rejected import rejected_steps
from flywheel.stages.datasets.grounding import is_prose, named_tokens, shown, ungrounded
from flywheel.stages.datasets.pairs.believed import BACKED, CHEAPER, POOLED
from flywheel.stages.datasets.pairs.detours import SAME_RESULT, is_among, is_submitted, no_detour, says_failed
from flywheel.stages.datasets.pairs.facts import Facts, Pair, calls_of, edited, key_of, message_of, plain_words
from flywheel.stages.datasets.pairs.limits import signature
from flywheel.stages.datasets.pairs.requests import only_in_one
from flywheel.stages.datasets.pairs.taint import tainted
from flywheel.stages.datasets.pairs.within import STILL_THE_SAME_CALL, overlap
from flywheel.stages.datasets.pairs.wording import near_identical

FEW_WORDS, LINE_WORDS = 5, 3  # words of a result that is one finding; of a line that is a message
FOREIGN_WORDS, LONG_WORD = 3, 5  # foreign words, and their letters, that make a text one about something else
_SHOWN_BY_RESULT = frozenset({CHEAPER, "retry_fixed"})  # builders whose evidence is what a call gave
EPSILON = 1e-9  # margins are differences of floats; a pair exactly at the threshold stays

_WENT_WELL = re.compile(r"\bsuccess|\A\s*true\W*\Z", re.IGNORECASE)
_SILENT = re.compile(  # in commands: what makes an error no error, and comments
    r"(?<=\brm) -\w*f\w*|--force\b|--ignore[\w-]*|\|\| *(?:true|:)(?=\s|\Z)|[2&]> */dev/null|(?<=\s)#.*"
)
_OTHERS_WORDS = re.compile(
    r"^[ \t>*#]*(?:observation|user|human|(?:tool|function|execution)[ _]?(?:result|response|output))\**\s*:",
    re.IGNORECASE | re.MULTILINE,
)
_FIRST = re.compile(r"\n|\}")  # after the first entry of a list
_QUOTED = re.compile(r"\"([^\"\n]+)\"|'([^'\n]+)'")
_NOT_THERE = re.compile(r"\bno such\b|\bnot (?:be )?found\b|\bdoes not exist\b|\bdoesn't exist\b", re.IGNORECASE)
_NOT_INSTALLED = re.compile(r"\bno module named\b|\bcommand not found\b", re.IGNORECASE)


def _malformed_chosen(pair: Pair, facts: Facts) -> bool:
    del facts
    message = message_of(pair, "chosen")
    calls = calls_of(message)
    empty = not calls and not str(message.get("content") or "").strip()
    return empty or any(call.get("arguments") is None for call in calls)


def _not_as_written(pair: Pair, facts: Facts) -> bool:
    del facts
    tools = pair["tools"] is not None
    return not all(is_reproducible(message_of(pair, side), tools=tools) for side in ("chosen", "rejected"))


def _failed_chosen(pair: Pair, facts: Facts) -> bool:
    _, status = facts.action.get(key_of(pair, "chosen"), (None, []))
    if edited(pair) or not calls_of(message_of(pair, "chosen")):
        return False
    return ToolStatus.FAILED.value in status or says_failed(facts.results(key_of(pair, "chosen")))


def _same_action(pair: Pair, facts: Facts) -> bool:
    chosen, rejected = (message_of(pair, side) for side in ("chosen", "rejected"))
    keys = {facts.action.get(key_of(pair, side), (None, []))[0] for side in ("chosen", "rejected")}
    by_key = len(keys) == 1 and None not in keys and bool(calls_of(chosen)) and not edited(pair)
    return by_key or signature(chosen) == signature(rejected)


def _same_result(pair: Pair, facts: Facts) -> bool:
    """Whether both calls gave the agent the same to go on with, so that what decided came later.

    Calls that change something, and results that say no more than that a call went well, show no such thing.
    """
    chosen, rejected = (calls_of(message_of(pair, side)) for side in ("chosen", "rejected"))
    if pair["chosen_episode"] == pair["rejected_episode"] or not chosen or not rejected:
        return False
    if any(changes(call["name"]) for call in (*chosen, *rejected)):
        return False
    results = [facts.results(key_of(pair, side)) for side in ("chosen", "rejected")]
    if {call["name"] for call in (*chosen, *rejected)} == {chosen[0]["name"]} and looks_up(chosen[0]["name"]):
        first = {" ".join(_FIRST.split(text, maxsplit=1)[0].split()) for text in results}
        if len(first) == 1 and len(plain_words(*first).split()) >= LINE_WORDS:
            return True  # two searches with the same first finding
    if any(says_nothing(text) or _WENT_WELL.search(text) for text in results):
        return False
    ours, theirs = (plain_words(text).split() for text in results)
    if len(ours) <= FEW_WORDS and set(ours) <= set(theirs):
        return True  # the rejected call gave the same number, and more
    return overlap(" ".join(ours), " ".join(theirs)) >= SAME_RESULT


def _other_order(pair: Pair, facts: Facts) -> bool:
    """Whether the better episode makes the rejected call too, only later: then that call did no harm."""
    action, _ = facts.action.get(key_of(pair, "rejected"), (None, []))
    return action is not None and facts.last_made.get((pair["chosen_episode"], action), -1) > pair["chosen_step"]


def _other_request(pair: Pair, facts: Facts) -> bool:
    """Whether the sides answer different requests: another role, turn or wish, or facts that only one user gave."""
    if pair["chosen_episode"] == pair["rejected_episode"]:
        return False
    here, there = (facts.prompt(key_of(pair, side)) for side in ("chosen", "rejected"))
    if here is None or there is None:
        return False
    only_one_told = only_in_one(here, there)
    if only_one_told is None:
        return True
    return bool(only_one_told) and any(
        only_one_told & _named(message_of(pair, side)) for side in ("chosen", "rejected")
    )


def _other_course(pair: Pair, facts: Facts) -> bool:
    """Whether the talks before both sides went differently, though they made the same calls.

    A call that both had made showed something else, or the user's newest turn answers an agent that had named other
    things: what is right then depends on it.
    """
    if pair["chosen_episode"] == pair["rejected_episode"] or pair["builder"] == POOLED:
        return False
    here, there = (facts.prompt(key_of(pair, side)) for side in ("chosen", "rejected"))
    if here is None or there is None or here == there:
        return False
    ours, theirs = _shown_by_call(here), _shown_by_call(there)
    if any(not is_among(ours[call], [theirs[call]]) for call in ours.keys() & theirs.keys() if ours[call].strip()):
        return True
    return _answered(here) != _answered(there)


@lru_cache(maxsize=64)
def _shown_by_call(prompt: str) -> dict[str, str]:
    """Return the last result of each call in a prompt."""
    made: dict[str, str] = {}
    shown: dict[str, str] = {}
    for message in json.loads(prompt):
        for call in calls_of(message):
            made[str(call.get("id"))] = call_key(call)
        if message["role"] == "tool" and (key := made.get(str(message.get("tool_call_id")))):
            shown[key] = str(message.get("content") or "")
    return shown


def _answered(prompt: str) -> frozenset[str]:
    """Return what the agent had named in the words that the user's newest turn answers."""
    messages = json.loads(prompt)
    turns = [n for n, message in enumerate(messages) if message["role"] == "user"]
    before = messages[turns[-1] - 1] if turns and turns[-1] else {}
    return (
        frozenset(named_tokens({"content": before.get("content")}))
        if before.get("role") == "assistant"
        else frozenset()
    )


def _invented(pair: Pair, facts: Facts) -> bool:
    """Whether the chosen side writes itself what only its environment, or the user, can say."""
    del facts
    return _OTHERS_WORDS.search(str(message_of(pair, "chosen").get("content") or "")) is not None


def _named(message: dict[str, Any]) -> set[str]:
    """Return what an action names, in its calls and in its words."""
    return named_tokens(message) | named_tokens({"content": message.get("content")})


def _later_words(pair: Pair, facts: Facts) -> bool:
    """Whether the chosen side has words that were written only later, after the rejected action had shown its effect.

    Within an episode the better action comes later, and its words are about what had happened by then. No policy could
    have written them at the state before both. Its call alone, or words that the rejected side has too, could be.
    """
    if pair["chosen_episode"] != pair["rejected_episode"] or edited(pair):
        return False
    own, said = facts.prompt(key_of(pair, "chosen")), _words_of(pair, "chosen")
    return own is not None and own != pair["prompt"] and bool(said) and said != _words_of(pair, "rejected")


def _words_of(pair: Pair, side: str) -> str:
    return " ".join(str(message_of(pair, side).get("content") or "").split())


def _still_failing(pair: Pair, facts: Facts) -> bool:
    """Whether a call that worked after a failed one mended nothing.

    It shows a line of the error again, or only what an earlier result had shown: a command may succeed and not do what
    was wanted.
    """
    episode, _ = key_of(pair, "chosen")
    if episode != pair["rejected_episode"] or edited(pair) or not calls_of(message_of(pair, "chosen")):
        return False
    failed, result = (facts.results(key_of(pair, side)) for side in ("rejected", "chosen"))
    lines = {line.strip() for line in failed.splitlines() if len(line.split()) >= LINE_WORDS}
    if any(line.strip() in lines for line in result.splitlines()):
        return True
    earlier = facts.tool_results_before((episode, pair["rejected_step"]))
    return is_among(result, earlier)


def _tried_again(pair: Pair, facts: Facts) -> bool:
    """Whether the better attempt went on to vary the chosen call: then not that call, but a later one, was right."""
    key = key_of(pair, "chosen")
    calls = calls_of(message_of(pair, "chosen"))
    if edited(pair) or not calls or facts.action.get(key, (None, []))[0] is None:
        return False
    own, tool = str(facts.action[key][0]), calls[0]["name"]
    if changes(tool):
        return False  # the next order is another one
    later = [action for n, action in facts.calls_after.get(key[0], []) if n > key[1] and action.startswith(f"{tool} ")]
    return any(overlap(plain_words(own), plain_words(action)) >= STILL_THE_SAME_CALL for action in later)


def _other_environment(pair: Pair, facts: Facts) -> bool:
    """Whether the rejected call lacked what is installed or not, or what the chosen one found: environments differ."""
    if pair["chosen_episode"] == pair["rejected_episode"]:
        return False
    result = facts.results(key_of(pair, "rejected"))
    missing = [line for line in result.splitlines() if _NOT_THERE.search(line)]
    if _NOT_INSTALLED.search(result):
        return True
    if not missing or _NOT_THERE.search(facts.results(key_of(pair, "chosen"))):
        return False
    used = {word for word in _named_things(message_of(pair, "chosen")) if len(word) >= LONG_WORD}
    return any(word.rstrip("/.") in line for word in used for line in missing)


def _named_things(message: dict[str, Any]) -> set[str]:
    texts = (text for call in calls_of(message) for text in texts_in(call.get("arguments")))
    return {word for text in texts for word in re.findall(r"[\w./-]*[/_.\d][\w./-]*", text)}


def _done_before(pair: Pair, facts: Facts) -> bool:
    """Whether the chosen call, which changes nothing, was made before already: it only repeats what is known."""
    episode, step = key_of(pair, "chosen")
    action, _ = facts.action.get((episode, step), (None, []))
    if action is None or edited(pair) or any(changes(call["name"]) for call in calls_of(message_of(pair, "chosen"))):
        return False
    before = pair["rejected_step"] if episode == pair["rejected_episode"] else step
    return facts.first_made[episode, action] < before


def _silenced(pair: Pair, facts: Facts) -> bool:
    """Whether the chosen call is a failed one again, with its errors suppressed."""
    prompt = facts.prompt(key_of(pair, "chosen"))
    silent = [call for call in calls_of(message_of(pair, "chosen")) if _silent(call)]
    if edited(pair) or prompt is None or not silent:
        return False
    before = [call for message in json.loads(prompt) for call in calls_of(message)]
    failed = {(call["name"], _loud(call)) for call in (*before, *calls_of(message_of(pair, "rejected")))}
    return any((call["name"], _loud(call)) in failed for call in silent)


def _loud(call: dict[str, Any]) -> str:
    return " ".join(_SILENT.sub(" ", text) for text in texts_in(call.get("arguments"))).replace(" ", "")


def _silent(call: dict[str, Any]) -> bool:
    return any(_SILENT.search(text) for text in texts_in(call.get("arguments")))


def _no_error(pair: Pair, facts: Facts) -> bool:
    """Whether a call that "failed" before another one worked has no error message: a search that finds nothing."""
    if pair["chosen_episode"] != pair["rejected_episode"] or edited(pair) or not calls_of(message_of(pair, "rejected")):
        return False
    failed, result = (plain_words(facts.results(key_of(pair, side))) for side in ("rejected", "chosen"))
    return not any(word.isalpha() for word in set(failed.split()) - set(result.split()))


def _nothing_shown(pair: Pair, facts: Facts) -> bool:
    """Whether a fix or a cheaper way gave nothing back, or its own words: its result shows no more than that it ran.

    What is checked afterwards passes as well where there was nothing to find or to do. Tools that change something by
    name may be silent, and so may a call whose text is the answer: a function that is defined, and then submitted.
    """
    calls = calls_of(message_of(pair, "chosen"))
    if pair["builder"] not in _SHOWN_BY_RESULT or not calls or any(changes(call["name"]) for call in calls):
        return False
    key = key_of(pair, "chosen")
    result, written = facts.results(key), " ".join(text for call in calls for text in texts_in(call.get("arguments")))
    if says_nothing(result) or not plain_words(result):
        return not is_submitted(calls, facts.answer(key[0]))
    return _is_echo(result, written)


def _is_echo(result: str, written: str) -> bool:
    """Whether each line of a result is a quoted text of the call itself."""
    quoted = {" ".join(text.split()) for texts in _QUOTED.findall(written.replace("\\", "")) for text in texts if text}
    return bool(quoted) and {" ".join(line.split()) for line in result.splitlines() if line.strip()} <= quoted


def _not_grounded(pair: Pair, facts: Facts) -> bool:
    chosen, rejected = (message_of(pair, side) for side in ("chosen", "rejected"))
    own = facts.prompt(key_of(pair, "chosen")) or "[]"
    return bool(ungrounded(chosen, rejected, pair["prompt"], pair["tools"], own))


def _other_context(pair: Pair, facts: Facts) -> bool:
    """Whether an action names what only its own context showed: it answers another conversation.

    That is the rejected one's, or of a pair across tasks the one that was never taken here.
    """
    chosen, rejected = (message_of(pair, side) for side in ("chosen", "rejected"))
    if pair["builder"] == POOLED:
        other, own = (rejected, chosen) if facts.was_taken(pair, "chosen") else (chosen, rejected)
        words = named_tokens({"content": other.get("content")}) - shown(pair["prompt"])
        return bool(words or ungrounded(other, own, pair["prompt"], pair["tools"], pair["prompt"]))
    prompt = facts.prompt(key_of(pair, "rejected"))
    if prompt is None or pair["chosen_episode"] == pair["rejected_episode"]:
        return False
    foreign = ungrounded(rejected, chosen, pair["prompt"], pair["tools"], prompt)
    if foreign - ungrounded(rejected, chosen, prompt, pair["tools"]):
        return True
    return len(_words_only_there(rejected, pair["prompt"], prompt)) >= FOREIGN_WORDS


def _words_only_there(message: dict[str, Any], here: str, there: str) -> set[str]:
    """Return the words of a call's sentences that its own conversation has and this one has not."""
    texts = [value for call in calls_of(message) for value in (call.get("arguments") or {}).values()]
    words = {word for text in texts if isinstance(text, str) and is_prose(text) for word in _words(text)}
    return {word for word in words if word in there.casefold() and word not in here.casefold()}


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"[^\W\d_]+", text.casefold()) if len(word) >= LONG_WORD}


def _dictated(pair: Pair, facts: Facts) -> bool:
    own = facts.prompt(key_of(pair, "chosen")) or str(pair["prompt"])
    return tainted(message_of(pair, "chosen"), own)


def _against_credit(pair: Pair, facts: Facts) -> bool:
    """Whether the steps' own credit contradicts their episodes."""
    if pair["chosen_episode"] == pair["rejected_episode"] or pair["builder"] == CHEAPER:
        return False
    chosen, rejected = (facts.credit.get(key_of(pair, side)) for side in ("chosen", "rejected"))
    return chosen is not None and rejected is not None and rejected - chosen > EPSILON


@cached_by_identity  # two filters ask in a row
def _counted(pair: Pair, facts: Facts) -> tuple[int, int] | None:
    """Voters of a preference that rests on how episodes ended; what one episode shows by itself needs no vote.

    Nor does what so many users of other tasks show that any one of them may leave, on each side.
    """
    if pair.get(BACKED, 0) >= max(facts.cfg.min_lead, facts.cfg.min_users):
        return None
    if pair["chosen_episode"] == pair["rejected_episode"] or pair["builder"] == CHEAPER:
        return None
    taken = all(facts.was_taken(pair, side) for side in ("chosen", "rejected"))
    return facts.votes.count(pair) if taken else None


def _few_users(pair: Pair, facts: Facts) -> bool:
    votes = _counted(pair, facts)
    return votes is not None and votes[0] < facts.cfg.min_users


def _fragile(pair: Pair, facts: Facts) -> bool:
    """Whether one user's leaving could undo the direction."""
    votes = _counted(pair, facts)
    return votes is not None and votes[0] - votes[1] < facts.cfg.min_lead


def by_numbers(returns: pl.DataFrame, cfg: PairsConfig) -> list[tuple[str, pl.Expr]]:
    """Return the refusals that need no look at what was done, in order; nulls count as no reason.

    A comparison of two episodes rests on their outcomes; within one episode the evidence is another. And whether the
    better episode did something dangerous, or the better step something riskier than the other: no success makes that
    an example. Nor is a step of a turn that its user rejected, though the attempt succeeded in the end.
    """
    of_episode = returns.filter(pl.col("step").is_null())
    known = of_episode.filter(pl.col("known"))["episode_id"].implode()
    dangerous = of_episode.filter(pl.col("risk") >= cfg.max_risk)["episode_id"].implode()
    ends = [pl.col(f"{side}_episode") for side in ("chosen", "rejected")]
    risks = returns.filter(pl.col("step").is_not_null() & (pl.col("risk") > 0))
    risky = dict(risks.select(pl.concat_str("episode_id", "step", separator=":"), "risk").iter_rows())
    steps = [pl.concat_str(f"{side}_episode", f"{side}_step", separator=":") for side in ("chosen", "rejected")]
    own = [step.replace_strict(risky, default=0.0) for step in steps]
    known_ends = pl.all_horizontal(end.is_in(known) for end in ends)
    spoilt = rejected_steps(returns).select(pl.concat_str("episode_id", "step", separator=":")).to_series().implode()
    return [
        ("crosses the split", pl.col("split") == Split.BETWEEN.value),
        ("unknown outcome", (ends[0] != ends[1]) & ~known_ends),
        ("risk", ends[0].is_in(dangerous) | (own[0] > own[1])),
        ("rejected turn", (ends[0] != ends[1]) & steps[0].is_in(spoilt)),
        ("margin", pl.col("margin") < cfg.min_margin - EPSILON),
        ("p_better", pl.col("p_better") < cfg.min_p_better - EPSILON),
    ]


FILTERS: tuple[tuple[str, Callable[[Pair, Facts], bool]], ...] = (
    ("malformed chosen", _malformed_chosen),
    ("not as written", _not_as_written),
    ("chosen call failed", _failed_chosen),
    ("same action", _same_action),
    ("near-identical", near_identical),
    ("same result", _same_result),
    ("other order", _other_order),
    ("other request", _other_request),
    ("other course", _other_course),
    ("invented result", _invented),
    ("later words", _later_words),
    ("done before", _done_before),
    ("still failing", _still_failing),
    ("silenced", _silenced),
    ("no error", _no_error),
    ("tried again", _tried_again),
    ("other environment", _other_environment),
    ("no detour", no_detour),
    ("nothing shown", _nothing_shown),
    ("against credit", _against_credit),
    ("too few users", _few_users),
    ("fragile", _fragile),
    ("not grounded", _not_grounded),
    ("other context", _other_context),
    ("tainted", _dictated),
)


def first_reason(pair: Pair, facts: Facts) -> str | None:
    """Return why a pair is refused, or None."""
    return next((reason for reason, bad in FILTERS if bad(pair, facts)), None)

"""Numbers and random texts that the word before them makes something else: an order, a part, a document, a section.

A card's checksum holds for one number in ten, a part has the form of a telephone, a document's id that of a key. So the
context decides: the noun right before, or the name of a field that holds nothing else.
"""

from __future__ import annotations

import re

_GOODS = (
    r"orders?|purchase|po|invoices?|bills?|receipts?|tracking|parcels?|shipments?|packages?|consignment|parts?|sku|upc|ean|gtin|isbn|asin|items?"
    r"|articles?|products?|model(?=[ _-])|serial|s/n|imei|lots?|booking|reservation|tweets?|tweet[ _]id"
    r"|bestell(?:ung|nr|nummer)|auftrag(?:snummer)?|rechnung(?:snummer)?|artikel(?:nummer)?"
    r"|teile?(?:nummer)?|sendung(?:snummer)?|commande|facture|colis|pedido|factura|pieza"
)
_THINGS = (
    r"tickets?|cases?|issues?|incidents?|ref(?:erence)?|posts?|comments?|threads?|documents?|docs?|records?|objects?|nodes?|entit(?:y|ies)|pages?"
    r"|videos?|files?|folders?|sheets?|boards?|rows?|jobs?|builds?|runs?|tasks?|events?|instances?|releases?|drawing"
)
_NUMBER = r"(?:no|nos|nr|num|number|nummer|numéro|número|id|ids|uid|ref|code|key|n°)"


_OF_NUMBERS = (
    re.compile(rf"(?i)(?<![a-z])(?:{_GOODS})[ _#-]{{0,3}}(?:{_NUMBER}\b)?\.?\s?[:=#]?\s?(?:(?:is|was|ist)\s)?#?\Z"),
    re.compile(rf"(?i)(?:.*[^a-z])?(?:(?:{_GOODS})[_ -]?{_NUMBER}|sku|upc|ean|gtin|isbn|asin)\Z"),
)
_NUMBERED = re.compile(
    rf"(?i)(?<![a-z])(?:{_GOODS})[ _-]{{0,2}}(?:{_NUMBER}\b\.?\s?[:=#]?|#)\s?(?:(?:is|was|ist)\s)?\Z"
)
_OF_TEXTS = (
    re.compile(
        rf"(?i)(?<![a-z])(?:{_GOODS}|{_THINGS})[\W_]{{0,3}}(?:{_NUMBER}\b)?\.?[\"'`]?\s{{0,2}}[:=#]?\s{{0,2}}(?:(?:is|was|ist)\s)?[\"'`#(]{{0,2}}\Z"
    ),
    re.compile(rf"(?:\A|[^A-Za-z]|(?<=[a-z])(?=[A-Z]))(?i:(?:{_GOODS}|{_THINGS})(?:[_ -]?{_NUMBER})?|uid|docid)\Z"),
)
_FAR = 40
_SEE = re.compile(r"(?i)\b(?:see|also|cf\.?|per|under|siehe|vgl\.?|voir|véase|ver)\s{1,2}\(?\Z")
_HEADING = re.compile(r"\.?[ \t]{1,4}[A-Z][a-z]{2,}(?: [a-z]|\s*$)", re.MULTILINE)
_MOST_OF_A_SECTION, _CHAPTERS = 100, 30


_ENDS_A_PART = frozenset([*"/?#)]>\"' \t\n\\", ""])
_LINK = re.compile(r"(?:https?:/|www)[^\s\"'<>()]{4,}/\Z")
_LINK_LENGTH = 240
_OF_CARDS = re.compile(r"(?i)card|(?<![a-z])(?:pan|cc|pay(?:ments?)?|checkout|billing)(?![a-z])")


def is_other(match: re.Match[str], name: str) -> bool:
    """Whether a find is the number or the id of something that belongs to none and opens nothing."""
    text = match.string
    before, named = _OF_NUMBERS if not any(map(str.isalpha, match[0])) else _OF_TEXTS
    if before.search(text, max(0, match.start() - _FAR), match.start()):
        return True
    return bool(named.search(name)) and text.strip() == match[0]


def is_numbered(match: re.Match[str]) -> bool:
    """Whether "order number", "invoice no." or "tracking #" is right before a number with a card's checksum.

    The noun alone is not enough, nor is a field's name: people pay orders by card, and write the card there.
    """
    return bool(_NUMBERED.search(match.string, max(0, match.start() - _FAR), match.start()))


def is_posted(match: re.Match[str]) -> bool:
    """Whether digits are a whole part of a link's path, as posts and groups are named by, and nothing there is a card."""
    text, start = match.string, match.start()
    if text[start - 1 : start] != "/" or text[match.end() : match.end() + 1] not in _ENDS_A_PART:
        return False
    path = _LINK.search(text, max(0, start - _LINK_LENGTH), start)
    return path is not None and not _OF_CARDS.search(path[0])


def is_section(match: re.Match[str], numbers: bytes) -> bool:
    """Whether four numbers are a section's: small, after "see", or before a heading."""
    if numbers[0] > _CHAPTERS or max(numbers) >= _MOST_OF_A_SECTION:
        return False
    text, start = match.string, match.start()
    line = text[max(0, start - _FAR) : start].rpartition("\n")[2]
    return bool(_SEE.search(line) or (not line.strip(" \t#*-") and _HEADING.match(text, match.end())))

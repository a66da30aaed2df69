"""Words that the field does not use: a stop-list for docs, messages, docstrings and comments.

`python tests/docs/words.py [PATH ...]` prints each place with what to write instead.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STOPPED = {
    r"anew": "again, new",
    r"nobody": "no user, none, no one who ...",
    r"told|tells|telling": "reported, recorded, sent, given; shows",
    r"beside": "next to, compared with, in addition to",
    r"surely": "significantly, certainly",
    r"dear|dearer|dearest": "expensive",
    r"stands?|stood": "is, is in, is at",
    r"says|said": "shows, gives, reports, states",
    r"judged|(?<!llm )judges": "evaluated (eval), labelled (rewards), decided (gate)",
    r"drawn": "sampled",
    r"rivals?": "baseline",
    r"gravest": "most severe",
    r"twins?": "duplicate",
    r"what became of": "the outcome of",
    r"(?<!there )(?:is|are|was|were) no (?!longer\b|more\b|less\b|different\b)(?=[a-z])": "is not a ...",
}
_WORDS, _PHRASES = ("|".join(word for word in STOPPED if (word[0] == "(") == phrase) for phrase in (False, True))
PATTERN = re.compile(rf"\b(?:{_WORDS})\b|{_PHRASES}")  # of small letters: many times as fast as for any
ALLOWED = {  # data and quotations
    "flywheel/stages/signals/lexicon.py",
    "tests/docs/words.py",
}
PLACES = ("README.md", "AGENTS.md", "docs", "flywheel", "pipelines", "benchmarks", "examples")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of what people read in a file: every line of a document; strings and comments of a module."""
    source = path.read_text(encoding="utf-8")
    if not PATTERN.search(source.lower()):
        return
    if path.suffix != ".py":
        fenced = False
        for number, line in enumerate(source.splitlines(), 1):
            fenced ^= line.startswith("```")
            if not fenced:
                yield number, re.sub(r"`[^`]*`", "", line)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, re.sub(r"`[^`]*`", "", line)
    for number, line in enumerate(source.splitlines(), 1):
        _, _, comment = line.partition("# ")
        yield number, re.sub(r"`[^`]*`", "", comment)


def stopped(paths: list[Path]) -> Iterator[str]:
    """Yield `file:line: word -> instead` for each stopped word below the paths."""
    files = sorted(f for path in paths for f in ([path] if path.is_file() else path.rglob("*")))
    for file in files:
        name = str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name)
        skipped = name in ALLOWED or name.startswith(("docs/decisions/", "docs/reference/"))
        if skipped or file.suffix not in {".py", ".md", ".toml", ".jinja", ".html"}:
            continue
        for number, text in texts(file):
            for match in PATTERN.finditer(text.lower()):
                instead = next(i for w, i in STOPPED.items() if re.fullmatch(w, match[0]) or w[0] == "(")
                yield f"{name}:{number}: {text[match.start() : match.end()]} -> {instead}"


if __name__ == "__main__":
    found = list(stopped([Path(p).resolve() for p in sys.argv[1:]] or [ROOT / place for place in PLACES]))
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.exit(bool(found))

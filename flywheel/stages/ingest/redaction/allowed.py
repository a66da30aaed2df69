"""What a project keeps although it looks like personal data, and what it always replaces."""

from __future__ import annotations

import re

from flywheel.config import RedactConfig
from flywheel.errors import ConfigError
from flywheel.stages.ingest.redaction.patterns import PLACEHOLDER

_DOMAIN = re.compile(r"(?!-)[\w-]{1,63}(?:\.[\w-]{1,63})*")


class Allowed:
    """What is kept: exact values, what a pattern matches as a whole, e-mail addresses of a domain.

    Raises:
        ConfigError: an invalid regular expression or domain.
    """

    def __init__(self, cfg: RedactConfig) -> None:
        self._values = frozenset(cfg.allow)
        self._patterns = [_compiled("allow_patterns", pattern, pattern) for pattern in cfg.allow_patterns]
        self._domains = frozenset(_domain(name) for name in cfg.allow_domains)

    def keeps(self, *spellings: str) -> bool:
        """Whether a find is kept, in one of the ways it is written."""
        return any(s in self._values or self._by_pattern(s) or self._by_domain(s) for s in spellings)

    def _by_pattern(self, text: str) -> bool:
        return any(pattern.fullmatch(text) for pattern in self._patterns)

    def _by_domain(self, text: str) -> bool:
        if not self._domains or "@" not in text:
            return False
        labels = text.rpartition("@")[2].lower().split(".")
        return any(".".join(labels[n:]) in self._domains for n in range(len(labels)))


def denied(patterns: list[str]) -> list[re.Pattern[str]]:
    """Return what finds denied texts; pseudonyms given before match too.

    Raises:
        ConfigError: an invalid regular expression.
    """
    return [_compiled("deny", pattern, f"{PLACEHOLDER}|(?:{pattern})") for pattern in patterns]


def _compiled(name: str, pattern: str, whole: str) -> re.Pattern[str]:
    try:
        re.compile(pattern)
        return re.compile(whole)
    except re.error as error:
        raise ConfigError(
            f"ingest.redact.{name}: `{pattern}` is not a regular expression: {error}", hint="see Python's re module"
        ) from None


def _domain(name: str) -> str:
    if not _DOMAIN.fullmatch(name):
        raise ConfigError(
            f"ingest.redact.allow_domains: `{name}` is not a domain",
            hint="a name as in example.com, without @ or https://",
        )
    return name.lower()

"""Names of persons and places by Presidio, where a project asks for it: `pip install 'flywheel-rl[presidio]'`.

Presidio adds what needs a language model to the built-in kinds; it does not replace them. Nothing is downloaded: the
spaCy pipeline is one that is installed, or a folder; without one, only Presidio's patterns work. It runs on the CPU,
so that the same text gives the same entities. It reads texts, not ids, names of tools or identifiers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from flywheel.config import RedactConfig
from flywheel.errors import ConfigError
from flywheel.stages.ingest.redaction.patterns import GIVEN, Find

_BUILT_IN = {
    "EMAIL_ADDRESS": "email", "PHONE_NUMBER": "phone", "CREDIT_CARD": "card", "IBAN_CODE": "iban", "IP_ADDRESS": "ip",
}  # fmt: skip
_NAME = re.compile(r"[A-Z][A-Z_]{1,40}")  # what a pseudonym can begin with
# An identifier, a path or a number: words of code, in which a language model sees names at random.
_CODE = re.compile(r"[a-z0-9_.:/#-]*|[\W\d]*")
_CACHE = 1 << 14


class Entities:
    """Finds the entities that the configuration names.

    Raises:
        ConfigError: Presidio or the pipeline is not installed, or it does not know an entity.
    """

    def __init__(self, cfg: RedactConfig) -> None:
        self._analyzer = _analyzer(cfg)
        self._language, self._threshold = cfg.presidio_language, cfg.presidio_threshold
        self._entities = sorted(set(cfg.presidio_entities))
        _check(self._entities, self._analyzer.get_supported_entities(self._language))
        self._finds = lru_cache(maxsize=_CACHE)(self._analyzed)

    def finds(self, text: str) -> tuple[tuple[str, Find], ...]:
        """Return a text's entities, none overlapping, in their order, each with the kind that it is counted as."""
        return () if _CODE.fullmatch(text) else self._finds(text)

    def _analyzed(self, text: str) -> tuple[tuple[str, Find], ...]:
        results = self._analyzer.analyze(
            text, language=self._language, entities=self._entities, score_threshold=self._threshold
        )
        taken = [match.span() for match in GIVEN.finditer(text)]
        items = []
        for r in sorted(results, key=lambda r: (-r.score, r.start, -r.end, r.entity_type)):
            if r.start < r.end and all(r.end <= start or end <= r.start for start, end in taken):
                taken.append((r.start, r.end))
                entity = " ".join(text[r.start : r.end].casefold().split())
                items.append((r.entity_type.lower(), Find(entity, r.start, r.end)))
        return tuple(sorted(items, key=lambda pair: pair[1].start))


def _analyzer(cfg: RedactConfig) -> Any:
    try:
        import spacy
        from presidio_analyzer import AnalyzerEngine
        from presidio_analyzer.nlp_engine import SpacyNlpEngine
    except ImportError:
        raise ConfigError(
            "ingest.redact.presidio: Presidio is not installed", hint="pip install 'flywheel-rl[presidio]'"
        ) from None
    model, language = cfg.presidio_model, cfg.presidio_language
    engine = SpacyNlpEngine(models=[{"lang_code": language, "model_name": model}])
    # Loaded here, not by the engine: that would download what is missing, and take a GPU where there is one.
    engine.nlp = {language: _pipeline(spacy, model, language)}
    analyzer = AnalyzerEngine(nlp_engine=engine, supported_languages=[language])
    if not model:  # it would claim to find names, and find none
        analyzer.registry.remove_recognizer("SpacyRecognizer")
    return analyzer


def _pipeline(spacy: Any, model: str, language: str) -> Any:
    if model and not spacy.util.is_package(model) and not Path(model).is_dir():
        raise ConfigError(
            f"ingest.redact.presidio_model: the spaCy pipeline `{model}` is not installed",
            hint=f"python -m spacy download {model}, a folder, or '' for Presidio's patterns alone",
        )
    try:
        return spacy.load(model) if model else spacy.blank(language)
    except (ImportError, OSError, ValueError) as error:
        raise ConfigError(
            f"ingest.redact.presidio_model: `{model or language}` does not load: {type(error).__name__}",
            hint="a spaCy pipeline for the version of spaCy that is installed; for '', a language that spaCy knows",
        ) from None


def _check(entities: list[str], supported: list[str]) -> None:
    for name in entities:
        if name in _BUILT_IN:
            raise ConfigError(
                f"ingest.redact.presidio_entities: `{name}` is built in", hint=f"the kind `{_BUILT_IN[name]}` finds it"
            )
        if name not in supported or not _NAME.fullmatch(name):
            raise ConfigError(
                f"ingest.redact.presidio_entities: Presidio does not know `{name}`",
                hint=f"known with this language and pipeline: {', '.join(sorted(set(supported) - set(_BUILT_IN)))}",
            )

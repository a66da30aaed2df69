"""Presidio beside the built-in kinds: with the package where it is installed, and without it."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import RedactConfig
from flywheel.errors import ConfigError
from flywheel.records import canonical_json
from flywheel.stages.ingest.redaction.redact import Redactor

INSTALLED = find_spec("presidio_analyzer") is not None
installed = pytest.mark.skipif(not INSTALLED, reason="presidio-analyzer is not installed: pip install -e '.[presidio]'")
quiet = pytest.mark.filterwarnings("ignore")  # theirs


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    """A spaCy pipeline with rules in place of a trained model: real entities, no download."""
    import spacy

    nlp = spacy.blank("en")
    rules: Any = nlp.add_pipe("entity_ruler")
    person = [{"LOWER": "mia"}, {"IS_SPACE": True, "OP": "*"}, {"LOWER": "li"}]
    rules.add_patterns([{"label": "PERSON", "pattern": person}, {"label": "GPE", "pattern": "Oslo"}])
    nlp.to_disk(tmp_path / "names")
    return str(tmp_path / "names")


def redactor(**settings: Any) -> Redactor:
    return Redactor(RedactConfig(presidio=True, **settings), b"key")


@pytest.mark.skipif(INSTALLED, reason="presidio-analyzer is installed")
def test_without_the_package_the_way_to_it_is_named() -> None:
    with pytest.raises(ConfigError, match="Presidio is not installed") as error:
        redactor()
    assert "flywheel-rl[presidio]" in str(error.value.hint)


@quiet
@installed
def test_names_go_beside_the_built_in_kinds(pipeline: str) -> None:
    r = redactor(presidio_model=pipeline)
    texts = [
        canonical_json({"content": "Mia Li of Oslo (mia@li.example)", "name": "oslo"}),
        canonical_json(["mia li!"]),
    ]
    first, second = r.payloads(texts)
    assert dict(r.counts) == {"person": 2, "location": 1, "email": 1}
    assert "Mia" not in first
    assert '"name":"oslo"' in first, "an identifier is no name"
    assert second.startswith('["<PERSON_')
    again = redactor(presidio_model=pipeline)
    assert again.payloads([first, second]) == [first, second]
    assert not again.counts


@quiet
@installed
def test_equal_names_are_equal_and_allowed_ones_stay(pipeline: str) -> None:
    r = redactor(presidio_model=pipeline, allow=["Oslo"])
    [found] = r.payloads([canonical_json(["Mia Li!", "MIA LI!", "Oslo!"])])
    first, second, third = json.loads(found)
    assert first == second
    assert first.startswith("<PERSON_")
    assert third == "Oslo!"


@quiet
@installed
def test_patterns_alone_need_no_pipeline() -> None:
    r = redactor(presidio_model="", presidio_entities=["DATE_TIME"], presidio_threshold=0.3)
    [found] = r.payloads([canonical_json(["born 1990-02-03, joe@example.com"])])
    assert dict(r.counts) == {"date_time": 1, "email": 1}
    assert "1990" not in found


@quiet
@installed
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"presidio_model": "no_such_pipeline"}, "`no_such_pipeline` is not installed"),
        ({"presidio_model": ""}, "Presidio does not know `LOCATION`"),
        ({"presidio_model": "", "presidio_entities": ["EMAIL_ADDRESS"]}, "`EMAIL_ADDRESS` is built in"),
        ({"presidio_model": "", "presidio_language": "xx-none"}, "does not load"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        redactor(**settings)

"""Aliases, the decision log and what a kill between the two leaves behind."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from flywheel.errors import StoreError, UsageError
from flywheel.io import files
from flywheel.records import FileHash, LedgerEntry, Promotion, RoundManifest, Verdict
from flywheel.registry.registry import ADAPTER_WEIGHTS, Registry

Decision = Literal["promoted", "held", "forced", "rolled_back"]


def _manifest(number: int, **changes: Any) -> RoundManifest:
    values: dict[str, Any] = {
        "round": number, "state": "trained", "method": "sft", "method_reason": "because", "parent": None,
        "reference": "none", "base_model": "embedded", "base_model_sha256": "b", "inputs": {}, "counts": {},
        "config": {}, "seed": 0, "adapter_sha256": files.hash_text(f"weights {number}"),
    }  # fmt: skip
    return RoundManifest(**{**values, **changes})


def _trained(registry: Registry, number: int) -> None:
    registry.save(_manifest(number))
    weights = registry.folder(number) / "adapter" / ADAPTER_WEIGHTS
    weights.parent.mkdir()
    weights.write_text(f"weights {number}")


def _decision(number: int, before: int | None, after: int | None, decision: Decision = "promoted") -> Promotion:
    return Promotion(
        round=number,
        decision=decision,
        champion_before=before,
        champion_after=after,
        by="test",
        at=datetime(2026, 1, 1, tzinfo=UTC),
    )


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    made = Registry(tmp_path / "rounds")
    for number in (1, 2, 3):
        _trained(made, number)
    return made


def test_an_empty_registry_is_served_by_the_base(tmp_path: Path) -> None:
    registry = Registry(tmp_path)

    assert registry.champion is None
    assert registry.next_number() == 1
    assert registry.resolve("@champion") is None
    with pytest.raises(UsageError, match="no round has been trained yet"):
        registry.resolve("latest")


def test_names_of_rounds(registry: Registry) -> None:
    registry.decide(_decision(1, None, 1))

    assert registry.resolve("2") == 2
    assert registry.resolve("latest") == 3
    assert registry.resolve("@champion") == 1
    assert registry.resolve("base") is None
    for name in ("9", "nonsense", "@previous"):
        with pytest.raises(UsageError):
            registry.resolve(name)


def test_promotion_hold_and_rollback_move_the_aliases(registry: Registry) -> None:
    registry.decide(_decision(1, None, 1))
    registry.decide(_decision(2, 1, 1, "held"))
    assert registry.aliases() == {"champion": 1, "challenger": 2, "previous": None}
    registry.decide(_decision(3, 1, 3))
    assert registry.aliases() == {"champion": 3, "challenger": 2, "previous": 1}
    registry.decide(_decision(3, 3, 1, "rolled_back"))
    assert registry.aliases() == {"champion": 1, "challenger": 2, "previous": 3}


def _killed(registry: Registry, decision: Promotion, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a decision, and end before it moves an alias."""
    with monkeypatch.context() as patch:
        patch.setattr(Registry, "_apply", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            registry.decide(decision)


def test_a_kill_between_decision_and_pointer_is_finished_later(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.decide(_decision(1, None, 1))
    _killed(registry, _decision(2, 1, 2), monkeypatch)
    assert registry.champion == 1
    assert registry.problems([1]) == registry.misplaced() == []

    assert registry.recover()
    assert registry.aliases() == {"champion": 2, "challenger": None, "previous": 1}
    assert not registry.recover()


def test_the_first_decision_is_finished_too_when_it_held(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The champion is the base model before and after it."""
    _killed(registry, _decision(1, None, None, "held"), monkeypatch)

    assert registry.recover()
    assert registry.aliases() == {"champion": None, "challenger": 1, "previous": None}
    assert not registry.recover()


def _looked_at(registry: Registry, number: int, looks: int = 1, protocol: str = "p") -> str:
    """Register a round as a candidate and look at it; return the hash of the last look's line."""
    ledger, adapter = registry.candidates, f"a{number}"
    ledger.trained(number, adapter, "p")
    entry = LedgerEntry(
        event="registered", candidate=ledger.next_place()[0], round=number, candidate_sha256=adapter,
        protocol_sha256=protocol, level=0.01,
    )  # fmt: skip
    ledger.append(entry)
    candidate = ledger.find(adapter, "", protocol)
    assert candidate is not None
    return [ledger.look(candidate, {}, {f"t{n}": (0.0, 1)}, f"scores {n}") for n in range(looks)][-1]


def _held(registry: Registry, number: int, look: str, verdict: Verdict = Verdict.INCONCLUSIVE) -> None:
    held = _decision(number, None, None, "held")
    registry.decide(held.model_copy(update={"verdict": verdict, "ledger_sha256": look}))


def test_the_newest_round_that_another_look_can_decide_is_waited_for(registry: Registry) -> None:
    _held(registry, 1, _looked_at(registry, 1, looks=2))
    _looked_at(registry, 2)  # evaluated by hand, and not decided on
    _held(registry, 3, _looked_at(registry, 3), Verdict.BLOCKED)

    def waiting(horizon: int) -> int | None:
        candidate = registry.waiting(horizon)
        return candidate.registered.round if candidate else None

    assert waiting(3) == 1
    assert waiting(2) is None  # it has had as many looks
    trained_with = registry.manifest(1).model_copy(update={"protocol": {"gate": {"horizon": 3}}})
    registry.save(trained_with)
    assert waiting(2) == 1  # a setting that was changed since does not end it


def test_a_look_by_other_suites_neither_waits_nor_keeps_a_round_from_waiting(registry: Registry) -> None:
    _looked_at(registry, 1, protocol="other suites")
    assert registry.waiting(60) is None
    _held(registry, 1, _looked_at(registry, 1))
    _held(registry, 1, _looked_at(registry, 1, protocol="others still"), Verdict.BLOCKED)

    waiting = registry.waiting(60)
    assert waiting is not None
    assert waiting.registered.protocol_sha256 == "p"


def test_a_tampered_decision_breaks_the_chain(registry: Registry) -> None:
    for number, before in ((1, None), (2, 1), (3, 2)):
        registry.decide(_decision(number, before, number))
    assert registry.problems([3]) == []
    path = registry.root / "promotions.jsonl"
    lines = path.read_text().splitlines()
    lines[1] = lines[1].replace('"by":"test"', '"by":"someone else"')
    path.write_text("\n".join(lines) + "\n")

    assert registry.problems([]) == ["promotions.jsonl line 3 does not follow from the line before"]
    path.write_text("{}\n")
    with pytest.raises(StoreError, match="line 1 does not fit"):
        registry.promotions()


def test_the_last_decision_cannot_be_changed_cut_off_or_healed(registry: Registry) -> None:
    for number, before in ((1, None), (2, 1)):
        registry.decide(_decision(number, before, number))
    path = registry.root / "promotions.jsonl"
    whole = path.read_text()
    changed = whole.replace('"round":2', '"round":3').replace('"champion_after":2', '"champion_after":3')
    for text in (changed, whole.splitlines()[0] + "\n", "", whole + whole.splitlines()[1] + "\n"):
        path.write_text(text)
        assert registry.problems([]) != []
        assert not registry.recover()
        assert registry.champion == 2

    path.write_text(changed)
    registry.decide(_decision(2, 2, 2, "held"))
    assert registry.problems([]) == ["promotions.jsonl line 3 does not follow from the line before"]
    path.write_text("no json\n")
    assert "promotions.jsonl line 1 does not fit its schema" in registry.problems([])


def test_decisions_of_before_the_head_was_kept_are_continued(registry: Registry) -> None:
    registry.decide(_decision(1, None, 1))
    files.write_json(registry.root / "aliases.json", registry.aliases())

    registry.decide(_decision(2, 1, 2))
    assert registry.problems([]) == []


def test_any_other_file_of_an_adapter_counts_too(registry: Registry) -> None:
    path = registry.folder(1) / "adapter" / "adapter_config.json"
    path.write_text("{}")
    output = FileHash(path="adapter/adapter_config.json", sha256=files.hash_file(path), size_bytes=2)
    registry.save(_manifest(1, outputs=[output]))
    assert registry.problems([1]) == []

    path.write_text('{"lora_alpha": 1000}')
    assert registry.problems([1]) == ["round 1: `adapter/adapter_config.json` is not the file its manifest names"]


def test_a_swapped_adapter_is_found(registry: Registry) -> None:
    (registry.folder(2) / "adapter" / ADAPTER_WEIGHTS).write_text("another")

    assert registry.problems([1, 2]) == ["round 2: the adapter file is not the one its manifest names"]
    with pytest.raises(StoreError, match="round 2: the adapter file is not"):
        registry.sound_adapter(2)
    (registry.folder(2) / "adapter" / ADAPTER_WEIGHTS).unlink()
    assert registry.problems([2]) == ["round 2 has no adapter file"]
    assert (registry.sound_adapter(None), registry.sound_adapter(1)) == (None, registry.folder(1) / "adapter")


def test_a_round_that_was_begun_is_the_next_one(registry: Registry) -> None:
    registry.save(_manifest(4, state="built", adapter_sha256=""))

    assert registry.next_number() == 4
    assert registry.trained() == [1, 2, 3]


def test_a_damaged_manifest_is_named_without_its_values(registry: Registry) -> None:
    path = registry.folder(1) / "manifest.json"
    path.write_text(json.dumps({"round": "secret"}))

    with pytest.raises(StoreError, match="does not fit its schema") as caught:
        registry.manifest(1)
    assert "secret" not in str(caught.value)

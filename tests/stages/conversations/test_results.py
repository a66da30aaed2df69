"""Joining calls with results."""

from __future__ import annotations

from flywheel.stages.conversations.results import OpenCall, Result, Results


def opened(*calls: tuple[str, str]) -> list[OpenCall]:
    return [OpenCall(call_id, name, f"{name} {{}}", malformed=False) for call_id, name in calls]


def came(call_id: str, name: str = "", status: str = "ok", event: str = "e", *, is_event: bool = True) -> Result:
    return Result(call_id, name, status, event, is_event, {"role": "tool", "content": event})


def test_parallel_results_in_any_order() -> None:
    results, calls = Results(), opened(("1", "f"), ("2", "f"))
    results.call(calls)
    assert results.result(came("2", status="failed"))
    assert results.result(came("1"))
    assert [c.status for c in calls] == ["ok", "failed"]
    assert results.by_order == 0


def test_an_explicit_status_beats_unknown_and_an_event_beats_a_message() -> None:
    results, calls = Results(), opened(("1", "f"))
    results.call(calls)
    results.result(came("1", status="unknown", event="a"))
    results.result(came("1", status="ok", event="b", is_event=False))
    assert calls[0].status == "ok"
    results.result(came("1", status="failed", event="c"))
    results.result(came("1", status="ok", event="d", is_event=False))
    results.result(came("1", status="unknown", event="e"))
    assert calls[0].status == "failed"
    assert calls[0].events == ["a", "c", "e"]


def test_without_ids_by_name_and_order_in_the_latest_action() -> None:
    results = Results()
    old, new = opened(("", "f")), opened(("", "f"), ("", "g"), ("", "g"))
    results.call(old)
    results.call(new)
    for name, status in (("g", "failed"), ("f", "ok"), ("g", "ok")):
        assert results.result(came("", name, status))
    assert [c.status for c in new] == ["ok", "failed", "ok"]
    assert (old[0].answered, results.by_order) == (False, 3)
    assert results.result(came("", "f", "failed"))
    assert old[0].status == "failed"


def test_a_used_id_means_the_newest_call() -> None:
    results, first, second = Results(), opened(("1", "f")), opened(("1", "f"))
    for calls, status in ((first, "ok"), (second, "failed")):
        results.call(calls)
        results.result(came("1", status=status))
    assert (first[0].status, second[0].status) == ("ok", "failed")


def test_a_result_before_its_call_is_kept_for_it() -> None:
    results, calls = Results(), opened(("1", "f"))
    assert not results.result(came("1", status="failed"))
    assert results.orphans == 1
    assert [r.call_id for r in results.call(calls)] == ["1"]
    assert (calls[0].status, results.orphans) == ("failed", 0)


def test_spans_claim_each_call_once() -> None:
    results = Results()
    results.call(opened(("", "f"), ("1", "g")))
    assert results.claim("1", "g", "g {}")
    assert results.claim("other", "f", "f {}")
    assert not results.claim("", "f", "f {}")
    results.call(opened(("", "f")))
    assert results.claim("", "f", "f {1}"), "a span shows arguments with defaults filled in"
    assert not results.claim("", "f", "f {2}")


def test_results_without_ids_answer_the_calls_of_actions_in_a_row_in_order() -> None:
    results, first, second = Results(), opened(("", "f")), opened(("", "g"))
    results.call(first)
    results.call(second, goes_on=True)
    results.result(came("", status="failed"))
    results.result(came("", status="ok"))
    assert (first[0].status, second[0].status) == ("failed", "ok")


def test_a_span_that_does_not_name_its_call_takes_no_failure_back() -> None:
    """It is around the one that does, and turned the exception into a text; a second try has the call's name."""
    results, calls = Results(), opened(("1", "f"))
    results.call(calls)
    results.result(came("1", status="failed"))
    results.result(Result("1", "f", "ok", "outer", is_event=True, message={"role": "tool"}, is_named=False))
    assert calls[0].status == "failed"
    results.result(came("1", event="again"))
    assert calls[0].status == "ok"


def test_a_history_tells_how_calls_ended_whose_spans_show_no_more_than_an_end() -> None:
    results, calls = Results(), opened(("", "f"), ("", "f"))
    results.call(calls)
    for event in ("a", "b"):
        results.result(came("", "f", "unknown", event))
    for status in ("ok", "failed"):
        results.result(came("", "f", status, "input", is_event=False))
    assert [c.status for c in calls] == ["ok", "failed"]

"""What AutoGen prints on a console is read as the talk that it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.stages.ingest.framing.texts.autogen_console import is_console
from tests.stages.ingest.conftest import COUNTING

Take = Callable[..., Any]

RULE = "-" * 80
GROUP = f"""Solving task...
trigger (to svc):

Is the shop's server well, please?

{RULE}
svc (to svc-manager):

Is the shop's server well, please?

{RULE}
==================== Step 1 ====================

Next speaker: svc-assistant

svc-assistant (to svc-manager):

I look at the pods.

```bash
kubectl get pods
```

{RULE}

Next speaker: svc-executor

>>>>>>>> EXECUTING CODE BLOCK 0 (inferred language is bash)...
svc-executor (to svc-manager):

exitcode: 1 (execution failed)
Code output:
kubectl: not found

{RULE}
svc-executor (to svc-manager):



{RULE}
svc-assistant (to svc-manager):

There is no kubectl here. TERMINATE

{RULE}
>>>>>>>> TERMINATING RUN
"""
CALL = f"""\x1b[33muser_proxy\x1b[0m (to bot):

How much is 7 USD in EUR?

{RULE}
\x1b[33mbot\x1b[0m (to user_proxy):

\x1b[32m***** Suggested tool call (call_1): convert *****\x1b[0m
Arguments:
{{"amount": 7}}
\x1b[32m*************************************************\x1b[0m

{RULE}
\x1b[35m
>>>>>>>> EXECUTING FUNCTION convert...\x1b[0m
\x1b[33muser_proxy\x1b[0m (to bot):

\x1b[33muser_proxy\x1b[0m (to bot):

\x1b[32m***** Response from calling tool (call_1) *****\x1b[0m
6.4 EUR
\x1b[32m***********************************************\x1b[0m

{RULE}
\x1b[33mbot\x1b[0m (to user_proxy):

They are 6.4 EUR.

{RULE}
"""


def shown(tmp_path: Path, take: Take, text: str) -> list[tuple[Any, ...]]:
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    rows = []
    for event in take(tmp_path / "run.log", cfg=COUNTING).events.sort("seq").iter_rows(named=True):
        payload = json.loads(event["payload"])
        said = payload.get("message") or next(iter(payload.get("messages", ())), payload)
        calls = [(call["name"], call["arguments"]) for call in said.get("tool_calls", ())]
        rows.append((event["kind"], said.get("content"), *calls, *filter(None, [payload.get("status")])))
    return rows


def test_who_asks_is_the_user_and_code_a_call(tmp_path: Path, take: Take) -> None:
    assert shown(tmp_path, take, GROUP) == [
        ("request", "Is the shop's server well, please?"),
        ("model_call", "I look at the pods.", ("bash", {"code": "kubectl get pods"})),
        ("tool_result", "exitcode: 1 (execution failed)\nCode output:\nkubectl: not found", "failed"),
        ("model_call", "There is no kubectl here. TERMINATE"),
    ]


def test_suggested_calls_and_their_responses_are_calls_and_results(tmp_path: Path, take: Take) -> None:
    assert shown(tmp_path, take, CALL) == [
        ("request", "How much is 7 USD in EUR?"),
        ("model_call", None, ("convert", {"amount": 7})),
        ("tool_result", "6.4 EUR", "unknown"),
        ("model_call", "They are 6.4 EUR."),
    ]


@pytest.mark.parametrize("of", ['function "convert"', "function (convert)"])
def test_a_function_that_an_older_version_prints_is_called_by_name(tmp_path: Path, take: Take, of: str) -> None:
    text = CALL.replace("tool call (call_1)", "function Call").replace("tool (call_1)", of)
    kinds = [row[0] for row in shown(tmp_path, take, text)]
    assert kinds == ["request", "model_call", "tool_result", "model_call"]
    events = take(tmp_path / "run.log", cfg=COUNTING).events.sort("seq")
    gave = events.filter(events["kind"] == "tool_result").row(0, named=True)
    assert (gave["tool_name"], json.loads(gave["payload"])["content"]) == ("convert", "6.4 EUR")


@pytest.mark.parametrize(
    "text", [f"a (to b):\n\nHello.\n\n{RULE}\n", f"{RULE}\n{RULE}\n", "one (to two):\nx (to y):\n"]
)
def test_a_single_header_or_rule_is_no_console(text: str) -> None:
    assert not is_console(text.splitlines())

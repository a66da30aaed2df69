"""Golden rows: what each method makes of them, how many a round takes, and what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import TrainConfig
from flywheel.errors import TrainError
from flywheel.funnel import Funnel
from flywheel.records import METHODS
from flywheel.stages.selection.golden import NOT_SAMPLED, golden_rows

CALL = {"role": "assistant", "tool_calls": [{"id": "c1", "name": "find", "arguments": {"q": "x"}}]}
NO = {"role": "assistant", "content": "I cannot do that."}
ONE = {"prompt": "Find x.", "system": "Be brief.", "completion": CALL}
PAIR = {"prompt": [{"role": "user", "content": "Delete all."}], "chosen": NO, "rejected": CALL}


def write(project: Path, *lines: Any, name: str = "a") -> Path:
    (project / "golden").mkdir(exist_ok=True)
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (project / "golden" / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return project


def rows(project: Path, method: str, count: int = 100, start: int = 0) -> list[dict[str, Any]]:
    funnel = Funnel()
    found = golden_rows(project, TrainConfig(), METHODS[method].dataset, start, count, funnel)
    funnel.check("golden")
    assert all(row["mix"] == "golden" and row["weight"] == 1.0 for row in found)
    return found


def test_each_method_makes_of_them_what_it_trains(tmp_path: Path) -> None:
    project = write(tmp_path, ONE, "", PAIR)
    sft = {row["prompt"][-1]["content"]: row for row in rows(project, "sft")}
    assert [m["role"] for m in sft["Find x."]["prompt"]] == ["system", "user"]
    assert sft["Find x."]["completion"] == [CALL]
    assert sft["Delete all."]["completion"] == [NO]
    right, pair = sorted(rows(project, "dpo"), key=lambda row: "chosen" in row)
    assert (right["completion"], right["nll_weight"]) == ([CALL], 1.0)
    assert (pair["chosen"], pair["rejected"], pair["p_better"], pair["nll_weight"]) == ([NO], [CALL], 1.0, 1.0)
    assert sorted(row["label"] for row in rows(project, "kto")) == [False, True, True]
    assert rows(project, "grpo") == []
    assert rows(tmp_path / "elsewhere", "sft") == []


def test_so_many_for_each_other_row_drawn_anew_each_round(tmp_path: Path) -> None:
    project = write(tmp_path, *({"prompt": f"Say {n}.", "completion": NO} for n in range(50)))
    drawn = [{row["id"] for row in rows(project, "sft", 40, number)} for number in (1, 2)]
    assert [len(ids) for ids in drawn] == [6, 6]
    assert drawn[0] != drawn[1]
    assert {row["id"] for row in rows(project, "sft", 40, 1)} == drawn[0]
    funnel = Funnel()
    golden_rows(project, TrainConfig(golden_rows=0), METHODS["sft"].dataset, 1, 40, funnel)
    assert dict(funnel.dropped) == {NOT_SAMPLED: 50}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "golden/a.jsonl:2: not JSON"),
        ({"completion": NO}, "golden/a.jsonl:2: prompt: Field required"),
        ({"prompt": "x"}, "golden/a.jsonl:2: neither one `completion` nor"),
        ({"prompt": "x", "completion": NO, "chosen": NO, "rejected": CALL}, "neither one `completion` nor"),
        ({"prompt": "x", "chosen": NO}, "neither one `completion` nor"),
        ({"prompt": "x", "completion": {"role": "user", "content": "y"}}, "an answer is an assistant message"),
        ({"prompt": "x", "completion": {"role": "assistant"}}, "an answer is an assistant message"),
        ({"prompt": [NO], "completion": NO}, "it must end with something to answer"),
        (ONE, "golden/a.jsonl:2: duplicate golden row"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: Any, said: str) -> None:
    with pytest.raises(TrainError) as raised:
        rows(write(tmp_path, ONE, line), "sft")
    assert said in str(raised.value)
    assert "Find x" not in str(raised.value)
    assert raised.value.hint


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    write(tmp_path, ONE)
    (tmp_path / "golden" / "a.jsonl").write_bytes('{"prompt": "ä"}'.encode("latin-1"))
    with pytest.raises(TrainError, match=r"golden/a\.jsonl` is not UTF-8, at byte 13"):
        rows(tmp_path, "sft")

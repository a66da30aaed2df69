"""What every check needs: the export, the token rows it was made from, and a report of what passed."""

import json
import pathlib
import runpy
import sys
import traceback

FOLDER, TOKENS, MODEL = map(pathlib.Path, sys.argv[1:4])


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def tokens(form):
    return lines(TOKENS / f"tokens-{form}.jsonl")


def ids(row):
    return row["prompt_ids"] + row["completion_ids"]


def mask(row):
    """One number a token of the whole row: 1 where it is trained."""
    own = [0] * len(row["completion_ids"])
    for start, end in row["windows"]:
        own[start:end] = [1] * (end - start)
    return [0] * len(row["prompt_ids"]) + own


def spread(row):
    """The log-probabilities, one a token of the whole row, 0 where nothing is trained."""
    if row["log_probs"] is None:
        return [0.0] * len(mask(row))
    values = iter(row["log_probs"])
    return [next(values) if trained else 0.0 for trained in mask(row)]


def credit(row):
    """The advantage of each step at its last token, one number a token of the completion."""
    values = [0.0] * len(row["completion_ids"])
    for (_, end), advantage in zip(row["windows"], row["step_advantages"], strict=True):
        values[end - 1] = advantage
    return values


def steps():
    """What the attempts did, as the routing targets name it, with each step's credit; by episode."""
    did = {"0": ["list_orders", "reply"], "1": ["find_order", "reply"], "2": ["ask"]}
    return {
        row["episode"]: list(zip(did[row["side"]], row["step_advantages"], strict=True)) for row in tokens("groups")
    }


def actions():
    """The tokens of each action of the one attempt that the exported scenario records, and its row."""
    (row,) = [row for row in tokens("groups") if (row["row"], row["side"]) == ("group", "0")]
    return [row["completion_ids"][start:end] for start, end in row["windows"]], row


def same(read, written, what):
    assert read == written, f"{what}: {str(read)[:200]} is not {str(written)[:200]}"


def run(**checks):
    """Run the checks of a system by cell of the table, print what each proved, and let its code write rollouts."""
    results = {}
    for cell, check in checks.items():
        try:
            results[cell] = {"passed": True, "proof": check()}
        except BaseException as error:  # noqa: BLE001
            traceback.print_exc()
            results[cell] = {"passed": False, "proof": f"{type(error).__name__}: {str(error)[:200]}"}
    print("RESULTS " + json.dumps(results), flush=True)
    sys.argv = sys.argv[4:]
    if sys.argv:
        runpy.run_path(sys.argv[0], run_name="__main__")

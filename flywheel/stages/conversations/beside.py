"""What a result next to transcripts is about, where no id of a conversation shows it: by names of files, and by tasks.

In: the files in which conversations were recorded, with their tasks, and the file of a result with the id and the task
that it names. Out: the conversations that fit. In this order, the first that finds any: files or folders named by the
id, in or below the folder of the result, or next to that folder; files with the result's own name (`a.result.json` of
`a.jsonl`); all files of the folder; all files below it. The last three only where the file has one result. Where this
finds none or several: those at the task of the result. More than one conversation is ambiguous, unless one contains the
others.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

PLACE = "beside"  # the kind of a target that is looked for by place too
_KINDS = ("session", "trace", "response", "request", "message")
_MARKS = re.compile(r"[._-](?:meta(?:data)?|results?|outcome|report|scores?|reward|eval|info|summary)\Z", re.IGNORECASE)


class Beside:
    """Finds files by their place.

    Args:
        recorded: file and conversation of every event that is part of one.
        results: file and target of every result.
        tasks: task and conversation of every event whose log names its task.
    """

    def __init__(
        self,
        recorded: Iterable[tuple[str, str]],
        results: Iterable[tuple[str, str]],
        tasks: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._conversations: dict[str, set[str]] = defaultdict(set)
        self._in: dict[PurePosixPath, set[str]] = defaultdict(set)
        self._below: dict[PurePosixPath, set[str]] = defaultdict(set)
        self._named: dict[str, set[str]] = defaultdict(set)  # files by their names, and by those of their folders
        self._alike: dict[tuple[PurePosixPath, str], set[str]] = defaultdict(set)  # files by folder and name
        for file, conversation in recorded:
            is_new = file not in self._conversations
            self._conversations[file].add(conversation)
            if is_new:
                self._place(file)
        self._at: dict[str, set[str]] = defaultdict(set)
        for task, conversation in tasks:
            self._at[task].add(conversation)
        self._files: dict[str, set[str]] = defaultdict(set)
        for file, conversations in self._conversations.items():
            for conversation in conversations if self._at else ():
                self._files[conversation].add(file)
        self._single = {file for file, count in Counter(file for file, _ in set(results)).items() if count == 1}

    def _place(self, file: str) -> None:
        path = PurePosixPath(_slashed(file))
        stem = _stem(path.name)
        self._in[path.parent].add(file)
        self._alike[path.parent, stem].add(file)
        for name in {stem, *path.parts[:-1]}:
            self._named[name].add(file)
        for folder in path.parents:
            self._below[folder].add(file)

    def conversations(self, file: str, target: str, task: str | None = None) -> set[str]:
        """Return the conversations that a result is about."""
        named = {conversation for one in self.files(file, target) for conversation in self._conversations[one]}
        if len(named) == 1:
            return named
        own, folder = {task, target.partition(":")[2]}, PurePosixPath(_slashed(file)).parent
        at = {conversation for one in own if one for conversation in self._at.get(one, ())}
        at = {conversation for conversation in at if self._is_near(conversation, file, folder)}
        return named & at or named or at

    def _is_near(self, conversation: str, file: str, folder: PurePosixPath) -> bool:
        """Whether a conversation is in or below a result's folder, or next to one that is for results by its name."""
        around = folder.parent if _is_for_results(folder.name) else folder
        others = self._files.get(conversation, set()) - {file}
        return any(around in PurePosixPath(_slashed(one)).parents for one in others)

    def files(self, file: str, target: str) -> set[str]:
        """Return the files that a result is about."""
        return next((found for rule in self._rules(file, target.partition(":")[2]) if (found := rule())), set())

    def _rules(self, file: str, name: str) -> Iterator[Callable[[], set[str]]]:
        path = PurePosixPath(_slashed(file))
        folder = path.parent
        yield lambda: self._called(name, folder) - {file}
        yield lambda: self._called(name, folder.parent) - {file}  # `evaluations/` next to `tasks/`
        if file in self._single:
            stem = _MARKS.sub("", _stem(path.name))
            is_plain = stem.lower() in _PLAIN
            yield lambda: self._alike.get((folder, stem), set()) - {file}
            yield lambda: self._in.get(folder, set()) - {file} if is_plain else set()
            yield lambda: self._below.get(folder, set()) - {file} if is_plain else set()

    def _called(self, name: str, folder: PurePosixPath) -> set[str]:
        """Return the files in or below a folder that have a name, or lie in a folder there that has it."""
        named = self._named.get(name, set())
        return {one for one in named if one in self._below.get(folder, ()) and name in _names(one, folder)}


_PLAIN = {"metadata", "meta", "result", "results", "outcome", "summary", "info", "report", "run", "run_metadata",
          "score", "scores", "reward", "eval", "evaluation", "config", "settings", "params"}  # fmt: skip


def _is_for_results(folder: str) -> bool:
    return bool({folder.lower(), folder.lower().removesuffix("s")} & _PLAIN)


def names_of(target: str) -> list[str]:
    """Return the ids by which a target's conversation may be known."""
    name = target.partition(":")[2]
    return [f"{kind}:{name}" for kind in _KINDS]


def _slashed(file: str) -> str:
    return file.replace("!/", "/")


def _stem(name: str) -> str:
    return re.sub(r"(?:\.(?:gz|zst|jsonl?|ndjson|log|parquet|traj|txt|out))+\Z", "", name, flags=re.IGNORECASE)


def _names(file: str, folder: PurePosixPath) -> set[str]:
    """Return the names of a file and of the folders between it and another one."""
    path = PurePosixPath(_slashed(file))
    return {_stem(path.name), *path.relative_to(folder).parts[:-1]}


def settings_by_file(
    rows: Mapping[tuple[str, str], str], places: Iterable[tuple[str, str]]
) -> dict[str, dict[str, str]]:
    """Return the settings of each file of transcripts, by name; a file that has two values for one has none.

    Args:
        rows: settings as `name=value name=value`, by the file and the target of the result that states them.
        places: file and conversation of what acted.
    """
    recorded = list(places)
    beside, told = Beside(recorded, rows), defaultdict[str, dict[str, set[str]]](lambda: defaultdict(set))
    by_conversation = defaultdict[str, set[str]](set)
    for file, conversation in recorded:
        by_conversation[conversation].add(file)
    for (file, target), settings in rows.items():
        name = target.partition(":")[2]
        for one in by_conversation.get(name) or beside.files(file, target):
            for setting in settings.split(" "):
                key, _, value = setting.partition("=")
                told[one][key].add(value)
    return {file: {key: min(values) for key, values in keys.items() if len(values) == 1} for file, keys in told.items()}

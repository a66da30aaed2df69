"""The run's name in the paths of SWE-bench files: instances have the same ids in every run, so it separates them.

Trajectories are in a run's folder, or one folder deeper in one named like the instance; the report's file is called
MODEL.RUN.json. In: a path. Out: columns for its events.
"""

from __future__ import annotations

from pathlib import PurePath

_INSTANCE_REPORT = ("report.json",)
_WITHIN = {"trajs", "trajectories", "traj", "results", "logs"}  # folders of a run that name none


def run_of_trajectory(path: PurePath) -> dict[str, str]:
    """Return the scope of a trajectory: the folder that holds the run."""
    folders = [part for part in path.parts[:-1] if part.strip("./\\")]
    stem = path.name.split(".traj")[0]
    if folders and folders[-1] == stem:
        folders.pop()
    return _scope(folders)


def run_of_report(path: PurePath) -> dict[str, str]:
    """Return the scope of a report: RUN of MODEL.RUN.json, of RUN/MODEL/INSTANCE/report.json, else its folder."""
    folders = [part for part in path.parts[:-1] if part.strip("./\\")]
    if path.name in _INSTANCE_REPORT and len(folders) > 2:  # noqa: PLR2004 - run, model, instance
        return {"scope": folders[-3]}
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    if "." in stem:
        return {"scope": stem.rsplit(".", 1)[1]}
    return _scope(folders)


def _scope(folders: list[str]) -> dict[str, str]:
    """Return the innermost folder that is named after something; of those within a run, where there is no other."""
    named = [folder for folder in folders if folder.lower() not in _WITHIN] or folders
    return {"scope": named[-1]} if named else {}

"""Rounds in MLflow: each a run and a version of one registered model, whose aliases move with ours.

In: the registry as it stands. Out: an MLflow that says the same. Everything is compared and only what is missing or
different is written, so whatever failed once is made good by the next command, and the same twice changes nothing. A
failure is told and never fails a round.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.pipeline.context import Context, served_name
from flywheel.pipeline.train.run import training_metrics
from flywheel.records import RoundManifest

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

ALIASES = ("champion", "challenger")
ROUND, ADAPTER, REPORT, STATE = "flywheel.round", "flywheel.adapter_sha256", "flywheel.report_sha256", "flywheel.state"
_LOCAL = "sqlite:///"
_CALM = {  # nothing is sent that was not asked for, and a server that is away holds nobody up
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "GIT_PYTHON_REFRESH": "quiet",
}


def log_to_mlflow(ctx: Context) -> bool:
    """Bring MLflow in line with the rounds, where the project has one; return whether it is.

    Whatever goes wrong is said in one sentence.
    """
    if not ctx.config.mlflow.tracking_uri:
        return False
    try:
        _Tracking(ctx).sync()
    except ImportError:
        ctx.say("MLflow was not told: it is not installed (pip install 'flywheel-rl[mlflow]')")
    except Exception as error:  # noqa: BLE001 - a library and a server that are not ours; a round never fails for them
        ctx.say(f"MLflow was not told: {type(error).__name__}; the next command tries again")
    else:
        return True
    return False


class _Tracking:
    """One project in one MLflow."""

    def __init__(self, ctx: Context) -> None:
        for name, value in _CALM.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        cfg, project = ctx.config.mlflow, ctx.config.name or ctx.project.name
        self._ctx = ctx
        self._local = cfg.tracking_uri.startswith(_LOCAL)
        self.client: MlflowClient = MlflowClient(_uri(cfg.tracking_uri, ctx.project))
        self.experiment = cfg.experiment or project
        self.model = cfg.model or project

    def sync(self) -> None:
        """Write what is missing or different."""
        experiment = self._experiment()
        runs = {
            (run.data.tags[ROUND], run.data.tags[ADAPTER]): run
            for run in self.client.search_runs([experiment], max_results=50_000)
            if {ROUND, ADAPTER} <= run.data.tags.keys()
        }
        versions: dict[int, str] = {}
        known = self._versions()
        for manifest in self._rounds():
            key = str(manifest.round), manifest.adapter_sha256
            run = runs.get(key) or self._run(experiment, manifest)
            self._judged(run, manifest)
            versions[manifest.round] = known.get(run.info.run_id) or self._version(run, manifest)
        self._withdraw(runs, known)
        self._point(versions)

    def _rounds(self) -> Iterator[RoundManifest]:
        """Yield the rounds that may be served, oldest first."""
        for number in self._ctx.registry.trained():
            if number not in self._ctx.registry.tainted:
                yield self._ctx.registry.manifest(number)

    def _experiment(self) -> str:
        found = self.client.get_experiment_by_name(self.experiment)
        if found is not None:
            return str(found.experiment_id)
        place = (self._ctx.project / "mlruns").as_uri() if self._local else None
        return str(self.client.create_experiment(self.experiment, artifact_location=place))

    def _versions(self) -> dict[str, str]:
        """Return run → version of the registered model, which is made if it is not there."""
        names = {m.name for m in self.client.search_registered_models(max_results=1000)}
        if self.model not in names:
            self.client.create_registered_model(self.model, description="Rounds of flywheel; see their runs.")
        found = self.client.search_model_versions(f"name='{self.model}'", max_results=10_000)
        return {str(v.run_id): str(v.version) for v in found}

    def _run(self, experiment: str, manifest: RoundManifest) -> Run:
        from mlflow.entities import Metric, Param

        name = served_name(self._ctx, manifest.round)
        run = self.client.create_run(experiment, run_name=name, tags={"flywheel.policy": name})
        told = {
            "method": manifest.method, "base_model": manifest.base_model, "parent": manifest.parent,
            "rows": manifest.counts.get("kept", 0), "seed": manifest.seed, "dataset_sha256": manifest.dataset[0].sha256,
        }  # fmt: skip
        params = [Param(key, str(value)) for key, value in told.items()]
        self.client.log_batch(run.info.run_id, params=params)
        metrics = [Metric(*row, 0, step) for step, row in _curves(training_metrics(self._folder(manifest)))]
        for begin in range(0, len(metrics), 1000):
            self.client.log_batch(run.info.run_id, metrics=metrics[begin : begin + 1000])
        if self._ctx.config.mlflow.adapters:
            self.client.log_artifacts(run.info.run_id, str(self._folder(manifest) / "adapter"), "adapter")
        self.client.set_terminated(run.info.run_id, "FINISHED")
        # These two say that the run is whole; one that was cut off before them is made anew.
        self.client.set_tag(run.info.run_id, ADAPTER, manifest.adapter_sha256)
        self.client.set_tag(run.info.run_id, ROUND, str(manifest.round))
        return self.client.get_run(run.info.run_id)

    def _folder(self, manifest: RoundManifest) -> Path:
        return self._ctx.registry.folder(manifest.round)

    def _judged(self, run: Run, manifest: RoundManifest) -> None:
        """Write down a round's evaluation and state, where they have changed."""
        report, sha256 = self._ctx.registry.report(manifest.round), self._ctx.registry.report_sha256(manifest.round)
        if report is not None and run.data.tags.get(REPORT) != sha256:
            for row in report.metrics:
                if row.slice == "all" and row.value is not None:
                    self.client.log_metric(run.info.run_id, f"{row.suite}.{row.metric}", row.value)
                    if row.delta is not None:
                        self.client.log_metric(run.info.run_id, f"{row.suite}.{row.metric}.delta", row.delta)
            self.client.set_tag(run.info.run_id, REPORT, sha256)
        if run.data.tags.get(STATE) != manifest.state:
            self.client.set_tag(run.info.run_id, STATE, manifest.state)

    def _version(self, run: Run, manifest: RoundManifest) -> str:
        inside = f"{run.info.artifact_uri}/adapter"
        source = inside if self._ctx.config.mlflow.adapters else (self._folder(manifest) / "adapter").as_uri()
        tags = {ROUND: str(manifest.round), ADAPTER: manifest.adapter_sha256}
        made = self.client.create_model_version(self.model, source, run.info.run_id, tags=tags)
        return str(made.version)

    def _withdraw(self, runs: dict[tuple[str, str], Run], known: dict[str, str]) -> None:
        """Take back the versions of rounds that learnt from a user who was forgotten, with what was copied of them."""
        for (number, _), run in runs.items():
            if int(number) in self._ctx.registry.tainted:
                if run.info.run_id in known:
                    self.client.delete_model_version(self.model, known[run.info.run_id])
                _remove_copy(str(run.info.artifact_uri))
                self.client.delete_run(run.info.run_id)

    def _point(self, versions: dict[int, str]) -> None:
        have = dict(self.client.get_registered_model(self.model).aliases)
        aliases = self._ctx.registry.aliases()
        for alias in ALIASES:
            number = aliases[alias]
            wanted = versions.get(number) if number is not None else None
            if wanted is None and alias in have:
                self.client.delete_registered_model_alias(self.model, alias)
            elif wanted is not None and str(have.get(alias)) != wanted:
                self.client.set_registered_model_alias(self.model, alias, wanted)


def _uri(uri: str, project: Path) -> str:
    """Return an address in which a file's relative path is the project's, wherever the command was typed."""
    path = uri.removeprefix(_LOCAL)
    return f"{_LOCAL}{(project / path).resolve()}" if uri.startswith(_LOCAL) and path else uri


def _curves(rows: list[dict[str, Any]]) -> Iterator[tuple[int, tuple[str, float]]]:
    for row in rows:
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and not isinstance(value, bool):
                yield int(row.get("step", 0)), (f"train.{name}", float(value))


def _remove_copy(uri: str) -> None:
    """Remove a run's files where they lie on this machine; elsewhere `mlflow gc` removes those of deleted runs."""
    import shutil
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(uri)
    if parts.scheme in {"", "file"}:
        shutil.rmtree(Path(unquote(parts.path)) / "adapter", ignore_errors=True)

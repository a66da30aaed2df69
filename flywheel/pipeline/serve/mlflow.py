"""Rounds in MLflow: each a run and a version of one registered model, whose aliases follow the registry's.

In: the registry. Out: the same state in MLflow. Only missing or different values are written, so that the next command
repairs a failed one, and a second run changes nothing. A failure is reported and never fails a round.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.pipeline.context import Context, served_name
from flywheel.records import RoundManifest
from flywheel.registry.round_files import training_metrics

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

ALIASES = ("champion", "challenger")
ROUND, ADAPTER, REPORT, STATE = "flywheel.round", "flywheel.adapter_sha256", "flywheel.report_sha256", "flywheel.state"
_LOCAL = "sqlite:///"
_ENVIRONMENT = {  # no telemetry, and no long wait for a server that is down
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "GIT_PYTHON_REFRESH": "quiet",
}


def log_to_mlflow(ctx: Context) -> bool:
    """Write the rounds to MLflow where the project has one; return whether that succeeded.

    A failure is reported in one sentence.
    """
    if not ctx.config.mlflow.tracking_uri:
        return False
    try:
        _Tracking(ctx).sync()
    except ImportError:
        ctx.say("MLflow skipped: mlflow is not installed (pip install 'flywheel-rl[mlflow]')")
    except Exception as error:  # noqa: BLE001 - a round never fails because of MLflow
        ctx.say(f"MLflow failed: {type(error).__name__}; the next command tries again")
    else:
        return True
    return False


class _Tracking:
    """A project in MLflow."""

    def __init__(self, ctx: Context) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        cfg, project = ctx.config.mlflow, ctx.config.name or ctx.project.name
        self._ctx = ctx
        self._local = cfg.tracking_uri.startswith(_LOCAL)
        self.client: MlflowClient = MlflowClient(_uri(cfg.tracking_uri, ctx.project))
        self.experiment = cfg.experiment or project
        self.model = cfg.model or project

    def sync(self) -> None:
        """Write missing and different values."""
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
            self._evaluation(run, manifest)
            versions[manifest.round] = known.get(run.info.run_id) or self._version(run, manifest)
        self._withdraw(runs, known)
        self._point(versions)

    def _rounds(self) -> Iterator[RoundManifest]:
        """Yield the rounds that may be served, oldest first."""
        for number in self._ctx.registry.trained():
            if number not in self._ctx.registry.tainted:
                yield self._ctx.registry.manifest(number)

    def _experiment(self) -> str:
        experiment = self.client.get_experiment_by_name(self.experiment)
        if experiment is not None:
            return str(experiment.experiment_id)
        place = (self._ctx.project / "mlruns").as_uri() if self._local else None
        return str(self.client.create_experiment(self.experiment, artifact_location=place))

    def _versions(self) -> dict[str, str]:
        """Return run → version of the registered model, which is created if it is missing."""
        names = {m.name for m in self.client.search_registered_models(max_results=1000)}
        if self.model not in names:
            self.client.create_registered_model(self.model, description="Rounds of flywheel; see their runs.")
        versions = self.client.search_model_versions(f"name='{self.model}'", max_results=10_000)
        return {str(v.run_id): str(v.version) for v in versions}

    def _run(self, experiment: str, manifest: RoundManifest) -> Run:
        from mlflow.entities import Metric, Param

        name = served_name(self._ctx, manifest.round)
        run = self.client.create_run(experiment, run_name=name, tags={"flywheel.policy": name})
        values = {
            "method": manifest.method, "base_model": manifest.base_model, "parent": manifest.parent,
            "rows": manifest.counts.get("kept", 0), "seed": manifest.seed, "dataset_sha256": manifest.dataset[0].sha256,
        }  # fmt: skip
        params = [Param(key, str(value)) for key, value in values.items()]
        self.client.log_batch(run.info.run_id, params=params)
        metrics = [Metric(*row, 0, step) for step, row in _curves(training_metrics(self._folder(manifest)))]
        for begin in range(0, len(metrics), 1000):
            self.client.log_batch(run.info.run_id, metrics=metrics[begin : begin + 1000])
        if self._ctx.config.mlflow.adapters:
            self.client.log_artifacts(run.info.run_id, str(self._folder(manifest) / "adapter"), "adapter")
        self.client.set_terminated(run.info.run_id, "FINISHED")
        # These two mark the run as complete; an interrupted one is written again.
        self.client.set_tag(run.info.run_id, ADAPTER, manifest.adapter_sha256)
        self.client.set_tag(run.info.run_id, ROUND, str(manifest.round))
        return self.client.get_run(run.info.run_id)

    def _folder(self, manifest: RoundManifest) -> Path:
        return self._ctx.registry.folder(manifest.round)

    def _evaluation(self, run: Run, manifest: RoundManifest) -> None:
        """Log a round's evaluation and state, where they have changed."""
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
        return str(self.client.create_model_version(self.model, source, run.info.run_id, tags=tags).version)

    def _withdraw(self, runs: dict[tuple[str, str], Run], known: dict[str, str]) -> None:
        """Delete versions and copied adapters of rounds that were trained on forgotten users."""
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
            version = versions.get(number) if number is not None else None
            if version is None and alias in have:
                self.client.delete_registered_model_alias(self.model, alias)
            elif version is not None and str(have.get(alias)) != version:
                self.client.set_registered_model_alias(self.model, alias, version)


def _uri(uri: str, project: Path) -> str:
    """Return the address with a relative path resolved from the project's folder."""
    path = uri.removeprefix(_LOCAL)
    return f"{_LOCAL}{(project / path).resolve()}" if uri.startswith(_LOCAL) and path else uri


def _curves(rows: list[dict[str, Any]]) -> Iterator[tuple[int, tuple[str, float]]]:
    for row in rows:
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and not isinstance(value, bool):
                yield int(row.get("step", 0)), (f"train.{name}", float(value))


def _remove_copy(uri: str) -> None:
    """Remove a run's files on this machine; elsewhere `mlflow gc` removes those of deleted runs."""
    import shutil
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(uri)
    if parts.scheme in {"", "file"}:
        shutil.rmtree(Path(unquote(parts.path)) / "adapter", ignore_errors=True)

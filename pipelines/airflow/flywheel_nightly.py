"""The nightly job of one flywheel project as an Airflow 3 DAG: one task a stage, nothing of flywheel in the scheduler.

`flywheel schedule airflow > $AIRFLOW_HOME/dags/flywheel_nightly.py` prints this file with a project's values in it.

- Exit 3 (the gate held) and 99 (too little new evidence) are normal nights: their tasks are skipped, not failed.
- Every stage resumes where it was killed, and exit 4 (another process holds the project's lock) passes: so all are
  retried, except `notify`, which would notify people twice. It runs however the night went, and fails if the night did:
  a run's state is that of its last task.
- Tasks run one after the other, and so do runs; the project's own lock enforces that.
"""

import itertools
import os
from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

PROJECT = os.environ.get("FLYWHEEL_PROJECT", "/srv/agent")
COMMAND = os.environ.get("FLYWHEEL_COMMAND", "flywheel")
PIPELINE = "nightly"
SCHEDULE = "30 2 * * *"

STAGES = (
    "ingest",
    "links",
    "episodes",
    "tasks",
    "opinions",
    "rewards",
    "reliability",
    "returns",
    "examples",
    "pairs",
    "groups",
    "fixtures",
    "train",
    "eval",
    "gate",
    "report",
    "notify",
)
HELD, NOTHING = 3, 99
RETRY_DELAY = timedelta(seconds=float(os.environ.get("FLYWHEEL_RETRY_S", "300")))

with DAG(
    dag_id=f"flywheel_{PIPELINE}",
    description="Production logs in, a training round with a decision out.",
    schedule=SCHEDULE,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["flywheel"],
) as dag:
    tasks = {
        stage: BashOperator(
            task_id=stage,
            # As variables: a path with a space or a quote in it stays one word.
            bash_command=f'"$FLYWHEEL_RUNS" -C . run "$PIPELINE" --from {stage} --until {stage} --detailed-exitcode',
            env={"FLYWHEEL_RUNS": COMMAND, "PIPELINE": PIPELINE},
            append_env=True,
            cwd=PROJECT,
            skip_on_exit_code=[HELD, NOTHING],
            retries=0 if stage == "notify" else 2,
            retry_delay=RETRY_DELAY,
            do_xcom_push=False,
            # The page of a held round is written too: eval went well, the gate is skipped. A waiting night has neither.
            trigger_rule={"report": "none_failed_min_one_success", "notify": "all_done"}.get(stage, "all_success"),
        )
        for stage in STAGES
    }
    for before, after in itertools.pairwise(STAGES):
        tasks[before] >> tasks[after]
    if "eval" in tasks and "report" in tasks:
        tasks["eval"] >> tasks["report"]

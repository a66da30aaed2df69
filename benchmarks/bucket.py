"""How many requests commands send to a store in a bucket, of 400 generated episodes in four partitions.

python benchmarks/bucket.py [EPISODES]
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from flywheel import Project
from flywheel.config import Config
from tests.bucket_server import BucketServer, environment, serving
from tests.scale.world import write_logs


def main(episodes: int) -> None:
    """Print the requests of each command."""
    os.environ |= {"FLYWHEEL_TRUST": "1"}
    with serving(BucketServer()) as server, tempfile.TemporaryDirectory() as folder:
        os.environ |= environment(server.url)
        write_logs(Path(folder) / "logs", episodes)
        project = Project(folder, config=Config(store="s3://flywheel/project"))

        def count(name: str, command: Callable[[], object]) -> None:
            server.asked.clear()
            command()
            kinds = Counter(request.split()[0] for request in server.asked)
            print(f"{name:14}{len(server.asked):5}  {dict(sorted(kinds.items()))}")

        count("ingest", project.ingest)
        count("ingest again", project.ingest)
        count("build", project.build)
        count("build again", project.build)
        count("gc", project.gc)
        count("status", lambda: Project(folder, config=project.config).status())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)

"""A state root on a file system of a few KiB, mounted for one run in a namespace of its own."""

from __future__ import annotations

import subprocess
from collections import Counter

import pytest
from support.kafka import kafka_io
from support.spark.processes import NAMESPACE
from support.spark.project import Project

pytestmark = pytest.mark.long

RECORDS, PARTITIONS = 2_000, 4
RUN_S_MAX = 600


def test_a_full_state_root_is_named_and_loses_nothing(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    project.declare(RECORDS // 4, PARTITIONS)
    kafka_io.create_topics(bootstrap, PARTITIONS, project.source)
    kafka_io.fill(bootstrap, project.source, range(RECORDS))
    state = project.folder / "state"
    state.mkdir()
    mounted = f'mount -t tmpfs -o size=64k tmpfs {state} && exec "$@"'
    stopped = subprocess.run(
        [*NAMESPACE, mounted, "sh", *project.command()],
        env=project.environment(),
        cwd=project.folder,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert stopped.returncode == 5, stopped.stderr
    assert "[disk_full]" in stopped.stderr
    assert f"the disk of {state}" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    # The file system went with its run, and so did the deployment's id: what it committed is in
    # the ledger, and an operator knows that it has ended.
    again = project.run_warm("--take-over")
    assert again.returncode == 0, again.stderr
    source, target = (
        Counter(row.value for row in kafka_io.read(bootstrap, topic))
        for topic in (project.source, project.target)
    )
    assert target == source

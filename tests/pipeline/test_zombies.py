"""A whole run of spark-submit that is paused, replaced by force, and continued: exit 3.

Driver and JVM, and a Python worker in its task, are stopped by SIGSTOP. `tests/kafka` has this
for every step, without Spark.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from contextlib import suppress

import pytest
from support.kafka import brokers, kafka_io
from support.spark.processes import is_paused, of_session
from support.spark.project import Project
from support.waiting import wait_until

RECORDS, COUNT = 500, 2_000  # of a micro-batch; of all at first
WAIT_S_MAX = 600  # a bound, not a measure


class Older:
    """A run of spark-submit that is to stand still at a point. Its launcher goes on."""

    def __init__(self, project: Project, point: str) -> None:
        self._log = project.folder / "paused"
        self._stderr = project.folder / "older.log"
        given = {"EOS_CRASH_AT": f"{point}:both", "EOS_CRASH_SIGNAL": "STOP"}
        self._session = 0
        with self._stderr.open("w") as output:
            self._launcher = subprocess.Popen(
                project.command(),
                env=project.environment(**given, EOS_CRASH_LOG=str(self._log)),
                cwd=project.folder,
                stdout=subprocess.DEVNULL,
                stderr=output,
            )

    def __enter__(self) -> Older:  # noqa: PYI034 - typing.Self begins with 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        self._send(signal.SIGKILL)
        self._launcher.kill()  # the kernel kills the JVM then, if it came no further
        self._launcher.wait()

    def said(self) -> str:
        return self._stderr.read_text()

    def wait_paused(self) -> None:
        wait_until(self._stands_still, self.said, self._launcher)

    def wake(self) -> None:
        self._send(signal.SIGCONT)

    def wait(self) -> int:
        return self._launcher.wait(WAIT_S_MAX)

    def _stands_still(self) -> bool:
        """JVM, driver, and whoever came to the point, perhaps a worker."""
        if not self._log.exists() or not self._log.read_text().endswith("\n"):
            return False
        reached_by = int(self._log.read_text().split()[-1])
        self._session = os.getsid(reached_by)  # its leader is the JVM
        return is_paused(self._session) and is_paused(reached_by)

    def _send(self, number: int) -> None:
        for pid in of_session(self._session) if self._session else []:
            with suppress(ProcessLookupError):  # it has ended
                os.kill(pid, number)


@pytest.mark.long
@pytest.mark.parametrize(
    "point",
    ["first_produce:after", pytest.param("end_txn_sent:before", marks=pytest.mark.nightly)],
)
def test_who_was_replaced_while_it_stood_still_ends_with_3(project: Project, point: str) -> None:
    bootstrap = project.broker.bootstrap
    project.declare(RECORDS)
    kafka_io.create_topics(bootstrap, 4, project.source)
    kafka_io.fill(bootstrap, project.source, range(COUNT))
    with Older(project, point) as older:
        older.wait_paused()
        newer = project.run_warm("--take-over")
        assert newer.returncode == 0, newer.stderr
        kafka_io.wait_closed(bootstrap, project.ledger)  # the newer one's clean end is there
        committed = kafka_io.read(bootstrap, project.ledger)
        older.wake()
        assert older.wait() == 3, older.said()
    assert "took over" in older.said()
    assert not any(word in older.said() for word in ("Traceback", "\tat ", "Py4JJavaError"))
    assert kafka_io.read(bootstrap, project.ledger) == committed, "it committed after all"
    kafka_io.fill(bootstrap, project.source, range(COUNT, COUNT + RECORDS))
    last = project.run_warm()
    assert last.returncode == 0, last.stderr
    assert "warning" not in last.stderr
    went_in, came_out = (
        Counter(row.value for row in kafka_io.read(bootstrap, topic))
        for topic in (project.source, project.target)
    )
    assert came_out == went_in
    offsets = kafka_io.group_offsets(bootstrap, project.group, project.source)
    assert offsets == kafka_io.ends(bootstrap, project.source)
    brokers.check_topic(project.broker, project.target)
    brokers.check_topic(project.broker, project.ledger)

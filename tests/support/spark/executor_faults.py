"""A pipeline on executors that die, freeze and lose files, and its invariants.

Its rows differ in every evaluation: how many there are, where they go and what they contain. If
two evaluations get into one transaction, records are missing, duplicated, or of two attempts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from support.kafka import brokers, kafka_io
from support.spark.processes import state
from support.spark.project import Project
from support.waiting import wait_until

PARTITIONS = 4


WAIT_S_MAX = 900  # a bound, not a measure: from the start of a run to its last fault

CONF = """\
    spark.executor.memory: 512m
    spark.executor.cores: 1
    spark.executor.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    # Whoever is silent for so long is given up; two busy cores keep a JVM from talking for a while.
    spark.executor.heartbeatInterval: 1s
    spark.network.timeout: 20s
    spark.network.timeoutInterval: 1s
    spark.rpc.askTimeout: 60s
    spark.shuffle.io.maxRetries: 1
    spark.shuffle.io.retryWait: 100ms
"""

PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
transform:
  - python: "pipelines.{module}.transform:never_the_same"
    with: {{fails_at: FAILS_AT, flag: "FLAG"}}
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
transaction: {{timeout: TIMEOUT}}
"""

TRANSFORM = """
import os
import random
import uuid


def never_the_same(frame, fails_at, flag):
    attempt = uuid.uuid4().hex[:8]  # the driver calls this for each

    def fail_once(numbers):
        if str(fails_at) in set(numbers):
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            raise ValueError("it fails once")

    def rows(pages):
        # Of one source partition. Spark's own rand() would be the same if a task is repeated.
        evaluation = uuid.uuid4().hex[:8]
        for page in pages:
            numbers = page["value"].str.decode("ascii")
            fail_once(numbers)
            copies = [1 + (random.random() < 0.17) for _ in numbers]
            marks = numbers + f"/{attempt}/{evaluation}/" + page["partition"].astype(str)
            page = page.assign(value=marks).loc[page.index.repeat(copies)]
            is_first = ~page.index.duplicated()
            values = zip(page["value"], is_first)
            keys = (b"k%d" % random.randrange(97) for _ in is_first)
            yield page.assign(
                key=list(keys), value=[f"{mark}/{first:d}".encode() for mark, first in values]
            )

    return frame.mapInPandas(rows, frame.schema)
"""


def declare(
    project: Project,
    master: str,
    records: int,
    fails_at: int = -1,
    timeout: str = "10 minutes",
) -> None:
    text = project.profile.read_text().replace("local[2]", master)
    project.profile.write_text(text + CONF)
    words = {
        "FAILS_AT": str(fails_at),
        "FLAG": str(project.folder / "failed-once"),
        "TIMEOUT": timeout,
    }
    pipeline = PIPELINE
    for word, value in words.items():
        pipeline = pipeline.replace(word, value)
    project.declare(records, PARTITIONS, pipeline)
    place = project.folder / "pipelines" / project.name
    (place / "transform.py").write_text(TRANSFORM)
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source)


class FaultyRun:
    """A run of spark-submit with faults in its tasks: `eos.faults` says what they look like."""

    def __init__(self, project: Project, faults: Sequence[str], **environment: str) -> None:
        self._planned = faults
        self._faults = project.folder / "faults"
        self._faults.mkdir()
        self._log = project.folder / "run.log"
        given = {"EOS_TASK_FAULTS": " ".join(faults), "EOS_TASK_FAULTS_FOLDER": str(self._faults)}
        with self._log.open("w") as output:
            self._process = subprocess.Popen(
                project.command(),
                env={**project.environment(**given), **environment},
                cwd=project.folder,
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> FaultyRun:  # noqa: PYI034 - typing.Self begins with 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for path in [
            *self._faults.glob("*.frozen"),
            *self._faults.glob("*.hung"),
        ]:  # who stands still would do so for ever
            for pid in _pids(path):
                if state(pid) == "T":
                    os.kill(pid, signal.SIGKILL)

    def said(self) -> str:
        return self._log.read_text()

    def wait(self) -> int:
        with self._waiting("the end"):
            return self._process.wait(WAIT_S_MAX)

    def wait_for(self, fault: str) -> Path:
        """The file that it leaves when it strikes: process ids, this one's first."""
        path = self._path(fault)
        self._until(path.exists, f"{fault} strikes")
        return path

    def wake_after(self, fault: str) -> None:
        """Continues who was paused, while the micro-batch is redone without them. The worker goes
        first: when its daemon and its executor go on, they end it. Soon the cluster would kill the
        executor, and the kernel with it who is paused."""
        path = self.wait_for(fault)
        chain = _pids(path)
        failed = self._failure_of(fault)

        woken = path.with_name(f"{path.name}.woken")

        def has_ended() -> bool:  # also where the cluster was quicker than this test
            return state(chain[0]) in {"", "Z"}

        self._until(lambda: failed in self.said(), "its attempt is given up")
        for pid in chain:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            if pid == chain[0]:
                self._until(lambda: woken.exists() or has_ended(), "the worker goes on")
                self._until(has_ended, "the worker ends")

    def check_each_struck(self, faults: Sequence[str]) -> None:
        """Each ended one attempt of its micro-batch, and it was redone."""
        said = self.said()
        for fault in faults:
            assert self._path(fault).exists(), f"{fault} did not strike:\n{said}"
            assert self._failure_of(fault) in said, f"{fault}:\n{said}"

    def _failure_of(self, fault: str) -> str:
        batch_id = fault.partition("/")[0]
        of_batch = [each for each in self._planned if each.startswith(f"{batch_id}/")]
        return f"micro-batch {batch_id}, attempt {of_batch.index(fault) + 1} failed"

    def _path(self, fault: str) -> Path:
        return self._faults / fault.replace("/", ".").replace(":", ".")

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        wait_until(is_so, lambda: f"not: {what}\n{self.said()}", self._process, WAIT_S_MAX)

    @contextlib.contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        try:
            yield
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not in time: {what}\n{self.said()}") from None


def _pids(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()]


def check_never_mixed(project: Project, count: int) -> None:
    """Each record once; each transaction has rows of one attempt, and of one evaluation of each
    source partition in it; nothing is open."""
    bootstrap = project.broker.bootstrap
    numbers: Counter[int] = Counter()
    marks: dict[tuple[int, int], tuple[str, str, str]] = {}  # of the place of each row
    for row in kafka_io.read(bootstrap, project.target):
        number, attempt, evaluation, partition, is_first = (row.value or b"").decode().split("/")
        marks[row.partition, row.offset] = attempt, evaluation, partition
        numbers[int(number)] += int(is_first)
    assert numbers == Counter(range(count))
    for record in kafka_io.read(bootstrap, project.ledger):
        body = json.loads(record.value or b"{}")
        if body["kind"] == "attempt":
            found = {
                marks.pop((receipt["partition"], offset))
                for receipt in body["attempt"]["receipts"]
                for offset in range(receipt["offset_first"], receipt["offset_last"] + 1)
            }
            assert len({attempt for attempt, _, _ in found}) == 1, found
            assert len(found) == len({partition for _, _, partition in found}), found
    assert not marks, "rows that no committed attempt has a receipt for"
    check_nothing_is_open(project)


def check_nothing_is_open(project: Project) -> None:
    listed = project.broker.tool(
        "org.apache.kafka.tools.TransactionsCommand",
        *("--bootstrap-server", project.broker.bootstrap, "list"),
    )
    assert listed.returncode == 0, listed.stderr
    ours = [line.split() for line in listed.stdout.splitlines() if project.name in line]
    assert [words[-1] for words in ours] == ["CompleteCommit"], ours
    markers = brokers.check_topic(project.broker, project.target)
    assert markers["COMMIT"]
    assert markers["ABORT"]

"""A job of no consequence beside the start, so that the first micro-batch waits for less.

The first job of a process starts the process that forks Python workers; a worker imports pyarrow
and our stages; and Spark loads and compiles what plans a job and hands rows to Python. Most of that
is the same in each run, and a start waits for Kafka meanwhile.

Guarantees: no start depends on it. It is one task in a thread of its own, whose errors are
nobody's. It asks nothing of Kafka or of a store, and runs no code of the user's. `close` cancels it
and waits for its end, for a bounded time.
Not guaranteed: that it is done before the first micro-batch comes. It goes on then: a job that is
cancelled has its worker killed, and what that has loaded would be loaded again.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from eos.run.tasks import WarmTask
from eos.transaction import receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TAG = "eos-warming"
_END_S_MAX = 5.0
# One row with the columns that a source has, so that what Spark loads and compiles is the like.
_ROWS = (
    "CAST(CAST(id AS STRING) AS BINARY) AS key",
    "CAST(CAST(id AS STRING) AS BINARY) AS value",
    "array(named_struct('key', CAST(id AS STRING), 'value', X'00')) AS headers",
    "CAST(id AS STRING) AS topic",
    "CAST(id AS INT) AS partition",
    "id AS offset",
)


class Warming:
    """Once for each Spark: a later run in the same process finds all of it warm."""

    _warm = ""  # the application that has had it

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._thread: threading.Thread | None = None
        application = str(spark.sparkContext.applicationId)
        if application != Warming._warm:
            Warming._warm = application
            # A daemon: a task that hangs must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name=_TAG, daemon=True)
            self._thread.start()

    def close(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            return
        with suppress(Exception):  # the JVM may be gone
            self._spark.sparkContext.cancelJobsWithTag(_TAG)
        self._thread.join(_END_S_MAX)

    def _run(self) -> None:
        with suppress(Exception):  # what is wrong here, the first micro-batch meets and tells
            self._spark.sparkContext.addJobTag(_TAG)
            rows = self._spark.range(0, 1, 1, 1).selectExpr(*_ROWS).coalesce(1)
            rows.mapInArrow(WarmTask(), receipt.SCHEMA).collect()

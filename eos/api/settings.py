"""The Spark settings of a session in which jobs can run."""

from __future__ import annotations

import os
import sys

from eos.launch.spark import LOCAL, LOOPBACK, delta_conf, find_spark
from eos.local.jars import paths_of
from eos.local.java import AVRO_LIMITS
from eos.spark.session import REQUIRED, unless_set

# Tasks run in the driver's JVM, so no other machine needs to reach it.
_LOOPBACK = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def spark_conf(master: str | None = None, *, delta: bool = False) -> dict[str, str]:
    """Return the settings for `SparkSession.builder.config(map=...)`.

    They let no task be repeated within a transaction, and name the jars of Kafka's connector, and
    with `delta` those of Delta. `eos fetch` downloads them: without it, UsageError is raised,
    unless `EOS_OFFLINE=0` lets this process download. With a local `master`, rows reach Python
    workers faster, and the workers run this process's Python: PYSPARK_PYTHON is set if it is not.
    Spark would take any `python3`, and a context reads the variable only when it is created.
    """
    jars = [str(jar) for jar in paths_of(*find_spark().jar_sets(with_delta=delta))]
    found = {**REQUIRED, "spark.jars": ",".join(jars)}
    found["spark.driver.extraJavaOptions"] = " ".join(AVRO_LIMITS)
    if delta:
        found |= delta_conf({})
    if master is not None:
        found |= {"spark.master": master, **unless_set(master)}
    if master is not None and master.startswith("local"):
        found |= LOCAL | _LOOPBACK
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return found

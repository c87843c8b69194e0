"""The Spark session that a pipeline needs, and the settings that would break the promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Bounds what one Arrow batch brings into a Python worker, whatever the size of its rows. A worker
# holds a few times as much. Twice this costs 40 MB more and encodes no faster.
ARROW_BYTES_MAX = 4 * 1024 * 1024
_SESSION = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BYTES_MAX),
}
_REQUIRED = {
    # Rule R1: a second copy of a writing task would send under the identity of the first.
    "spark.speculation": ("false", "false"),
    # A repeated stage starts its tasks at attempt 0 again, where a writer can't see it.
    "spark.stage.maxConsecutiveAttempts": ("1", "4"),
}


def open_session(name: str) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    spark = builder.config("spark.stage.maxConsecutiveAttempts", "1").getOrCreate()
    conf = spark.sparkContext.getConf()
    for key, (wanted, default) in _REQUIRED.items():
        value = str(conf.get(key, default))
        if value != wanted:
            raise UsageError(
                f"{key} is {value}; exactly-once needs {wanted}",
                hint=f"set spark.conf {key}: {wanted} in the profile, or drop the option",
            )
    for key, value in _SESSION.items():
        spark.conf.set(key, value)
    return spark

"""What Spark plans to read: the ranges of a micro-batch, from its checkpoint.

Read through Hadoop's file system, so that every place where a checkpoint may lie is served. The
files are Spark's own: `metadata` (query id), `sources/0/0` (where batch 0 starts, preferred by
Spark to `startingOffsets`), `offsets/<N>` (where batch N ends) and `commits/<N>`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eos.errors import PromiseBrokenError
from eos.transaction.port import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Ranges:
    """What one micro-batch reads: `starts` inclusive, `ends` exclusive, the same partitions.

    A partition that this micro-batch sees first has no start here: Spark resolves it later.
    """

    starts: Offsets
    ends: Offsets

    @property
    def records_max(self) -> int:
        """An upper bound: control records and compacted ones count as well."""
        return sum(end - self.starts.get(tp, 0) for tp, end in self.ends.items())


class Checkpoint:
    """One checkpoint folder of one query with one Kafka source."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.location = location.rstrip("/")
        self._files = _HadoopFiles(spark)

    def query_id(self) -> str:
        return str(json.loads(self._text("metadata"))["id"])

    def has_commits(self) -> bool:
        return bool(self._files.names(f"{self.location}/commits"))

    def ranges(self, batch_id: int) -> Ranges:
        ends = _source_offsets(self._text(f"offsets/{batch_id}"), f"offsets/{batch_id}")
        if batch_id == 0:
            # Spark writes a zero byte first, for readers older than 2.1.
            starts = _parse(self._text("sources/0/0").lstrip("\0").split("\n", 1)[1])
        else:
            before = f"offsets/{batch_id - 1}"
            starts = _source_offsets(self._text(before), before)
        return Ranges({tp: offset for tp, offset in starts.items() if tp in ends}, ends)

    def _text(self, name: str) -> str:
        path = f"{self.location}/{name}"
        try:
            return self._files.read(path)
        except Exception as error:  # Py4J raises its own for whatever Hadoop throws
            raise PromiseBrokenError(
                f"the checkpoint file {path} can't be read ({_reason(error)})",
                hint="was the checkpoint moved, truncated or restored in part?",
            ) from error


def newest_with_offsets(spark: SparkSession, root: str) -> tuple[str | None, str]:
    """The newest checkpoint under `root` in which a micro-batch was planned, and the next name.

    A folder without `offsets/0` may still hold `sources/0/0` from a start that died between the
    two. Spark would prefer that file to `startingOffsets`, so such a folder is never used again.
    """
    files = _HadoopFiles(spark)
    numbers = sorted(int(name) for name in files.names(root) if name.isdigit())
    fresh = f"{root}/{(numbers[-1] if numbers else 0) + 1:04d}"
    for number in reversed(numbers):
        path = f"{root}/{number:04d}"
        if files.exists(f"{path}/offsets/0"):
            return path, fresh
    return None, fresh


def _source_offsets(text: str, name: str) -> dict[TopicPartition, int]:
    """Line 1 is the version, line 2 the batch's metadata, then one line for each source."""
    lines = text.split("\n")
    if len(lines) < 3 or not lines[0].startswith("v1"):
        raise PromiseBrokenError(
            f"the checkpoint file {name} has a form that this release does not know",
            hint="was it written by another Spark version, or truncated?",
        )
    return _parse(lines[2])


def _parse(text: str) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }


def _reason(error: Exception) -> str:
    java: Any = getattr(error, "java_exception", None)
    return str(java.toString()) if java is not None else f"{type(error).__name__}: {error}"


class _HadoopFiles:
    """The three calls that are needed of Hadoop's FileSystem."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        # PySpark has no public way to Hadoop's file system.
        self._jvm: Any = context._jvm  # noqa: SLF001
        self._conf: Any = context._jsc.hadoopConfiguration()  # noqa: SLF001

    def _open(self, path: str) -> tuple[Any, Any]:
        target = self._jvm.org.apache.hadoop.fs.Path(path)
        return target.getFileSystem(self._conf), target

    def read(self, path: str) -> str:
        files, target = self._open(path)
        stream = files.open(target)
        try:
            return str(
                self._jvm.org.apache.commons.io.IOUtils.toString(
                    stream, self._jvm.java.nio.charset.StandardCharsets.UTF_8
                )
            )
        finally:
            stream.close()

    def exists(self, path: str) -> bool:
        files, target = self._open(path)
        return bool(files.exists(target))

    def names(self, path: str) -> list[str]:
        files, target = self._open(path)
        if not files.exists(target):
            return []
        return [str(status.getPath().getName()) for status in files.listStatus(target)]

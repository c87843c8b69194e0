"""The newest snapshot of a Delta table, read through Delta's Java classes.

This is the only private access to Delta. All else uses the Python package `delta`, which lacks:

- the version that an application wrote last (`txn`). No method returns it;
- several facts of one version. `DeltaTable.detail()` has the id and the properties, `history(1)`
  the version, and each reads the newest snapshot for itself. If another writer commits between
  two calls, they describe different versions;
- the version without a Spark job. `history()` and `detail()` run jobs, and each micro-batch reads
  the snapshot of each of its tables several times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A Delta table at one version."""

    version: int
    _java: Any

    @property
    def table_id(self) -> str:
        return str(self._java.metadata().id())

    def has_property(self, name: str) -> bool:
        return bool(self._java.metadata().configuration().contains(name))

    def last_write(self, app: str) -> int:
        """Return the version that an application wrote last; -1 if it never wrote."""
        known = self._java.transactions().get(app)
        return int(known.get()) if known.isDefined() else -1


def newest_snapshot(spark: SparkSession, path: str) -> Snapshot | None:
    """Return a Delta table's newest snapshot; None if there is no Delta table at the path."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Delta's Python package has no snapshots
    session: Any = spark._jsparkSession  # noqa: SLF001 - the same
    log = jvm.org.apache.spark.sql.delta.DeltaLog
    java = log.forTableWithSnapshot(session, path).productElement(1)
    version = int(java.version())
    return Snapshot(version, java) if version >= 0 else None

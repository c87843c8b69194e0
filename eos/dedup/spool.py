"""Files that a task writes after it validated all records of a partition or shard.

It writes the changed states of producers as Parquet files. Then it writes a JSON report that names
these files. The driver adds the files to the Delta table of states later.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eos.dedup.buckets import BucketManifest, folder_of, grown_buckets, write_states
from eos.dedup.summary import Account
from eos.errors import EosError, UnavailableError
from eos.folder import Folder
from eos.kafka.api import TopicPartition
from eos.producers.sequences import Ints


class ShardResult(Protocol):
    """Result of dedup's validation of one source partition or shard of producers (`home`).

    `count` is the number of states in memory: those of the buckets in `read`. `changed` has the
    buckets in which a state changed or expired."""

    home: TopicPartition
    manifest: BucketManifest
    account: Account
    read: set[int]
    changed: set[int]
    expired: int

    @property
    def count(self) -> int: ...

    def by_bucket(self, buckets: int) -> tuple[pa.Table, Ints]:
        """Return the states ordered by bucket, and each state's bucket out of `buckets`."""
        ...

    def load(self, buckets: set[int]) -> None: ...

    def report(self) -> Mapping[str, Any]:
        """Return additional entries for the report."""
        ...


@dataclass(frozen=True, slots=True)
class StateSpool:
    """Writer of a task's state files and reports.

    `folder` is the folder of the `producers` table, `work` the folder of the attempt."""

    pipeline: str
    folder: Folder
    work: Folder

    def write(self, result: ShardResult) -> None:
        """Write the changed states, then the report that names them."""
        manifest, home, account = result.manifest, result.home, result.account
        changed, buckets = result.changed, manifest.buckets
        if changed:
            untouched = sum(f.rows for b, f in manifest.files.items() if b not in result.read)
            buckets = grown_buckets(buckets, result.count + untouched)
        if buckets != manifest.buckets:
            result.load(set(manifest.files))
            changed = set(range(buckets))
        report = {
            "topic": home.topic,
            "partition": home.partition,
            "records": account.records,
            **result.report(),
            "verdicts": dict(sorted(account.verdicts.items())),
            "expired": result.expired,
            "told": account.spans,
            "gaps": account.gaps,
            "buckets": buckets,
            "changed": sorted(changed),
        }
        try:
            report["files"] = self._written(result, changed, buckets)
            report["notes"] = self._noted(account)
            self._reported(report)
        except OSError as error:
            files = "the states of producers"
            raise write_error(self.pipeline, files, str(self.folder), error) from error

    def _written(self, result: ShardResult, changed: set[int], buckets: int) -> list[list[Any]]:
        """Write a file for each changed bucket, unless it has no states any more.

        Return `[bucket, path, rows, bytes]` of each file."""
        if not changed:
            return []
        states, bucket = result.by_bucket(buckets)
        starts = np.searchsorted(bucket, np.arange(buckets + 1)).tolist()
        inner, run = folder_of(result.home), uuid.uuid4().hex
        self.folder.child(inner).create()
        files = []
        for each in sorted(changed):
            start, end = starts[each], starts[each + 1]
            if start == end:
                continue
            path = f"{inner}/{run}-{each}.parquet"
            size = write_states(self.folder, path, states.slice(start, end - start))
            files.append([each, path, end - start, size])
        return files

    def _noted(self, account: Account) -> str:
        """Write the file of the records that the account lists one by one, with their verdicts.

        Return its name in the attempt's folder, or "" if the account lists none."""
        if not account.notes:
            return ""
        name, buffer = f"{uuid.uuid4().hex}.parquet", pa.BufferOutputStream()
        pq.write_table(pa.concat_tables(account.notes), buffer, compression="zstd")
        self.work.write(name, buffer.getvalue())
        return name

    def _reported(self, report: Mapping[str, Any]) -> None:
        self.work.write(f"{uuid.uuid4().hex}.json", json.dumps(report).encode("ascii"))


def write_error(pipeline: str, files: str, folder: str, error: OSError) -> EosError:
    reason = error.strerror or error
    return UnavailableError(
        "state_root_unwritable",
        f"{pipeline}: {files} can't be written to {folder}: {reason}",
        hint="is there free space, and may this user write there? Executors on other machines need "
        "the state root under the same path",
        path=folder,
    )

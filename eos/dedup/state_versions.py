"""How do dedup's producer states commit and abort together with the Kafka transaction?

Tasks write state files and reports (`stage`). Before the transaction ends, this module commits the
files as a new version of the Delta table `producers`. The attempt's ledger record names that
version. So the states are committed if and only if the transaction is. If the driver dies:

- before the Delta commit: no version has the new files. The ledger names the previous version,
  and the next attempt begins with that one. `maintain` deletes the files later.
- after the Delta commit, before EndTxn: no ledger record names the new version. The next attempt
  begins with the previous version, and its commit removes the files of this version.
- during EndTxn: once the broker has decided, the ledger names the old or the new version. The
  next attempt begins with that one.
- after EndTxn: the ledger names the new version.

If the checkpoint is lost, Spark resumes at the ledger's position, which names its version. A rewind
uses the version of the ledger record that it goes back to.

A replaced instance may still commit versions, but no ledger record names them, because it can't
commit a transaction. If it removes files from the newest version, the next commit restores them.
Removed files are deleted after an hour at the earliest. Reports of a failed attempt are never read,
because each attempt has its own folder.

A micro-batch without dedup names no version, so states are never older than the position. If
dedup is enabled again later, all producers are unknown.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eos.dedup.buckets import BucketFile, BucketManifest
from eos.dedup.policy import Policy
from eos.dedup.producer_scope_stage import ProducerScopeStage
from eos.dedup.stage import DedupStage
from eos.dedup.state_attempt import StateAttempt, VersionRecord
from eos.dedup.state_table import KEPT_HOURS, Files, ProducersTable, StateVersion
from eos.errors import PromiseBrokenError, UnavailableError
from eos.folder import Folder
from eos.kafka.api import TopicPartition

_WORK = "_attempts"  # Delta readers ignore names that begin with _


def hash_of_rules(reading: tuple[str, ...], policy: Policy) -> str:
    """Return a hash of the places of id, epoch and sequence, where sequences wrap, and the scope.

    States of producers are valid only while these settings stay the same."""
    settings = (*reading, policy.rules.sequences, policy.rules.is_ordered)
    return hashlib.sha256(repr(settings).encode()).hexdigest()[:12]


@dataclass(slots=True)
class StateVersions:
    """Driver's access to the versions of a pipeline's producer states.

    `reading` describes where producer id, epoch and sequence are read from. If it changes, existing
    states are rejected, because they have other ids and numbers."""

    pipeline: str
    table: ProducersTable
    policy: Policy
    reading: tuple[str, ...]
    topic: str = ""  # the only source topic; empty: each row names its topic
    _files: tuple[str, Files] = field(default=("", {}), init=False)  # last used version, its files
    _work: str = field(default="", init=False)  # name of the folder of our last attempt

    @property
    def rules(self) -> str:
        """Return a hash of the settings under which stored states are valid."""
        return hash_of_rules(self.reading, self.policy)

    def require(self, version: str) -> None:
        """Raise an EosError if this version can't be read, or was written under other rules.

        An empty version means that no producer is known, and is accepted."""
        self._known(version)

    def require_rules(self, version: str) -> None:
        """Raise PromiseBrokenError if this version was written under other rules. The table is not
        read."""
        if version:
            self._require_same_rules(StateVersion.of(version))

    def begin(
        self, version: str, *, accepts_gap: bool = False, now_ms: int | None = None
    ) -> StateAttempt:
        """Begin an attempt with this version of the states; if it is "", no producer is known.

        With `accepts_gap`, records with the verdict `gap` are accepted. The same version, records
        and clock give the same verdicts. The clock is the current time, unless `now_ms` has an
        earlier attempt's."""
        known = self._known(version)
        work = self._new_work()
        stage = ProducerScopeStage if self.policy.window else DedupStage
        opened = stage(
            pipeline=self.pipeline,
            folder=self.table.location,
            work=work,
            policy=self.policy.accepting_gaps() if accepts_gap else self.policy,
            known=manifests(known),
            now_ms=int(time.time() * 1000) if now_ms is None else now_ms,
            topic=self.topic,
        )
        origin = {"before": version, "accepts_gap": accepts_gap, "now_ms": opened.now_ms}
        return StateAttempt(known, opened, self._commit, origin)

    def maintain(self) -> None:
        """Delete what no reader of the table needs any more. Call it after the transaction has
        committed, because then the ledger names the newest version."""
        self.table.maintain()

    def _new_work(self) -> Folder:
        """Return a new folder for the reports of one attempt.

        Delete the folder of our previous attempt, and folders older than `KEPT_HOURS`, which dead
        processes left. Keep newer folders, since another instance may still run. It must stop
        because it is fenced, not because its files are missing."""
        every = self.table.location.child(_WORK)
        oldest = time.time() - KEPT_HOURS * 3600
        try:
            for name, changed in every.folders().items():
                if name == self._work or changed < oldest:
                    every.remove_folder(name)
            self._work = uuid.uuid4().hex
            work = every.child(self._work)
            work.create()
        except OSError as error:
            reason = error.strerror or error
            raise UnavailableError(
                "state_root_unwritable",
                f"{self.pipeline}: {every} can't be written: {reason}",
                hint="is there free space, and may this user write to the state root?",
                path=str(every),
            ) from error
        return work

    def _known(self, version: str) -> Files:
        if not version:
            return {}
        if self._files[0] != version:
            named = StateVersion.of(version)
            self._require_same_rules(named)
            self._files = version, self.table.files(named)
        return self._files[1]

    def _require_same_rules(self, version: StateVersion) -> None:
        before, now = version.rules, self.rules
        if before != now:
            raise PromiseBrokenError(
                "producers_changed",
                f"{self.pipeline}: `dedup.producer` or `dedup.scope` was changed, but the states "
                "of producers were written under the earlier settings (their fingerprint changed "
                f"from {before} to {now})",
                hint="restore id, epoch, sequence, wraps_at and scope, or run "
                f"`eos recover {self.pipeline} --forget-producers`: duplicates of records sent "
                "earlier are not recognized then",
                pipeline=self.pipeline,
            )

    def _commit(self, files: Files, summary: Mapping[str, Any]) -> VersionRecord:
        version = str(self.table.commit(files, self.rules))
        self._files = version, files
        return VersionRecord(version, summary)


def manifests(files: Files) -> Mapping[TopicPartition, BucketManifest]:
    found: dict[TopicPartition, dict[int, BucketFile]] = {}
    buckets: dict[TopicPartition, int] = {}
    for key, file in files.items():
        tp = TopicPartition(key.topic, key.partition)
        found.setdefault(tp, {})[key.bucket] = file
        buckets[tp] = key.buckets
    return {tp: BucketManifest(buckets[tp], each) for tp, each in found.items()}

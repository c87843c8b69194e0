"""Which producer states does an attempt begin with, and which does it leave?

Tasks write state files and reports (`stage`). Before the transaction ends, this module commits the
files as a new version of the `producers` table. The attempt's ledger record names that version.
So the ledger alone decides about states, as it does about records. If the driver dies:

- before the Delta commit: no version has the new files. The ledger names the previous version,
  and the next attempt begins with that one. `maintain` deletes the files later.
- after the Delta commit, before EndTxn: no ledger record names the new version. The next attempt
  begins with the previous version, and its commit removes the files of this version.
- during EndTxn: once the broker has decided, the ledger names the old or the new version. The
  next attempt begins with that one.
- after EndTxn: the ledger names the new version.

A lost checkpoint changes nothing: Spark repeats from the ledger's position, which names its
version. A rewind names the version of the ledger record that it goes back to.

A replaced instance may still commit versions, but no ledger record names them, because it can't
commit a transaction. If it removes files from the newest version, the next commit restores them.
Removed files are deleted after an hour at the earliest. Reports of a failed attempt are never read,
because each attempt has its own folder.

A micro-batch without dedup names no version, so states are never older than the position. If
dedup is enabled again later, all producers are unknown.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from eos import private_files
from eos.dedup.buckets import BucketFile, BucketManifest, Home
from eos.dedup.optimistic_pass import OptimisticPass
from eos.dedup.policy import Policy
from eos.dedup.producer_scope_stage import ProducerScopeStage
from eos.dedup.stage import DedupStage
from eos.dedup.state_table import KEPT_HOURS, Files, ProducersTable, StateVersion
from eos.dedup.summary import GAPS_LISTED_MAX
from eos.dedup.verdict_lookup import VerdictLookup, first_of
from eos.errors import AttemptFailedError, EosError, PromiseBrokenError, UnavailableError
from eos.kafka.api import TopicPartition

_WORK = "_attempts"  # Delta readers ignore names that begin with _


class Dead(NamedTuple):
    """Number of dead letters with one verdict, and the position of the first one."""

    verdict: str
    records: int
    topic: str
    partition: int
    offset: int


class VersionRecord(NamedTuple):
    """Dedup's part of a ledger record: the version of the states, and a summary of the verdicts."""

    version: str
    summary: Mapping[str, Any]


@dataclass(slots=True)
class StateVersions:
    """Producer states of one pipeline, on the driver.

    `reading` describes where the parts of a stamp are read from. If it changes, ids and numbers
    have another meaning, and existing states are rejected."""

    pipeline: str
    table: ProducersTable
    policy: Policy
    reading: tuple[str, ...]
    topic: str = ""  # the only source topic; empty: each row names its topic
    _files: tuple[str, Files] = field(default=("", {}), init=False)  # a version and its files
    _work: Path | None = field(default=None, init=False)  # folder of our last attempt

    @property
    def rules(self) -> str:
        """Return a hash of all settings that give a state its meaning."""
        settings = (*self.reading, self.policy.rules.sequences, self.policy.rules.is_ordered)
        return hashlib.sha256(repr(settings).encode()).hexdigest()[:12]

    def require(self, version: str) -> None:
        """Raise an EosError if no attempt can begin with this version."""
        self._known(version)

    def begin(self, version: str, *, accepts_gap: bool = False) -> StateAttempt:
        """Begin an attempt with this version of the states. With "", all producers are unknown."""
        known = self._known(version)
        work = self._new_work()
        stage = ProducerScopeStage if self.policy.window else DedupStage
        made = stage(
            pipeline=self.pipeline,
            folder=str(self.table.location),
            work=str(work),
            policy=self.policy.accepting_gaps() if accepts_gap else self.policy,
            known=by_home(known),
            now_ms=int(time.time() * 1000),
            topic=self.topic,
        )
        return StateAttempt(self, known, made)

    def maintain(self) -> None:
        """Clean up the table. Call it after the transaction has committed, because only then the
        newest version is the one that the ledger names."""
        self.table.maintain()

    def _new_work(self) -> Path:
        """Return a new folder for the reports of one attempt.

        Delete the folder of our previous attempt, and all folders older than `KEPT_HOURS`, which
        dead processes left. Another running copy keeps its folder: it must end because it is
        fenced, not because its files are missing."""
        every = self.table.location / _WORK
        past = time.time() - KEPT_HOURS * 3600
        try:
            private_files.make(every)
            for each in every.iterdir():
                with suppress(FileNotFoundError):  # another instance deleted it first
                    if each == self._work or each.stat().st_mtime < past:
                        shutil.rmtree(each, ignore_errors=True)
            self._work = every / uuid.uuid4().hex
            private_files.make(self._work)
        except OSError as error:
            reason = error.strerror or error
            raise UnavailableError(
                "state_root_unwritable",
                f"{self.pipeline}: {every} can't be written: {reason}",
                hint="is there free space, and may this user write to the state root?",
                path=str(every),
            ) from error
        return self._work

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

    def commit(self, files: Files, summary: Mapping[str, Any]) -> VersionRecord:
        version = str(self.table.commit(files, self.rules))
        self._files = version, files
        return VersionRecord(version, summary)


@dataclass(slots=True)
class StateAttempt:
    """Dedup of one attempt: its stage and, after the job, the reports of its tasks."""

    owner: StateVersions
    known: Files
    stage: DedupStage | ProducerScopeStage

    def validated(self) -> Counter[TopicPartition]:
        """Return how many records the tasks have validated, by source partition.

        A partition is missing if it has no records, or if Spark pruned its rows because no sink
        reads them. The caller must validate those, since the states must include them."""
        counts: Counter[TopicPartition] = Counter()
        for tp, report in self.reports().items():
            for topic, partition, count in report.get("places", [(*tp, report["records"])]):
                counts[TopicPartition(topic, partition)] += count
        return counts

    def reports(self) -> dict[TopicPartition, Mapping[str, Any]]:
        found: dict[TopicPartition, Mapping[str, Any]] = {}
        for place in sorted(Path(self.stage.work).glob("*.json")):
            report = json.loads(place.read_text(encoding="ascii"))
            tp = TopicPartition(report["topic"], report["partition"])
            first = found.setdefault(tp, report)
            if _compared(first) != _compared(report):
                raise self._disagree(tp, first, report)
        return found

    def _disagree(
        self, tp: TopicPartition, first: Mapping[str, Any], report: Mapping[str, Any]
    ) -> EosError:
        """Return the error for two reports of one partition that differ.

        An attempt may evaluate its rows more than once, and compaction or retention may remove
        records in between. Then the offsets of both reports overlap, and the error allows a retry.
        If they do not overlap, two tasks read parts of one partition. A retry would not help."""
        one, other = _span(first), _span(report)
        message = (
            f"{self.owner.pipeline}: two tasks validated different records of "
            f"{tp.topic}-{tp.partition}: {one}, and {other}"
        )
        if _overlap(first, report):
            return AttemptFailedError(
                "source_changed_during_attempt",
                message,
                hint="retention or compaction may have removed source records during the attempt; "
                "the next attempt reads them again. If the error repeats, does a step return other "
                "rows when it is evaluated again?",
            )
        return PromiseBrokenError(
            "dedup_order",
            message,
            hint="one task must read all records of a partition, in order. Does a step return "
            "other rows when it is evaluated again? Start again; if the error repeats, report it "
            "as a bug",
        )

    def lookup(self) -> VerdictLookup:
        """Return the verdicts of `scope: producer`, for tasks that read the records afterwards."""
        files = tuple(each["notes"] for each in self.reports().values() if each["notes"])
        return VerdictLookup(self.owner.pipeline, files, self.validated(), self.owner.topic)

    def optimistic_pass(self) -> OptimisticPass:
        """Return the function for a job whose rows pass first and are validated after the write."""
        return OptimisticPass(self.owner.pipeline, self.stage.work, self.owner.topic)

    def counts(self) -> Mapping[str, int]:
        """Return the number of records with each verdict."""
        found: Mapping[str, int] = summary_of(self.reports())["verdicts"]
        return found

    def dead(self) -> list[Dead]:
        """Return the records that go to the dead letters, by verdict."""
        policy, reports = self.stage.policy, self.reports().values()
        found = []
        for name in sorted(policy.dead):
            count = sum(report["verdicts"].get(name, 0) for report in reports)
            if count:
                files = [report["notes"] for report in reports if name in report["verdicts"]]
                found.append(Dead(name, count, *first_of(files, policy.codes({name})[0])))
        return found

    def commit(self, reached: Callable[[str], None] = lambda _point: None) -> VersionRecord:
        """Commit the states after this attempt as a version. No ledger record names it yet."""
        reports = self.reports()
        kept = {**{tp: BucketManifest() for tp in reports}, **self.stage.known}
        files: dict[Home, BucketFile] = {}
        for tp, before in kept.items():
            after = _after(before, reports[tp]) if tp in reports else before
            for bucket, file in after.files.items():
                files[Home(*tp, after.buckets, bucket)] = file
        reached("producers:before")
        states = sum(file.rows for file in files.values())
        summary = summary_of(reports, self.stage.policy.dead)
        done = self.owner.commit(files, {**summary, "states": states})
        reached("producers:after")
        return done


def by_home(files: Files) -> Mapping[TopicPartition, BucketManifest]:
    found: dict[TopicPartition, dict[int, BucketFile]] = {}
    buckets: dict[TopicPartition, int] = {}
    for home, file in files.items():
        tp = TopicPartition(home.topic, home.partition)
        found.setdefault(tp, {})[home.bucket] = file
        buckets[tp] = home.buckets
    return {tp: BucketManifest(buckets[tp], each) for tp, each in found.items()}


def summary_of(
    reports: Mapping[TopicPartition, Mapping[str, Any]], dead: Collection[str] = ()
) -> Mapping[str, Any]:
    """Return the summary for the ledger record.

    It counts all verdicts and dead letters. It lists the producers with other verdicts than
    `appended` and, for gaps, the expected number and the number that arrived."""
    verdicts: dict[str, int] = {}
    producers: list[Any] = []
    for _, report in sorted(reports.items()):
        for name, count in report["verdicts"].items():
            verdicts[name] = verdicts.get(name, 0) + count
        producers += report["told"]
    producers.sort(key=lambda each: (-each[4], each))
    gaps = sorted(each for report in reports.values() for each in report["gaps"])
    return {
        "verdicts": verdicts,
        "dead_letters": {name: count for name, count in verdicts.items() if name in dead},
        "expired": sum(report["expired"] for report in reports.values()),
        "producers": producers[:PRODUCERS_LISTED_MAX],
        "producers_more": max(0, len(producers) - PRODUCERS_LISTED_MAX),
        **({"gaps": gaps[:GAPS_LISTED_MAX]} if gaps else {}),
    }


PRODUCERS_LISTED_MAX = 100  # producers in one ledger record, those with the most records first


def _after(kept: BucketManifest, report: Mapping[str, Any]) -> BucketManifest:
    """Return the state files of one partition after an attempt.

    If the number of buckets grew, all files are new."""
    changed, is_grown = set(report["changed"]), report["buckets"] != kept.buckets
    files = {} if is_grown else {b: file for b, file in kept.files.items() if b not in changed}
    for bucket, path, rows, size in report["files"]:
        files[bucket] = BucketFile(path, rows, size)
    return BucketManifest(report["buckets"], files)


def _compared(report: Mapping[str, Any]) -> Any:
    files = [(bucket, rows) for bucket, _path, rows, _size in report["files"]]
    return {**report, "files": files, "notes": bool(report["notes"])}


def _overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether the offset ranges of two reports overlap; False if one has no offsets."""
    if "offset_first" not in one or "offset_first" not in other:
        return False
    return bool(
        max(one["offset_first"], other["offset_first"])
        <= min(one["offset_last"], other["offset_last"])
    )


def _span(report: Mapping[str, Any]) -> str:
    count = f"{report['records']} records"
    if "offset_first" not in report:
        return count
    return f"{count} from {report['offset_first']} to {report['offset_last']}"

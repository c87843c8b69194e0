"""How does the driver collect dedup's results from the tasks of an attempt, and commit them?

An attempt is one try at a micro-batch. Each task writes a JSON report for each source partition, or
shard of producers, that it has validated (`spool`). The driver commits the state files that these
reports name to the Delta table of the producers' states.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eos.dedup.buckets import BucketFile, BucketKey, BucketManifest
from eos.dedup.optimistic_pass import OptimisticPass
from eos.dedup.producer_scope_stage import ProducerScopeStage
from eos.dedup.stage import DedupStage
from eos.dedup.state_table import Files
from eos.dedup.summary import GAPS_LISTED_MAX
from eos.dedup.verdict_lookup import VerdictLookup, first_of
from eos.errors import AttemptFailedError, EosError, PromiseBrokenError
from eos.kafka.api import TopicPartition

PRODUCERS_LISTED_MAX = 100  # per ledger record; producers with the most records are listed first


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
class StateAttempt:
    """Dedup of one attempt: its function for Spark tasks, and the reports of its tasks.

    `known` has the state files before the attempt, `save` commits those after it. `origin` has the
    arguments of `StateVersions.begin`, with which the attempt can be repeated."""

    known: Files
    stage: DedupStage | ProducerScopeStage
    save: Callable[[Files, Mapping[str, Any]], VersionRecord]  # commits files as a version
    origin: Mapping[str, Any]
    _read: dict[str, Any] = field(default_factory=dict, init=False)  # by the report's file

    def validated(self) -> Counter[TopicPartition]:
        """Return how many records the tasks have validated, by source partition.

        The result lacks a partition if it has no records, or if Spark pruned its rows because no
        sink reads them. The caller must validate pruned partitions, too, because the next states
        must include their records."""
        counts: Counter[TopicPartition] = Counter()
        for tp, report in self.reports().items():
            for topic, partition, count in report.get("places", [(*tp, report["records"])]):
                counts[TopicPartition(topic, partition)] += count
        return counts

    def reports(self) -> dict[TopicPartition, Mapping[str, Any]]:
        found: dict[TopicPartition, Mapping[str, Any]] = {}
        work = self.stage.work
        for name in sorted(name for name in work.files() if name.endswith(".json")):
            if name not in self._read:  # a file never changes, and a bucket takes a while
                self._read[name] = json.loads(work.read(name))
            report = self._read[name]
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
            f"{self.stage.pipeline}: two tasks validated different records of "
            f"{tp.topic}-{tp.partition}: {one}, and {other}"
        )
        if _overlap(first, report):
            return AttemptFailedError(
                "source_changed_during_attempt",
                message,
                hint="retention or compaction may have removed source records during the attempt; "
                "the next attempt reads them again. If the error repeats, check that every step is "
                "deterministic",
            )
        return PromiseBrokenError(
            "dedup_order",
            message,
            hint="one task must read all records of a partition, in order. Check that every step "
            "is deterministic, then start again. If the error repeats, report it as a bug",
        )

    def lookup(self) -> VerdictLookup:
        """Return a lookup of this attempt's verdicts, for tasks that read the records again."""
        files = tuple(each["notes"] for each in self.reports().values() if each["notes"])
        of = self.stage
        return VerdictLookup(of.pipeline, files, self.validated(), of.topic, of.work)

    def optimistic_pass(self) -> OptimisticPass:
        """Return the function for a Spark job that writes all rows and validates them later."""
        return OptimisticPass(self.stage.pipeline, self.stage.work, self.stage.topic)

    def counts(self) -> Mapping[str, int]:
        """Return the number of records with each verdict."""
        found: Mapping[str, int] = summary_of(self.reports())["verdicts"]
        return found

    def dead(self) -> list[Dead]:
        """Return, for each verdict with dead letters, their count and the first one's position."""
        policy, reports = self.stage.policy, self.reports().values()
        found = []
        for name in sorted(policy.dead):
            count = sum(report["verdicts"].get(name, 0) for report in reports)
            if count:
                files = [report["notes"] for report in reports if name in report["verdicts"]]
                found.append(
                    Dead(name, count, *first_of(self.stage.work, files, policy.codes({name})[0]))
                )
        return found

    def commit(self, reached: Callable[[str], None] = lambda _point: None) -> VersionRecord:
        """Commit the producers' states after this attempt as a new version of the Delta table.

        The version counts once the attempt's ledger record, which names it, has committed. The
        caller passes `reached` to simulate crashes at named points."""
        reports = self.reports()
        manifest = {**{tp: BucketManifest() for tp in reports}, **self.stage.known}
        files: dict[BucketKey, BucketFile] = {}
        for tp, before in manifest.items():
            after = _after(before, reports[tp]) if tp in reports else before
            for bucket, file in after.files.items():
                files[BucketKey(*tp, after.buckets, bucket)] = file
        reached("producers:before")
        states = sum(file.rows for file in files.values())
        summary = summary_of(reports, self.stage.policy.dead)
        done = self.save(files, {**summary, "states": states})
        reached("producers:after")
        return done


def summary_of(
    reports: Mapping[TopicPartition, Mapping[str, Any]], dead: Collection[str] = ()
) -> Mapping[str, Any]:
    """Return dedup's summary of an attempt for its ledger record.

    The summary counts records by verdict, and dead letters. It lists producers with verdicts other
    than `appended` and `unstamped`. Gaps have the expected and the actual number."""
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


def _after(manifest: BucketManifest, report: Mapping[str, Any]) -> BucketManifest:
    """Return the state files of one partition or shard after an attempt.

    If the number of buckets grew, all files were rewritten, so none of `manifest` remains."""
    changed, is_grown = set(report["changed"]), report["buckets"] != manifest.buckets
    files = {} if is_grown else {b: file for b, file in manifest.files.items() if b not in changed}
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

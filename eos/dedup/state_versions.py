"""The states of producers across attempts: what an attempt begins with, and what it leaves.

Tasks write files and reports (`stage`), this commits them as a generation before the transaction
ends, and the attempt's ledger record names it. So the ledger decides about states as it does about
records, and nothing else does. Whoever dies where:

- before the Delta commit: there are files that no version names. The ledger names the generation
  before, and the next attempt begins with that one; `maintain` deletes the files.
- behind it and before EndTxn: there is a version that nobody names. The same; and the next commit
  takes out what this one put in.
- in EndTxn, undecided: the ledger names one of both once the broker has decided. The next attempt
  begins with that one.
- behind EndTxn: the ledger names the version.

A lost checkpoint changes nothing: what Spark repeats, it repeats upon the ledger's position, and
the position names its generation. A rewind names the generation of the record that it goes back to.
A copy that was replaced may still commit versions; no record names them, since it can't commit a
transaction. What it takes out of the newest version is put back by the next commit, and deleted no
sooner than an hour later. A failed attempt's reports are never read: each has a folder of its own.

A micro-batch without dedup names no generation, so that states never lag behind the position: once
dedup is back, all producers are unknown.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
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
from eos.dedup.state_table import KEPT_HOURS, Files, Generation, ProducersTable
from eos.dedup.summary import GAPS_TOLD_MAX
from eos.dedup.verdict_lookup import VerdictLookup, first_of
from eos.errors import AttemptFailedError, EosError, PromiseBrokenError, UnavailableError
from eos.kafka.api import TopicPartition

_WORK = "_attempts"  # beginning with _: no Delta reader takes it for data


class Dead(NamedTuple):
    """Records of one verdict that go to the dead letters, and where the first of them lies."""

    verdict: str
    records: int
    topic: str
    partition: int
    offset: int


class VersionRecord(NamedTuple):
    """`generation` is what the ledger says from here on, `told` what its record tells."""

    generation: str
    told: Mapping[str, Any]


@dataclass(slots=True)
class StateVersions:
    """Of one pipeline, on the driver. `reading` are the texts by which stamps are read: other ones
    mean other producers."""

    pipeline: str
    table: ProducersTable
    policy: Policy
    reading: tuple[str, ...]
    topic: str = ""  # the only one of the source; empty: rows say theirs
    _files: tuple[str, Files] = field(default=("", {}), init=False)  # of that generation
    _mine: Path | None = field(default=None, init=False)  # of our last attempt

    @property
    def rules(self) -> str:
        """A mark of all that gives a state its meaning."""
        says = (*self.reading, self.policy.rules.sequences, self.policy.rules.is_ordered)
        return hashlib.sha256(repr(says).encode()).hexdigest()[:12]

    def require(self, generation: str) -> None:
        """Raises if no attempt could begin with it."""
        self._known(generation)

    def begun(self, generation: str, *, accepts_gap: bool = False) -> StateAttempt:
        """An attempt upon that generation; empty: nothing is known of any producer."""
        known = self._known(generation)
        mine = self._work()
        stage = ProducerScopeStage if self.policy.window else DedupStage
        made = stage(
            pipeline=self.pipeline,
            folder=str(self.table.location),
            work=str(mine),
            policy=self.policy.accepting_gaps() if accepts_gap else self.policy,
            known=by_home(known),
            now_ms=int(time.time() * 1000),
            topic=self.topic,
        )
        return StateAttempt(self, known, made)

    def maintain(self) -> None:
        """Behind the transaction: only then the newest version is the one that counts."""
        self.table.maintain()

    def _work(self) -> Path:
        """A folder for one attempt's reports. Those of our attempts before go, and what a process
        left that died; another copy's stay: it shall end because it was fenced, of nothing else."""
        every = self.table.location / _WORK
        past = time.time() - KEPT_HOURS * 3600
        try:
            private_files.make(every)
            for each in every.iterdir():
                with suppress(FileNotFoundError):  # another copy was here first
                    if each == self._mine or each.stat().st_mtime < past:
                        shutil.rmtree(each, ignore_errors=True)
            self._mine = every / uuid.uuid4().hex
            private_files.make(self._mine)
        except OSError as error:
            raise UnavailableError(
                f"{self.pipeline}: {every} can't be written: {error.strerror or error}",
                hint="is there room, and may this user write to the state root?",
                path=str(every),
            ) from error
        return self._mine

    def _known(self, generation: str) -> Files:
        if not generation:
            return {}
        if self._files[0] != generation:
            meant = Generation.of(generation)
            self._require_same_rules(meant)
            self._files = generation, self.table.files(meant)
        return self._files[1]

    def _require_same_rules(self, generation: Generation) -> None:
        if generation.rules != self.rules:
            raise PromiseBrokenError(
                f"{self.pipeline}: `dedup.producer` or `dedup.scope` was changed: the states of "
                "producers were made by other rules (their mark is "
                f"{generation.rules}, and now {self.rules})",
                hint="put id, epoch, sequence, wraps_at and scope back as they were, or "
                f"`eos recover {self.pipeline} --forget-producers`: then what was sent before and "
                "comes again will not be recognised",
                case="producers_changed",
                pipeline=self.pipeline,
            )

    def commit(self, files: Files, told: Mapping[str, Any]) -> VersionRecord:
        generation = str(self.table.commit(files, self.rules))
        self._files = generation, files
        return VersionRecord(generation, told)


@dataclass(slots=True)
class StateAttempt:
    """One attempt: its stage, and once the job is over what the tasks reported."""

    owner: StateVersions
    known: Files
    stage: DedupStage | ProducerScopeStage

    def missing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that no task reported: they had no records, or Spark left them out, as it does
        where it sees that nothing can come of them. Somebody must look at them."""
        return sorted(set(partitions) - self.reports().keys())

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
        """An attempt evaluates its rows more than once, and compaction or retention may take some
        between: then both reports are about the same offsets, and the next attempt may do. Offsets
        that have nothing in common are parts of a partition that is split, and stay so."""
        message = (
            f"{self.owner.pipeline}: two tasks judged {tp.topic}-{tp.partition} and do not agree: "
            f"{_span(first)}, and {_span(report)}"
        )
        if _overlap(first, report):
            return AttemptFailedError(
                message,
                hint="did the source lose records meanwhile, by retention or compaction? They are "
                "read again by the next attempt. If it comes each time: does a step evaluate "
                "different rows twice?",
            )
        return PromiseBrokenError(
            message,
            hint="a producer's records in a partition must come to one task, in order: is the "
            "partition split, or does a step evaluate different rows twice?",
            case="dedup_order",
        )

    def lookup(self) -> VerdictLookup:
        """The verdicts on spread producers, for whoever reads the records behind them."""
        counts: Counter[TopicPartition] = Counter()
        reports = self.reports().values()
        for report in reports:
            for topic, partition, count in report["places"]:
                counts[TopicPartition(topic, partition)] += count
        files = tuple(report["notes"] for report in reports if report["notes"])
        return VerdictLookup(self.owner.pipeline, files, counts, self.owner.topic)

    def trusting(self) -> OptimisticPass:
        """For a job that lets all rows pass, and whose rows are judged behind it."""
        return OptimisticPass(self.owner.pipeline, self.stage.work, self.owner.topic)

    def counts(self) -> Mapping[str, int]:
        """Of each verdict, how many."""
        found: Mapping[str, int] = told(self.reports())["verdicts"]
        return found

    def dead(self) -> list[Dead]:
        """What goes to the dead letters."""
        policy, reports = self.stage.policy, self.reports().values()
        found = []
        for name in sorted(policy.dead):
            count = sum(report["verdicts"].get(name, 0) for report in reports)
            if count:
                files = [report["notes"] for report in reports if name in report["verdicts"]]
                found.append(Dead(name, count, *first_of(files, policy.codes({name})[0])))
        return found

    def commit(self, reached: Callable[[str], None] = lambda _point: None) -> VersionRecord:
        """The states behind this attempt, as a generation that nobody names yet."""
        reports = self.reports()
        kept = {**{tp: BucketManifest() for tp in reports}, **self.stage.known}
        files: dict[Home, BucketFile] = {}
        for tp, before in kept.items():
            after = _after(before, reports[tp]) if tp in reports else before
            for bucket, file in after.files.items():
                files[Home(*tp, after.buckets, bucket)] = file
        reached("producers:before")
        states = sum(file.rows for file in files.values())
        says = told(reports, self.stage.policy.dead)
        done = self.owner.commit(files, {**says, "states": states})
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


def told(
    reports: Mapping[TopicPartition, Mapping[str, Any]], dead: Collection[str] = ()
) -> Mapping[str, Any]:
    """For the ledger: what was judged how, in all, what of it went to the dead letters, and of
    which producers something is to tell; of gaps, which number was expected and which came."""
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
        "producers": producers[:PRODUCERS_TOLD_MAX],
        "producers_more": max(0, len(producers) - PRODUCERS_TOLD_MAX),
        **({"gaps": gaps[:GAPS_TOLD_MAX]} if gaps else {}),
    }


PRODUCERS_TOLD_MAX = 100  # in one record of the ledger, those with the most


def _after(kept: BucketManifest, report: Mapping[str, Any]) -> BucketManifest:
    """One partition's files behind an attempt. With more buckets than before, all are new."""
    changed, is_grown = set(report["changed"]), report["buckets"] != kept.buckets
    files = {} if is_grown else {b: file for b, file in kept.files.items() if b not in changed}
    for bucket, path, rows, size in report["files"]:
        files[bucket] = BucketFile(path, rows, size)
    return BucketManifest(report["buckets"], files)


def _compared(report: Mapping[str, Any]) -> Any:
    files = [(bucket, rows) for bucket, _path, rows, _size in report["files"]]
    return {**report, "files": files, "notes": bool(report["notes"])}


def _overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Are some offsets of one report within the other's? One without offsets tells nothing."""
    if "offset_first" not in one or "offset_first" not in other:
        return False
    return bool(
        max(one["offset_first"], other["offset_first"])
        <= min(one["offset_last"], other["offset_last"])
    )


def _span(report: Mapping[str, Any]) -> str:
    told = f"{report['records']} records"
    if "offset_first" not in report:
        return told
    return f"{told} from {report['offset_first']} to {report['offset_last']}"

"""`eos verify`: prove from the logs of Kafka's topics that each record was written once."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeRemainingColumn as Remaining

from eos.audit.table import TransactionsTable
from eos.audit.updater import location_of
from eos.cli.connection import connected
from eos.cli.pipeline_argument import find_chosen
from eos.config.model import Profile
from eos.errors import UnavailableError, UsageError
from eos.finding import FindingKind, Witness
from eos.folder import Folder, folder_of
from eos.inspect.snapshot import cluster_view, readable
from eos.kafka.client import KafkaClient
from eos.plan.delta_sink import app_of
from eos.plan.plan import Plan
from eos.printable import escaped
from eos.startup.source_state import source_client
from eos.verify.delta_tables import Sinks
from eos.verify.dropped_records import ProvenDrop
from eos.verify.log_reader import Reader, require_seen, short_deadline
from eos.verify.progress import Point, load
from eos.verify.render import RenderedResult, as_json, lines
from eos.verify.verification import Subject
from eos.verify.verify import Verification

_ALLOWED_MAX = 20
_MORE = "more findings in earlier verifications"


def run(options: argparse.Namespace) -> int:
    pipeline, profile = find_chosen(options)
    with connected(pipeline, profile) as (planned, client):
        rendered = _verify(planned, profile, client, options)
    if options.json:
        print(json.dumps(as_json(rendered)))
    else:
        print(escaped("\n".join(lines(rendered))))
    return 1 if rendered.failed else 0


def _verify(
    planned: Plan, profile: Profile, client: KafkaClient, options: argparse.Namespace
) -> RenderedResult:
    names, notes = planned.names, []
    ledger_id = _ledger_id(client, names.ledger, names.pipeline)
    root = folder_of(profile.state.root, profile.spark.conf)
    folder = None if root is None else root.child("verified")
    file = f"{names.transactional_id}.json"
    since = None
    if folder is None:
        notes.append(
            "the state root is neither a folder of this machine nor a bucket of S3, so no position "
            "is saved there"
        )
    elif not options.from_start:
        since, reason = load(folder, file, names.pipeline, ledger_id)
        if reason:
            notes.append(f"from the start: {reason}")
    passed = frozenset(
        kind
        for kind, is_allowed in (
            (FindingKind.FOREIGN, options.allow_foreign),
            (FindingKind.GONE, options.allow_out_of_reach),
        )
        if is_allowed
    )
    started = time.perf_counter()
    with (
        ProgressBar(is_wanted=not options.json) as shown,
        closing(Reader(client, shown.moved)) as reader,
        closing(Reader(source_client(planned, client), shown.moved)) as sources,
        _write_dropped(options.dropped, planned) as names_dropped,
    ):
        subject = replace(_subject(planned, profile, ledger_id), names_dropped=names_dropped)
        notes += [
            f"the table {name} is not checked, because only Spark can read {path}"
            for name, path in subject.tables.others().items()
        ]
        cluster = cluster_view(planned, client)
        verified = Verification(subject, reader, ledger_id, since, shown, cluster, sources).run()
    seconds = time.perf_counter() - started
    rendered = RenderedResult(names.pipeline, names.ledger, verified, since, notes, passed, seconds)
    if rendered.failed or folder is None or verified.point is None:
        return rendered
    _save(replace(verified.point, allowed=_allowed_findings(rendered)), folder, file)
    return replace(rendered, saved=f"{folder}/{file}")


def _allowed_findings(rendered: RenderedResult) -> list[str]:
    """Return texts about the findings that options allowed, including earlier ones.

    They are saved with the position, so that each verification that resumes there reports them.
    """
    before = list(rendered.begin.allowed) if rendered.begin else []
    at = rendered.verified.last
    now = [
        f"{rendered.all.counts[kind]} {kind.value} up to ledger offset {at}"
        for kind in FindingKind
        if rendered.all.counts[kind]
    ]
    every = [*before, *(each for each in now if each not in before)]
    return every if len(every) <= _ALLOWED_MAX else [_MORE, *every[-_ALLOWED_MAX + 1 :]]


def _save(point: Point, folder: Folder, file: str) -> None:
    path = f"{folder}/{file}"
    try:
        point.save(folder, file)
    except OSError as error:
        reason = error.strerror or error
        raise UnavailableError(
            "verify_point_not_saved",
            f"there are no findings, but the position {path} can't be saved: {reason}",
            hint="give this user write access to the state root, and verify again",
        ) from error


def _subject(planned: Plan, profile: Profile, ledger_id: str) -> Subject:
    location = location_of(profile)
    table, reason = None, ""
    if not profile.audit.transactions:
        pass  # the profile wants no table; a table of an earlier profile would be out of date
    elif location is not None and location.files("_delta_log"):
        table = TransactionsTable(location)
    else:
        reason = (
            f"there is no audit table in {location}"
            if location
            else f"there is no audit table: {profile.state.root} is neither a folder of this "
            "machine nor a bucket of S3"
        )
    names, topics = planned.names, planned.sink_topics
    apps = {each.name: app_of(names, ledger_id, each.name) for each in planned.tables}
    return Subject(
        names,
        topics,
        readable(planned),
        planned.is_dataframe,
        table,
        reason,
        Sinks(planned.tables, apps, names.pipeline, planned.spark_conf),
        planned.dedup,
        dead_letters=planned.dead_letters.topic if planned.dead_letters else "",
    )


@contextmanager
def _write_dropped(
    path: Path | None, planned: Plan
) -> Iterator[Callable[[ProvenDrop, Witness], None] | None]:
    """Yield a function that writes a line to `--dropped FILE` for a record that dedup dropped.

    Yield None without that option. Each line is written at once, so memory does not grow.
    """
    if path is None:
        yield None
        return
    if planned.dedup is None:
        raise UsageError(
            "dropped_without_dedup",
            f"--dropped {path}: {planned.names.pipeline} has no `dedup` by producer, so no "
            "record was dropped as a duplicate",
            hint="remove --dropped: it lists records that `dedup: {producer: ...}` dropped",
        )
    try:
        opened = path.open("w", encoding="ascii")
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            "dropped_file_not_writable",
            f"--dropped {path} can't be created: {reason}",
            hint="choose a file in an existing folder that this user can write to",
        ) from error

    def name(one: ProvenDrop, witness: Witness) -> None:
        of = {"ledger_offset": witness.ledger_offset, "batch_id": witness.batch_id}
        with _cut_short(path):
            opened.write(f"{json.dumps({**one.as_json(), **of})}\n")

    try:
        yield name
        with _cut_short(path):
            opened.flush()
    finally:
        with suppress(OSError):  # a failed write was reported
            opened.close()


@contextmanager
def _cut_short(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UnavailableError(
            "dropped_file_cut_short",
            f"--dropped {path} is incomplete, because a write failed: {reason}",
            hint="free some disk space, and verify again",
        ) from error


def _ledger_id(client: KafkaClient, topic: str, pipeline: str) -> str:
    topics = client.topics([topic], short_deadline())
    require_seen(topics)
    if topics[topic].is_missing:
        raise UsageError(
            "ledger_topic_missing",
            f"{pipeline}: there is nothing to verify: the ledger topic {topic!r} does not exist",
            hint="if the pipeline never ran on this cluster under this profile, run it first. "
            f"Otherwise the topic was deleted: `eos recover {pipeline}` shows what is left",
        )
    return topics[topic].topic_id


class ProgressBar:
    """A progress bar with an estimate, on stderr if it is a terminal."""

    def __init__(self, *, is_wanted: bool) -> None:
        columns = (
            TextColumn("verify"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("offsets, left"),
            Remaining(),
        )
        console = Console(file=sys.stderr)
        self._bar = Progress(
            *columns,
            console=console,
            transient=True,
            disable=not (is_wanted and console.is_terminal),
        )
        self._task: TaskID = self._bar.add_task("", total=0)
        self._total = 0

    def __enter__(self) -> ProgressBar:  # noqa: PYI034 - typing.Self begins with 3.11
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def expects(self, offsets: int) -> None:
        self._total += max(0, offsets)
        self._bar.update(self._task, total=self._total)

    def moved(self, offsets: int) -> None:
        self._bar.update(self._task, advance=offsets)

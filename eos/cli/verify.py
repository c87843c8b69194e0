"""`eos verify`: was each record written exactly once, as the logs of topics show?"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeRemainingColumn as Remaining

from eos.audit.table import TransactionsTable
from eos.audit.updater import location_of
from eos.cli.pipeline_argument import find_pipeline, parser_of
from eos.config.load import load_profile
from eos.config.model import Profile
from eos.errors import UnavailableError, UsageError
from eos.inspect.snapshot import readable
from eos.kafka.client import KafkaClient
from eos.launch.profile_cluster import addresses
from eos.location import local_path
from eos.plan.delta_sink import app_of
from eos.plan.plan import Plan, plan
from eos.plan.security import told_who
from eos.printable import escaped
from eos.verify.delta_tables import Sinks
from eos.verify.dropped_records import ProvenDrop as Dropped
from eos.verify.findings import FindingKind, Witness
from eos.verify.log_reader import UNKNOWN_TOPIC, Reader, require_seen, soon
from eos.verify.progress import Point, load
from eos.verify.render import RenderedResult, as_json, lines
from eos.verify.stamps import StampPlaces
from eos.verify.verification import Subject
from eos.verify.verify import Verification

_ABOUT = """\
Proves from outside that each record came through once: reads ledger, targets and source as they lie
in Kafka's logs, and compares them with one another, with the audit table, the group's offsets and
Spark's checkpoint. Changes nothing, and may look while the pipeline runs.

  eos verify orders
  eos verify orders --json
"""
_CODES = """\
Exit codes: 0 nothing was found, and it could all be read; 1 findings, with the smallest witness;
2 usage; 4 a right is missing; 5 something did not answer.

Examples:
  eos verify orders                       what came since the last verification
  eos verify orders --from-start --json   all that is still there
  eos verify orders --dropped FILE        each record that dedup dropped, with its proof
  eos verify orders --allow-foreign       others write to the target topics, too
"""

_ALLOWED_MAX = 20
_MORE = "more than these, in verifications before them"


def verify(words: Sequence[str]) -> int:
    options = _parser().parse_args(words)
    pipeline = find_pipeline(options.pipeline)
    profile = load_profile(options.profile, pipeline.project_root)
    with addresses(profile) as bootstrap:
        planned = plan(pipeline, profile, bootstrap, ())
        with closing(KafkaClient(planned.kafka)) as wire, told_who(planned.security):
            told = _verified(planned, profile, wire, options)
    if options.json:
        print(json.dumps(as_json(told)))
    else:
        print(escaped("\n".join(lines(told))))
    return 1 if told.failed else 0


def _verified(
    planned: Plan, profile: Profile, wire: KafkaClient, options: argparse.Namespace
) -> RenderedResult:
    names, notes = planned.names, []
    ledger_id = _ledger_id(wire, names.ledger, names.pipeline)
    path = _point_path(profile, names.transactional_id)
    began = None
    if path is None:
        notes.append("the state root is no folder of this machine: no point is kept there")
    elif not options.from_start:
        began, why = load(path, names.pipeline, ledger_id)
        if why:
            notes.append(f"from the start: {why}")
    passed = frozenset(
        kind
        for kind, is_allowed in (
            (FindingKind.FOREIGN, options.allow_foreign),
            (FindingKind.GONE, options.allow_out_of_reach),
        )
        if is_allowed
    )
    notes += _of_lake(planned)
    begun = time.perf_counter()
    with (
        Shown(is_wanted=not options.json) as shown,
        closing(Reader(wire, shown.moved)) as reader,
        _dropped_into(options.dropped, planned) as names_dropped,
    ):
        subject = replace(_subject(planned, profile, ledger_id), names_dropped=names_dropped)
        verified = Verification(subject, reader, ledger_id, began, shown).run()
    seconds = time.perf_counter() - begun
    told = RenderedResult(names.pipeline, names.ledger, verified, began, notes, passed, seconds)
    if told.failed or path is None or verified.point is None:
        return told
    _save(replace(verified.point, allowed=_allowed(told)), path)
    return replace(told, saved=str(path))


def _allowed(told: RenderedResult) -> list[str]:
    """Return the allowed findings that every later verification from this point must report."""
    before = list(told.began.allowed) if told.began else []
    at = told.verified.last
    now = [
        f"{told.all.counts[kind]} {kind.value} up to ledger offset {at}"
        for kind in FindingKind
        if told.all.counts[kind]
    ]
    every = [*before, *(words for words in now if words not in before)]
    return every if len(every) <= _ALLOWED_MAX else [_MORE, *every[-_ALLOWED_MAX + 1 :]]


def _save(point: Point, path: Path) -> None:
    try:
        point.save(path)
    except OSError as error:
        raise UnavailableError(
            "verify_point_not_saved",
            f"nothing was found, but {path} can't be written ({error.strerror or error})",
            hint="may this user write to the state root?",
        ) from error


def _subject(planned: Plan, profile: Profile, ledger_id: str) -> Subject:
    location = location_of(profile)
    table, reason = None, ""
    if not profile.audit.transactions:
        pass  # no table is wanted: one of an earlier run is no longer updated
    elif location is not None and (location / "_delta_log").is_dir():
        table = TransactionsTable(location)
    else:
        reason = (
            f"there is no audit table in {location}"
            if location
            else f"there is no audit table: {profile.state.root} is no folder of this machine"
        )
    names, topics, by = planned.names, planned.sink_topics, planned.dedup
    apps = {each.name: app_of(names, ledger_id, each.name) for each in planned.tables}
    return Subject(
        names,
        topics,
        readable(planned),
        table,
        reason,
        Sinks(planned.tables, apps, names.pipeline),
        None if by is None else StampPlaces(by.producer, by.epoch, by.sequence),
        is_spread=by is not None and not by.policy.rules.is_ordered,
        dead_letters=planned.dead_letters.topic if planned.dead_letters else "",
    )


@contextmanager
def _dropped_into(
    path: Path | None, planned: Plan
) -> Iterator[Callable[[Dropped, Witness], None] | None]:
    """Yield a function that writes a line for each dropped record; none is kept in memory."""
    if path is None:
        yield None
        return
    if planned.dedup is None:
        raise UsageError(
            "dropped_without_dedup",
            f"--dropped {path}: {planned.names.pipeline} drops nothing by producers' numbers",
            hint="it names what `dedup: {producer: ...}` dropped",
        )
    try:
        opened = path.open("w", encoding="ascii")
    except OSError as error:
        raise UsageError(
            "dropped_file_not_writable",
            f"--dropped {path} can't be written: {error.strerror or error}",
            hint="name a file in a folder that is there",
        ) from error
    with opened:

        def name(one: Dropped, told: Witness) -> None:
            of = {"ledger_offset": told.ledger_offset, "batch_id": told.batch_id}
            try:
                opened.write(f"{json.dumps({**one.as_json(), **of})}\n")
            except OSError as error:
                raise UnavailableError(
                    "dropped_file_cut_short",
                    f"--dropped {path} can't be written to its end: {error.strerror or error}",
                    hint="is there room? Nothing but that file is lacking: verify again",
                ) from error

        yield name


def _of_lake(planned: Plan) -> list[str]:
    """Return notes on the checks of Delta tables that are not made."""
    return [
        f"the rows of the table {each.name} are not compared, its last write is"
        if local_path(each.path) is not None
        else f"the table {each.name} lies in {each.path}, which is not looked at"
        for each in planned.tables
    ]


def _ledger_id(wire: KafkaClient, topic: str, pipeline: str) -> str:
    topics = wire.topics([topic], soon())
    require_seen(topics)
    if topics[topic].error == UNKNOWN_TOPIC:
        raise UsageError(
            "ledger_topic_missing",
            f"{pipeline}: there is nothing to verify: the ledger {topic!r} is not there",
            hint="did it ever run on this cluster, under this profile? If it did, somebody deleted "
            "that topic: `eos recover` says what is left",
        )
    return topics[topic].topic_id


def _point_path(profile: Profile, name: str) -> Path | None:
    root = local_path(profile.state.root)
    return None if root is None else root / "verified" / f"{name}.json"


class Shown:
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

    def __enter__(self) -> Shown:  # noqa: PYI034 - typing.Self begins with 3.11
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def expects(self, offsets: int) -> None:
        self._total += max(0, offsets)
        self._bar.update(self._task, total=self._total)

    def moved(self, offsets: int) -> None:
        self._bar.update(self._task, advance=offsets)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("verify", _ABOUT, _CODES)
    parser.add_argument(
        "--from-start", action="store_true", help="not only what came since the last verification"
    )
    parser.add_argument(
        "--allow-foreign",
        action="store_true",
        help="others may write to the target topics, too: told, and no finding",
    )
    parser.add_argument(
        "--allow-out-of-reach",
        action="store_true",
        help="what retention, compaction or access keep from being read: told, and no finding",
    )
    parser.add_argument(
        "--dropped",
        metavar="FILE",
        type=Path,
        help="writes a JSON line for each record that dedup dropped, with the one that proves it",
    )
    return parser

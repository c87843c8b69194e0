"""Doubles of Spark, the event bus, a crash and a plan, for pipelines without Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from eos.config.source import KafkaSource
from eos.kafka.api import Identity
from eos.kafka.client import KafkaClient
from eos.ledger.ranges import PlannedBatch
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends, Position, flat, nested
from eos.observe import events
from eos.plan.names import Names
from eos.plan.plan import Plan
from eos.transaction import micro_batch
from eos.transaction.attempt_work import AttemptFacts, AttemptWork

if TYPE_CHECKING:
    import pytest

E = TypeVar("E", bound=events.Event)


@dataclass
class At:
    """In the place of a crash plan: calls `then` when the point is reached the nth time, and each
    time after that up to the time `until`."""

    point: str
    then: Callable[[], None]
    nth: int = 1
    until: int = 0
    times: int = field(default=0, init=False)

    def reached(self, point: str) -> None:
        if point == self.point:
            self.times += 1
            if self.nth <= self.times <= max(self.nth, self.until):
                self.then()


class Hurried:
    """In the place of a crash plan: the commit of the nth micro-batch is given up soon, so that it
    stays in doubt, with `and_stop` also that of the clean end, and with `and_after` all that
    follows. Every other step has the time that a busy machine needs. `then` is a plan, too."""

    point = ""
    SOON_MS = 1_500

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        then: At | None = None,
        *,
        nth: int = 2,
        and_stop: bool = False,
        and_after: bool = False,
    ) -> None:
        self._patch, self._usual_ms = patch, micro_batch.STEP_TIMEOUT_MS
        self._and_after = and_after
        self._commits = [At("offsets:after", self._hurry, nth)]
        self._commits += [At("stop.offsets:after", self._hurry)] if and_stop else []
        self._then = then

    def reached(self, point: str) -> None:
        for commit in self._commits:
            commit.reached(point)
        if point.endswith("end_txn_sent:before") and not self._and_after:
            self.over()
        if self._then is not None:
            self._then.reached(point)

    def over(self) -> None:
        self._may_take(self._usual_ms)

    def _hurry(self) -> None:
        self._may_take(self.SOON_MS)

    def _may_take(self, timeout_ms: int) -> None:
        self._patch.setattr(micro_batch, "STEP_TIMEOUT_MS", timeout_ms)


@dataclass
class EventLog:
    """In the place of the bus: keeps every event, at once, and says it aloud if asked to."""

    say: Callable[[events.Event], None] | None = None
    events: list[events.Event] = field(default_factory=list)

    def emit(self, event: events.Event) -> None:
        self.events.append(event)
        if self.say is not None:
            self.say(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


_KEPT = 100  # micro-batches: spark.sql.streaming.minBatchesToRetain


class CopyCheckpoint:
    """A checkpoint: `metadata`, `offsets/N` before a micro-batch runs and `commits/N` after."""

    def __init__(self, root: Path, position: Position) -> None:
        numbers = [int(path.parent.name) for path in root.glob("*/offsets")]
        number = max(numbers, default=0)
        if not number or position.is_reset:
            number += 1  # fresh: goes on where the ledger ends
        self._path = root / str(number)
        for name in ("offsets", "commits"):
            (self._path / name).mkdir(parents=True, exist_ok=True)
        metadata = self._path / "metadata"
        if not metadata.exists():
            _write(metadata, {"id": str(uuid.uuid4())})
        self.query_id = json.loads(metadata.read_text())["id"]
        self._first = position.ends

    def next(self, latest: Ends, records: int) -> PlannedBatch | None:
        """The micro-batch that had no end, or a new one; None if the source is drained."""
        number = self._last("offsets")
        if number < 0 or number == self._last("commits"):
            starts = self._ends(number)
            ends = {tp: min(start + records, latest[tp]) for tp, start in starts.items()}
            if ends == starts:
                return None
            number += 1
            ranges = {"starts": nested(starts), "ends": nested(ends)}
            _write(self._path / "offsets" / str(number), ranges)
        planned = self._read(number)
        return PlannedBatch(self.query_id, number, flat(planned["starts"]), flat(planned["ends"]))

    def commit(self, step: PlannedBatch) -> None:
        """Note it, and delete the files of an older one, as Spark does."""
        _write(self._path / "commits" / str(step.batch_id), {})
        for name in ("offsets", "commits"):
            (self._path / name / str(step.batch_id - _KEPT)).unlink(missing_ok=True)

    def _ends(self, number: int) -> Ends:
        return self._first if number < 0 else flat(self._read(number)["ends"])

    def _read(self, number: int) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
        return json.loads((self._path / "offsets" / str(number)).read_text())

    def _last(self, name: str) -> int:
        found = (path.name for path in (self._path / name).iterdir())
        return max((int(number) for number in found if number.isdigit()), default=-1)


def _write(path: Path, body: Mapping[str, object]) -> None:
    """Whole or not at all."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(json.dumps(body))
    unfinished.replace(path)


Execute = Callable[[Identity, Ends], Sequence[Receipt]]


def unchanged(position: Position, _offset: int) -> Position:
    return position


@dataclass(frozen=True)
class Work(AttemptWork):
    writes: Execute
    facts: Callable[[], AttemptFacts] = AttemptFacts
    follows: Callable[[Position, int], Position] = unchanged

    def execute(self, identity: Identity, _position: Position, floors: Ends) -> Sequence[Receipt]:
        return self.writes(identity, floors)

    def prepare_commit(self) -> AttemptFacts:
        return self.facts()

    def follow(self, position: Position, offset: int) -> Position:
        return self.follows(position, offset)


_ASKS_NOBODY = {"close", "forget_coordinators"}


class WatchedClient:
    """In the place of a `Wire`: calls `before` with the name of what is asked, then asks it."""

    def __init__(self, client: KafkaClient, before: Callable[[str], None]) -> None:
        self._client = client
        self._before = before

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found) or name in _ASKS_NOBODY:
            return found

        def asked(*arguments: Any, **options: Any) -> Any:
            self._before(name)
            return found(*arguments, **options)

        return asked


def plan(lock: Path | str = "", deployment: str = "here", root: Path | str = "") -> Plan:
    """Return a plan without a pipeline file, for tests of what needs no more than its names."""
    ids = ("orders", "eos.orders", "eos.orders", "eos.ledger.orders")
    names = Names(*ids, "", str(lock), state_root=str(root))
    return plan_of(names, ("none:1",), "in", deployment)


def plan_of(
    names: Names,
    bootstrap: tuple[str, ...],
    source: str,
    deployment: str,
    transaction_timeout_ms: int = 60_000,
) -> Plan:
    return Plan(
        names=names,
        bootstrap=bootstrap,
        source=KafkaSource(topic=source),
        transforms=(),
        sinks=(),
        created_topics={},
        trigger_every_ms=None,
        transaction_timeout_ms=transaction_timeout_ms,
        deployment=deployment,
    )

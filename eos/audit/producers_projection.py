"""How is the table `producers` brought up to the ledger, without ever leading it?

Like `transactions`, the table has the last ledger offset that it contains, as the version of a
Delta application. The new states and that offset are one Delta commit. The two tables commit one
after the other, so a crash between them leaves one behind, and the next call reads the ledger from
there. If records that the table needs were deleted, the states are rebuilt from those that are
left, and the column `ledger_from` has the offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from eos.audit import producer_rows
from eos.audit.producer_states import ProducerStates
from eos.audit.table import OvertakenError, ProducersTable
from eos.deadline import Deadline
from eos.finding import Finding
from eos.kafka.api import TopicPartition
from eos.kafka.records.parser import Marker
from eos.ledger.record import LedgerRecord


class LedgerChunk(NamedTuple):
    """Ledger records of a range, and the markers of their transactions by record offset.

    `is_all`: the range has no further records.
    """

    records: Sequence[LedgerRecord]
    markers: Mapping[int, Marker]
    is_all: bool


class LedgerSource(NamedTuple):
    """The ledger of a pipeline, as far as it is committed.

    - `first`: the first offset that is left; `end`: the end, exclusive.
    - `app`: the name of the Delta application.
    - `idle_ms`: after how long brokers forget a producer id, and a transactional id.
    - `has_rows`: whether `transactions` has rows of the pipeline.
    """

    pipeline: str
    partition: TopicPartition
    topic_id: str
    transactional_id: str
    app: str
    first: int
    end: int
    idle_ms: tuple[int, int]
    has_rows: bool


class ReadChunk(Protocol):
    def __call__(self, first: int, end: int, deadline: Deadline) -> LedgerChunk: ...


@dataclass(slots=True)
class ProducersResult:
    """The table's state after an update.

    `until` is the last ledger offset in the table. `rebuilt_from` is the ledger offset from which
    the states were rebuilt, because records were missing or the table was; else None. If
    `is_settled` is false, time ran out.
    """

    until: int
    findings: list[Finding] = field(default_factory=list)
    rebuilt_from: int | None = None
    is_settled: bool = True


class ProducersProjection:
    """The update of one pipeline's producer states. Not shared between threads."""

    def __init__(self, table: ProducersTable) -> None:
        self.table = table
        self._states: ProducerStates | None = None  # as of `_version`
        self._version = -1
        self._app = ""
        # Committed to the table, but not reported yet: a later commit failed, also one to
        # `transactions`.
        self._unreported: list[Finding] = []
        self._rebuilt_from: int | None = None

    def known(self, source: LedgerSource) -> int:
        """Return the last ledger offset in the table, and load its states if they are not."""
        version = self.table.known(source.app)
        if self._states is None or (version, source.app) != (self._version, self._app):
            rows = self.table.rows(source.pipeline) if version >= 0 else ()
            self._states = producer_rows.states_of(rows, source.partition, source.topic_id)
            self._version, self._app = version, source.app
        return version

    def catch_up(
        self,
        source: LedgerSource,
        read: ReadChunk,
        reached: Callable[[str], None],
        deadline: Deadline,
    ) -> ProducersResult:
        """Return once the table has all records below the ledger's end. Raises OvertakenError."""
        result = ProducersResult(self.known(source))
        is_all = False
        while result.until < source.end - 1 and not is_all:
            if deadline.has_passed:
                result.is_settled = False
                break
            first = max(result.until + 1, source.first)
            chunk = read(first, source.end, deadline)
            is_all = chunk.is_all
            if not chunk.records:
                break
            states = self._states_before(first, source)
            if first > result.until + 1 or (result.until < 0 and source.has_rows):
                self._rebuilt_from = first
            found = [
                finding
                for record in chunk.records
                for finding in states.apply(record, chunk.markers.get(record.offset))
            ]
            states.expire()
            self._commit(states, chunk.records[-1].offset, source, reached)
            result.until = self._version
            self._unreported += found
        result.findings, result.rebuilt_from = list(self._unreported), self._rebuilt_from
        return result

    def reported(self) -> None:
        """Note that the caller passes on what `catch_up` returned. Until then, each call returns it
        again."""
        self._unreported, self._rebuilt_from = [], None

    def _states_before(self, first: int, source: LedgerSource) -> ProducerStates:
        """Return a copy of the states before a ledger offset. If records before it are missing,
        nothing is known."""
        assert self._states is not None
        if first > self._version + 1:
            states = ProducerStates(source.partition, ledger_from=first)
        else:
            states = self._states.copy()
        states.producer_idle_ms, states.transactional_id_idle_ms = source.idle_ms
        return states

    def _commit(
        self,
        states: ProducerStates,
        version: int,
        source: LedgerSource,
        reached: Callable[[str], None],
    ) -> None:
        names = source.pipeline, source.transactional_id, source.topic_id
        rows = producer_rows.table(*names, states)
        reached("producers_replace:before")
        try:
            self.table.replace(rows, source.pipeline, source.app, version)
        except OvertakenError:
            self._states = None
            raise
        self._states, self._version = states, version
        reached("producers_replace:after")

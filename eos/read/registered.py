"""Avro records that carry the id of their schema: a zero byte, four bytes of id, the record.

Spark reads a column by constant schemas, so a plan names all that are known, and the driver is the
only one who asks the registry. It knows those of the subject before the query starts. A schema that
is registered while it runs is met first by a task, which refuses its records: they are counted, as
all that are refused. Before the driver takes that count for the truth it asks for their ids
(`Decode.learned`). If the registry has one of them the attempt is redone, with a plan that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from eos.deadline import Deadline

FRAME_BYTES = 5
LEARN_MS_MAX = 60_000  # for all ids of a micro-batch that nobody knew
NEW_MAX = 100  # ids that are asked for at a time
_STRANGERS_MAX = 10_000  # ids that mean nothing: what is no Avro at all may look like one


@dataclass(slots=True)
class Writers:
    """The schemas that records were written by, by id. Grows while the pipeline runs."""

    known: dict[int, str]
    ask: Callable[[int, Deadline], str | None] = lambda _id, _deadline: None
    _strangers: set[int] = field(default_factory=set)

    def learn(self, ids: Iterable[int], deadline: Deadline) -> list[int]:
        """Those of them that were new, and mean something."""
        found = []
        for each in ids:
            if each in self.known or each in self._strangers:
                continue
            schema = self.ask(each, deadline)
            if schema is None:
                if not self.is_full:
                    self._strangers.add(each)
            else:
                self.known[each] = schema
                found.append(each)
        return found

    @property
    def is_full(self) -> bool:
        """No more of what means nothing is remembered."""
        return len(self._strangers) >= _STRANGERS_MAX

    def unknown_of(self, name: str) -> str:
        """A condition: it has an id of which nobody was asked yet."""
        return is_unknown(name, [*self.known, *self._strangers])


def framed(schema_id: int) -> str:
    """What stands before each record that is written, as an SQL literal."""
    return f"X'00{schema_id:08x}'"


def id_in(name: str) -> str:
    """The id before a record, as SQL; null if there is none."""
    head = f"hex(substring({name}, 1, {FRAME_BYTES}))"
    is_framed = f"length({name}) >= {FRAME_BYTES} AND {head} LIKE '00%'"
    return f"IF({is_framed}, CAST(conv(substring({head}, 3), 16, 10) AS BIGINT), NULL)"


def record_in(name: str) -> str:
    return f"substring({name}, {FRAME_BYTES + 1})"


def is_unknown(name: str, known: Iterable[int]) -> str:
    """A condition: it has an id that is none of these."""
    listed = ", ".join(map(str, known)) or "-1"  # no id is negative
    return f"coalesce({id_in(name)} NOT IN ({listed}), false)"


def chosen(name: str, known: Mapping[int, str], parse: Callable[[str, str], str]) -> str:
    """The record, parsed by the schema that its id means. `parse`: of a record and a schema."""
    record, found = record_in(name), id_in(name)
    cases = [f"WHEN {each} THEN {parse(record, schema)}" for each, schema in known.items()]
    return f"CASE {found} {' '.join(cases)} END"

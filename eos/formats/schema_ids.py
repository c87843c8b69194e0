"""Avro records that carry the id of their schema: a zero byte, four bytes of id, the record.

Spark reads a column by constant schemas, so a plan names all schemas that are known, and only the
driver asks the registry. It knows those of the subject before the query starts. A task refuses the
records of all other ids, and counts them like other refused records. Before the driver relies on
that count it asks for their ids (`Decode.learned`). If the registry has one of them, the attempt is
redone with a plan that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from eos.deadline import Deadline

FRAME_BYTES = 5
PAGE_IDS = 10_000  # distinct ids of a micro-batch that one Spark job returns
LEARN_MS_MAX = 60_000  # for each `_PACE_IDS` ids: a registry that is slower counts as not there
_PACE_IDS = 100
MISSES_MAX = 1_000_000  # remembered ids without a schema: any bytes may look like an id


@dataclass(slots=True)
class Writers:
    """The writers' schemas of a source's records, by id. Grows while the pipeline runs.

    An id without an Avro schema is remembered for the life of the process, so a restart asks again.
    """

    known: dict[int, str]
    ask: Callable[[int, Deadline], str | None] = lambda _id, _deadline: None
    _misses: dict[int, None] = field(default_factory=dict)  # the oldest first

    def learn(self, ids: Iterable[int]) -> list[int]:
        """Return the ids that are new and have a schema. Raises if the registry does not answer: a
        record must not become malformed for that."""
        found = []
        deadline = Deadline.after_ms(LEARN_MS_MAX)
        asked = 0
        for each in ids:
            if each in self.known or each in self._misses:
                continue
            if asked and asked % _PACE_IDS == 0:
                deadline = Deadline.after_ms(LEARN_MS_MAX)
            asked += 1
            schema = self.ask(each, deadline)
            if schema is None:
                self._misses[each] = None
                if len(self._misses) > MISSES_MAX:
                    del self._misses[next(iter(self._misses))]
            else:
                self.known[each] = schema
                found.append(each)
        return found


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

"""Read records that begin with a schema id: a zero byte, and four bytes of the id.

Spark parses an Avro column by constant schemas. So a plan contains all known schemas, and only the
driver asks the registry. It loads the subject's schemas before the query starts. JSON and Protobuf
are read by the pipeline's own schema: their ids need only be those of a schema of that kind.

If a record has an id that is not in the plan:
1. The task rejects it and counts it like other rejected records.
2. Before the driver uses that count, it asks the registry for the unknown ids (`Decode.learned`).
3. If the registry has a schema for one of them, the attempt is retried with a plan that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from eos.deadline import Deadline

FRAME_BYTES = 5
PAGE_IDS = 10_000  # distinct ids of a micro-batch that one Spark job returns
LEARN_MS_MAX = 60_000  # for each `_PACE_IDS` ids: a slower registry counts as unavailable
_PACE_IDS = 100
MISSES_MAX = 1_000_000  # remembered ids without a schema: any bytes may look like an id


@dataclass(slots=True)
class Writers:
    """The schemas with which a source's records were written, by id. A run may add new ids.

    An id without an Avro schema is remembered until the process ends, and not requested again.
    """

    known: dict[int, str]
    ask: Callable[[int, Deadline], str | None] = lambda _id, _deadline: None
    _misses: dict[int, None] = field(default_factory=dict)  # oldest first

    def learn(self, ids: Iterable[int]) -> list[int]:
        """Ask the registry for the ids that are not known yet. Return those that have a schema.

        Raise if the registry does not answer, since an outage must not make a record malformed.
        """
        found = []
        deadline = Deadline.after_ms(LEARN_MS_MAX)
        requests = 0
        for each in ids:
            if each in self.known or each in self._misses:
                continue
            if requests and requests % _PACE_IDS == 0:
                deadline = Deadline.after_ms(LEARN_MS_MAX)
            requests += 1
            schema = self.ask(each, deadline)
            if schema is None:
                self._misses[each] = None
                if len(self._misses) > MISSES_MAX:
                    del self._misses[next(iter(self._misses))]
            else:
                self.known[each] = schema
                found.append(each)
        return found


def schema_id_before(schema_id: int) -> bytes:
    """Return the five bytes that precede a record with this schema id."""
    return b"\0" + schema_id.to_bytes(4, "big")


def schema_id_prefix(schema_id: int) -> str:
    """Return the five bytes that precede a record with this schema id, as an SQL literal."""
    return f"X'{schema_id_before(schema_id).hex()}'"


def id_in(name: str) -> str:
    """Return SQL for the schema id in a column's first five bytes; null if they have no id."""
    head = f"hex(substring({name}, 1, {FRAME_BYTES}))"
    is_framed = f"length({name}) >= {FRAME_BYTES} AND {head} LIKE '00%'"
    return f"IF({is_framed}, CAST(conv(substring({head}, 3), 16, 10) AS BIGINT), NULL)"


def record_in(name: str) -> str:
    return f"substring({name}, {FRAME_BYTES + 1})"


def is_unknown(name: str, known: Iterable[int]) -> str:
    """Return an SQL condition: the column begins with a schema id that is not in `known`."""
    listed = ", ".join(map(str, known)) or "-1"  # no id is negative
    return f"coalesce({id_in(name)} NOT IN ({listed}), false)"


def parse_by_id(name: str, known: Mapping[int, str], parse: Callable[[str, str], str]) -> str:
    """Return SQL that parses the column's record by the schema of its id; null for unknown ids.

    `known` has the schemas by id. `parse` returns SQL that parses a record by a schema.
    """
    record, found = record_in(name), id_in(name)
    cases = [f"WHEN {each} THEN {parse(record, schema)}" for each, schema in known.items()]
    return f"CASE {found} {' '.join(cases)} END"

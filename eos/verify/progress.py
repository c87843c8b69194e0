"""Where did the last `eos verify` end, so that the next one can resume there?

A file in the state root has this point, on a disk or in a bucket. It is written only if all
findings are allowed, or if there are none. A verification that resumes does not verify earlier
records again. So it reports where it resumed, and which findings were allowed before that point.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eos.finding import Witness
from eos.folder import Folder
from eos.kafka.api import Identity, TopicPartition
from eos.ledger.record import flat, nested

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class TablePoint:
    """The part of a point about one Delta table.

    `id` is the table's own id, and `version` that of its newest verified commit; -1 for none. The
    ledger did not confirm yet that the table has the micro-batch `owed`.
    """

    id: str
    version: int
    owed: Witness | None = None

    def as_json(self) -> dict[str, Any]:
        owed = self.owed
        fields = owed and [owed.ledger_offset, owed.batch_id, owed.number, *owed.identity]
        return {"id": self.id, "version": self.version, "owed": fields}


@dataclass(frozen=True, slots=True)
class Point:
    """The point at which a verification ended, and from which the next one resumes.

    `ledger_offset` is the offset of the last verified ledger record. `targets` has the next offset
    to verify in each target partition. `allowed` describes the allowed findings up to this point.
    `covered` has the source ranges that the transactions read: several for a partition whose
    position an operator moved. `tables` has the Delta tables by name. `forgotten` has the topics
    that an operator made the pipeline forget. `is_cut` is true if some transactions before this
    point are not known. All four are empty in files of older releases, which ignore these fields.
    """

    pipeline: str
    ledger_id: str
    ledger_offset: int
    at: str
    position: Mapping[TopicPartition, int]
    targets: Mapping[TopicPartition, int]
    identity: Identity
    producer_ids: list[int]
    allowed: list[str] = field(default_factory=list)
    covered: Mapping[TopicPartition, Sequence[tuple[int, int]]] = field(default_factory=dict)
    tables: Mapping[str, TablePoint] = field(default_factory=dict)
    forgotten: Sequence[str] = ()
    is_cut: bool = False

    def save(self, folder: Folder, name: str) -> None:
        """Write the point to a file, atomically."""
        body = {
            "format": _FORMAT,
            "pipeline": self.pipeline,
            "ledger_id": self.ledger_id,
            "ledger_offset": self.ledger_offset,
            "at": self.at,
            "position": nested(self.position),
            "targets": nested(self.targets),
            "identity": list(self.identity),
            "producer_ids": self.producer_ids,
            "allowed": self.allowed,
            "covered": [[*tp, each] for tp, each in sorted(self.covered.items())],
            "tables": {name: each.as_json() for name, each in self.tables.items()},
            "forgotten": list(self.forgotten),
            "is_cut": self.is_cut,
        }
        folder.create()
        folder.write(name, f"{json.dumps(body, indent=1)}\n".encode("ascii"))


def load(folder: Folder, name: str, pipeline: str, ledger_id: str) -> tuple[Point | None, str]:
    """Return the saved point and "", or None and the reason why no point can be used.

    The reason is empty if there is no file."""
    path = f"{folder}/{name}"
    try:
        body: dict[str, Any] = json.loads(folder.read(name))
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, f"{path} can't be read ({error})"
    try:
        if (body["format"], body["pipeline"]) != (_FORMAT, pipeline):
            return None, f"{path} has format {body['format']}, for pipeline {body['pipeline']!r}"
        point = Point(
            pipeline,
            str(body["ledger_id"]),
            int(body["ledger_offset"]),
            str(body["at"]),
            flat(body["position"]),
            flat(body["targets"]),
            Identity(*map(int, body["identity"])),
            [int(each) for each in body["producer_ids"]],
            [str(each) for each in body["allowed"]],
            {
                TopicPartition(str(topic), int(partition)): [(int(a), int(b)) for a, b in each]
                for topic, partition, each in body.get("covered", ())
            },
            {str(name): _table_point(each) for name, each in body.get("tables", {}).items()},
            tuple(str(each) for each in body.get("forgotten", ())),
            bool(body.get("is_cut", False)),
        )
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        return None, f"{path} is damaged ({type(error).__name__}: {error})"
    if point.ledger_id != ledger_id:
        return None, f"{path} is for a ledger that was deleted and recreated since"
    return point, ""


def _table_point(body: Mapping[str, Any]) -> TablePoint:
    owed = None
    if body["owed"]:
        offset, batch_id, number, *identity = map(int, body["owed"])
        owed = Witness(offset, "attempt", batch_id, number, Identity(*identity))
    return TablePoint(str(body["id"]), int(body["version"]), owed)

"""Source records that dedup rejected and sent to the dead-letter topic.

Dedup did not store their sequence numbers as accepted. So these records do not prove that a later
record is a duplicate. Dead letters of other rules are ignored: dedup had accepted those records
before the rule rejected them, so it drops later copies correctly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.kafka.api import TopicPartition
from eos.kafka.records.varint import Ints
from eos.verify.history import CommittedAttempt
from eos.verify.log_reader import Reader
from eos.verify.proofs import TooManyError
from eos.verify.records import Records
from eos.verify.stamps import header

LETTERS_MAX = 2_000_000  # the limit for one pipeline; 8 bytes of memory per dead letter
_OFFSET = r"^[0-9]{1,18}$"
Refused = Mapping[TopicPartition, Ints]  # offsets, ascending; once per rejection


@dataclass(slots=True)
class DeadLetterReader:
    """Reader of dedup's dead letters in a pipeline's dead-letter topic.

    `topic` is empty if the pipeline has no dead-letter topic. `ends` has the end offset, by
    partition, of what the attempts passed to `see` have written. `read` ignores later records.
    """

    reader: Reader
    pipeline: str
    topic: str
    ends: dict[TopicPartition, int] = field(default_factory=dict)

    def see(self, each: CommittedAttempt) -> None:
        for receipt in each.receipts:
            if receipt.topic == self.topic:
                at = TopicPartition(receipt.topic, receipt.partition)
                self.ends[at] = max(self.ends.get(at, 0), receipt.offset_last + 1)

    def read(self) -> Refused:
        """Return the offsets of the source records that dedup rejected, by source partition.

        They are read from this pipeline's dead letters, as far as the topic still has them. Dead
        letters of other rules are ignored. Raise TooManyError if there are more than `LETTERS_MAX`.
        """
        found: dict[TopicPartition, list[Ints]] = {}
        count = 0
        bounds = self.reader.bounds(list(self.ends))
        for at, written in sorted(self.ends.items()):
            end = min(written, bounds[at].stable)  # lower if the topic was deleted or truncated
            for records, offsets in self.reader.records(at, end):
                # The last record batch may extend past `end`, so its later records are ignored.
                for tp, refused in _refused(records, offsets < end, self.pipeline):
                    found.setdefault(tp, []).append(refused)
                    count += len(refused)
                if count > LETTERS_MAX:
                    raise TooManyError(f"more than {LETTERS_MAX:,} dead letters of dedup's rules")
        return {tp: np.sort(np.concatenate(parts)) for tp, parts in found.items()}


def _refused(
    records: Records, is_wanted: Ints, pipeline: str
) -> Iterator[tuple[TopicPartition, Ints]]:
    """Yield each source partition with the offsets of its rejected records.

    If a header name occurs more than once, the last one counts, because a dead letter has the
    source record's own headers first.
    """
    names = ("pipeline", "rule", "topic", "partition", "offset")
    columns = {name: header(records, b"eos." + name.encode()) for name in names}
    is_ours = pc.and_(
        pc.equal(columns["pipeline"], pa.scalar(pipeline.encode(), pa.binary())),
        pc.starts_with(columns["rule"], b"dedup_"),
    )
    for name in ("partition", "offset"):
        is_number = pc.match_substring_regex(columns[name], _OFFSET)
        is_ours = pc.and_(is_ours, pc.fill_null(is_number, False))
    is_ours = pc.and_(pc.fill_null(is_ours, False), pa.array(is_wanted))
    own = pa.table(columns).filter(pc.and_(is_ours, pc.is_valid(columns["topic"])))
    places = own.group_by(["topic", "partition"]).aggregate([("offset", "list")])
    for row in places.to_pylist():
        at = TopicPartition(row["topic"].decode(errors="replace"), int(row["partition"]))
        yield at, np.array([int(each) for each in row["offset_list"]], np.int64)

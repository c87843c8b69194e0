"""Divide what Spark planned, so that a transaction reads at most `max_bytes` of the source.

Spark limits a micro-batch by records only, and Kafka has no sizes of offset ranges. So the driver
takes samples before each transaction: the sizes of record batches at some offsets of each planned
range. Between two samples it assumes the larger size of the two. So records that grow are noticed
before they are read.

Not guaranteed: record batches that are large only between two samples are not noticed. A
transaction reads at least one record batch of each partition with records, however large it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from eos.deadline import Deadline
from eos.kafka.api import TopicPartition
from eos.kafka.batch_samples import BatchSample

OFFSETS_APART = 2_000  # about the distance of two samples, if there are not too many
SECTIONS_MAX = 8  # of a partition's range, each between two samples
_MARKERS_MAX = 3  # transaction markers that a sample passes by
_REQUESTS = 8  # in flight
_TIMEOUT_MS = 120_000  # as for reading the records

Span = tuple[int, int]


class Samples(Protocol):
    """The client of the source's cluster."""

    def sample(
        self, partition: TopicPartition, offset: int, deadline: Deadline
    ) -> BatchSample | None: ...


@dataclass(frozen=True, slots=True)
class _Section:
    """Offsets of a partition, with the assumed bytes of each."""

    start: int
    end: int
    density: float

    @property
    def size(self) -> float:
        return (self.end - self.start) * self.density


@dataclass(frozen=True, slots=True)
class ByteLimit:
    """The limit of the bytes that one transaction reads from the source. Sizes are estimated from
    samples of the topics' record batches."""

    bytes_max: int
    client: Samples

    def ends(self, wanted: Mapping[TopicPartition, Span]) -> Mapping[TopicPartition, int]:
        """Return where the next transaction should end in each of the wanted ranges (start, end).

        It reads the same share of each range, in bytes. If all ranges together are within the
        limit, return their own ends.
        """
        with ThreadPoolExecutor(_REQUESTS, "eos-samples") as pool:
            deadline = Deadline.after_ms(_TIMEOUT_MS)

            def sampled(at: tuple[TopicPartition, Span, int]) -> BatchSample | None:
                return self._sample(*at, deadline)

            places = {tp: _places(*span) for tp, span in wanted.items()}
            every = [(tp, wanted[tp], at) for tp, found in places.items() for at in found]
            samples = iter(pool.map(sampled, every))
            sections = {
                tp: list(_sections(found, wanted[tp][1], [next(samples) for _ in found]))
                for tp, found in places.items()
            }
            total = sum(each.size for found in sections.values() for each in found)
            if total <= self.bytes_max:
                return {tp: end for tp, (_, end) in wanted.items()}
            share = self.bytes_max / total
            cuts = [(tp, wanted[tp], _cut(found, share)) for tp, found in sections.items()]
            return {
                tp: _between_batches(span, cut, found)
                for (tp, span, cut), found in zip(cuts, pool.map(sampled, cuts), strict=True)
            }

    def _sample(
        self, tp: TopicPartition, span: Span, at: int, deadline: Deadline
    ) -> BatchSample | None:
        """Return the record batch at an offset, or one before it if a transaction marker is there.
        A transactional producer's marker is often the last record batch of all."""
        found = self.client.sample(tp, at, deadline)
        for _ in range(_MARKERS_MAX):
            if found is None or not found.is_control or found.start <= span[0]:
                break
            found = self.client.sample(tp, found.start - 1, deadline)
        return found


def _places(start: int, end: int) -> list[int]:
    """Return the offsets of the samples: the first one, the last one, and some between them."""
    count = min(SECTIONS_MAX, 1 + (end - start) // OFFSETS_APART)
    return sorted({*(start + (end - start) * n // count for n in range(count)), end - 1})


def _sections(
    places: list[int], end: int, samples: Iterable[BatchSample | None]
) -> Iterable[_Section]:
    """Yield the sections of a range, each with the larger one of the sizes at both of its ends."""
    sizes = [_density(at, each) for at, each in zip(places, samples, strict=True)]
    if len(places) == 1:
        yield _Section(places[0], end, sizes[0])
    for (start, size), (stop, next_size) in pairwise(zip([*places[:-1], end], sizes, strict=True)):
        yield _Section(start, stop, max(size, next_size))


def _density(at: int, found: BatchSample | None) -> float:
    """Return the bytes of an offset. A gap before the record batch, where compaction removed
    records, has no bytes."""
    return 0.0 if found is None else found.size / (found.end - min(found.start, at))


def _cut(sections: Iterable[_Section], share: float) -> int:
    """Return the offset before which the sections have this share of their bytes."""
    found = list(sections)
    left = share * sum(each.size for each in found)
    for each in found:
        if each.size > left:
            return each.start + int(left / each.density)
        left -= each.size
    return found[-1].end - 1  # the share is below 1, so only rounding leads here


def _between_batches(span: Span, cut: int, found: BatchSample | None) -> int:
    """Return the end of the last record batch that ends before the offset `cut`, so that no record
    batch is read twice. If `cut` is inside the first record batch, return the end of that one."""
    start, end = span
    if found is None:
        return max(cut, start + 1)
    return min(found.start if start < found.start <= cut else found.end, end)

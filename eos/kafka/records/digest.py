"""A checksum of what a record batch says, however it is compressed, stamped or timestamped.

Guarantees: two record batches with the same records have the same digest, after the broker
recompressed one of them or wrote its own timestamps (LogAppendTime), too. A null differs from an
empty key or value.

Not guaranteed: it is a CRC against corruption and mistakes, no defence against an attacker; and it
belongs to the record batch's boundaries: half of the records have another digest.

Anyone can recompute it from decoded records. It is the CRC-32C of, one after the other:

1. the keys' lengths, each as a little-endian int32, -1 for a null;
2. the keys' bytes;
3. the values' lengths and bytes, likewise;
4. only if any of the records has a header: how many headers each record has (int32 each), then
   the lengths and bytes of all header keys, then those of all header values.
"""

from __future__ import annotations

import google_crc32c

from eos.kafka.records.columns import Blobs
from eos.kafka.records.record_headers import Headers


def digest(keys: Blobs, values: Blobs, headers: Headers | None, start: int, end: int) -> int:
    """Of the records in rows `start` to `end` (exclusive): an unsigned 32-bit number."""
    crc = _extend(_extend(0, keys, start, end), values, start, end)
    if headers is None or headers.first[start] == headers.first[end]:
        return crc
    crc = google_crc32c.extend(crc, headers.counts[start:end])
    first, last = int(headers.first[start]), int(headers.first[end])
    return _extend(_extend(crc, headers.keys, first, last), headers.values, first, last)


def _extend(crc: int, column: Blobs, start: int, end: int) -> int:
    crc = google_crc32c.extend(crc, column.lengths[start:end])
    data = column.data[column.offsets[start] : column.offsets[end]]
    return int(google_crc32c.extend(crc, data))

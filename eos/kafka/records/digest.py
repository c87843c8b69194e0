"""A checksum of the records in a record batch: keys, values and headers, but no timestamps.

Guarantees: record batches with the same records have the same digest. Recompression or new
timestamps by the broker (LogAppendTime) don't change it. A null differs from an empty key or value.

Not guaranteed: the digest is a CRC against corruption and mistakes, not against an attacker. It
covers a whole record batch: if the records are split into other batches, the digests differ.

Any tool can recompute it from decoded records. It is the CRC-32C of this sequence:

1. the keys' lengths, each as a little-endian int32, -1 for a null;
2. the keys' bytes;
3. the values' lengths and bytes, in the same form;
4. only if a record has a header: the number of headers of each record (int32 each), then
   the lengths and bytes of all header keys, then those of all header values.
"""

from __future__ import annotations

import google_crc32c

from eos.kafka.records.columns import Blobs
from eos.kafka.records.record_headers import Headers


def digest(keys: Blobs, values: Blobs, headers: Headers | None, start: int, end: int) -> int:
    """Return the digest of rows `start` to `end` (exclusive), an unsigned 32-bit number."""
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

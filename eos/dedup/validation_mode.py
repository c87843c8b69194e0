"""Does an attempt validate records before it writes them to Kafka, or afterwards?

An attempt is one try at a micro-batch. Dedup's validation decides which records are duplicates.
"""

from __future__ import annotations

from enum import Enum

# After a micro-batch with records that dedup drops or rejects, this many micro-batches validate
# before they write. The upstream probably resends again, and a retry takes longer than validation
# before the write. The same applies after an attempt that failed before it validated its records.
VALIDATE_FIRST_MAX = 8


class ValidationMode(Enum):
    """The order in which an attempt validates and writes its records."""

    # Each record has its verdict before it is encoded. With `scope: partition` the reading task
    # holds rows until their verdicts are known. With `scope: producer` a Spark job validates all
    # records first, and the tasks that encode records look up these verdicts.
    VALIDATE_FIRST = "validate first"
    # Only with `scope: producer`. The reading tasks pass on all rows and store their stamps
    # (producer id, epoch, sequence). The writing tasks validate the stamps after they have written
    # the rows. This saves the Spark job that validates first, which reads the source once more. If
    # a written record has to be dropped, the driver aborts the attempt, and the retry validates
    # first.
    VALIDATE_AFTER = "validate after"


def validation_mode(
    *,
    is_producer_scope: bool,
    is_retry: bool,
    micro_batches_left: int,
    validates_first: bool,
) -> ValidationMode:
    """Return whether an attempt validates before or after the write. The first line that applies
    decides:

    | attempt | mode |
    | --- | --- |
    | not `is_producer_scope` | VALIDATE_FIRST |
    | `validates_first`: the pipeline sets `validate_first: true` | VALIDATE_FIRST |
    | `micro_batches_left` is not 0 | VALIDATE_FIRST |
    | `is_retry` | VALIDATE_FIRST; the caller may use the verdicts of the previous attempt |
    | any other | VALIDATE_AFTER |
    """
    if not is_producer_scope or validates_first or micro_batches_left or is_retry:
        return ValidationMode.VALIDATE_FIRST
    return ValidationMode.VALIDATE_AFTER


def left_after(micro_batches_left: int, *, has_failed: bool) -> int:
    """Return how many micro-batches after this one validate records before they write them.

    `has_failed` is true if this micro-batch has records that must not be written, or if one of its
    attempts failed before it had validated all records."""
    return VALIDATE_FIRST_MAX if has_failed else max(0, micro_batches_left - 1)

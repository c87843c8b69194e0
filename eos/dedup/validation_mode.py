"""Does an attempt validate its records before or after it writes them?"""

from __future__ import annotations

from enum import Enum

# An upstream that resends records once probably resends again, and a retry takes longer than
# validation before the write. So this many micro-batches validate first after a micro-batch that
# had records that dedup does not accept, or an attempt that failed before its validation.
VALIDATE_FIRST_MAX = 8


class ValidationMode(Enum):
    """The order in which an attempt validates and writes its records."""

    # Each record has its verdict before it is encoded. With `scope: partition` the reading task
    # holds rows until their verdicts are known. With `scope: producer` a Spark job validates all
    # records first, and tasks look its verdicts up.
    VALIDATE_FIRST = "validate first"
    # `scope: producer`: the reading tasks pass rows on and store their stamps. The writing tasks
    # validate the stamps after they have written. Dedup hardly ever drops a record, and the job
    # that validates first reads the source once more. If dedup drops a record that was written,
    # the driver aborts the attempt, and the retry validates first.
    VALIDATE_AFTER = "validate after"


def validation_mode(
    *,
    is_producer_scope: bool,
    is_retry: bool,
    micro_batches_left: int,
    validates_first: bool,
) -> ValidationMode:
    """Return the mode of an attempt. The first line that applies decides:

    | attempt | mode |
    | --- | --- |
    | not `is_producer_scope` | VALIDATE_FIRST |
    | `validates_first`: the pipeline sets `validate_first: true` | VALIDATE_FIRST |
    | `micro_batches_left` is not 0 | VALIDATE_FIRST |
    | `is_retry` | VALIDATE_FIRST, with the verdicts of the previous attempt if it has them all |
    | any other | VALIDATE_AFTER |
    """
    if not is_producer_scope or validates_first or micro_batches_left or is_retry:
        return ValidationMode.VALIDATE_FIRST
    return ValidationMode.VALIDATE_AFTER


def left_after(micro_batches_left: int, *, has_failed: bool) -> int:
    """Return how many of the next micro-batches validate first.

    `has_failed` is true if writing before validation aborted an attempt of this micro-batch, or
    would have done so."""
    return VALIDATE_FIRST_MAX if has_failed else max(0, micro_batches_left - 1)

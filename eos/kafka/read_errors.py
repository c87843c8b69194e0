"""The errors for records of a partition that can't be read."""

from __future__ import annotations

from eos.errors import AttemptFailedError, PromiseBrokenError, UnavailableError
from eos.kafka.api import TopicPartition
from eos.kafka.outcomes import LEADER_HINT, name_of


def unreadable(partition: TopicPartition, offset: int, cause: str) -> PromiseBrokenError:
    topic, number = partition
    return PromiseBrokenError(
        "batch_unreadable",
        f"the record batch in {topic}-{number} at offset {offset} can't be read: {cause}",
        hint="if a second run reports the same offset, the log is damaged: run "
        f"`kafka-dump-log.sh --deep-iteration` on the broker for the segment of {topic}-{number}; "
        "another replica may have an intact copy",
        topic=topic,
        partition=number,
        offset=offset,
    )


def old_format(partition: TopicPartition, offset: int) -> AttemptFailedError:
    """Return the error for a message in a format before Kafka 0.11.

    Spark's Kafka source can read it, so the retry of the attempt uses that source."""
    return AttemptFailedError(
        "record_batch_format_old",
        f"the record at offset {offset} of {partition} was written in a format that is older than "
        "Kafka 0.11, which only Spark's Kafka source reads",
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
    )


def lost_records(reason: str, **fields: object) -> PromiseBrokenError:
    return PromiseBrokenError(
        "source_lost_records",
        f"the source lost records before they were read: {reason}",
        hint="retention or another client deleted them; they can't be restored, and nothing was "
        "skipped so far. Run `eos recover PIPELINE` to compare the source with the ledger",
        **fields,
    )


def outside_log(
    partition: TopicPartition, position: int, earliest: int, latest: int
) -> PromiseBrokenError:
    """Return the error for an offset that is to be read, but is before or after the log."""
    if position < earliest:
        reason = f"{partition} begins at offset {earliest}, but offset {position} is next"
    else:
        reason = f"{partition} ends at offset {latest}, but offset {position} was planned"
    return lost_records(
        reason,
        topic=partition.topic,
        partition=partition.partition,
        offset=position,
        earliest=earliest,
        latest=latest,
    )


def too_late(
    partition: TopicPartition, position: int, offset_end: int, error: int | None, committed: bool
) -> UnavailableError:
    """Return the error of a read that did not make progress until its deadline.

    `error` is the code of the last answer, None without an answer, and 0 if it had no records."""
    if error == 0 and committed:
        return UnavailableError(
            "read_blocked_by_open_transaction",
            f"{partition} could not be read from offset {position} to {offset_end} in time",
            hint="an open transaction blocks readers until it ends or times out: "
            "`kafka-transactions.sh --bootstrap-server ... list` shows it",
            offset=position,
        )
    last_error = "its leader did not answer" if error is None else name_of(error)
    if error == 0:
        last_error = "too little time was left"
    return no_leader(partition, position, offset_end, last_error)


def no_leader(
    partition: TopicPartition, position: int, offset_end: int, cause: str
) -> UnavailableError:
    return UnavailableError(
        "partition_leader_unavailable",
        f"{partition} could not be read from offset {position} to {offset_end} in time: {cause}",
        hint=LEADER_HINT,
        offset=position,
    )

"""Do consumer group, Spark's checkpoint and transaction coordinator agree with the ledger?

The pipeline may run during the verification. So the ledger is read twice: its last record before
these values are read is `low`, and its last one afterwards is `high`. A value that is not between
`low` and `high` is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eos.checkpoint.files import Files
from eos.checkpoint.offset_log import Checkpoint, CheckpointState, newest_with_offsets
from eos.finding import Finding, FindingKind, Witness
from eos.inspect.cluster_view import OpenTransaction
from eos.kafka.api import DescribedTransaction as Coordinated
from eos.kafka.api import TopicPartition
from eos.ledger.record import BATCH_QUERY, Ends, LedgerRecord
from eos.verify.chain import Owners

_LAST_EPOCH = 2**15 - 2  # the next epoch has another producer id


def check_group(
    found: Ends | None,
    group: str,
    low: LedgerRecord,
    high: LedgerRecord,
) -> Iterator[Finding]:
    """Yield a finding for each group offset that differs from the ledger.

    `found` is None if an open transaction hides the group's offsets."""
    if found is None:
        text = f"the offsets of the group {group!r} are hidden by an open transaction"
        yield Finding("group_hidden", text, kind=FindingKind.GONE)
        return
    if high.kind == "recovery" and low != high:
        return  # an operator just moved the position
    for tp, end in sorted(low.position.ends.items()):
        newest = high.position.ends.get(tp, end)
        offset = found.get(tp, -1)
        if offset < 0 and end >= 0:
            text = "is missing: it expired, or was deleted"
        elif not min(end, newest) <= offset <= max(end, newest):
            text = f"is {offset}, but {end} in the ledger"
        else:
            continue
        message = f"the offset of the group {group!r} on {tp} {text}"
        yield Finding("group", message, tp, max(offset, 0), high.witness)


def newest_checkpoint(
    files: Files | None, root: str, *, is_opaque: bool = False
) -> CheckpointState | str:
    """Return the state of the newest checkpoint that has offsets, or why there is none to read."""
    if files is None:
        return f"the checkpoints are in {root}, which only a running Spark can read"
    newest, _ = newest_with_offsets(files, root)
    if newest is None:
        return f"there is no checkpoint in {root}"
    return Checkpoint(files, newest, is_opaque=is_opaque).state()


def check_checkpoint(
    found: CheckpointState | str, low: LedgerRecord, high: LedgerRecord
) -> Iterator[Finding]:
    if BATCH_QUERY in (low.position.query_id, high.position.query_id):
        return  # a batch job has no checkpoint
    if isinstance(found, str):
        yield Finding("checkpoint_unread", found, kind=FindingKind.GONE)
        return
    if low.position.is_reset or high.position.is_reset:
        return  # the next run creates a new checkpoint, so this one no longer counts
    place = f"the checkpoint {found.location}"
    planned, committed = (-1 if n is None else n for n in (found.planned, found.committed))
    if found.query_id != high.position.query_id:
        # A run may have begun another checkpoint after this one was read.
        if committed >= 0 and found.query_id != low.position.query_id:
            query = high.position.query_id or "-"
            text = f"{place} has query {found.query_id}, but the ledger {query}"
            yield Finding("checkpoint", text, witness=high.witness)
        return
    if committed > high.position.batch_id:
        text = f"{place} has micro-batch {committed} as committed, but the ledger ends with "
        yield Finding("checkpoint", text + str(high.position.batch_id), witness=high.witness)
        return
    # A run may have begun this checkpoint after the first look at the ledger.
    is_same = low.position.query_id == high.position.query_id
    if is_same and (committed < low.position.batch_id - 1 or planned < low.position.batch_id):
        text = f"{place} ends with micro-batch {planned}, and has {committed} as committed, "
        text += f"but the ledger has {low.position.batch_id}"
        yield Finding("checkpoint", text, witness=low.witness)
        return
    for level in (low, high) if is_same else (high,):
        for tp, end in sorted(found.ends_of(level.position.batch_id).items()):
            known = level.position.ends.get(tp)
            if known is not None and known != end:
                text = f"{place} ends micro-batch {level.position.batch_id} at {end} of "
                text += f"{tp}, but the ledger at {known}"
                yield Finding("checkpoint", text, tp, min(end, known), level.witness)
                return


def check_coordinator(
    state: Coordinated | None,
    ledger: TopicPartition,
    last: Witness,
    newer: Witness,
    owners: Owners,
) -> Iterator[Finding]:
    """Yield a finding if the ledger's last record is not by the pipeline's own producer.

    `state` is None if no coordinator knows the transactional id. `last` is the ledger's last record
    before `state` was read, and `newer` its last record after that. If they differ, the producer id
    may have changed in between. `owners` has the producer ids that wrote the ledger.
    """
    if state is None:
        text = (
            "no coordinator knows the transactional id (any more), so the owner of the ledger's "
            "newest record can't be verified"
        )
        yield Finding("coordinator_unread", text, kind=FindingKind.GONE)
        return
    mine, newest = state.identity, last.identity
    is_rotated = newest.epoch >= _LAST_EPOCH or mine.epoch < 0
    if mine.producer_id == newest.producer_id and mine.epoch >= newest.epoch:
        return
    if mine.producer_id != newest.producer_id and (is_rotated or last != newer):
        return
    if mine.producer_id != newest.producer_id and not owners.is_ours(mine.producer_id):
        # The coordinator forgets an id that was not used for a week. The next startup gets another
        # one, and may stop before it writes a record.
        text = f"the transactional id has {mine} now, which wrote no ledger record yet, so the "
        text += f"owner of the newest record, by {newest}, can't be verified"
        yield Finding("coordinator_unread", text, kind=FindingKind.GONE)
        return
    message = (
        f"{ledger} offset {last.ledger_offset}: this record was written by {newest},"
        f" but the pipeline's transactional id has {mine}: another producer wrote it"
    )
    yield Finding("forged", message, ledger, last.ledger_offset, last)


def check_open(found: Sequence[OpenTransaction], transactional_id: str) -> Iterator[Finding]:
    for each in found:
        if each.owner == transactional_id and not each.hangs:
            continue
        tp, offset = each.partition, each.producer.transaction_start_offset
        producer = f"producer {each.producer.identity}"
        place = f"{tp} offset {offset}"
        if not each.hangs:
            text = f"{place}: a transaction of {each.owner_text} ({producer}) is open here"
            yield Finding("foreign", text, tp, offset, kind=FindingKind.FOREIGN)
        else:
            text = f"{place}: a transaction of {producer} hangs here: no coordinator will end it, "
            text += "and readers of committed records stop at it"
            yield Finding("hanging", text, tp, offset)

"""Does another pipeline have the same transactional id, group, checkpoint and lock?

These names consist of the prefix, a dot and the pipeline's name, and both parts may contain dots.
So the pipelines `team.orders` with the prefix `eos`, and `orders` with the prefix `eos.team`, have
the same names. Only their ledgers differ. The names of existing pipelines can't change. So a
startup stops, before its fence, if another pipeline uses the same names.
"""

from __future__ import annotations

from eos.deadline import Deadline
from eos.errors import EosError, PromiseBrokenError
from eos.kafka.client import KafkaClient
from eos.ledger.ledger import Ledger
from eos.ledger.record import LedgerRecord
from eos.plan.names import Namesake
from eos.plan.plan import Plan
from eos.startup.ownership import has_ended_cleanly
from eos.startup.start_offsets import is_at_own_group

_ASK_MS = 10_000


def require_own_names(
    planned: Plan,
    client: KafkaClient,
    last: LedgerRecord | None,
    deadline: Deadline,
    *,
    is_forced: bool,
) -> None:
    """Raise PromiseBrokenError if another pipeline with the same transactional id and group has
    ledger records.

    `last` is the last record of this pipeline's ledger. If there is one, both pipelines have run
    before. Then this one may run if the other stopped cleanly, or if `is_forced`.
    """
    others = planned.names.namesakes
    existing = client.topics([each.ledger for each in others], deadline) if others else {}
    for other in others:
        if existing[other.ledger].error:
            continue  # the ledger does not exist, or this user may not describe it
        if _is_in_use(client, other, deadline, is_first=last is None, is_forced=is_forced):
            raise _names_shared_error(planned, other)


def require_unused_group(
    planned: Plan, client: KafkaClient, deadline: Deadline, last: LedgerRecord | None
) -> None:
    """Raise PromiseBrokenError if the ledger is empty, but the pipeline's group has offsets, and
    another pipeline may share the group.

    There are three causes. Another pipeline committed the offsets, and this user may not describe
    its ledger. This pipeline's ledger is lost. Or another instance committed after `last` was read,
    so the caller has to read the ledger again.
    """
    group, others = planned.names.group, planned.names.namesakes
    if last is not None or not others or is_at_own_group(planned.source.start, group):
        return
    try:
        found = client.committed_offsets(group, Deadline.after_ms(deadline.at_most_ms(_ASK_MS)))
    except EosError:
        return  # an open transaction hides the offsets; the check after the fence finds them
    if not found:
        return
    tp, committed = min(found.items())
    name = planned.names.pipeline
    names = " or ".join(f"{each.pipeline!r} with the prefix {each.prefix!r}" for each in others)
    raise PromiseBrokenError(
        "ledger_lost",
        f"{name}: the ledger {planned.names.ledger!r} is empty, but the group {group!r} has "
        f"offsets ({tp.topic}-{tp.partition} is at {committed.offset})",
        hint=f"does another pipeline run, {names}? It has the same group and transactional id: "
        "give this one another name or prefix. If the ledger topic was deleted, `eos recover "
        f"{name} --from-group` resumes at the group's offsets",
        pipeline=name,
    )


def _is_in_use(
    client: KafkaClient, other: Namesake, deadline: Deadline, *, is_first: bool, is_forced: bool
) -> bool:
    try:
        theirs = Ledger(client, other.ledger, other.pipeline, {}).peek(deadline)
    except PromiseBrokenError:
        return is_first  # the ledger has records, even if they can't be read
    if theirs is None:
        return False
    return is_first or not (is_forced or has_ended_cleanly(theirs))


def _names_shared_error(planned: Plan, other: Namesake) -> PromiseBrokenError:
    names = planned.names
    return PromiseBrokenError(
        "names_shared",
        f"{names.pipeline}: the pipeline {other.pipeline!r} with the prefix {other.prefix!r} "
        f"(ledger {other.ledger!r}) has the same transactional id and group, "
        f"{names.transactional_id!r}: each would fence the other. The other one was not disturbed",
        hint="give this pipeline another `name`, or its profile another `names.prefix`, preferably "
        "without dots. If the other pipeline is no longer used, delete its ledger topic. If both "
        "have run before, --take-over starts this one anyway",
        pipeline=names.pipeline,
        topic=other.ledger,
    )

"""Access to the object that updates the audit table of a run, if it has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from eos.deadline import Deadline
from eos.errors import EosError
from eos.folder import Folder, folder_of
from eos.kafka.client import KafkaClient
from eos.ledger.record import LedgerRecord
from eos.observe import events
from eos.observe.bus import Bus
from eos.plan.plan import Plan
from eos.transaction.micro_batch import STEP_TIMEOUT_MS, MicroBatches

if TYPE_CHECKING:
    from eos.audit.follower import Follower
    from eos.config.model import Profile

    Audit: TypeAlias = "Follower | NoAudit"

_FOLDER = "audit/transactions"


class NoAudit:
    """The follower of a run without an audit table: does nothing."""

    behind_max = needed_from = None

    def start(self) -> None:
        pass

    def require(self) -> None:
        pass

    def committed(self) -> None:
        pass

    def close(
        self, failed: Sequence[Mapping[str, Any]] = (), last: LedgerRecord | None = None
    ) -> None:
        pass


NO_AUDIT = NoAudit()


def location_of(profile: Profile) -> Folder | None:
    """Return the audit table's folder; None if the state root is neither on this machine nor in a
    bucket of S3."""
    root = folder_of(profile.state.root, profile.spark.conf)
    return None if root is None else root.child(_FOLDER)


def audit_of(profile: Profile, planned: Plan, client: KafkaClient, bus: Bus) -> Audit:
    if not profile.audit.transactions:
        return NO_AUDIT
    location = location_of(profile)
    if location is None:
        bus.emit(
            events.Warned(
                f"there is no audit table: the state root {profile.state.root} is neither a folder "
                "on this machine nor a bucket of S3 (`s3a://`); `audit: {transactions: false}` in "
                "the profile removes this warning"
            )
        )
        return NO_AUDIT
    # Import late: the import takes a tenth of a second, which a run without a table should not pay.
    from eos.audit.follower import Follower
    from eos.audit.projection import Projection
    from eos.audit.table import TransactionsTable

    names = planned.names
    table = TransactionsTable(location)
    projection = Projection(table, client, names.pipeline, names.ledger, names.transactional_id)
    return Follower(projection, bus, profile.audit.behind_max)


def close(audit: Audit, batches: MicroBatches) -> None:
    """Close the audit table at the end of a run.

    The attempts that were aborted last are added now, because no ledger record lists them yet."""
    failed, last = batches.failed.listed, None
    if failed:
        try:
            last = batches.ledger.peek(Deadline.after_ms(STEP_TIMEOUT_MS))
        except EosError:
            last = None  # then `audit.close` warns that the table lacks these attempts
    audit.close(failed, last)

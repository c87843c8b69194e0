"""How does `eos doctor` check that the audit table can be read?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eos.audit.updater import location_of
from eos.inspect.check import Check, checked, note, ok

if TYPE_CHECKING:
    from eos.config.model import ProfileFile


def audit(profile: ProfileFile) -> Iterator[Check]:
    yield from checked("audit", lambda: _audit(profile))


def _audit(profile: ProfileFile) -> Check:
    if not profile.audit.transactions:
        return note("audit", "off: `audit: {transactions: false}` in the profile")
    location = location_of(profile)
    if location is None:
        reason = "there is no table: the state root is neither a local folder nor a bucket of S3"
        remedy = "set `audit: {transactions: false}` in the profile to remove this note"
        return note("audit", reason, remedy)
    if not location.files("_delta_log"):
        return ok("audit", f"{location}: the first run creates it")
    from eos.audit.table import TransactionsTable

    rows = TransactionsTable(location).query("SELECT count(*) AS n FROM transactions")
    return ok("audit", f"{location}: {rows[0]['n']:,} rows")

"""Can the audit table be read?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eos.audit.updater import location_of
from eos.inspect.check import Check, asked, note, ok

if TYPE_CHECKING:
    from eos.config.model import ProfileFile


def audit(profile: ProfileFile) -> Iterator[Check]:
    yield from asked("audit", lambda: _audit(profile))


def _audit(profile: ProfileFile) -> Check:
    if not profile.audit.transactions:
        return note("audit", "the profile says `audit: {transactions: false}`: no table is kept")
    location = location_of(profile)
    if location is None:
        told = "there is no table: the state root is no folder of this machine"
        return note("audit", told, "audit: {transactions: false} in the profile: it is meant so")
    if not (location / "_delta_log").exists():
        return ok("audit", f"{location}: the first run makes it")
    from eos.audit.table import TransactionsTable

    rows = TransactionsTable(location).query("SELECT count(*) AS n FROM transactions")
    return ok("audit", f"{location}: {rows[0]['n']:,} rows")

"""The format of a Delta table in the state root, and the check that this release knows it.

A release that adds a column leaves the format as it is: older releases keep the column, and write
null. A release that changes the meaning of rows or files sets the table's property `eos.format` to
a higher number first, so that older releases refuse the table instead of misreading it.
"""

from __future__ import annotations

from collections.abc import Mapping

import eos
from eos.errors import PromiseBrokenError

PROPERTY = "eos.format"
FORMAT = 1  # also of tables without the property


def require_known_format(table: object, properties: Mapping[str, object], *, remedy: str) -> None:
    """Raise PromiseBrokenError unless this release can read and write the table.

    `table` is the table's folder, for the message. `remedy` continues the hint: how to do without
    the table's present content."""
    found = str(properties.get(PROPERTY) or FORMAT)
    if found.isdecimal() and 1 <= int(found) <= FORMAT:
        return
    raise PromiseBrokenError(
        "table_newer",
        f"the table {table} is from a newer release: it has format {found[:40]!r}. This is release "
        f"{eos.__version__}, which reads formats up to {FORMAT}",
        hint=f"upgrade to that release again (docs/upgrades.md), or {remedy}",
        path=str(table),
    )

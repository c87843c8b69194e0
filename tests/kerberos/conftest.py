"""Logins by Kerberos at a real broker, with a real KDC."""

from __future__ import annotations

from support.security.kdc import missing
from support.selection import left_out

pytest_collection_modifyitems, pytest_terminal_summary = left_out(__file__, "Kerberos", missing)

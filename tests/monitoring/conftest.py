"""Alerts and dashboard on a real Prometheus."""

from __future__ import annotations

from support.collectors.prometheus import missing
from support.selection import left_out

pytest_collection_modifyitems, pytest_terminal_summary = left_out(__file__, "Prometheus", missing)

"""Alerts and dashboard on a real Prometheus."""

from __future__ import annotations

from support.left_out import left_out
from support.prometheus import missing

pytest_collection_modifyitems, pytest_terminal_summary = left_out(__file__, "Prometheus", missing)

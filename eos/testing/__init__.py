"""The public test kit for users' pipelines, described in docs/testing-your-pipeline.md."""

from eos.testing.crash import CRASH_POINTS, crash_at
from eos.testing.frames import require_same_rows
from eos.testing.oracle import difference, require_each_once

__all__ = ["CRASH_POINTS", "crash_at", "difference", "require_each_once", "require_same_rows"]

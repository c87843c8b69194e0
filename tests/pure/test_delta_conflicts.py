"""After which errors of Delta is a write to a table tried again?"""

from __future__ import annotations

import pytest

from eos.delta.table import _is_conflict
from eos.spark.failure import Failure, Link


@pytest.mark.parametrize(
    ("condition", "is_conflict"),
    [
        ("DELTA_CONCURRENT_APPEND", True),
        ("DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS", True),
        ("DELTA_METADATA_CHANGED", True),
        ("DELTA_PROTOCOL_CHANGED", True),
        ("DELTA_METADATA_MISMATCH", False),
        ("DELTA_SCHEMA_NOT_SET", False),
    ],
)
def test_another_writer_was_faster(condition: str, is_conflict: bool) -> None:
    failure = Failure("text", (Link("io.delta.Exception", condition=condition),))
    assert _is_conflict(failure) is is_conflict

"""Which Spark settings a startup rejects."""

from __future__ import annotations

import pytest

from eos.errors import UsageError
from eos.spark.session import require_once

BREAKS = {
    "spark.speculation": "true",
    "spark.stage.maxConsecutiveAttempts": "4",
    "spark.task.maxFailures": "4",
    "spark.stage.ignoreDecommissionFetchFailure": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}


@pytest.mark.parametrize(("key", "value"), BREAKS.items())
def test_a_setting_that_lets_spark_repeat_a_writing_task_is_rejected(key: str, value: str) -> None:
    needed = {"true": "false", "false": "true", "4": "1"}[value]
    with pytest.raises(UsageError) as rejected:
        require_once({key: value}.get)
    assert rejected.value.message == f"{key} is {value}; exactly-once needs {needed}"


def test_settings_that_are_left_out_or_as_needed_are_accepted() -> None:
    require_once({}.get)
    require_once({"spark.stage.ignoreDecommissionFetchFailure": "false"}.get)

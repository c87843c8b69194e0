"""Which Spark settings a startup rejects."""

from __future__ import annotations

import pytest

from eos.errors import UsageError
from eos.local.java import is_one_jvm
from eos.spark.adopted_session import _effective
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


@pytest.mark.parametrize("name", ["stateStore.checkpointFormatVersion", "offsetLog.formatVersion"])
def test_a_checkpoint_format_that_no_startup_reads_is_rejected(name: str) -> None:
    key = f"spark.sql.streaming.{name}"
    with pytest.raises(UsageError) as rejected:
        require_once({key: "2"}.get)
    assert rejected.value.message == f"{key} is 2; exactly-once needs 1"
    require_once({key: "1"}.get)


def test_settings_that_are_left_out_or_as_needed_are_accepted() -> None:
    require_once({}.get)
    require_once({"spark.stage.ignoreDecommissionFetchFailure": "false"}.get)


@pytest.mark.parametrize(
    ("master", "has_one_jvm", "failures"),
    [
        ("local", True, "1"),
        ("local[*]", True, "1"),
        ("local[2]", True, "1"),
        ("local[*, 3]", True, "3"),
        ("local[2,4]", True, "4"),
        ("local-cluster[2,1,1024]", False, "9"),
        ("spark://a:7077", False, "9"),
    ],
)
def test_a_local_master_has_one_jvm_and_its_own_number_of_failures(
    master: str, has_one_jvm: bool, failures: str
) -> None:
    assert is_one_jvm(master) == has_one_jvm
    assert _effective("spark.task.maxFailures", "9", master) == failures

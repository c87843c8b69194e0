"""A full disk is named, by the folders that a run writes to, whatever library met it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.errors import raises

from eos import full_disk
from eos.audit.table import TransactionsTable
from eos.errors import AttemptFailedError, EosError, PromiseBrokenError, UnavailableError

# As a task of Spark's that could write no more reached the driver.
JAVA = """An error occurred while calling o145.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(Q.scala:802)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
RUST = "Generic LocalFileSystem error: Unable to copy: No space left on device (os error 28)"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every disk has less room than is needed."""
    monkeypatch.setattr(full_disk, "ROOM_BYTES_MIN", 1 << 62)


def raised(error: Exception, folder: Path) -> Exception:
    with (
        pytest.raises(Exception) as caught,  # noqa: PT011
        full_disk.naming_full_disk("orders", lambda: [str(folder)]),
    ):
        raise error
    return caught.value


def wrapped(error: EosError, text: str) -> EosError:
    error.__cause__ = RuntimeError(text)
    return error


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        RuntimeError(JAVA),
        wrapped(
            UnavailableError("example", "the table all could not be written: [TASK_WRITE_FAILED]"),
            JAVA,
        ),
        wrapped(AttemptFailedError("example", "the Spark job failed"), RUST),
    ],
)
def test_the_folder_and_what_to_do_stand_in_place_of_a_trace(
    error: Exception, tmp_path: Path
) -> None:
    found = raised(error, tmp_path / "not" / "there")
    assert isinstance(found, UnavailableError)
    assert found.code == "disk_full"
    assert found.message.startswith(f"orders: the disk of {tmp_path}/not/there is full (")
    assert "MiB free)" in found.message
    assert "free space" in found.hint
    assert "Caused by" not in str(found)


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("example", "no broker answers"),
        ValueError("another error"),
        # An operator must act, and words of a record are no reason to restart instead.
        wrapped(PromiseBrokenError("example", "the record says 'No space left on device'"), JAVA),
    ],
)
def test_other_errors_stay(error: Exception, tmp_path: Path) -> None:
    assert raised(error, tmp_path) is error


def test_a_disk_that_has_room_again_is_asked_about(tmp_path: Path) -> None:
    error = wrapped(AttemptFailedError("example", "the Spark job failed: SparkException"), JAVA)
    found = raised(error, tmp_path)
    assert isinstance(found, UnavailableError)
    assert found.message == "the Spark job failed: SparkException"
    assert found.code == "disk_full"
    assert str(tmp_path) in found.hint


@pytest.mark.usefixtures("full")
def test_delta_rs_is_not_called_on_a_full_disk(tmp_path: Path) -> None:
    """Its threads would panic there, and print traces."""
    location = tmp_path / "audit"
    with raises("disk_full") as caught:
        TransactionsTable(location).known("app")
    assert caught.value.fields == {"path": str(location)}
    assert not location.exists()

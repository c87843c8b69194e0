"""The exchange of record batches between tasks on one machine, without Spark: order, failures."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from support.errors import raises

from eos.encode.stage import MANIFEST_TARGET, SCHEMA
from eos.errors import AttemptFailedError, TransformError
from eos.seal import crossed, of_this_process
from eos.spark.exchange import Exchange, ExchangeError

WRITERS = 2


def batch(task: int, position: int, targets: list[int]) -> pa.RecordBatch:
    """Rows of the encode stage, whose blob names the task, the position and the target."""
    rows = [
        {
            "writer": WRITERS if target == MANIFEST_TARGET else target % WRITERS,
            "target": target,
            "source": task,
            "position": position,
            "records": 1,
            "digest": 0,
            "blob": f"{task} {position} {target}".encode(),
        }
        for target in targets
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def work(exchange: Exchange, task: int, batches: list[pa.RecordBatch]) -> list[str]:
    """One task: leave the batches, and return the blobs that the others left for it."""
    with exchange.member(task) as member:
        for each in batches:
            member.put(each)
        member.finish()
        return [blob.decode() for got in exchange.batches(task) for blob in got["blob"].to_pylist()]


@pytest.fixture
def exchange(tmp_path: Path):
    with Exchange(str(tmp_path / "exchange"), WRITERS, waiting_tasks=3).opened() as found:
        yield found


def test_each_writer_gets_its_rows_in_the_order_of_the_tasks(exchange: Exchange):
    given = {
        0: [batch(0, 0, [0, 1, 2]), batch(0, 1, [0, 3, MANIFEST_TARGET])],
        1: [batch(1, 0, [MANIFEST_TARGET])],
        2: [batch(2, 0, [1, 2, MANIFEST_TARGET])],
    }
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda task: work(exchange, task, given[task]), given))
    assert found[0] == ["0 0 0", "0 0 2", "0 1 0", "0 1 -1", "1 0 -1", "2 0 2", "2 0 -1"]
    assert found[1] == ["0 0 1", "0 1 3", "2 0 1"]
    assert found[2] == []  # this task only encodes


def test_a_later_job_gets_the_rows_of_any_number_of_tasks_in_their_order(tmp_path: Path):
    with Exchange(str(tmp_path / "exchange"), WRITERS).opened() as exchange:
        for task in (10, 2, 11, 0):
            with exchange.member(task) as member:
                member.put(batch(task, 0, [0]))
        found = [blob.decode() for got in exchange.batches(0) for blob in got["blob"].to_pylist()]
        assert found == ["0 0 0", "2 0 0", "10 0 0", "11 0 0"]
        assert list(exchange.batches(1)) == []
    with raises("attempt_given_up", AttemptFailedError):
        list(exchange.batches(0))


def test_no_task_finishes_before_all_have_left_their_rows(exchange: Exchange):
    order: list[str] = []

    def early(task: int) -> None:
        with exchange.member(task) as member:
            member.finish()
            order.append("finished")
            assert len(list(exchange.batches(task))) == 1

    def late() -> None:
        with exchange.member(2) as member:
            member.put(batch(2, 0, [0, 1]))
            order.append("left")
            member.finish()

    threads = [threading.Thread(target=early, args=(task,)) for task in (0, 1)]
    for each in threads:
        each.start()
    while not all((Path(exchange.folder) / f"{task}.done").exists() for task in (0, 1)):
        time.sleep(0.001)
    late()
    for each in threads:
        each.join()
    assert order == ["left", "finished", "finished"]


def test_the_others_raise_the_error_of_a_task(exchange: Exchange):
    refused = TransformError("transform_failed", "no such customer")
    with pytest.raises(Exception, match="no such customer"), exchange.member(1):
        raise of_this_process().crossing(refused)
    with pytest.raises(ExchangeError) as found:
        work(exchange, 0, [])
    error = crossed(str(found.value))
    assert isinstance(error, TransformError)
    assert error.code == "transform_failed"


def test_the_others_raise_the_traceback_of_a_foreign_error(exchange: Exchange):
    with pytest.raises(ZeroDivisionError), exchange.member(1):
        1 / 0  # noqa: B018
    with pytest.raises(ExchangeError, match="ZeroDivisionError: division by zero"):
        work(exchange, 0, [])


def test_an_error_that_is_passed_on_keeps_its_first_text(exchange: Exchange):
    with pytest.raises(ZeroDivisionError), exchange.member(1):
        1 / 0  # noqa: B018
    with pytest.raises(ExchangeError):
        work(exchange, 0, [])
    assert not (Path(exchange.folder) / "0.failed").exists()


def test_nobody_waits_for_a_process_that_died(exchange: Exchange):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (Path(exchange.folder) / "1.pid").write_text(str(ended.pid))
    with raises("encode_task_died", AttemptFailedError):
        work(exchange, 0, [])


def test_a_process_that_finished_before_it_died_is_no_error(exchange: Exchange):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for task in (1, 2):
        (Path(exchange.folder) / f"{task}.pid").write_text(str(ended.pid))
        (Path(exchange.folder) / f"{task}.done").touch()
    assert work(exchange, 0, [batch(0, 0, [0])]) == ["0 0 0"]


def test_nobody_waits_after_the_driver_has_given_up(tmp_path: Path):
    folder = tmp_path / "exchange"
    failed: list[str] = []

    def waits() -> None:
        try:
            work(Exchange(str(folder), 2, 2), 0, [])
        except AttemptFailedError as error:
            failed.append(error.code)

    with Exchange(str(folder), 2, 2).opened():
        thread = threading.Thread(target=waits)
        thread.start()
        while not (folder / "0.done").exists():
            time.sleep(0.001)
    thread.join()
    assert failed == ["attempt_given_up"]


def test_a_task_that_begins_after_the_driver_has_given_up_fails(tmp_path: Path):
    with raises("attempt_given_up", AttemptFailedError):
        work(Exchange(str(tmp_path / "gone"), 2, 2), 0, [batch(0, 0, [0])])


def test_the_folder_is_private_and_replaces_one_of_a_killed_run(tmp_path: Path):
    folder = tmp_path / "exchange"
    folder.mkdir()
    (folder / "0.done").touch()
    with Exchange(str(folder), 1, 1).opened():
        assert not (folder / "0.done").exists()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_a_late_task_of_a_failed_job_writes_nothing_into_the_next_jobs_files(tmp_path: Path):
    first, second = (Exchange.of_job(str(tmp_path / "exchange"), 1, 0) for _ in range(2))
    with first.opened():
        late = first.member(0)
    with second.opened(), pytest.raises(FileNotFoundError):
        late.put(batch(0, 0, [0]))

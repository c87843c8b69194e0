"""Batch runs of Python jobs: a DataFrame is written once for each id, also after kills."""

from __future__ import annotations

import signal
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

import pytest
from support.collectors import lineage
from support.kafka.brokers import Kafka
from support.spark.python_jobs import (
    EXPECTED,
    OPENED,
    RUN_S_MAX,
    answer,
    begun,
    eos,
    found_by_commands,
    numbers,
    profile_of,
    run,
)
from support.waiting import wait_until

from eos.testing.crash import crash_at

BATCH = (
    OPENED
    + """
rows = spark.range(400, numPartitions=3).where("id % 3 < 2").selectExpr("id * 10 AS number")
job = eos.exactly_once(rows, topic, kafka=eos.Kafka(bootstrap)).to_topic(
    f"{topic}.out", key="number", value=eos.json(), create={"partitions": 2})
print(json.dumps([job.run("2026-11-23", state) for _ in range(2)]))
"""
)


# Its rows come once a file is there, and a worker that waits for it says so.
WAITING = BATCH.replace(
    "job = ",
    """
def waiting(batches):
    import pathlib, time
    for each in batches:
        pathlib.Path("waits").touch()
        while not pathlib.Path("go on").exists():
            time.sleep(0.1)
        yield each


rows = rows.mapInPandas(waiting, rows.schema)
job = """,
)


@pytest.mark.long
@pytest.mark.parametrize("moment", [pytest.param("before", marks=pytest.mark.nightly), "after"])
def test_a_batch_is_written_once_for_each_id(broker: Kafka, tmp_path: Path, moment: str) -> None:
    topic, path = f"python-batch-{moment}", tmp_path / "job.py"
    path.write_text(BATCH)
    point = crash_at("end_txn_sent", moment)  # type: ignore[arg-type] - one of the two
    crashed = {"EOS_CRASH_AT": point, "EOS_CRASH_LOG": str(tmp_path / "log")}
    code, _, err = run(path, broker, topic, **crashed)
    assert code == -signal.SIGKILL, err
    # Before EndTxn the run is not committed, and the next one writes it. After it, it is.
    assert answer(path, broker, topic) == [moment == "before", False]
    assert numbers(broker, f"{topic}.out") == EXPECTED
    profile = profile_of(broker, tmp_path)
    found_by_commands(tmp_path, topic, profile)
    now = datetime.now(timezone.utc).isoformat()
    path.write_text(BATCH.replace("2026-11-23", "2026-11-24"))
    assert answer(path, broker, topic) == [True, False]
    assert numbers(broker, f"{topic}.out") == sorted(EXPECTED * 2)
    rewind = ("--rewind-to", now, "--yes", "--why", "a bad run", "--profile", str(profile))
    done = eos(tmp_path, "recover", topic, *rewind)
    assert done.returncode == 0, done.stderr
    assert "if these runs are repeated, they write again: 2026-11-24" in done.stdout
    with closing(lineage.Collector()) as lineages:
        sent = f', profile={{"openlineage": {{"url": "{lineages.url}"}}}})'
        path.write_text(
            path.read_text().replace('"2026-11-24", state)', f'"2026-11-24", state{sent}')
        )
        assert answer(path, broker, topic) == [True, False]
    assert lineages.states() == ["START", "RUNNING", "COMPLETE", "START", "COMPLETE"]
    assert {each["job"]["facets"]["jobType"]["processingType"] for each in lineages.events} == {
        "BATCH"
    }
    assert numbers(broker, f"{topic}.out") == sorted(EXPECTED * 3)
    for verb in ("verify", "audit"):
        done = eos(tmp_path, verb, topic, "--profile", str(profile))
        assert done.returncode == 0, done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C"),
        pytest.param(None, id="eos stop"),
    ],
)
def test_a_batch_is_stopped_before_its_commit_and_written_later(
    broker: Kafka, tmp_path: Path, number: signal.Signals | None
) -> None:
    topic, path = f"python-batch-stopped-{number or 0}", tmp_path / "job.py"
    path.write_text(WAITING)
    process = begun(path, broker, topic, EOS_FINISH_S="1")
    waits = (tmp_path / "waits").exists
    wait_until(waits, lambda: f"no task began: {process.communicate()}", process)
    if number is not None:
        process.send_signal(number)
    else:
        done = eos(tmp_path, "stop", topic, "--profile", str(profile_of(broker, tmp_path)))
        assert done.returncode == 0, done.stderr
    _, err = process.communicate(timeout=RUN_S_MAX)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err if number else "[stop_requested]" in err
    assert numbers(broker, f"{topic}.out") == []
    (tmp_path / "go on").touch()
    assert answer(path, broker, topic) == [True, False]
    assert numbers(broker, f"{topic}.out") == EXPECTED

"""Python jobs in a session that their own program opens: each record once, also after kills."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import blocks
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.kafka.kafka_io import create_topics, fill, wait_closed
from support.spark.python_jobs import (
    EXPECTED,
    OPENED,
    RECORDS,
    RUN_S_MAX,
    SESSION,
    answer,
    begun,
    eos,
    filled,
    found_by_commands,
    numbers,
    profile_of,
    run,
)

from eos.testing import outside
from eos.testing.crash import crash_at

JOB = (
    OPENED
    + """
from pyspark.sql import functions as f

spark.range(3).createTempView("three")
factor = 10


def multiplied(rows):
    return rows.withColumn("number", f.expr("CAST(value AS STRING)").cast("bigint") * factor)


source = eos.read_kafka(spark, topic, kafka=eos.Kafka(bootstrap), max_records=100)
job = (
    eos.exactly_once(
        source.transform(multiplied)
        .sql("SELECT * FROM input WHERE number / 10 % 3 IN (SELECT id FROM three WHERE id < 2)"),
        name=topic,
    )
    .to_topic(f"{topic}.out", key="number", value=eos.json(columns=["number"]),
              create={"partitions": 2})
    .to_topic(f"{topic}.large", key="number", value=eos.json(columns=["number"]),
              where="number >= 3000", create={"partitions": 1})
)
"""
)
DRAINED = """
query = job.start(state, available_now=True)
assert query.awaitTermination()
print(json.dumps({"reason": query.reason, "exit_code": query.exit_code, "error": query.last_error,
                  "active": query.is_active}))
"""
RESTARTED = """
first = job.start(state, available_now=True)
first.awaitTermination()
seen = []
second = job.start(state, every="100 milliseconds", observers=[lambda event: seen.append(event)])
try:
    job.start(state)
except eos.UnavailableError as error:
    print(json.dumps({"code": error.code}))
copied = eos.exactly_once(source, name=f"{topic}-copy").to_topic(
    f"{topic}.copy", create={"partitions": 1})
assert copied.start(state, available_now=True).awaitTermination()  # beside the other
sys.stdin.readline()
committed = 0
while committed < 4:
    assert not second.awaitTermination(0.1)
    committed = sum(getattr(each, "records_out", 0) for each in seen)
print(json.dumps({"records": committed, "stopped": second.stop(),
                  "reason": second.reason, "alive": bool(spark.range(1).count()),
                  "by_topic": sum(sum(getattr(each, "records_in_by_topic", {}).values())
                                  for each in seen),
                  "events": sorted({type(each).__name__ for each in seen})}))
"""


def program(folder: Path, body: str) -> Path:
    path = folder / "job.py"
    path.write_text(JOB + body)
    return path


def test_writes_each_record_once_and_the_commands_find_it(broker: Kafka, tmp_path: Path) -> None:
    topic = "python-once"
    filled(broker, topic)
    code, out, err = run(program(tmp_path, DRAINED), broker, topic)
    assert code == 0, err
    found = json.loads(out.splitlines()[-1])
    assert found == {"reason": "drained", "exit_code": 0, "error": None, "active": False}
    assert numbers(broker, f"{topic}.out") == EXPECTED
    assert numbers(broker, f"{topic}.large") == [each for each in EXPECTED if each >= 3000]

    profile = profile_of(broker, tmp_path)
    assert f"{topic}.large" in found_by_commands(tmp_path, topic, profile)
    done = eos(tmp_path, "plan", topic, "--profile", str(profile), "--check")
    assert done.returncode == 2
    assert "[job_check_unsupported]" in done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_job_resumes_by_the_ledger(broker: Kafka, tmp_path: Path, moment: str) -> None:
    topic = f"python-killed-{moment}"
    filled(broker, topic)
    path, log = program(tmp_path, DRAINED), tmp_path / "crashes"
    point = crash_at("end_txn_sent", moment)  # type: ignore[arg-type] - one of the two
    code, _, err = run(path, broker, topic, EOS_CRASH_AT=point, EOS_CRASH_LOG=str(log))
    assert code == -signal.SIGKILL, err
    assert log.read_text().startswith(f"end_txn_sent:{moment} ")
    code, _, err = run(path, broker, topic)
    assert code == 0, err
    assert numbers(broker, f"{topic}.out") == EXPECTED


@pytest.mark.nightly
def test_runs_again_in_the_same_session_and_stops(broker: Kafka, tmp_path: Path) -> None:
    topic = "python-stops"
    filled(broker, topic)
    process = begun(program(tmp_path, RESTARTED), broker, topic)
    assert process.stdout is not None
    refused = process.stdout.readline()
    fill(broker.bootstrap, topic, range(RECORDS, RECORDS + 3))
    out, err = process.communicate("go on\n", timeout=RUN_S_MAX)
    assert process.returncode == 0, err
    assert json.loads(refused) == {"code": "already_running"}
    found = json.loads(out.splitlines()[-1])
    events = found.pop("events")
    assert found.pop("by_topic") == 3, "observers are told where records come from"
    assert found == {"records": 4, "stopped": True, "reason": "asked to stop", "alive": True}
    assert {"PipelineStarted", "MicroBatchCommitted", "Stopped"} <= set(events)
    wait_closed(broker.bootstrap, f"{topic}.copy")
    copies = [int(row.value or b"") for row in kafka_io.read(broker.bootstrap, f"{topic}.copy")]
    # It may have read some of the three records that followed.
    assert sorted(copies) == list(range(len(copies)))
    assert len(copies) >= RECORDS
    more = [10 * n for n in range(RECORDS, RECORDS + 3) if n % 3 < 2]
    assert numbers(broker, f"{topic}.out") == EXPECTED + more


FRAME = (
    OPENED
    + """
files = spark.readStream.schema("number BIGINT").option("maxFilesPerTrigger", 1).json("files")
job = eos.exactly_once(
    files.where("number % 3 < 2").selectExpr("number * 10 AS number"), topic,
    kafka=eos.Kafka(bootstrap),
).to_topic(f"{topic}.out", key="number", value=eos.json(), create={"partitions": 2})
try:
    job.start(state, available_now=True).awaitTermination()
    print(json.dumps({}))
except eos.EosError as error:
    print(json.dumps({"code": error.code}))
"""
)


def files(folder: Path, numbers: range) -> None:
    """One file of JSON lines for each hundred numbers."""
    (folder / "files").mkdir(exist_ok=True)
    for start in numbers[::100]:
        lines = (json.dumps({"number": n}) for n in range(start, start + 100))
        (folder / "files" / f"{start}.json").write_text("\n".join(lines))


@pytest.mark.nightly
def test_writes_a_streaming_dataframe_once_and_stops_without_its_checkpoint(
    broker: Kafka, tmp_path: Path
) -> None:
    topic, path = "python-frame", tmp_path / "job.py"
    path.write_text(FRAME)
    files(tmp_path, range(200))
    crashed = {"EOS_CRASH_AT": crash_at("end_txn_sent"), "EOS_CRASH_LOG": str(tmp_path / "log")}
    code, _, err = run(path, broker, topic, **crashed)
    assert code == -signal.SIGKILL, err
    checkpoint, older = tmp_path / "state" / "checkpoints", tmp_path / "older"
    shutil.copytree(checkpoint, older)
    assert answer(path, broker, topic) == {}
    files(tmp_path, range(200, RECORDS - 100))
    assert answer(path, broker, topic) == {}
    behind = tmp_path / "behind"  # a copy that lacks the last micro-batch only
    shutil.copytree(checkpoint, behind)
    files(tmp_path, range(RECORDS - 100, RECORDS))
    assert answer(path, broker, topic) == {}
    assert numbers(broker, f"{topic}.out") == EXPECTED
    plan = found_by_commands(tmp_path, topic, profile_of(broker, tmp_path))
    assert "a DataFrame of the job" in plan

    shutil.rmtree(checkpoint)
    assert answer(path, broker, topic) == {"code": "dataframe_checkpoint_lost"}
    shutil.copytree(older, checkpoint)
    assert answer(path, broker, topic) == {"code": "batch_out_of_order"}
    shutil.rmtree(checkpoint)
    shutil.copytree(behind, checkpoint)
    assert answer(path, broker, topic) == {"code": "checkpoint_behind"}
    assert numbers(broker, f"{topic}.out") == EXPECTED


@pytest.mark.nightly
def test_the_guides_program_runs(broker: Kafka, tmp_path: Path) -> None:
    """All blocks of docs/python.md, one after another, as one program."""
    text = "\n".join(text for name, text in blocks("python") if name.startswith("python.md"))
    for old, new in (("kafka-1:9092", broker.bootstrap), ("/var/lib/eos", str(tmp_path / "state"))):
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "job.py"
    path.write_text(text)
    (tmp_path / "arrivals").mkdir()
    (tmp_path / "arrivals" / "1.json").write_text('{"order_id": 5, "amount": 1.5}')
    create_topics(broker.bootstrap, 1, "orders", "alerts")
    orders = [{"order_id": n, "amount": 6000.0 * n} for n in range(3)]
    rows = ({"value": json.dumps(each).encode()} for each in orders)
    outside.fill(broker.bootstrap, "orders", rows)
    code, out, err = run(path, broker, "guide")
    assert code == 0, err
    assert out.splitlines() == ["drained 4", "True", "False"]
    found = {
        topic: [
            json.loads(row.value or b"")["order_id"]
            for row in kafka_io.read(broker.bootstrap, topic)
        ]
        for topic in ("orders.enriched", "alerts", "orders.arrived", "reports")
    }
    assert {topic: sorted(ids) for topic, ids in found.items()} == {
        "orders.enriched": [0, 1, 2],
        "alerts": [2],
        "orders.arrived": [5],
        "reports": [1, 2],
    }


UNSAFE = """
import json, sys
import eos
from pyspark.sql import SparkSession

wrong = json.loads(sys.argv[2])
spark = SparkSession.builder.master("local[2]").config(map=json.loads(sys.argv[3])).config(
    map={**eos.spark_conf("local[2]"), **wrong}).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
source = eos.read_kafka(spark, "orders", kafka=eos.Kafka(sys.argv[1]))
job = eos.exactly_once(source, name="unsafe").to_topic("out")
try:
    job.start("state", available_now=True)
except eos.EosError as error:
    print(json.dumps({"code": error.code, **error.fields}))
spark.stop()
try:
    job.start("state", available_now=True)
except eos.EosError as error:
    print(json.dumps({"code": error.code}))
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"spark.stage.maxConsecutiveAttempts": "4"}, "spark_session_unsafe"),
        ({"spark.jars": ""}, "spark_session_without_jars"),
    ],
)
def test_refuses_a_session_that_may_repeat_a_task(
    broker: Kafka, tmp_path: Path, wrong: dict[str, str], code: str
) -> None:
    path = tmp_path / "job.py"
    path.write_text(UNSAFE)
    words = [sys.executable, str(path), broker.bootstrap, json.dumps(wrong), json.dumps(SESSION)]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["code"] == code
    if code == "spark_session_unsafe":
        assert first["setting"] == "spark.stage.maxConsecutiveAttempts"
        assert first["value"] == "4"
    assert second == {"code": "spark_session_stopped"}

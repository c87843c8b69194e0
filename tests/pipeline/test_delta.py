"""Delta tables beside topics: every row once, whatever dies when, and none lost in silence."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import StructType
from support.delta import lake
from support.errors import raises
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.spark.project import KILLED, Project, WarmDriver

from eos.delta import table as delta
from eos.delta.rows import require_fits
from eos.plan.delta_sink import Table

RECORDS = 20  # a micro-batch


@pytest.fixture
def made(tmp_path: Path, broker: Kafka, with_delta: WarmDriver) -> Project:
    project = Project.made(tmp_path, broker, with_delta)
    kafka_io.create_topics(broker.bootstrap, lake.PARTITIONS, project.source)
    return project


def ran(project: Project, **environment: str) -> str:
    done = project.run_warm(**environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


def stopped(project: Project, code: int = 4) -> str:
    done = project.run_warm()
    assert done.returncode == code, done.stderr
    return done.stderr


def attempts(project: Project) -> list[int]:
    """The offsets of the ledger's attempts."""
    rows = kafka_io.read(project.broker.bootstrap, project.ledger)
    return [row.offset for row in rows if json.loads(row.value or b"")["kind"] == "attempt"]


def source(project: Project) -> tuple[str, str]:
    return project.broker.bootstrap, project.source


def target(project: Project) -> tuple[str, str]:
    return project.broker.bootstrap, project.target


def said(project: Project, *words: str, code: int = 0, **environment: str) -> str:
    command = [sys.executable, "-m", "eos", words[0], *project.words(), *words[1:]]
    env = project.environment(**environment)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def require_all(project: Project, numbers: range) -> None:
    """Both tables and the topic, against what went in."""
    assert sorted(row["n"] for row in lake.rows(lake.table(project, "all"))) == list(numbers)
    newest = lake.rows(lake.table(project, "last"))
    assert {row["k"]: row["n"] for row in newest} == lake.newest(numbers)
    assert len(newest) == min(lake.KEYS, len(numbers))
    topic = kafka_io.read(project.broker.bootstrap, project.target)
    assert sorted(json.loads(row.value or b"")["n"] for row in topic) == list(numbers)
    for name, known in (("all", "all"), ("last", "newest")):
        assert lake.version(lake.table(project, name), known) == attempts(project)[-1]


@pytest.mark.long
@pytest.mark.timeout(1800)  # four starts of Spark
def test_every_row_once_whatever_dies_when(made: Project) -> None:
    lake.declare(made, RECORDS)
    lake.feed(made, range(4 * RECORDS))

    died = made.run_warm(EOS_CRASH_AT="tables:before:both")  # behind EndTxn, before any table
    assert died.returncode == KILLED, died.stderr
    first = attempts(made)[-1]
    assert lake.version(lake.table(made, "all"), "all") < first

    # The next start catches up, and dies in the middle of a write: a task is evaluating rows.
    (made.folder / "armed").write_text(f"{RECORDS}\n")
    run = made.start_warm()
    (made.folder / "driver").write_text(f"{run.pid}\n")
    assert run.wait() == KILLED, run.said()
    assert not (made.folder / "armed").exists(), run.said()
    for name in ("all", "newest"):
        assert f"table {name} caught up: from ledger record" in run.said()
        assert f"to {first} in" in run.said()
    second = attempts(made)[-1]
    assert first < second

    # Between two tables: the first has the micro-batch, the second has not.
    died = made.run_warm(EOS_CRASH_AT="tables:after:both")
    assert died.returncode == KILLED, died.stderr
    third = attempts(made)[-1]
    assert lake.version(lake.table(made, "all"), "all") == third
    assert lake.version(lake.table(made, "last"), "newest") == second

    shutil.rmtree(made.folder / "state" / "checkpoints")
    told = ran(made)
    assert f"table all skipped: it already has ledger record {third} (it is at {third})" in told
    assert f"table newest caught up: from ledger record {second} to {third}" in told
    require_all(made, range(4 * RECORDS))
    again = ran(made)
    assert "skipped" not in again  # an end that is clean leaves nothing to ask
    assert "caught up" not in again


def constrained(project: Project, rule: str | None) -> None:
    table = DeltaTable(str(lake.table(project, "all")))
    if rule is None:
        table.alter.drop_constraint("small")
    else:
        table.alter.add_constraint({"small": rule})


NAMED = lake.pipeline(
    "'SELECT i.*, m.name FROM input i JOIN names m ON i.k = m.k'",
    lake.ALL,
    tables='{{names: {{delta: FOLDER/lake/names, columns: "k INT, name STRING"}}}}',
)


def filled(project: Project, name: str) -> None:
    keys = pa.array(range(lake.KEYS), pa.int32())
    rows = pa.table({"k": keys, "name": pa.array([name] * lake.KEYS)})
    (project.folder / "lake" / "names").mkdir(parents=True, exist_ok=True)
    write_deltalake(str(project.folder / "lake" / "names"), rows, mode="overwrite")


def named(project: Project) -> dict[int, str]:
    return {row["n"]: row["name"] for row in lake.rows(lake.table(project, "all"))}


@pytest.mark.long
def test_a_table_that_refuses_rows_gets_them_once_it_takes_them(made: Project) -> None:
    """Joined with what the topic was joined with: the ledger's record names its version."""
    filled(made, "old")
    lake.declare(made, 1000, NAMED)
    lake.feed(made, range(10))
    ran(made)
    constrained(made, "n < 15")
    lake.feed(made, range(10, 20))
    told = stopped(made)
    assert "the table all" in told
    assert "CHECK constraint small" in told
    owed = attempts(made)[-1]
    filled(made, "new")
    lake.feed(made, range(20, 30))
    assert "CHECK constraint small" in stopped(made)  # it is asked first, and nothing comes after
    assert attempts(made)[-1] == owed
    constrained(made, None)
    assert f"to {owed} in" in ran(made)
    assert named(made) == {n: "old" if n < 20 else "new" for n in range(30)}
    topic = [json.loads(row.value or b"") for row in kafka_io.read(*target(made))]
    assert {row["n"]: row["name"] for row in topic} == named(made)
    assert len(topic) == len(lake.rows(lake.table(made, "all"))) == 30


@pytest.mark.nightly
def test_rows_that_the_source_has_lost_before_a_table_took_them_stop_it(made: Project) -> None:
    filled(made, "old")
    lake.declare(made, 1000, NAMED)
    lake.feed(made, range(30))
    ran(made)
    constrained(made, "n < 35")
    lake.feed(made, range(30, 40))
    stopped(made)
    owed = attempts(made)[-1]
    constrained(made, None)
    admin = AdminClient({"bootstrap.servers": made.broker.bootstrap})
    gone = TopicPartition(made.source, 0, kafka_io.ends(*source(made))[0] - 1)
    for future in admin.delete_records([gone]).values():
        future.result(300)
    told = stopped(made)
    assert f"the ledger's record {owed} (micro-batch 1) is committed, but the table all has" in told
    assert f"{made.source}-0 begins at offset {gone.offset}, but" in told
    asked = said(made, "recover", "--accept-table", "all", code=1)
    assert "are never written there" in asked
    said(made, "recover", "--accept-table", "all", "--yes", "--why", "retention")
    lake.feed(made, range(40, 50))
    ran(made)
    assert sorted(named(made)) == [*range(30), *range(40, 50)]


ONE = lake.pipeline("removing", lake.LAST)


@pytest.mark.nightly  # `plan --check` tells the same of it: test_plan_check.py
def test_a_table_that_is_not_the_one_it_was_stops_the_start(made: Project) -> None:
    lake.declare(made, 1000, ONE)
    lake.feed(made, range(10))
    ran(made)
    place = lake.table(made, "last")
    shutil.copytree(place, made.folder / "kept")
    lake.feed(made, range(10, 20))
    ran(made)
    (made.folder / "remove").touch()
    lake.feed(made, range(20, 23))
    told = stopped(made)
    assert "[table_replaced]" in told
    assert "the table newest" in told
    assert not place.exists()  # and no empty one is made in its place
    assert "[table_replaced]" in stopped(made)
    shutil.copytree(made.folder / "kept", place)  # an older copy
    assert "[table_behind]" in stopped(made)
    told = said(made, "recover", code=1)
    assert f"table       newest: up to record {attempts(made)[-2]} when" in told
    found = json.loads(said(made, "verify", "--json", code=1))["findings"]
    assert [each["case"] for each in found] == ["delta_lost", "delta_version"]
    shutil.rmtree(place)
    said(made, "recover", "--accept-table", "newest", "--yes")
    lake.feed(made, range(23, 26))
    ran(made)
    # Made anew, and followed from here on.
    assert sorted(row["n"] for row in lake.rows(place)) == [23, 24, 25]

    twice = "  - {{sql: SELECT * FROM input UNION ALL SELECT * FROM input}}"
    lake.declare(made, 1000, ONE, **{"sink:": f"{twice}\nsink:"})
    lake.feed(made, range(26, 27))
    told = stopped(made)
    assert f"several rows that were made of one record ({made.source}-1 at offset" in told


RESTORED = lake.pipeline("restoring", lake.ALL)
ROWS = 1000


def count(project: Project) -> int:
    return len(lake.rows(lake.table(project, "all")))


def written_twice(project: Project) -> Path:
    """Return the table, whose versions 1 and 2 have a micro-batch each."""
    lake.declare(project, ROWS, RESTORED)
    for micro_batch in range(2):
        lake.feed(project, range(micro_batch * ROWS, (micro_batch + 1) * ROWS))
        ran(project)
    place = lake.table(project, "all")
    assert (count(project), DeltaTable(str(place)).version()) == (2 * ROWS, 2)
    return place


@pytest.mark.nightly  # of several runs; without Spark: tests/fuzz/test_delta_history.py
def test_a_restore_that_removes_rows_stops_a_start(made: Project) -> None:
    """RESTORE keeps the number of the pipeline's last write, so only the history shows it."""
    place = written_twice(made)
    DeltaTable(str(place)).restore(1)  # the first micro-batch alone
    assert count(made) == ROWS
    lake.feed(made, range(2 * ROWS, 3 * ROWS))
    before = attempts(made)
    told = stopped(made)
    assert "the table all (" in told
    assert "was restored to version 1 by the RESTORE in its version 3: rows that" in told
    assert f"eos recover {made.name} --accept-table all" in told
    assert (attempts(made), count(made)) == (before, ROWS)
    (found,) = json.loads(said(made, "recover", "--json", code=1))["findings"]
    assert (found["case"], found["exit_code"]) == ("table_behind", 4)
    assert "--accept-table all" in found["ways"][0]["command"]
    found = json.loads(said(made, "verify", "--json", code=1))["findings"]
    assert [each["case"] for each in found] == ["delta_restored"]

    DeltaTable(str(place)).restore(2)  # as the hint says: nothing is missing
    assert json.loads(said(made, "recover", "--json"))["findings"] == []
    ran(made)
    assert count(made) == 3 * ROWS


@pytest.mark.nightly
def test_a_restore_that_removes_rows_stops_a_run(made: Project) -> None:
    """Between two writes. Earlier restores, after which nothing is missing, change nothing."""
    place, before = written_twice(made), attempts(made)
    for version in (1, 2):
        DeltaTable(str(place)).restore(version)
    (made.folder / "restore").touch()
    lake.feed(made, range(2 * ROWS, 3 * ROWS))
    told = stopped(made)
    assert "was restored to version 1 by the RESTORE in its version 5" in told
    assert attempts(made) > before  # the transaction had committed, and the table waits for it
    assert "was restored to version 1" in stopped(made)
    DeltaTable(str(place)).restore(4)
    ran(made)
    assert sorted(row["n"] for row in lake.rows(place)) == list(range(3 * ROWS))
    said(made, "recover")


@pytest.mark.nightly
def test_columns_come_only_if_that_is_asked_for(made: Project) -> None:
    lake.declare(made, 1000)
    lake.feed(made, range(5))
    ran(made)
    wider: dict[str, Any] = {"k INT, n BIGINT": "k INT, n BIGINT, s STRING"}
    lake.declare(made, 1000, **wider)
    told = stopped(made, 2)
    assert "[table_column_missing]" in told
    assert "has no column `s`" in told
    assert "evolve: true" in told
    evolving = {"lake/all": "lake/all, evolve: true", "name: newest": "name: newest, evolve: true"}
    lake.declare(made, 1000, **wider, **evolving)
    lake.feed(made, range(5, 10), s="x")
    ran(made)
    for name in ("all", "last"):
        found = {row["n"]: row["s"] for row in lake.rows(lake.table(made, name))}
        assert {number: text for number, text in found.items() if number > 4} == dict.fromkeys(
            range(5, 10), "x"
        )
    lake.declare(made, 1000, **{"n BIGINT": "n STRING"}, **evolving)
    assert "has column `n` as bigint, but the rows have it as string" in stopped(made, 2)


@pytest.mark.long
def test_the_lakehouse_example_from_end_to_end(made: Project) -> None:
    folder = made.folder / "pipelines" / made.name
    folder.mkdir(parents=True)
    text = (Path(__file__).parents[2] / "pipelines/lakehouse/pipeline.yaml").read_text()
    instead = {
        "name: lakehouse": f"name: {made.name}",
        "orders.changes": made.source,
        "orders.open": made.target,
        "orders.dlq": f"{made.target}.dlq",
        "every: 1 minute": "available_now: true",
    }
    for word, other in instead.items():
        assert word in text
        text = text.replace(word, other)
    (folder / "pipeline.yaml").write_text(text)
    states = ("open", "paid", "sent")
    changes = [
        {"order_id": n % 5, "state": states[n // 5], "amount": n + 0.5, "at": f"2026-11-2{n // 5}"}
        for n in range(15)
    ]
    producer = kafka_io.producer(made.broker.bootstrap)
    for change in changes:
        partition = change["order_id"] % lake.PARTITIONS
        producer.produce(made.source, json.dumps(change), partition=partition)
    producer.produce(made.source, b"no order", partition=0)
    assert producer.flush(300) == 0
    ran(made, LAKE=str(made.folder / "lake"))
    place = made.folder / "lake"
    history = lake.rows(place / "orders_history")
    assert sorted((row["order_id"], row["state"]) for row in history) == sorted(
        (change["order_id"], change["state"]) for change in changes
    )
    assert {str(row["day"]) for row in history} == {"2026-11-20", "2026-11-21", "2026-11-22"}
    by_day = DeltaTable(str(place / "orders_history")).metadata().partition_columns
    assert by_day == ["day"]
    assert DeltaTable(str(place / "orders_now")).metadata().partition_columns == []
    other = Table("history", str(place / "orders_history"), partition_by=("state", "day"))
    with raises("table_partitioning") as caught:
        require_fits(other, StructType(), delta.TableLayout(StructType(), tuple(by_day)))
    assert "by day, but the pipeline file declares state, day" in caught.value.message
    rows = lake.rows(place / "orders_now")
    now = {row["order_id"]: (row["state"], float(row["amount"])) for row in rows}
    assert now == {n: ("sent", 10.5 + n) for n in range(5)}
    opened = [json.loads(row.value or b"") for row in kafka_io.read(*target(made))]
    assert sorted(row["order_id"] for row in opened) == list(range(5))
    assert len(kafka_io.read(made.broker.bootstrap, f"{made.target}.dlq")) == 1
    told = json.loads(said(made, "verify", "--json", LAKE=str(place)))
    assert told["findings"] == []


@pytest.mark.nightly  # six runs; test_cases.py, test_docs_combinations.py look at the files, too
def test_the_chain_of_three_has_each_sale_in_the_table_once(
    tmp_path: Path, broker: Kafka, with_delta: WarmDriver, capfd: pytest.CaptureFixture[str]
) -> None:
    """Although its source has duplicates and bad records, and then a sale that is late."""
    projects = lake.copy_examples(Project.made(tmp_path, broker, with_delta))
    clean, _, last = map(lake.demo_of, projects)
    assert clean.load().loaded == len(lake.SALES) + 2 * (1 + 50)
    place = {"LAKE": str(tmp_path / "lake")}
    for project in projects:
        ran(project, **place)
    wanted = lake.sales_totals(number for number in lake.SALES if number != lake.UNPAID)
    assert lake.read_sales(tmp_path) == wanted
    capfd.readouterr()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("LAKE", place["LAKE"])
        assert [demo.report(1.5, 0, as_json=False) for demo in (clean, last)] == [0, 0]
    assert lake.missing_on_page(capfd.readouterr().out) == []
    # The newest sale was at 16:19, and the watermark is two hours before.
    lake.send_sales(projects[0], at=("08:00", "16:19"))
    for project in projects:
        ran(project, **place)
    sales, cents = wanted["north", 16]
    assert lake.read_sales(tmp_path) == {**wanted, ("north", 16): (sales + 1, cents + lake.CENTS)}

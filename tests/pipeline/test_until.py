"""`run --until`: the records before a time, in both readers; the next run continues there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest
from support.copies.recovery import run_verb
from support.delta import lake
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.kafka.kafka_io import DAY_MS, Record
from support.spark.project import KILLED, PIPELINE, Project, WarmDriver
from support.verbs import verify

from eos.plan.reader import ARROW_NAME, OVERRIDE, SPARK_NAME

AT_MS = DAY_MS + 1000  # `--until`
UNTIL = datetime.fromtimestamp(AT_MS / 1000, timezone.utc).isoformat()
# By partition: records before the time, and after it. Micro-batches of 20 offsets meet the bound
# of partition 0 long before that of partition 1; partition 2 has no record after the time.
BEFORE, AFTER = (10, 90, 15), (40, 20, 0)


DEDUP = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
dedup: {{producer: {{id: header(producer), epoch: header(epoch), sequence: header(sequence)}}}}
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""


def records(counts: Iterable[int], at_ms: int, before: Sequence[Record] = ()) -> list[Record]:
    """Records with the sequence numbers after those of `before`, if dedup looks at them."""
    found = []
    for partition, count in enumerate(counts):
        first = sum(each.partition == partition for each in before)
        for number in range(first, first + count):
            stamp = {"producer": partition, "epoch": 0, "sequence": number}
            headers = tuple((name, b"%d" % part) for name, part in stamp.items())
            value = b"%d-%d" % (partition, number)
            found.append(Record(partition, None, value, headers, at_ms))
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "reader", "name"),
    [
        pytest.param(
            PIPELINE, "spark", SPARK_NAME, id="transform, spark", marks=pytest.mark.nightly
        ),
        pytest.param(DEDUP, "arrow", ARROW_NAME, id="dedup, arrow"),
        pytest.param(
            PIPELINE, "arrow", ARROW_NAME, id="transform, arrow", marks=pytest.mark.nightly
        ),
        pytest.param(DEDUP, "spark", SPARK_NAME, id="dedup, spark", marks=pytest.mark.nightly),
    ],
)
def test_a_run_until_a_time_and_the_run_after_it(
    project: Project, text: str, reader: str, name: str
) -> None:
    bootstrap, chosen = project.broker.bootstrap, {OVERRIDE: reader}
    project.declare(20, text=text)
    kafka_io.create_topics(bootstrap, 3, project.source)
    before = records(BEFORE, AT_MS - 1)
    after = records(AFTER, AT_MS, before)
    kafka_io.write_records(bootstrap, project.source, [*before, *after])

    def written() -> Counter[bytes | None]:
        return Counter(each.value for each in kafka_io.read_records(bootstrap, project.target))

    def values(expected: Iterable[Record]) -> Counter[bytes | None]:
        return Counter(each.value for each in expected)

    def offsets() -> tuple[int, ...]:
        found = kafka_io.group_offsets(bootstrap, project.group, project.source)
        return tuple(found[partition] for partition in range(3))

    bounded = project.run_warm("--until", UNTIL, **chosen)
    assert bounded.returncode == 0, bounded.stderr
    assert "read up to --until" in bounded.stderr
    assert name in bounded.stderr
    assert bounded.stderr.count(" committed: ") > 1
    assert written() == values(before)
    assert offsets() == BEFORE

    # The second time, the bounded run resumes with a checkpoint, of which it must note nothing.
    for more in ([], records(AFTER, AT_MS, [*before, *after])):
        kafka_io.write_records(bootstrap, project.source, more)
        at, after = offsets(), [*after, *more]
        again = project.run_warm("--until", UNTIL, **chosen)
        assert again.returncode == 0, again.stderr
        assert "read up to --until" in again.stderr
        assert "Traceback" not in again.stderr
        assert offsets() == at

        drained = project.run_warm(**chosen)
        assert drained.returncode == 0, drained.stderr
        assert written() == values([*before, *after])
    verified = run_verb(verify, *project.words(), "--json")
    assert verified.code == 0, verified


@pytest.mark.long
@pytest.mark.parametrize(
    "point",
    ["end_txn_sent:before", pytest.param("end_txn_answered:after", marks=pytest.mark.nightly)],
)
def test_a_run_until_a_time_that_dies_in_its_cut_micro_batch(project: Project, point: str) -> None:
    """Spark's plan has the later records, too: the next run reads them, and none twice."""
    bootstrap = project.broker.bootstrap
    project.declare(1000)
    kafka_io.create_topics(bootstrap, 3, project.source)
    before = records(BEFORE, AT_MS - 1)
    every = [*before, *records(AFTER, AT_MS, before)]
    kafka_io.write_records(bootstrap, project.source, every)

    died = project.run_warm("--until", UNTIL, EOS_CRASH_AT=f"{point}:both")
    assert died.returncode == KILLED, died.stderr
    drained = project.run_warm()
    assert drained.returncode == 0, drained.stderr
    found = Counter(each.value for each in kafka_io.read_records(bootstrap, project.target))
    assert found == Counter(each.value for each in every)


@pytest.mark.nightly
def test_a_table_has_the_records_before_the_time_and_catches_up_with_no_others(
    tmp_path: Path, broker: Kafka, with_delta: WarmDriver
) -> None:
    """The run dies after the commit of its cut micro-batch and before the table's. The next one
    reads the cut ranges again, and not what Spark had planned."""
    made = Project.made(tmp_path, broker, with_delta)
    kafka_io.create_topics(broker.bootstrap, 3, made.source)
    before = records(BEFORE, AT_MS - 1)
    after = records(AFTER, AT_MS, before)
    kafka_io.write_records(broker.bootstrap, made.source, [*before, *after])
    made.declare(1000, text=lake.COPIED.replace("FOLDER", str(made.folder)))

    def require_rows(expected: Iterable[Record]) -> None:
        found = Counter(row["text"].encode() for row in lake.rows(lake.table(made, "all")))
        assert found == Counter(each.value for each in expected)

    died = made.run_warm("--until", UNTIL, EOS_CRASH_AT="tables:before:both")
    assert died.returncode == KILLED, died.stderr
    for _ in range(2):  # the first run catches up, and the second one has nothing to do
        bounded = made.run_warm("--until", UNTIL)
        assert bounded.returncode == 0, bounded.stderr
        require_rows(before)
    drained = made.run_warm()
    assert drained.returncode == 0, drained.stderr
    require_rows([*before, *after])
    lake.require_proven(made, "all", micro_batches=2, commits=2, inserted=len([*before, *after]))


@pytest.mark.long
def test_each_topic_of_a_pattern_is_read_up_to_the_time(project: Project) -> None:
    """Also a topic that was created between two runs."""
    bootstrap, written = project.broker.bootstrap, Counter[bytes | None]()
    project.declare(1000, text=PIPELINE.replace("topic: {source}", "pattern: '{source}[.][a-z]'"))
    before = records(BEFORE, AT_MS - 1)
    after = records(AFTER, AT_MS, before)

    def create(name: str) -> None:
        topic = f"{project.source}.{name}"
        kafka_io.create_topics(bootstrap, 3, topic)
        kafka_io.write_records(bootstrap, topic, [*before, *after])

    def require_written(*expected: Record) -> None:
        written.update(each.value for each in expected)
        found = Counter(each.value for each in kafka_io.read_records(bootstrap, project.target))
        assert found == written

    create("a")
    create("b")
    bounded = project.run_warm("--until", UNTIL)
    assert bounded.returncode == 0, bounded.stderr
    assert "read up to --until" in bounded.stderr
    require_written(*before, *before)
    create("c")
    bounded = project.run_warm("--until", UNTIL)
    assert bounded.returncode == 0, bounded.stderr
    require_written(*before)
    drained = project.run_warm()
    assert drained.returncode == 0, drained.stderr
    require_written(*after, *after, *after)
    verified = run_verb(verify, *project.words(), "--json")
    assert verified.code == 0, verified

"""Dead letters go back to where they came from, each once, whatever dies: `eos replay`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from support.doubles import At
from support.errors import in_turn, raises
from support.kafka import kafka_io
from support.kafka.kafka_io import Record
from support.spark.project import Project
from support.verbs import replay

from eos.errors import PromiseBrokenError, UsageError
from eos.faults import CrashPlan
from eos.local.embedded_kafka import EmbeddedKafka
from eos.replay import pending_dead_letters, replayer
from eos.startup import topic_lookup
from eos.testing.outside import delete_topics

PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
expect: [{{name: paid, rule: length(value) > 0, on_error: dead_letter}}]
sink: {{kafka: {{topic: {target}}}, dead_letter: "{target}.dlq"}}
"""
NOW_MS = int(time.time() * 1000) - 60_000
RULES = ("paid", "malformed", "gone")  # the file does not name the last one any more
PARTITIONS = 2
OWN = (("trace", b"\xff"), ("eos.rule", b"somebody else's"), ("none", None))


@pytest.fixture
def project(tmp_path: Path, broker: EmbeddedKafka) -> Project:
    """With a source, and dead letters 0 to 29 of it: number n had offset n."""
    made = Project.made(tmp_path, broker)
    made.declare(1, 1, PIPELINE)
    kafka_io.create_topics(broker.bootstrap, PARTITIONS, made.source, dlq(made))
    kafka_io.write_records(broker.bootstrap, dlq(made), map(made_dead(made), range(30)))
    return made


def dlq(project: Project) -> str:
    return f"{project.target}.dlq"


def original(n: int) -> Record:
    """Some without a key, some tombstones, some without headers."""
    key = b"key %d" % n if n % 3 else None
    value = b"value \xfe %d" % n if n % 5 else None
    return Record(n % PARTITIONS, key, value, OWN if n % 4 else (), NOW_MS + n)


def rule(n: int) -> str:
    return RULES[n % 3]


def made_dead(project: Project, pipeline: str = "", source: str = "", **told: str) -> Any:
    def dead(n: int) -> Record:
        was = original(n)
        ours = {
            "eos.pipeline": pipeline or project.name,
            "eos.topic": source or project.source,
            "eos.partition": str(was.partition),
            "eos.offset": str(n),
            "eos.timestamp": str(was.timestamp_ms),
            "eos.rule": rule(n),
            "eos.error": "not true: ...",
            **told,
        }
        headers = (*was.headers, *((name, text.encode()) for name, text in ours.items()))
        return Record(was.partition, was.key, was.value, headers, NOW_MS + 1000 + n)

    return dead


def run(project: Project, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Its answer: what waited and was put back, by rule."""
    assert replay([*spoken(project), *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["rules"]


def spoken(project: Project) -> list[str]:
    file = project.folder / "pipelines" / project.name / "pipeline.yaml"
    return [str(file), "--profile", str(project.profile)]


def back(project: Project) -> list[Record]:
    return kafka_io.read_records(project.broker.bootstrap, project.source)


def in_order(numbers: Any) -> list[Record]:
    """As they lie in the source if they were put back in this order."""
    return sorted(map(original, numbers), key=lambda record: record.partition)


def test_every_record_goes_back_as_it_was_once_and_a_rule_at_a_time(project, capsys, monkeypatch):
    told = run(project, capsys, "--rule", "malformed", "--limit", "4")
    assert told == {"malformed": {"waiting": 10, "put_back": 4, "passed_over": 0}}
    assert len(back(project)) == 4
    run(project, capsys, "--rule", "malformed")
    malformed = [n for n in range(30) if rule(n) == "malformed"]
    assert sorted(back(project), key=str) == sorted(map(original, malformed), key=str)
    assert back(project) == in_order(malformed)

    told = run(project, capsys)
    assert {name: numbers["put_back"] for name, numbers in told.items()} == {
        "malformed": 0,
        "paid": 10,
        "gone": 10,
    }
    every = back(project)
    assert len(every) == 30
    assert sorted(every, key=str) == sorted(map(original, range(30)), key=str)
    assert kafka_io.group_offsets(
        project.broker.bootstrap, f"eos.{project.name}.replay.paid", dlq(project)
    ) == dict.fromkeys(range(PARTITIONS), 15)

    told = run(project, capsys)
    assert {numbers["waiting"] for numbers in told.values()} == {0}
    assert back(project) == every
    kafka_io.write_records(project.broker.bootstrap, dlq(project), [made_dead(project)(33)])
    monkeypatch.setattr(pending_dead_letters, "_BYTES_MAX", 1)  # a record at a time
    assert run(project, capsys, "--dry-run")["paid"]["waiting"] == 1
    assert len(back(project)) == 30
    run(project, capsys)
    assert len(back(project)) == 31


@pytest.mark.parametrize("codec", in_turn(["gzip", "snappy", "lz4", "zstd"], 1, every=4))
def test_dead_letters_of_every_codec_go_back(project, capsys, codec):
    every = [made_dead(project, **{"eos.rule": codec})(n) for n in range(40, 80)]
    kafka_io.write_records(project.broker.bootstrap, dlq(project), every, codec)
    assert run(project, capsys, "--rule", codec)[codec]["put_back"] == 40
    assert back(project) == in_order(range(40, 80))


@pytest.mark.parametrize(
    "point",
    in_turn(
        ("first_produce:after", "offsets:after", "end_txn_sent:after", "end_txn_answered:after"), 1
    ),
)
def test_a_replay_that_is_killed_goes_on_where_it_was(project, capsys, point):
    log = project.folder / "died"
    died = subprocess.run(
        [sys.executable, "-m", "eos", "replay", *spoken(project), "--rule", "paid"],
        env=project.environment(EOS_CRASH_AT=f"{point}:python", EOS_CRASH_LOG=str(log)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert died.returncode == -9, died.stderr
    assert log.exists()
    run(project, capsys, "--rule", "paid")
    paid = [n for n in range(30) if rule(n) == "paid"]
    assert back(project) == in_order(paid)
    assert run(project, capsys, "--rule", "paid")["paid"]["waiting"] == 0


def test_the_dead_letters_of_others_stay_and_those_made_before_are_passed_over(project, capsys):
    old = made_dead(project, **{"eos.rule": "paid"})(31)
    others = made_dead(project, pipeline="others", **{"eos.rule": "paid"})(32)
    none = original(34)
    few = [
        Record(o.partition, o.key, o.value, o.headers, NOW_MS - 3_000_000) for o in (old, others)
    ]
    kafka_io.write_records(project.broker.bootstrap, dlq(project), [*few, none])
    told = run(project, capsys, "--rule", "paid", "--since", "40 minutes")
    assert told == {"paid": {"waiting": 10, "put_back": 10, "passed_over": 1}}
    assert len(back(project)) == 10
    assert run(project, capsys, "--rule", "paid")["paid"]["waiting"] == 0


def test_a_record_that_retention_would_take_at_once_needs_the_present_time(project, capsys):
    month_ago = NOW_MS - 30 * 86_400_000
    dead = made_dead(project, **{"eos.rule": "old", "eos.timestamp": str(month_ago)})(7)
    kafka_io.write_records(project.broker.bootstrap, dlq(project), [dead])
    with raises("replay_record_expired", UsageError) as caught:
        run(project, capsys, "--rule", "old")
    assert "--now" in caught.value.hint
    assert back(project) == []
    run(project, capsys, "--rule", "old", "--now")
    (found,) = back(project)
    assert found.timestamp_ms > NOW_MS
    was = original(7)
    assert (found.key, found.value, found.headers) == (was.key, was.value, was.headers)


def test_headers_do_not_make_it_write_elsewhere(project, capsys):
    elsewhere = made_dead(project, source=project.target, **{"eos.rule": "odd"})(1)
    kafka_io.write_records(project.broker.bootstrap, dlq(project), [elsewhere])
    with raises("dead_letter_origin_missing", UsageError):
        run(project, capsys, "--rule", "odd")
    far = made_dead(project, **{"eos.rule": "far", "eos.partition": "7"})(1)
    kafka_io.write_records(project.broker.bootstrap, dlq(project), [far])
    with raises("dead_letter_origin_missing", UsageError) as caught:
        run(project, capsys, "--rule", "far")
    assert "has 2 partitions now" in caught.value.message
    kafka_io.write_records(
        project.broker.bootstrap,
        dlq(project),
        [made_dead(project, **{"eos.rule": "../../odd"})(1)],
    )
    assert set(run(project, capsys, "--dry-run")) == {*RULES, "odd", "far"}
    assert back(project) == []


def test_what_lies_before_such_a_dead_letter_is_not_lost_with_it(project, capsys):
    of_rule = {"eos.rule": "odd"}
    mixed = [*map(made_dead(project, **of_rule), (1, 3)), made_dead(project, "", "x", **of_rule)(5)]
    kafka_io.write_records(project.broker.bootstrap, dlq(project), mixed)
    with raises("dead_letter_origin_missing", UsageError) as caught:
        run(project, capsys, "--rule", "odd")
    assert "at offset 17 is from x-1" in caught.value.message
    assert "`--limit 2` replays the dead letters before it; --since" in caught.value.hint
    run(project, capsys, "--rule", "odd", "--limit", "2")
    assert back(project) == in_order([1, 3])
    with pytest.raises(UsageError) as caught:
        run(project, capsys, "--rule", "odd")
    assert "--limit" not in caught.value.hint


def test_words_that_can_not_be_meant(project, capsys):
    with raises("rule_unknown", UsageError):
        run(project, capsys, "--rule", "malfromed")
    with raises("since_invalid", UsageError):
        run(project, capsys, "--since", "yesterday")
    with pytest.raises(SystemExit):
        run(project, capsys, "--limit", "0")
    project.declare(
        1,
        1,
        PIPELINE.replace(", on_error: dead_letter", "").replace(
            ', dead_letter: "{target}.dlq"', ""
        ),
    )
    with raises("dead_letter_topic_undeclared", UsageError):
        run(project, capsys)


def test_a_source_that_is_gone_stops_it(project, capsys, monkeypatch):
    monkeypatch.setattr(topic_lookup, "_PASSES_WITHIN_MS", 100)
    delete_topics(project.broker.bootstrap, project.source)
    with raises("replayed_topic_missing", PromiseBrokenError):
        run(project, capsys, "--rule", "paid")


def at(monkeypatch: pytest.MonkeyPatch, point: str, then: Callable[[], None]) -> None:
    """What happens to the next replays when one of them comes to the point."""
    plan = At(point, then)
    monkeypatch.setattr(CrashPlan, "from_environment", lambda: plan)


@pytest.mark.parametrize(
    ("point", "number"),
    [
        ("ledger_record:after", signal.SIGTERM),
        ("first_produce:after", signal.SIGTERM),
        ("end_txn_sent:after", signal.SIGINT),
    ],
    ids=["starting", "open", "undecided"],
)
def test_a_replay_that_is_interrupted_holds_nobody_up(project, capsys, monkeypatch, point, number):
    at(monkeypatch, point, lambda: os.kill(os.getpid(), number))
    handler = signal.getsignal(signal.SIGTERM)
    # A shell has what it runs in the background ignore it.
    of_tests = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(project, capsys, "--rule", "paid")
    finally:
        signal.signal(signal.SIGINT, of_tests)
    assert signal.getsignal(signal.SIGTERM) == handler
    # Behind an open transaction it could not be read.
    kafka_io.write_records(project.broker.bootstrap, project.source, [original(31)])
    assert original(31) in back(project)
    assert kinds(project, "paid")[-1] == "stop"
    run(project, capsys, "--rule", "paid")
    paid = [original(n) for n in range(30) if rule(n) == "paid"]
    assert sorted(back(project), key=str) == sorted([*paid, original(31)], key=str)


def kinds(project: Project, of_rule: str) -> list[str]:
    ledger = f"eos.ledger.{project.name}.replay.{of_rule}"
    kafka_io.wait_closed(project.broker.bootstrap, ledger)
    rows = kafka_io.read(project.broker.bootstrap, ledger)
    return [json.loads(row.value or b"")["kind"] for row in rows]


def test_its_ledger_is_bounded_and_refusals_end_it_cleanly(project, capsys, monkeypatch):
    monkeypatch.setattr(replayer, "LETTERS_MAX", 1)
    monkeypatch.setattr(replayer, "LEDGER_KEPT", 4)
    assert run(project, capsys, "--rule", "paid")["paid"]["put_back"] == 10
    kept = kinds(project, "paid")
    assert kept[-4:] == ["attempt", "attempt", "attempt", "stop"]
    assert len(kept) <= 5  # the stop's marker may come after the trim, which then keeps one more
    assert run(project, capsys, "--rule", "paid")["paid"]["waiting"] == 0
    elsewhere = made_dead(project, source=project.target, **{"eos.rule": "odd"})(1)
    kafka_io.write_records(project.broker.bootstrap, dlq(project), [elsewhere])
    with raises("dead_letter_origin_missing", UsageError):
        run(project, capsys, "--rule", "odd")
    assert kinds(project, "odd") == ["start", "stop"]


def test_what_retention_takes_while_it_reads_is_no_reason_to_stop(project, capsys, monkeypatch):
    """Their head goes between two micro-batches, and with it where the second would begin."""
    monkeypatch.setattr(replayer, "LETTERS_MAX", 2)
    kept_from = 10  # of 15 in each partition
    admin = AdminClient({"bootstrap.servers": project.broker.bootstrap, "log_level": 3})

    def retention() -> None:
        gone = [TopicPartition(dlq(project), number, kept_from) for number in range(PARTITIONS)]
        for done in admin.delete_records(gone).values():
            done.result(timeout=180)

    at(monkeypatch, "all_acked:before", retention)
    run(project, capsys, "--rule", "paid")
    left = [n for n in range(30) if rule(n) == "paid" and n // PARTITIONS >= kept_from]
    assert back(project) == in_order([0, 6, *left])


@pytest.mark.parametrize("is_anew", [False, True], ids=["gone", "anew"])
def test_dead_letters_that_go_while_they_are_read_end_it(project, capsys, monkeypatch, is_anew):
    """No way out is told that leads nowhere: `eos recover` knows of no replay."""

    def gone() -> None:
        delete_topics(project.broker.bootstrap, dlq(project))
        if is_anew:
            kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, dlq(project))

    monkeypatch.setattr(topic_lookup, "_PASSES_WITHIN_MS", 100 if not is_anew else 60_000)
    at(monkeypatch, "all_acked:before", gone)
    code = "recreated" if is_anew else "dead_letter_topic_gone"
    with raises(code, PromiseBrokenError) as caught:
        run(project, capsys, "--rule", "paid")
    assert "the dead-letter topic" in caught.value.message
    assert "eos recover" not in caught.value.hint
    assert back(project) == []

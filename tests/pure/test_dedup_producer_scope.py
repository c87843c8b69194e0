"""Producers whose numbers span several partitions: single cases, and the states on disk."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest
from support.dedup import Row, Sent, columns, policy, stamps, verdicts_of, versions_in
from support.errors import raises

from eos.dedup import stage, summary
from eos.dedup.buckets import SHARDS
from eos.dedup.policy import NAMES
from eos.dedup.producer_scope_stage import ProducerScopeStage
from eos.dedup.record_position import require_positions
from eos.kafka.api import TopicPartition

A, B = b"a", b"b"


def spread(*refused, **words):
    return policy(refused, window=words.pop("window", 10), **words)


def rows(*sent, start=0):
    """(partition, producer, epoch, number) each, at an offset of its own."""
    return [Row(start + at, Sent(*each)) for at, each in enumerate(sent)]


def committed(made, version, *sent, start=0):
    opened = made.begin(version)
    found = verdicts_of(opened, rows(*sent, start=start))
    verdicts = [found[each[0], start + at] for at, each in enumerate(sent)]
    return opened.commit(), verdicts


def numbers(*wanted, epoch=0, partition=0):
    return [(partition, A, epoch, number) for number in wanted]


def test_a_duplicate_is_found_in_any_partition(tmp_path):
    made = versions_in(tmp_path, spread())
    # In a micro-batch the lowest number comes first; of two the one in the first partition.
    first, found = committed(made, "", (1, A, 0, 1), (1, A, 0, 0), (0, A, 0, 1), (2, A, 0, 3))
    assert found == ["duplicate", "appended", "appended", "appended"]
    second, found = committed(made, first.version, (3, A, 0, 3), (1, A, 0, 2), start=4)
    assert found == ["duplicate", "appended"]
    assert second.summary["producers"] == [["t", 3, "a", "duplicate", 1, 4, 4]]


def test_a_gap_is_listed_with_the_lowest_missing_number(tmp_path):
    """The first one by its place, in whatever order its rows come."""
    made = versions_in(tmp_path, spread(sequences=2**16))
    first, _ = committed(made, "", *numbers(0, 1, 3))
    sent = [*numbers(12, 13, partition=1), *numbers(40, partition=0), (2, B, 0, 0), (2, B, 0, 99)]
    second, found = committed(made, first.version, *sent, start=3)
    assert found == ["gap", "appended", "gap", "appended", "gap"]
    # 12 was validated before 40, and gave up 2: then another number is missing.
    assert second.summary["gaps"] == [["t", 0, "a", 0, 4, 40, 5], ["t", 2, "b", 0, 1, 99, 7]]
    third, _ = committed(made, second.version, *numbers(60, epoch=1), start=9)
    assert third.summary["gaps"] == [["t", 0, "a", 1, 0, 60, 9]]
    # As in a story of dead letters, where nothing is given up.
    waiting = versions_in(tmp_path / "dead", spread(dead=("gap",)))
    first, _ = committed(waiting, "", *numbers(0, 1, 3))
    second, _ = committed(waiting, first.version, *numbers(12, 14), start=3)
    assert second.summary["gaps"] == [["t", 0, "a", 0, 2, 12, 3]]


@pytest.mark.parametrize("newer", [1, 2**62 - 1])
def test_an_older_epoch_is_fenced_after_a_newer_one_in_its_partition_only(tmp_path, newer):
    made = versions_in(tmp_path, spread())
    first, _ = committed(made, "", *numbers(0, 1), (0, A, newer, 0))
    _, found = committed(made, first.version, (0, A, 0, 2), (1, A, 0, 2), (0, A, 0, 1), start=3)
    assert found == ["fenced", "appended", "fenced"]
    second, found = committed(made, first.version, (1, A, 0, 1), (1, A, newer, 1), start=3)
    assert found == ["duplicate", "appended"]
    _, found = committed(made, second.version, (1, A, 0, 2), start=5)
    assert found == ["fenced"]


def test_a_corrupt_stamp_fences_no_epoch(tmp_path):
    made = versions_in(tmp_path, spread(dead=["gap"]))
    first, _ = committed(made, "", *numbers(0, 1))
    done, found = committed(made, first.version, (0, A, 9999, 10**9), (0, A, 0, 2), start=2)
    assert found == ["gap", "appended"]
    _, found = committed(made, done.version, (0, A, 0, 3), start=4)
    assert found == ["appended"]


def test_the_window_ends_the_run_with_the_missing_number(tmp_path):
    made = versions_in(tmp_path, spread("gap", window=1000))
    first, _ = committed(made, "", *numbers(0, 1, 3))
    words = "sequence 1002; 2 is still missing, at least the window of 1,000 below)"
    with raises("producer_refused") as refused:
        committed(made, first.version, *numbers(1001), (5, A, 0, 1002), (6, A, 0, 1003), start=7)
    assert "t-5 at offset 8, with verdict gap, and `on_gap` is fail (" in refused.value.message
    assert words in refused.value.message
    assert "lag by more than `window`?" in refused.value.hint
    accepting = made.begin(first.version, accepts_gap=True)
    assert set(verdicts_of(accepting, rows(*numbers(1002, 2000, 1003), start=7)).values()) == {
        "gap",
        "appended",
    }
    # All that was missing in a row is given up, and only that.
    done = accepting.commit()
    _, found = committed(made, done.version, *numbers(2, 4, 1001, 1004), start=10)
    assert found == ["late", "late", "late", "appended"]


def test_only_numbers_a_window_below_are_given_up(tmp_path):
    made = versions_in(tmp_path, spread(window=4))
    first, _ = committed(made, "", *numbers(0))
    second, found = committed(made, first.version, *numbers(4, 2, 1, 6), start=1)
    assert set(found) == {"appended"}
    _, found = committed(made, second.version, *numbers(5, 3), start=5)
    assert found == ["appended", "appended"]


def test_lower_numbers_of_an_unknown_producer_are_unknown_too(tmp_path):
    made = versions_in(tmp_path, spread("late"))
    first, found = committed(made, "", *numbers(50, 51))
    assert found == ["unknown_producer", "appended"]
    second, found = committed(made, first.version, *numbers(43, 52, 45), (3, A, 0, 49), start=2)
    assert found == ["unknown_producer", "appended", "unknown_producer", "unknown_producer"]
    _, found = committed(made, second.version, *numbers(45, 43, 53), start=6)
    assert found == ["duplicate", "duplicate", "appended"]
    with raises("producer_refused") as late:
        committed(made, second.version, *numbers(39), start=6)
    assert "late, and `on_late` is fail (producer a, epoch 0, sequence 39)" in late.value.message


def test_records_of_a_forgotten_epoch_are_late(tmp_path):
    made = versions_in(tmp_path, spread())
    done, _ = committed(made, "", *((n, A, n, 0) for n in range(6)))
    _, found = committed(made, done.version, (9, A, 1, 0), (9, A, 2, 0), (9, A, 6, 0), start=6)
    assert found == ["late", "duplicate", "appended"]


def test_an_idle_producer_is_forgotten_with_all_epochs(tmp_path):
    made = versions_in(tmp_path, spread(forget_ms=60_000))
    first, _ = committed(made, "", *numbers(0, 1), *numbers(0, epoch=1))
    opened = made.begin(first.version)
    fields = {name: getattr(opened.stage, name) for name in opened.stage.__dataclass_fields__}
    opened.stage = ProducerScopeStage(**{**fields, "now_ms": opened.stage.now_ms + 60_001})
    assert verdicts_of(opened, rows(*numbers(1), start=3)) == {(0, 3): "unknown_producer"}
    assert opened.commit().summary["expired"] == 1


def test_a_rejected_record_becomes_a_dead_letter_and_its_number_stays_missing(tmp_path):
    dead = ["gap", "late", "unstamped"]
    made = versions_in(tmp_path, spread(dead=dead))
    opened = made.begin("")
    sent = [*numbers(20), (1, A, None, 3), *numbers(0), (2, B, 0, -1), *numbers(21)]
    assert list(verdicts_of(opened, rows(*sent)).values()) == [
        *("gap", "appended", "gap", "unstamped", "unstamped")
    ]
    found = [tuple(each) for each in opened.dead()]
    assert found == [("gap", 2, "t", 0, 0), ("unstamped", 2, "t", 1, 1)]
    done = opened.commit()
    assert done.summary["dead_letters"] == {"gap": 2, "unstamped": 2}
    _, found = committed(made, done.version, *numbers(*range(1, 22)), start=5)
    assert set(found) == {"appended"}


def test_dead_letters_of_one_partition_are_listed_one_by_one(tmp_path):
    made = versions_in(tmp_path, policy(dead=["gap", "late"]))
    opened = made.begin("")
    assert isinstance(opened.stage, stage.DedupStage)
    found = verdicts_of(opened, rows(*numbers(0, 2, 3, 1, 2)))
    assert list(found.values()) == ["appended", "gap", "gap", "appended", "appended"]
    assert [tuple(each) for each in opened.dead()] == [("gap", 2, "t", 0, 1)]
    # What a person lets pass once is no dead letter.
    opened = made.begin(opened.commit().version, accepts_gap=True)
    assert verdicts_of(opened, rows(*numbers(9, 4), start=5)) == {(0, 5): "gap", (0, 6): "late"}
    assert [each.verdict for each in opened.dead()] == ["late"]


def test_a_record_that_is_missing_in_the_second_read_ends_the_attempt(tmp_path):
    opened = versions_in(tmp_path, spread()).begin("")
    sent = rows(*numbers(0, 1, 1))
    verdicts_of(opened, sent)
    lookup = opened.lookup()
    codes = [NAMES[code.as_py()] for each in lookup.codes(places(sent)) for code in each]
    assert codes == ["appended", "appended", "duplicate"]
    with raises("source_changed_during_attempt") as gone:
        list(lookup.codes(places(sent[1:])))
    assert "3 records of t-0, but 2 " in gone.value.message
    for each in lookup.files:
        (lookup.work.local / each).write_text("cut off")
    with raises("dedup_files_unreadable"):
        list(lookup.codes(places(sent)))


def places(sent):
    return iter([columns(sent)[:3]])


def test_of_two_records_with_one_number_the_first_by_topic_and_partition_counts(tmp_path):
    opened = versions_in(tmp_path, spread()).begin("")
    lie = [("b", 0, 0), ("a", 1, 9), ("b", 1, 0), ("a", 0, 9), ("a", 0, 8)]
    numbered = [0, 0, 1, 2, 2]
    sent = [Row(offset, Sent(at, b"p", 0, numbered[n])) for n, (_, at, offset) in enumerate(lie)]
    named = pa.array([topic for topic, _, _ in lie])
    opened.stage.validate([(0, stamps(sent, named.to_pylist()))])
    lookup = opened.lookup()
    assert lookup.counts == {("a", 0): 2, ("a", 1): 1, ("b", 0): 1, ("b", 1): 1}
    (codes,) = lookup.codes(iter([(named, *columns(sent)[1:3])]))
    duplicates = [place for place, code in zip(lie, codes.to_pylist(), strict=True) if code]
    assert duplicates == [("b", 0, 0), ("a", 0, 9)]


def test_a_shard_that_ran_twice_counts_once_and_one_that_differs_stops(tmp_path):
    made = versions_in(tmp_path, spread())
    opened = made.begin("")
    for _ in range(2):
        verdicts_of(opened, rows(*numbers(0, 1)))
    assert opened.lookup().counts == {("t", 0): 2}
    assert opened.commit().summary["verdicts"] == {"appended": 2}
    opened = made.begin("")
    verdicts_of(opened, rows(*numbers(0, 1)))
    with raises("dedup_order"):
        verdicts_of(opened, rows(*numbers(0, 1, 2)))


def test_unchanged_states_are_not_written_again(tmp_path):
    made = versions_in(tmp_path, spread())
    many = [(0, b"%d" % n, 0, 0) for n in range(40)]
    first, _ = committed(made, "", *many)
    before = made.begin(first.version).known
    second, found = committed(made, first.version, *many, start=40)
    assert set(found) == {"duplicate"}
    assert made.begin(second.version).known == before
    third, _ = committed(made, second.version, (0, b"7", 0, 1), start=80)
    after = made.begin(third.version).known
    assert sum(before[home] != after[home] for home in before) == 1


def test_a_task_that_runs_again_reports_the_same(tmp_path, monkeypatch):
    """Only some of many producers are listed, and a shuffle has another order each time."""
    monkeypatch.setattr(summary, "SPANS_LISTED_MAX", 3)
    opened = versions_in(tmp_path, spread()).begin("")
    # A record of each of ten producers comes twice.
    ids = [b"%d" % at for at in range(400) if zlib.crc32(b"%d" % at) % SHARDS == 0][:10]
    sent = rows(*((0, each, 0, 0) for each in ids for _ in range(2)))
    for order in (sent, sent[::-1]):
        opened.stage.validate([(0, stamps(order))])
    opened.reports()  # they agree


def test_partitions_and_offsets_beyond_the_limits_are_refused():
    require_positions({TopicPartition("t", (1 << 16) - 1): 1 << 47})
    for at, end in ((1 << 16, 1), (0, (1 << 47) + 1)):
        with raises("dedup_offset_limit"):
            require_positions({TopicPartition("t", at): end})

"""Producers whose numbers are spread over partitions: single stories, and what lies on disk."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from support.dedup import Row, Sent, columns, policy, stamps, state_versions, verdicts_of
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


def committed(made, generation, *sent, start=0):
    opened = made.begun(generation)
    found = verdicts_of(opened, rows(*sent, start=start))
    verdicts = [found[each[0], start + at] for at, each in enumerate(sent)]
    return opened.commit(), verdicts


def numbers(*wanted, epoch=0, partition=0):
    return [(partition, A, epoch, number) for number in wanted]


def test_a_duplicate_is_told_in_whichever_partition_it_comes(tmp_path):
    made = state_versions(tmp_path, spread())
    # In a micro-batch the lowest number comes first; of two the one in the first partition.
    first, found = committed(made, "", (1, A, 0, 1), (1, A, 0, 0), (0, A, 0, 1), (2, A, 0, 3))
    assert found == ["duplicate", "appended", "appended", "appended"]
    second, found = committed(made, first.generation, (3, A, 0, 3), (1, A, 0, 2), start=4)
    assert found == ["duplicate", "appended"]
    assert second.told["producers"] == [["t", 3, "a", "duplicate", 1, 4, 4]]


def test_a_gap_is_told_with_the_lowest_number_that_is_missing(tmp_path):
    """The first one by its place, in whatever order its rows come."""
    made = state_versions(tmp_path, spread(sequences=2**16))
    first, _ = committed(made, "", *numbers(0, 1, 3))
    sent = [*numbers(12, 13, partition=1), *numbers(40, partition=0), (2, B, 0, 0), (2, B, 0, 99)]
    second, found = committed(made, first.generation, *sent, start=3)
    assert found == ["gap", "appended", "gap", "appended", "gap"]
    # 12 was judged before 40, and gave up 2: another number is missing then.
    assert second.told["gaps"] == [["t", 0, "a", 0, 4, 40, 5], ["t", 2, "b", 0, 1, 99, 7]]
    third, _ = committed(made, second.generation, *numbers(60, epoch=1), start=9)
    assert third.told["gaps"] == [["t", 0, "a", 1, 0, 60, 9]]
    # As in a story of dead letters, where nothing is given up.
    waiting = state_versions(tmp_path / "dead", spread(dead=("gap",)))
    first, _ = committed(waiting, "", *numbers(0, 1, 3))
    second, _ = committed(waiting, first.generation, *numbers(12, 14), start=3)
    assert second.told["gaps"] == [["t", 0, "a", 0, 2, 12, 3]]


@pytest.mark.parametrize("newer", [1, 2**62 - 1])
def test_an_older_epoch_is_fenced_behind_a_newer_one_in_its_partition_only(tmp_path, newer):
    made = state_versions(tmp_path, spread())
    first, _ = committed(made, "", *numbers(0, 1), (0, A, newer, 0))
    _, found = committed(made, first.generation, (0, A, 0, 2), (1, A, 0, 2), (0, A, 0, 1), start=3)
    assert found == ["fenced", "appended", "fenced"]
    second, found = committed(made, first.generation, (1, A, 0, 1), (1, A, newer, 1), start=3)
    assert found == ["duplicate", "appended"]
    _, found = committed(made, second.generation, (1, A, 0, 2), start=5)
    assert found == ["fenced"]


def test_one_stamp_of_nonsense_fences_nobody(tmp_path):
    made = state_versions(tmp_path, spread(dead=["gap"]))
    first, _ = committed(made, "", *numbers(0, 1))
    done, found = committed(made, first.generation, (0, A, 9999, 10**9), (0, A, 0, 2), start=2)
    assert found == ["gap", "appended"]
    _, found = committed(made, done.generation, (0, A, 0, 3), start=4)
    assert found == ["appended"]


def test_the_window_ends_the_run_and_says_what_is_missing(tmp_path):
    made = state_versions(tmp_path, spread("gap", window=1000))
    first, _ = committed(made, "", *numbers(0, 1, 3))
    words = "sequence 1002; 2 is still missing, at least the window of 1,000 below)"
    with raises("producer_refused") as refused:
        committed(made, first.generation, *numbers(1001), (5, A, 0, 1002), (6, A, 0, 1003), start=7)
    assert "t-5 at offset 8, with verdict gap (" in refused.value.message
    assert words in refused.value.message
    assert "lag by more than `window`?" in refused.value.hint
    accepting = made.begun(first.generation, accepts_gap=True)
    assert set(verdicts_of(accepting, rows(*numbers(1002, 2000, 1003), start=7)).values()) == {
        "gap",
        "appended",
    }
    # All that was missing in a row is given up, and only that.
    done = accepting.commit()
    _, found = committed(made, done.generation, *numbers(2, 4, 1001, 1004), start=10)
    assert found == ["late", "late", "late", "appended"]


def test_only_what_is_a_window_behind_is_given_up(tmp_path):
    made = state_versions(tmp_path, spread(window=4))
    first, _ = committed(made, "", *numbers(0))
    second, found = committed(made, first.generation, *numbers(4, 2, 1, 6), start=1)
    assert set(found) == {"appended"}
    _, found = committed(made, second.generation, *numbers(5, 3), start=5)
    assert found == ["appended", "appended"]


def test_of_an_unknown_producer_what_lies_below_is_told(tmp_path):
    made = state_versions(tmp_path, spread("late"))
    first, found = committed(made, "", *numbers(50, 51))
    assert found == ["unknown_producer", "appended"]
    second, found = committed(made, first.generation, *numbers(43, 52, 45), (3, A, 0, 49), start=2)
    assert found == ["unknown_producer", "appended", "unknown_producer", "unknown_producer"]
    _, found = committed(made, second.generation, *numbers(45, 43, 53), start=6)
    assert found == ["duplicate", "duplicate", "appended"]
    with raises("producer_refused") as late:
        committed(made, second.generation, *numbers(39), start=6)
    assert "with verdict late (producer a, epoch 0, sequence 39)" in late.value.message


def test_what_of_an_epoch_is_forgotten_is_late(tmp_path):
    made = state_versions(tmp_path, spread())
    done, _ = committed(made, "", *((n, A, n, 0) for n in range(6)))
    _, found = committed(made, done.generation, (9, A, 1, 0), (9, A, 2, 0), (9, A, 6, 0), start=6)
    assert found == ["late", "duplicate", "appended"]


def test_who_sent_nothing_for_too_long_is_forgotten_with_all_epochs(tmp_path):
    made = state_versions(tmp_path, spread(forget_ms=60_000))
    first, _ = committed(made, "", *numbers(0, 1), *numbers(0, epoch=1))
    opened = made.begun(first.generation)
    fields = {name: getattr(opened.stage, name) for name in opened.stage.__dataclass_fields__}
    opened.stage = ProducerScopeStage(**{**fields, "now_ms": opened.stage.now_ms + 60_001})
    assert verdicts_of(opened, rows(*numbers(1), start=3)) == {(0, 3): "unknown_producer"}
    assert opened.commit().told["expired"] == 1


def test_what_is_refused_goes_to_the_dead_letters_and_its_number_stays_open(tmp_path):
    dead = ["gap", "late", "unstamped"]
    made = state_versions(tmp_path, spread(dead=dead))
    opened = made.begun("")
    sent = [*numbers(20), (1, A, None, 3), *numbers(0), (2, B, 0, -1), *numbers(21)]
    assert list(verdicts_of(opened, rows(*sent)).values()) == [
        *("gap", "appended", "gap", "unstamped", "unstamped")
    ]
    found = [tuple(each) for each in opened.dead()]
    assert found == [("gap", 2, "t", 0, 0), ("unstamped", 2, "t", 1, 1)]
    done = opened.commit()
    assert done.told["dead_letters"] == {"gap": 2, "unstamped": 2}
    _, found = committed(made, done.generation, *numbers(*range(1, 22)), start=5)
    assert set(found) == {"appended"}


def test_dead_letters_of_one_partition_are_known_one_by_one_too(tmp_path):
    made = state_versions(tmp_path, policy(dead=["gap", "late"]))
    opened = made.begun("")
    assert isinstance(opened.stage, stage.DedupStage)
    found = verdicts_of(opened, rows(*numbers(0, 2, 3, 1, 2)))
    assert list(found.values()) == ["appended", "gap", "gap", "appended", "appended"]
    assert [tuple(each) for each in opened.dead()] == [("gap", 2, "t", 0, 1)]
    # What a person lets pass once is no dead letter.
    opened = made.begun(opened.commit().generation, accepts_gap=True)
    assert verdicts_of(opened, rows(*numbers(9, 4), start=5)) == {(0, 5): "gap", (0, 6): "late"}
    assert [each.verdict for each in opened.dead()] == ["late"]


def test_a_record_that_is_gone_when_it_is_read_again_ends_the_attempt(tmp_path):
    opened = state_versions(tmp_path, spread()).begun("")
    sent = rows(*numbers(0, 1, 1))
    verdicts_of(opened, sent)
    lookup = opened.lookup()
    codes = [NAMES[code.as_py()] for each in lookup.codes(places(sent)) for code in each]
    assert codes == ["appended", "appended", "duplicate"]
    with raises("source_changed_during_attempt") as gone:
        list(lookup.codes(places(sent[1:])))
    assert "3 records of t-0, but 2 " in gone.value.message
    for each in lookup.files:
        Path(each).write_text("cut off")
    with raises("dedup_files_unreadable"):
        list(lookup.codes(places(sent)))


def places(sent):
    return iter([columns(sent)[:3]])


def test_of_two_records_with_one_number_the_first_by_topic_and_partition_counts(tmp_path):
    opened = state_versions(tmp_path, spread()).begun("")
    lie = [("b", 0, 0), ("a", 1, 9), ("b", 1, 0), ("a", 0, 9), ("a", 0, 8)]
    numbered = [0, 0, 1, 2, 2]
    sent = [Row(offset, Sent(at, b"p", 0, numbered[n])) for n, (_, at, offset) in enumerate(lie)]
    named = pa.array([topic for topic, _, _ in lie])
    opened.stage.judge([(0, stamps(sent, named.to_pylist()))])
    lookup = opened.lookup()
    assert lookup.counts == {("a", 0): 2, ("a", 1): 1, ("b", 0): 1, ("b", 1): 1}
    (codes,) = lookup.codes(iter([(named, *columns(sent)[1:3])]))
    duplicates = [place for place, code in zip(lie, codes.to_pylist(), strict=True) if code]
    assert duplicates == [("b", 0, 0), ("a", 0, 9)]


def test_a_shard_that_ran_twice_counts_once_and_one_that_differs_stops(tmp_path):
    made = state_versions(tmp_path, spread())
    opened = made.begun("")
    for _ in range(2):
        verdicts_of(opened, rows(*numbers(0, 1)))
    assert opened.lookup().counts == {("t", 0): 2}
    assert opened.commit().told["verdicts"] == {"appended": 2}
    opened = made.begun("")
    verdicts_of(opened, rows(*numbers(0, 1)))
    with raises("dedup_order"):
        verdicts_of(opened, rows(*numbers(0, 1, 2)))


def test_states_that_did_not_move_are_not_written_anew(tmp_path):
    made = state_versions(tmp_path, spread())
    many = [(0, b"%d" % n, 0, 0) for n in range(40)]
    first, _ = committed(made, "", *many)
    before = made.begun(first.generation).known
    second, found = committed(made, first.generation, *many, start=40)
    assert set(found) == {"duplicate"}
    assert made.begun(second.generation).known == before
    third, _ = committed(made, second.generation, (0, b"7", 0, 1), start=80)
    after = made.begun(third.generation).known
    assert sum(before[home] != after[home] for home in before) == 1


def test_a_task_that_runs_again_tells_of_the_same(tmp_path, monkeypatch):
    """Of too many not all are told; a shuffle hands its rows over in another order each time."""
    monkeypatch.setattr(summary, "TOLD_MAX", 3)
    opened = state_versions(tmp_path, spread()).begun("")
    # A record of each of ten producers comes twice.
    ids = [b"%d" % at for at in range(400) if zlib.crc32(b"%d" % at) % SHARDS == 0][:10]
    sent = rows(*((0, each, 0, 0) for each in ids for _ in range(2)))
    for order in (sent, sent[::-1]):
        opened.stage.judge([(0, stamps(order))])
    opened.reports()  # they agree


def test_places_that_one_number_can_not_hold_are_refused():
    require_positions({TopicPartition("t", (1 << 16) - 1): 1 << 47})
    for at, end in ((1 << 16, 1), (0, (1 << 47) + 1)):
        with raises("dedup_offset_limit"):
            require_positions({TopicPartition("t", at): end})

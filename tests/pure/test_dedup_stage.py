"""A task that validates one partition, or several, one after the other."""

from __future__ import annotations

import pytest
from support.dedup import Row, Sent, columns, versions_in
from support.errors import raises

from eos.dedup import stage as stages
from eos.errors import PromiseBrokenError

PARTITIONS = (0, 3, 1)  # in the order in which a task reads them


def in_order(count, partition=0):
    """Rows of one partition: some are resent, have no stamp, or come after a gap."""
    rows = []
    for at in range(count):
        who = None if at % 11 == 7 else b"producer-%d" % (at % 23)
        rows.append(Row(at, Sent(partition, who, at // 300, at // 23 * 2 // 3 + (at > 200))))
    return rows


def parts(rows, size):
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def codes_of(stage, batches):
    return [code.as_py() for each in stage.codes(map(columns, batches)) for code in each]


def reports_of(begun):
    """What is reported, but for the names of files."""
    found = {}
    for tp, report in begun.reports().items():
        files = [(bucket, rows) for bucket, _path, rows, _size in report["files"]]
        found[tp] = {**report, "files": files, "notes": bool(report["notes"])}
    return found


@pytest.mark.parametrize("chunk", [50, 1 << 17])
@pytest.mark.parametrize("size", [1, 7, 90, 2000])
def test_a_task_with_several_partitions_finds_what_a_task_for_each_finds(
    tmp_path, monkeypatch, size, chunk
):
    """Twice, so that there are states. A batch may hold the end of a partition and the next one."""
    monkeypatch.setattr(stages, "CHUNK_ROWS", chunk)
    each, one = (versions_in(tmp_path / name) for name in ("each", "one"))
    before = "", ""
    for turn in range(2):
        read = [
            [row._replace(offset=row.offset + 400 * turn) for row in in_order(400, partition)]
            for partition in PARTITIONS
        ]
        by_each, by_one = each.begin(before[0]), one.begin(before[1])
        wanted = [code for rows in read for code in codes_of(by_each.stage, parts(rows, 90))]
        together = [row for rows in read for row in rows]
        assert codes_of(by_one.stage, parts(together, size)) == wanted
        assert reports_of(by_one) == reports_of(by_each)
        assert by_one.validated() == {("t", partition): 400 for partition in PARTITIONS}
        commits = by_each.commit(), by_one.commit()
        assert commits[0].summary == commits[1].summary
        assert {"duplicate", "unstamped"} < set(commits[0].summary["verdicts"])
        before = commits[0].version, commits[1].version


def test_the_states_of_a_partition_leave_the_memory_when_the_next_one_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "CHUNK_ROWS", 50)
    begun = versions_in(tmp_path).begin("")
    ended = []

    def batches():
        for partition in PARTITIONS:
            for part in parts(in_order(200, partition), 40):
                ended.append((partition, {tp.partition for tp in begun.reports()}))
                yield part

    codes_of(begun.stage, batches())
    first, second, third = PARTITIONS
    assert ended[-1] == (third, {first, second})
    assert all(partition not in of for partition, of in ended)


def test_a_partition_that_a_task_reads_in_two_pieces_stops_the_run(tmp_path, monkeypatch):
    """Its second piece would be validated without the states of the first."""
    monkeypatch.setattr(stages, "CHUNK_ROWS", 50)
    begun = versions_in(tmp_path).begin("")
    rows = in_order(200)
    codes_of(begun.stage, [rows[:100], in_order(100, 1), rows[100:]])
    with raises("dedup_order", PromiseBrokenError):
        begun.validated()


def test_a_batch_without_rows_ends_no_partition(tmp_path):
    begun = versions_in(tmp_path).begin("")
    rows = in_order(200)
    batches = map(columns, [[], rows[:100], [], rows[100:], []])
    assert [len(each) for each in begun.stage.codes(batches, lambda: True)] == [0, 100, 0, 100, 0]
    assert begun.validated() == {("t", 0): 200}


def test_long_ids_are_validated_a_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "CHUNK_BYTES", 100)
    batches = [columns([Row(at, Sent(0, b"app" * 20, 0, at))]) for at in range(9)]
    given = []
    stage = versions_in(tmp_path).begin("").stage
    for seen, _ in enumerate(stage.codes(given.append(each) or each for each in batches), 1):
        assert len(given) - seen <= 1
    assert seen == 9


def test_a_caller_that_can_hold_no_more_rows_gets_their_verdicts(tmp_path):
    begun = versions_in(tmp_path).begin("")
    held = []

    def batches():
        for part in parts(in_order(90), 10):
            held.append(part)
            yield columns(part)

    for _ in begun.stage.codes(batches(), lambda: len(held) >= 3):
        assert len(held) <= 3
        held.pop(0)
    assert not held
    assert begun.validated() == {("t", 0): 90}

"""`eos verify` of Delta tables: each commit and its data files are those that the pipeline wrote.

The tables are real ones, written by delta-rs.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from support.delta.proven_lake import ROWS, Lake, store_of

from eos.finding import FindingKind, Witness
from eos.folder import LocalFolder
from eos.kafka.api import Identity
from eos.plan.delta_sink import Table
from eos.verify import table_files
from eos.verify.table_files import TableFiles

WITNESS = Witness(2, "attempt", 0, 1, Identity(5, 2))


def files_of(table: Table) -> TableFiles:
    store = store_of(table)
    return TableFiles(store, store.log("app"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(Table("all", str(tmp_path / "all")))
    made.adopt()
    made.run(2)
    made.note("stop")
    return made


def with_other_rows(lake: Lake, *numbers: int) -> None:
    """Replace the data file of the first micro-batch, and its size in the log."""
    file = lake.data_file(1)
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), file)
    lake.edit(1, add=lambda it: it.update(size=file.stat().st_size))


def accept_the_log(lake: Lake) -> None:
    """As if the ledger had been written by a release without digests."""
    for each in lake.records:
        assert each.tables is not None
        each.tables.update({name: it._replace(sha256=None) for name, it in each.tables.items()})


def test_a_changed_commit_is_found(lake: Lake) -> None:
    """Only in a column's statistics, which nothing else in the log repeats."""

    def raised(it: dict[str, Any]) -> None:
        stats = json.loads(it["stats"])
        stats["maxValues"]["n"] += 1
        it["stats"] = json.dumps(stats)

    before = lake.verify()
    assert (before.cases, before.proof.unchanged) == ([], 2)
    lake.edit(1, add=raised)
    done = lake.verify()
    assert done.cases == ["delta_changed", "delta_file"]
    changed, file = (each.message for each in done.findings.listed[FindingKind.WRONG])
    assert "its version 1 was changed in the log: its SHA-256 is " in changed
    assert changed.endswith(", of micro-batch 0 (ledger offset 2, producer 5/2)")
    assert "has n from 0 to 9, but 0 to 10 in the log, of micro-batch 0" in file
    assert done.proof.unchanged == 1


def test_counts_that_are_gone_are_not_proven(lake: Lake) -> None:
    """With a digest in the ledger, the commit is changed."""
    lake.edit(1, commitInfo=lambda it: it.pop("operationMetrics"))
    assert lake.verify().cases == ["delta_changed"]
    accept_the_log(lake)
    told = lake.verify().only("delta_unproven", FindingKind.GONE)
    assert "1 write (ledger offsets 2 to 2) could not be proven: their row counts in the" in told


def test_a_missing_file_is_found(lake: Lake) -> None:
    lake.data_file(2).unlink()
    told = lake.verify().only("delta_file")
    name = lake.data_file(2).name
    assert f"the file {name} of its version 2 is missing, of micro-batch 1" in told


def test_a_file_of_another_size_is_found(lake: Lake) -> None:
    with lake.data_file(1).open("ab") as file:
        file.write(b"x")
    size = lake.data_file(1).stat().st_size
    assert f"has {size} bytes, but {size - 1} in the log" in lake.verify().only("delta_file")


def test_a_file_that_can_not_be_read_is_found(lake: Lake) -> None:
    file = lake.data_file(1)
    file.write_bytes(b"x" * file.stat().st_size)
    assert "can't be read (" in lake.verify().only("delta_file")


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        (range(ROWS - 1), "has 9 rows, but 10 in the log"),
        (range(1, ROWS + 1), "has n from 1 to 10, but 0 to 9 in the log"),
    ],
)
def test_a_file_with_other_rows_is_found(lake: Lake, numbers: range, problem: str) -> None:
    """Although its size in the log was changed, too. The digest finds that on its own."""
    with_other_rows(lake, *numbers)
    assert lake.verify().cases == ["delta_changed", "delta_file"]
    accept_the_log(lake)
    assert problem in lake.verify().only("delta_file")


def test_files_that_the_table_no_longer_uses_need_not_exist(lake: Lake) -> None:
    found = DeltaTable(lake.table.path)
    found.optimize.compact()
    lake.data_file(1).unlink()
    done = lake.verify()
    assert done.cases == []
    assert (done.proof.files.checked, done.proof.files.replaced) == (1, 1)


def test_files_of_a_table_that_can_not_be_read_are_not_proven(lake: Lake) -> None:
    lake.data_file(1).unlink()
    lake.file(0).write_text("not read")
    files = files_of(lake.table)
    assert files.check(1, WITNESS) == ROWS
    (finding,) = files.findings()
    assert finding.kind is FindingKind.GONE
    assert "1 data file could not be proven: the table can't be read (" in finding.message


class OneSilentFile(LocalFolder):
    """A folder as of a bucket that does not return one of its files."""

    local = None  # type: ignore[assignment]
    silent = ""

    def open_read(self, name: str) -> BinaryIO:
        if name == self.silent:
            raise OSError("AWS Error NETWORK_CONNECTION during HeadObject operation")
        return (self.path / name).open("rb")


def test_a_file_that_its_bucket_does_not_return_is_not_proven(lake: Lake) -> None:
    """A damaged one is wrong, also in a bucket."""
    folder = OneSilentFile(Path(lake.table.path))
    object.__setattr__(folder, "silent", lake.data_file(1).name)
    lake.data_file(2).write_bytes(b"x" * lake.data_file(2).stat().st_size)
    store = replace(store_of(lake.table), folder=folder)
    files = TableFiles(store, store.log("app"))
    assert [files.check(version, WITNESS) for version in (1, 2)] == [ROWS, ROWS]
    silent, damaged = files.findings()
    assert (silent.case, silent.kind) == ("delta_unproven", FindingKind.GONE)
    assert "of its version 1 can't be read (AWS Error NETWORK_CONNECTION " in silent.message
    assert damaged.case == "delta_file"


def test_many_differing_files_are_reported_early(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "_SUSPECTS_MAX", 1)
    sizes: list[int] = []
    listed = TableFiles.findings

    def counted(files: TableFiles) -> Any:
        sizes.append(len(files._suspects))
        return listed(files)

    monkeypatch.setattr(TableFiles, "findings", counted)
    for version in (1, 2):
        lake.data_file(version).unlink()
    lake.note()
    lake.note()
    assert lake.verify().cases == ["delta_file"] * 2
    assert max(sizes) == 1


def partly(lake: Lake, **columns: pa.Array) -> None:
    """Append rows with several columns as a micro-batch, to a table of its own."""
    write_deltalake(lake.table.path, pa.table(columns), mode="append", partition_by=["p"])


COLUMNS: dict[str, pa.Array] = {
    "p": pa.array(["a b/\u00fc:%", "x=y", None]),
    "day": pa.array([dt.date(1969, 12, 31), dt.date(2026, 11, 26), None]),
    "text": pa.array(["x" * 40 + "1", "x" * 40 + "2", "\u00fc" * 70]),
    "real": pa.array([0.1, 0.2, float("nan")], pa.float32()),
    "at": pa.array([10**15 + 1, None, 2 * 10**15], pa.timestamp("us")),
    "amount": pa.array([1, 2, None]).cast(pa.decimal128(30, 2)),
    "nested": pa.array([{"a.b": {"n": 1}}, {"a.b": {"n": None}}, None]),
    "no": pa.array([None, None, None], pa.int32()),
    "flag": pa.array([True, False, None]),
}


def test_files_with_columns_of_all_types_agree(tmp_path: Path) -> None:
    table = Table("all", str(tmp_path / "all"))
    partly(Lake(table), **COLUMNS)
    files = files_of(table)
    assert files.check(0, WITNESS) == 3
    assert list(files.findings()) == []
    assert files.checked == 3


@pytest.mark.parametrize("lead", ["", "file:", "file://"])
def test_a_file_with_an_absolute_path_is_read(lake: Lake, lead: str) -> None:
    place = lake.data_file(1)
    lake.edit(1, add=lambda it: it.update(path=f"{lead}{place}"))
    files = files_of(lake.table)
    assert files.check(1, WITNESS) == ROWS
    assert (files.checked, list(files.findings())) == (1, [])


def test_a_commit_with_several_missing_files_is_one_finding(tmp_path: Path) -> None:
    table = Table("all", str(tmp_path / "all"))
    partly(Lake(table), **COLUMNS)
    for file in Path(table.path).rglob("part-*.parquet"):
        file.unlink()
    files = files_of(table)
    files.check(0, WITNESS)
    (finding,) = files.findings()
    assert " is missing, of micro-batch 0 (" in finding.message
    assert finding.message.endswith("; it has 2 more such files")
    assert (files.checked, files.replaced) == (0, 0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda it: it["minValues"].update(day="1970-01-01"), "has day from '1969-12-31'"),
        (lambda it: it["maxValues"].update(text="y"), "has text from "),
        (lambda it: it["maxValues"].update(text="x" * 32 + "\ufffd"), ""),  # as Spark cuts it
        (lambda it: it["minValues"]["nested"]["a.b"].update(n=2), "has nested.a.b.n from 1 to 1"),
        (lambda it: it.update(minValues=nested(900)), ""),
        (lambda it: it.update(minValues=[], maxValues=7, tightBounds=None), ""),
        (lambda it: it.update(minValues={"day": "0"}, tightBounds=False), ""),
        (lambda it: it["minValues"].update(real=7.0), ""),  # the log has fewer digits
    ],
)
def test_changed_ranges_are_found(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    lake = Lake(Table("all", str(tmp_path / "all")))
    partly(lake, **{name: column[:1] for name, column in COLUMNS.items()})

    def changed(it: dict[str, Any]) -> None:
        stats = json.loads(it["stats"])
        change(stats)
        it["stats"] = json.dumps(stats)

    files = files_of(lake.table)
    lake.edit(0, add=changed)
    files.check(0, WITNESS)
    assert [problem in each.message for each in files.findings()] == ([True] if problem else [])


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"x": found}
    return found

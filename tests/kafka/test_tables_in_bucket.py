"""`eos verify` proves Delta tables in a bucket of a real S3 server, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.delta.proven_lake import Lake, Proven, proven
from support.machines.stores import BUCKET, NOWHERE, S3, versity

from eos.plan.delta_sink import Table
from eos.verify.delta_tables import Sinks, TableWrite, read_tables

pytestmark = pytest.mark.long  # the server is built once, which takes minutes
MICRO_BATCHES = 3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with versity(tmp_path_factory.mktemp("versity")) as found:
        yield found


@dataclass
class InBucket:
    """A table of micro-batches, and its copy in a bucket."""

    lake: Lake
    store: S3
    key: str

    @property
    def table(self) -> Table:
        return Table("all", f"s3a://{BUCKET}/{self.key}")

    def name(self, path: Path) -> str:
        return f"{self.key}/{path.relative_to(self.lake.table.path)}"

    def verify(self) -> Proven:
        conf = self.store.settings()
        return proven(self.lake, self.lake.records, table=self.table, conf=conf)

    def read(self, bucket: str = BUCKET) -> TableWrite | str:
        table = Table("all", f"s3a://{bucket}/{self.key}")
        sinks = Sinks((table,), {"all": "app"}, "orders", self.store.settings())
        return read_tables(sinks)["all"]


@pytest.fixture
def copied(tmp_path: Path, store: S3) -> InBucket:
    lake = Lake(Table("all", str(tmp_path / "all")))
    lake.adopt()
    lake.run(MICRO_BATCHES)
    lake.note("stop")
    made = InBucket(lake, store, f"lake/{tmp_path.name}")
    for path in Path(lake.table.path).rglob("*"):
        if path.is_file():
            store.put(made.name(path), path.read_bytes())
    return made


def test_each_commit_and_its_files_are_proven(copied: InBucket) -> None:
    found = copied.verify()
    assert found.cases == []
    assert (found.proof.commits, found.proof.unchanged) == (MICRO_BATCHES, MICRO_BATCHES)
    assert found.proof.files.checked == MICRO_BATCHES
    state = copied.lake.state
    assert state is not None
    assert copied.read() == TableWrite(state.id, state.at, state.version)


def test_a_file_that_is_cut_or_gone_is_found(copied: InBucket) -> None:
    name = copied.name(copied.lake.data_file(1))
    whole = copied.store.get(name)
    copied.store.put(name, whole[:-1])
    expected = f"has {len(whole) - 1:,} bytes, but {len(whole):,} in the log, of micro-batch 0"
    assert expected in copied.verify().only("delta_file")
    copied.store.remove(name)
    assert "is missing, of micro-batch 0" in copied.verify().only("delta_file")


def test_an_edited_and_a_missing_commit_are_found(copied: InBucket) -> None:
    name = copied.name(copied.lake.file(2))
    copied.store.put(name, copied.store.get(name) + b"\n")
    assert copied.verify().only("delta_changed")
    copied.store.remove(name)
    assert str(copied.read()).startswith("can't be read (")


def test_a_table_that_is_gone_and_a_server_that_does_not_answer(copied: InBucket) -> None:
    copied.store.remove(copied.key)
    assert copied.read() == "is gone"
    assert str(copied.read(NOWHERE)).startswith("can't be read (")

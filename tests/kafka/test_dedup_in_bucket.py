"""Dedup's states in a bucket of a real S3 server: two copies, and a store that is away."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.dedup import Row, Sent, policy, verdicts_of, versions_in
from support.errors import raises
from support.machines.stores import S3, versity

from eos.dedup.buckets import BucketFile, BucketKey
from eos.dedup.state_table import ProducersTable, StateVersion
from eos.errors import PromiseBrokenError, UnavailableError
from eos.folder import Folder, folder_of

pytestmark = pytest.mark.long  # the server is built once, which takes minutes

COPIES, VERSIONS = 3, 6


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with versity(tmp_path_factory.mktemp("versity")) as found:
        yield found


def states(store: S3, name: str) -> Folder:
    found = folder_of(f"{store.root}/dedup/{name}", store.settings())
    assert found is not None
    return found


def test_a_version_of_each_copy_has_exactly_the_files_that_it_listed(store: S3, name: str) -> None:
    """All create the table and commit at the same time, as a fenced copy and its successor may."""

    def commit(copy: int) -> list[tuple[StateVersion, BucketFile]]:
        table, done = ProducersTable(states(store, name), "p"), []
        for number in range(VERSIONS):
            file = BucketFile(f"t-0/{copy}-{number}.parquet", 1, 10)
            done.append((table.commit({BucketKey("t", 0, 1, 0): file}, "rules"), file))
        return done

    with ThreadPoolExecutor(COPIES) as threads:
        every = [each for done in threads.map(commit, range(COPIES)) for each in done]
    assert len({version.delta_version for version, _ in every}) == COPIES * VERSIONS
    table = ProducersTable(states(store, name), "p")
    for version, file in every:
        assert list(table.files(version).values()) == [file]


@pytest.mark.parametrize("window", [0, 60], ids=["partition", "producer"])
def test_states_outlive_the_process_and_old_attempts_are_deleted(
    store: S3, name: str, window: int
) -> None:
    rows = [Row(offset, Sent(0, b"a", 0, offset)) for offset in range(10)]
    version = ""
    for turn in range(3):  # the same records each time: the later ones are duplicates
        made = versions_in(states(store, name), policy(window=window))
        opened = made.begin(version)
        found = verdicts_of(opened, [Row(10 * turn + offset, sent) for offset, sent in rows])
        assert set(found.values()) == {"duplicate" if turn else "appended"}
        version = opened.commit().version
        made.begin(version)
        assert len(states(store, name).child("producers/_attempts").folders()) <= turn + 1


def test_a_store_that_is_away_is_not_taken_for_lost_states(tmp_path: Path, name: str) -> None:
    with versity(tmp_path) as store:
        made = versions_in(states(store, name))
        opened = made.begin("")
        verdicts_of(opened, [Row(0, Sent(0, b"a", 0, 0))])
        version = opened.commit().version
        conf = store.settings()
        where = f"{store.root}/dedup/{name}"
        wrong = folder_of(where, {**conf, "spark.hadoop.fs.s3a.secret.key": "wrong"})
        assert wrong is not None
        with raises("producers_unavailable", UnavailableError):
            versions_in(wrong).require(version)
        states(store, name).remove_folder("producers")
        with raises("producers_lost", PromiseBrokenError):
            versions_in(states(store, name)).require(version)
    away = folder_of(where, {**conf, "spark.hadoop.fs.s3a.retry.limit": "0"})
    assert away is not None
    with raises("producers_unavailable", UnavailableError):
        versions_in(away).require(version)

"""Checkpoints in S3 and in HDFS, through Hadoop's own clients, against real servers.

Each store has a server of its own, and all runs share one warm driver that knows both clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.brokers import Kafka
from support.past import Past
from support.project import PROFILE, Project
from support.stores import S3, Hdfs, Store, hdfs, s3
from support.warm import KILLED, Warm

from eos.config.load import load_profile
from eos.launch import jars

pytestmark = pytest.mark.timeout(600)  # may start a warm driver


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Store]]:
    with (
        hdfs(tmp_path_factory.mktemp("hdfs")) as an_hdfs,
        s3(tmp_path_factory.mktemp("s3")) as an_s3,
    ):
        yield {"hdfs": an_hdfs, "s3": an_s3}


@pytest.fixture(scope="module")
def far_driver(
    stores: Mapping[str, S3 | Hdfs], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Warm]:
    folder = tmp_path_factory.mktemp("far")
    conf = {"spark.jars": ",".join(map(str, jars.ensure(jars.S3)[jars.S3]))}
    for store in stores.values():
        conf |= store.settings()
    lines = "".join(f"    {key}: {value!r}\n" for key, value in conf.items())
    profile = folder / "profile.yaml"
    profile.write_text(PROFILE.format(bootstrap="none:1", root=folder / "state") + lines)
    made = Warm(folder, load_profile(str(profile), folder))
    yield made
    made.close()


@pytest.fixture(params=["s3", "hdfs"])
def store(request: pytest.FixtureRequest, stores: Mapping[str, Store]) -> Store:
    return stores[request.param]


@pytest.fixture
def past(tmp_path: Path, broker: Kafka, far_driver: Warm, store: Store) -> Past:
    project = Project.made(tmp_path, broker, far_driver)
    text = project.profile.read_text()
    project.profile.write_text(text.replace(str(tmp_path / "state"), store.root))
    return Past(project, {project.source: 2})


def checkpoint(past: Past, number: int = 1) -> str:
    return f"eos/checkpoints/{past.project.group}/{number:04d}"


def test_it_goes_on_after_a_clean_end_a_crash_and_a_lost_checkpoint(
    past: Past, store: Store
) -> None:
    past.ran(2)
    past.ran(1)
    assert {"metadata", "offsets/2", "commits/2"} <= set(store.names(checkpoint(past)))

    past.write_batches(1)
    died = past.project.run_warm(EOS_CRASH_AT="end_txn_answered:after:both")
    assert died.returncode == KILLED, died.stderr
    assert "commits/3" not in store.names(checkpoint(past))
    assert "micro-batch 3 skipped" in past.goes_on()

    store.remove(checkpoint(past))
    past.ran(1)

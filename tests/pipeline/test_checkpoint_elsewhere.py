"""Checkpoints in S3 and in HDFS, through Hadoop's own clients, against real servers.

Each store has a server of its own, and all runs share one warm driver that knows both clients. S3
is VersityGW. Only Moto rejects a login during a run, when the test says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from support import verbs
from support.copies.recovery import run_verb
from support.kafka.brokers import Kafka, transaction_state
from support.machines.stores import BUCKET, MOTO, NOWHERE, S3, SLOW, Store, hdfs, s3, versity
from support.spark.project import KILLED, PROFILE, Project, WarmDriver
from support.spark.spark_recovery import SparkPipeline

from eos.config.load import load_profile
from eos.kafka.api import TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from eos.local import jars

pytestmark = pytest.mark.long

ASIDE = "--set-checkpoint-aside"
# Before the file of the first micro-batch is read, once: stands still until the test says go.
WAITING = """
import time
from pathlib import Path

from eos.checkpoint.offset_log import Checkpoint

def standing(ranges):
    def stands(checkpoint, batch_id):
        Checkpoint.ranges = ranges
        Path({planned!r}).touch()
        while not Path({go!r}).exists():
            time.sleep(0.05)
        return ranges(checkpoint, batch_id)
    return stands

Checkpoint.ranges = standing(Checkpoint.ranges)

def passed_on(frame):
    return frame
"""


Stores = Mapping[str, Callable[[], Store]]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """All begin to start; who asks for one waits for it."""
    folders = [tmp_path_factory.mktemp(name) for name in ("s3", "moto", "hdfs")]
    with versity(folders[0]) as an_s3, s3(folders[1]) as moto, hdfs(folders[2]) as an_hdfs:
        yield {"s3": lambda: an_s3, "moto": moto, "hdfs": an_hdfs}


@pytest.fixture(scope="module")
def settings(stores: Stores) -> dict[str, str]:
    """Where both S3 servers are."""
    an_s3, moto = stores["s3"](), stores["moto"]()
    assert isinstance(an_s3, S3)
    assert isinstance(moto, S3)
    return {**an_s3.settings(), f"spark.hadoop.fs.s3a.bucket.{MOTO}.endpoint": moto.endpoint}


def lines(conf: Mapping[str, str]) -> str:
    return "".join(f"    {key}: {value!r}\n" for key, value in conf.items())


@pytest.fixture(scope="module")
def far_driver(
    settings: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WarmDriver]:
    """Knows both clients, and where the S3 servers are."""
    folder = tmp_path_factory.mktemp("far")
    conf = {"spark.jars": ",".join(map(str, jars.ensure(jars.S3)[jars.S3])), **settings}
    profile = folder / "profile.yaml"
    profile.write_text(PROFILE.format(bootstrap="none:1", root=folder / "state") + lines(conf))
    made = WarmDriver(folder, load_profile(str(profile), folder))
    yield made
    made.close()


@pytest.fixture(params=["s3", "hdfs"])
def store(request: pytest.FixtureRequest, stores: Stores) -> Store:
    return stores[request.param]()


@pytest.fixture
def past(
    tmp_path: Path,
    broker: Kafka,
    far_driver: WarmDriver,
    store: Store,
    settings: Mapping[str, str],
) -> SparkPipeline:
    project = Project.made(tmp_path, broker, far_driver)
    text = project.profile.read_text()
    rooted = text.replace(str(tmp_path / "state"), store.root)
    project.profile.write_text(f"{rooted}{lines(settings)}deployment: test\n")
    return SparkPipeline(project, {project.source: 2})


def checkpoints(past: SparkPipeline, store: Store) -> list[str]:
    """All folders that have files, the oldest first. VersityGW may keep empty ones."""
    root = f"eos/checkpoints/{past.project.group}"
    files = [name for name in store.names(root) if not name.endswith("/")]
    return sorted({f"{root}/{name.partition('/')[0]}" for name in files})


def checkpoint(past: SparkPipeline, store: Store) -> str:
    """The newest one."""
    return checkpoints(past, store)[-1]


@pytest.mark.nightly
def test_it_goes_on_after_a_clean_end_a_crash_and_a_lost_checkpoint(
    past: SparkPipeline, store: Store
) -> None:
    past.ran(2)
    first = checkpoint(past, store)
    assert re.fullmatch(r"0001-\d+-\d+", first.rpartition("/")[2]), "no name of its own"
    assert {"metadata", "offsets/1", "commits/1"} <= set(store.names(first))
    assert f"resumes with checkpoint {store.root}/{first.removeprefix('eos/')}" in explained(past)

    if isinstance(store, S3):
        verified = run_verb(verbs.verify, *past.project.words(), "--json")
        assert verified.code == 0, verified
        assert "checkpoint" in verified.json["same"], "compared without a JVM"
        after_a_crash(past, store, first)
    else:  # a second driver that dies costs more than it could show
        store.remove(f"{first}/commits/1")
        assert "micro-batch 1 skipped" in past.goes_on()
        assert checkpoints(past, store) == [first]

    # The folder that the ledger names is gone; others, as unclean ends leave them, are in the way.
    store.remove(checkpoint(past, store))
    root = first.rpartition("/")[0]
    for number in (6, 7, 8):
        store.put(f"{root}/{number:04d}-1-1/offsets/0", b"whatever")
    past.ran(1)
    found = checkpoints(past, store)
    assert [each.rpartition("/")[2][:4] for each in found] == ["0007", "0008", "0009"]
    assert "commits/0" in store.names(found[-1])


def after_a_crash(past: SparkPipeline, store: S3, first: str) -> None:
    """The copy before may still write: its folder is left to it, and what it does there is seen by
    nobody, not even between Spark's writing of a plan and our reading of it."""
    past.write_batches(1)
    died = past.project.run_warm(EOS_CRASH_AT="end_txn_answered:after:both")
    assert died.returncode == KILLED, died.stderr
    assert "offsets/2" in store.names(first)
    assert "commits/2" not in store.names(first)
    assert "with a fresh checkpoint in" in explained(past)

    past.write_batches(1)
    folder = past.project.folder
    place = folder / "pipelines" / past.project.name / "transform.py"
    place.write_text(WAITING.format(planned=str(folder / "planned"), go=str(folder / "go")))
    run = past.project.start_warm()
    try:
        while not (folder / "planned").exists():
            assert run.poll() is None, run.said()
            time.sleep(0.05)
        store.put(f"{first}/offsets/2", store.get(f"{first}/offsets/1"))
        store.put(f"{first}/offsets/3", store.get(f"{first}/offsets/1"))
    finally:
        (folder / "go").touch()
    assert run.wait() == 0, run.said()
    past.check()
    second = checkpoint(past, store)
    assert second > first
    assert "commits/0" in store.names(second)


def explained(past: SparkPipeline) -> str:
    code, said = past._recover()
    assert code == 0, said
    return said


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_damaged_file_in_a_bucket_stops_it_until_a_fresh_one_is_asked_for(
    past: SparkPipeline, store: Store
) -> None:
    past.ran(2)
    name = f"{checkpoint(past, store)}/offsets/1"
    whole = store.get(name)
    store.put(name, whole[: len(whole) // 2])
    past.stops(f"{store.root.removesuffix('/eos')}/{name}", remedy=ASIDE)
    assert "exit code 4: checkpoint_unreadable" in past.recovers(ASIDE)
    past.ran(1)
    fresh, aside = checkpoints(past, store)
    assert aside.rpartition("/")[2].startswith("aside-0001-")
    assert "commits/0" in store.names(fresh)


@pytest.mark.nightly
@pytest.mark.parametrize("store", ["moto"], indirect=True)
def test_a_store_that_refuses_or_is_not_there_is_told_and_loses_nothing(
    past: SparkPipeline, store: S3
) -> None:
    past.ran(1)
    place = checkpoint(past, store)
    past.write_batches(1)
    with ExitStack() as while_refused:
        with past.paused_at("end_txn_answered:after") as run:
            while_refused.enter_context(store.refusing())
        assert run.wait() == 5, run.said()
        said = run.said()
        for words in (f"{place}/commits/1", "Status Code: 403", "nothing is lost"):
            assert words in said, said
        assert "Traceback" not in said

        # The next starts are told before they fence anybody.
        with closing(
            KafkaClient(KafkaSettings((past.bootstrap,)), TransactionProfile.TV2)
        ) as client:
            before = transaction_state(client, past.project.group)
            refused = ("[checkpoint_access_denied]", "AccessDenied", "Status Code: 403")
            past.stops(*refused, remedy="its credentials", code=5, command="")
            profile = past.project.profile
            text = profile.read_text()
            profile.write_text(text.replace(f"s3a://{MOTO}", f"s3a://{NOWHERE}"))
            where = f"s3a://{NOWHERE}/eos/checkpoints/{past.project.group} can't be listed"
            remedy = "is the store's address right"
            past.stops(where, "Connection refused", remedy=remedy, code=5, command="")
            assert transaction_state(client, past.project.group) == before
    profile.write_text(text.replace(f"s3a://{MOTO}", "s3a://no-such-bucket"))
    past.stops("[checkpoint_store_unavailable]", "NoSuchBucket", remedy=remedy, code=5, command="")
    profile.write_text(text)
    past.ran(1)
    assert len(checkpoints(past, store)) == 2


@pytest.mark.nightly
@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_store_that_throttles_is_asked_again(past: SparkPipeline, store: S3) -> None:
    """Of all requests, each fourth is answered with 503 Slow Down."""
    profile = past.project.profile
    profile.write_text(profile.read_text().replace(f"s3a://{BUCKET}", f"s3a://{SLOW}"))
    store.throttling.every = 4
    try:
        past.ran(2)
    finally:
        store.throttling.every = 0
    assert store.throttling.refused > 3

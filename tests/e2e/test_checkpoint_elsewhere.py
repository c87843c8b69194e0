"""Checkpoints in S3 and in HDFS, through Hadoop's own clients, against real servers.

Each store has a server of its own, and all runs share one warm driver that knows both clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from support.brokers import Kafka
from support.coordinator_view import transaction
from support.past import Past
from support.project import PROFILE, Project
from support.stores import NOWHERE, S3, Store, hdfs, s3
from support.warm import KILLED, Warm

from eos.config.load import load_profile
from eos.launch import jars
from eos.transaction.port import Profile
from eos.transaction.settings import KafkaSettings
from eos.transaction.wire import Wire

ASIDE = "--set-checkpoint-aside"


Stores = Mapping[str, Callable[[], Store]]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Both begin to start; who asks for one waits for it."""
    folders = [tmp_path_factory.mktemp(name) for name in ("s3", "hdfs")]
    with s3(folders[0]) as an_s3, hdfs(folders[1]) as an_hdfs:
        yield {"s3": an_s3, "hdfs": an_hdfs}


@pytest.fixture(scope="module")
def far_driver(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Knows both clients, and where the S3 server is."""
    folder, an_s3 = tmp_path_factory.mktemp("far"), stores["s3"]()
    assert isinstance(an_s3, S3)
    conf = {"spark.jars": ",".join(map(str, jars.ensure(jars.S3)[jars.S3])), **an_s3.settings()}
    lines = "".join(f"    {key}: {value!r}\n" for key, value in conf.items())
    profile = folder / "profile.yaml"
    profile.write_text(PROFILE.format(bootstrap="none:1", root=folder / "state") + lines)
    made = Warm(folder, load_profile(str(profile), folder))
    yield made
    made.close()


@pytest.fixture(params=["s3", "hdfs"])
def store(request: pytest.FixtureRequest, stores: Stores) -> Store:
    return stores[request.param]()


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
    assert {"metadata", "offsets/1", "commits/1"} <= set(store.names(checkpoint(past)))

    last = 1
    if isinstance(store, S3):
        last = 2
        past.write_batches(1)
        died = past.project.run_warm(EOS_CRASH_AT="end_txn_answered:after:both")
        assert died.returncode == KILLED, died.stderr
    else:  # a second driver that dies costs more than it could show
        store.remove(f"{checkpoint(past)}/commits/{last}")
    assert f"offsets/{last}" in store.names(checkpoint(past))
    assert f"commits/{last}" not in store.names(checkpoint(past))
    assert f"micro-batch {last} skipped" in past.goes_on()

    store.remove(checkpoint(past))
    past.ran(1)
    assert "commits/0" in store.names(checkpoint(past))


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_damaged_file_in_a_bucket_stops_it_until_a_fresh_one_is_asked_for(
    past: Past, store: Store
) -> None:
    past.ran(2)
    name = f"{checkpoint(past)}/offsets/1"
    whole = store.get(name)
    for left in (b"", whole[: len(whole) // 2]):
        store.put(name, left)
        past.stops(f"s3a://checkpoints/{name}", remedy=ASIDE)
    # Without Spark it can't look there: it notes that a fresh one is to be taken.
    code, said = past._recover(ASIDE, "--yes")
    assert code == 0, said
    past.ran(1)
    assert "commits/0" in store.names(checkpoint(past, 2))


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_store_that_refuses_or_is_not_there_is_told_and_loses_nothing(
    past: Past, store: S3
) -> None:
    past.ran(1)
    past.write_batches(1)
    with ExitStack() as while_refused:
        with past.paused_at("end_txn_answered:after") as run:
            while_refused.enter_context(store.refusing())
        assert run.wait() == 5, run.said()
        said = run.said()
        for words in (f"{checkpoint(past)}/commits/1", "Status Code: 403", "nothing is lost"):
            assert words in said, said
        assert "Traceback" not in said

        # The next starts are told before they fence anybody.
        with closing(Wire(KafkaSettings((past.bootstrap,)), Profile.TV2)) as wire:
            before = transaction(wire, past.project.group)
            refused = ("AccessDeniedException", "Status Code: 403")
            past.stops(*refused, remedy="these credentials", code=5, command="")
            profile = past.project.profile
            text = profile.read_text()
            profile.write_text(text.replace("s3a://checkpoints", f"s3a://{NOWHERE}"))
            where = f"s3a://{NOWHERE}/eos/checkpoints/{past.project.group} can't be listed"
            remedy = "is its address right"
            past.stops(where, "Connection refused", remedy=remedy, code=5, command="")
            assert transaction(wire, past.project.group) == before
    profile.write_text(text.replace("s3a://checkpoints", "s3a://no-such-bucket"))
    past.stops("can't be listed", "NoSuchBucket", remedy=remedy, code=5, command="")
    profile.write_text(text)
    assert "micro-batch 1 skipped" in past.goes_on()

"""`eos verify` and `eos recover` on checkpoints in a bucket of a real S3 server, without a JVM."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import verbs
from support.copies.recovery import Output, Pipeline, run_verb
from support.machines.stores import BUCKET, NOWHERE, S3, versity

from eos.checkpoint.bucket_files import BucketFiles
from eos.checkpoint.files import Files, LocalFiles, files_for
from eos.checkpoint.offset_log import Checkpoint, newest_with_offsets

pytestmark = pytest.mark.long  # the server is built once, which takes minutes


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with versity(tmp_path_factory.mktemp("versity")) as found:
        yield found


def upload(store: S3, folder: Path, key: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            store.put(f"{key}/{path.relative_to(folder)}", path.read_bytes())


class InBucket:
    """A pipeline whose checkpoint was moved into a bucket, with all that its profile needs."""

    def __init__(self, pipeline: Pipeline, store: S3) -> None:
        self.pipeline, self.store, self.name = pipeline, store, pipeline.name
        self.key = f"{self.name}/checkpoints/{pipeline.planned().names.transactional_id}"
        self.root = f"s3a://{BUCKET}/{self.key}"
        upload(store, pipeline.checkpoints, self.key)
        self.deployment = pipeline.planned().deployment
        self.declare(f"s3a://{BUCKET}/{self.name}")

    def declare(self, root: str, **settings: str) -> None:
        conf = self.store.settings()
        conf |= {f"spark.hadoop.fs.s3a.{key.replace('_', '.')}": v for key, v in settings.items()}
        profile = Path(self.pipeline.words[2])
        known = {"kafka": {"bootstrap": self.pipeline.bootstrap}, "state": {"root": root}}
        without = {"deployment": self.deployment, "audit": {"transactions": False}}
        profile.write_text(json.dumps({**known, **without, "spark": {"conf": conf}}))

    def verify(self, *words: str) -> Output:
        return run_verb(verbs.verify, *self.pipeline.words, "--json", "--from-start", *words)

    def folders(self) -> set[str]:
        return {name.partition("/")[0] for name in self.store.names(self.key)}


@pytest.fixture
def moved(pipeline: Pipeline, store: S3) -> InBucket:
    return InBucket(pipeline.ran(5, 3), store)


def test_verify_compares_the_checkpoint_with_the_ledger(moved: InBucket) -> None:
    found = moved.verify()
    assert found.code == 0, found
    assert "checkpoint" in found.json["same"]

    # It has a micro-batch that the ledger lacks.
    commit = moved.store.get(f"{moved.key}/0001/commits/1")
    plan = moved.store.get(f"{moved.key}/0001/offsets/1")
    moved.store.put(f"{moved.key}/0001/offsets/2", plan)
    moved.store.put(f"{moved.key}/0001/commits/2", commit)
    wrong = moved.verify("--allow-out-of-reach")
    assert wrong.code == 1, wrong
    (finding,) = wrong.json["findings"]
    assert f"the checkpoint {moved.root}/0001 has micro-batch 2 as committed" in finding["message"]

    moved.store.remove(moved.key)
    gone = moved.verify()
    assert gone.code == 1, gone
    assert f"there is no checkpoint in {moved.root}" in gone.json["findings"][0]["message"]
    assert moved.verify("--allow-out-of-reach").code == 0


def test_recover_shows_it_and_what_the_next_run_does(moved: InBucket) -> None:
    shown = moved.pipeline.recover()
    assert shown.code == 0, shown
    assert f"{moved.root}/0001: query " in shown.out
    assert "last micro-batch planned 1, committed 1" in shown.out
    assert f"a fresh checkpoint in {moved.root}, because an earlier instance may" in shown.out

    planned = f"{moved.key}/0001/offsets/1"
    moved.store.put(planned, moved.store.get(planned)[:20])
    assert moved.pipeline.recover().code == 0, "the next run does not read it"


def test_a_lost_ledger_is_set_to_the_checkpoint(moved: InBucket) -> None:
    pipeline = moved.pipeline
    pipeline.fill(4)
    pipeline.delete(pipeline.planned().names.ledger)
    assert "ledger_empty" in pipeline.explained().cases, "not taken for a first run"
    named = pipeline.recover("--adopt-checkpoint", f"{moved.root}/0001", "--json")
    assert named.json["ends"] == {pipeline.source: {"0": [None, 8], "1": [None, 8]}}, named
    did = pipeline.did("--adopt-checkpoint")
    assert did["ends"] == named.json["ends"]
    assert pipeline.group() == {0: 8, 1: 8}
    assert pipeline.explained().code == 0


@pytest.mark.parametrize("has_ledger", [True, False])
def test_a_checkpoint_is_set_aside(moved: InBucket, has_ledger: bool) -> None:
    pipeline = moved.pipeline
    before = {name.partition("/")[2] for name in moved.store.names(f"{moved.key}/0001")}
    if not has_ledger:
        pipeline.delete(pipeline.planned().names.ledger)
        pipeline.delete_group()
    ((old, new),) = pipeline.did("--set-checkpoint-aside")["renames"].items()
    assert old == f"{moved.root}/0001"
    (aside,) = moved.folders()
    assert new == f"{moved.root}/{aside}"
    assert aside.startswith("aside-0001-")
    assert {name.partition("/")[2] for name in moved.store.names(f"{moved.key}/{aside}")} == before
    explained = pipeline.explained()
    assert (explained.code, "begins at `start:`" in explained.json["next"]) == (0, not has_ledger)


def test_a_store_that_refuses_or_is_gone_is_no_empty_one(moved: InBucket) -> None:
    """Otherwise an existing checkpoint would be reported as lost."""
    there = f"s3a://{BUCKET}/{moved.name}"
    for root, settings, words in (
        (there, {"secret_key": "wrong"}, "[checkpoint_access_denied]"),
        ("s3a://no-such-bucket/eos", {}, "the bucket no-such-bucket does not exist"),
        (f"s3a://{NOWHERE}/eos", {}, "[checkpoint_store_unavailable]"),
    ):
        moved.declare(root, **settings)
        refused = moved.pipeline.recover()
        assert (refused.code, words in refused.err) == (5, True), refused
    # A class that only a JVM has: the note in the ledger alone does it.
    moved.declare(there, aws_credentials_provider="org.example.Vault")
    shown = moved.pipeline.recover()
    assert (shown.code, "which only a running Spark can read" in shown.out) == (0, True), shown


def test_a_bucket_shows_what_a_disk_shows(store: S3, tmp_path: Path, name: str) -> None:
    for path, content in {
        "0001/metadata": b'{"id":"q"}',
        "0001/offsets/9": b'v1\n{}\n{"t":{"0":1}}',
        "0001/offsets/10": b'v1\n{}\n{"t":{"0":3}}',
        "0001/commits/10": b"",
        "0002/sources/0/0": b"\0v1\r\n\xc3\xa4\xff\n",
        "odd": b"a\nb\r\nc",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    upload(store, tmp_path, name)
    there, disk = f"s3a://{BUCKET}/{name}", str(tmp_path)
    bucket: Files = files_for(there, conf=store.settings())
    assert isinstance(bucket, BucketFiles)
    for both in ((bucket, there), (LocalFiles(), disk)):
        files, root = both
        assert sorted(files.names(root)) == ["0001", "0002", "odd"]
        assert sorted(files.names(f"{root}/0001/offsets")) == ["10", "9"]
        assert files.names(f"{root}/none") == []
        assert files.read(f"{root}/0002/sources/0/0") == "\0v1\r\n\xe4\ufffd\n"
        assert list(files.lines(f"{root}/odd")) == [b"a\n", b"b\r\n", b"c"]
        looks = [files.exists(f"{root}/{each}") for each in ("odd", "0001", "0001/none")]
        assert looks == [True, True, False]
        assert newest_with_offsets(files, root) == (f"{root}/0001", f"{root}/0003")
        with pytest.raises(FileNotFoundError):
            files.read(f"{root}/none")
        with pytest.raises(FileNotFoundError):
            files.rename(f"{root}/none", f"{root}/new")
        with pytest.raises(FileExistsError):
            files.rename(f"{root}/0001", f"{root}/0002")
        state = Checkpoint(files, f"{root}/0001").state()
        files.rename(f"{root}/0001", f"{root}/new")
        assert Checkpoint(files, f"{root}/new").state().ends == state.ends
        files.remove(f"{root}/0002")
        files.remove(f"{root}/0002")
        assert sorted(files.names(root)) == ["new", "odd"]
    with contextlib.suppress(FileNotFoundError):
        assert not bucket.names(f"{there}/0001")

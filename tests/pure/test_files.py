"""Checkpoints on local disks, read without a JVM: as `HadoopFiles` would show them."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyarrow import fs
from support.errors import raises

from eos.checkpoint import files as module
from eos.checkpoint.bucket_files import BucketFiles
from eos.checkpoint.files import LocalFiles, files_for
from eos.checkpoint.offset_log import Checkpoint, newest_with_offsets
from eos.errors import PromiseBrokenError, UnavailableError, UsageError
from eos.kafka.api import TopicPartition
from eos.location import local_path, resolved, scheme_of


def checkpoint(root: Path, number: int, *offsets: int) -> Path:
    """A folder as Spark leaves it, checksums included."""
    folder = root / f"{number:04d}"
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"q-1"}')
    (folder / "sources/0/0").write_bytes(b'\0v1\n{"t":{"0":5}}')
    for batch, end in enumerate(offsets):
        (folder / f"offsets/{batch}").write_bytes(f'v1\n{{}}\n{{"t":{{"0":{end}}}}}'.encode())
        (folder / f"offsets/.{batch}.crc").write_bytes(b"crc\0")
    return folder


@pytest.mark.parametrize("lead", ["", "file:", "file://"])
def test_a_checkpoint_is_read_whatever_form_its_path_has(tmp_path, lead):
    folder = checkpoint(tmp_path, 1, 7, 9)
    found = Checkpoint(LocalFiles(), f"{lead}{folder}/")
    assert found.query_id() == "q-1"
    assert not found.has_commits()
    assert found.ranges(0).starts == {TopicPartition("t", 0): 5}
    assert found.ranges(1).starts == {TopicPartition("t", 0): 7}
    assert found.ranges(1).ends == {TopicPartition("t", 0): 9}
    (folder / "commits" / "0").touch()
    assert found.has_commits()


def test_the_newest_checkpoint_with_a_planned_micro_batch_and_the_next_name(tmp_path):
    root = str(tmp_path)
    assert newest_with_offsets(LocalFiles(), f"{root}/none") == (None, f"{root}/none/0001")
    checkpoint(tmp_path, 9)
    checkpoint(tmp_path, 10, 3)
    checkpoint(tmp_path, 11)
    (tmp_path / "0012.aside").mkdir()
    assert newest_with_offsets(LocalFiles(), root) == (f"{root}/0010", f"{root}/0012")


def test_a_file_is_read_as_it_is_and_checksums_are_no_names(tmp_path):
    files = LocalFiles()
    (tmp_path / "a").write_bytes(b"\0v1\r\n\xc3\xa4\xff\n")
    (tmp_path / ".a.crc").touch()
    (tmp_path / ".hidden").touch()
    assert files.read(str(tmp_path / "a")) == "\0v1\r\n\xe4\ufffd\n"
    assert sorted(files.names(str(tmp_path))) == [".hidden", "a"]
    assert files.names(str(tmp_path / "none")) == []
    assert files.exists(str(tmp_path / "a"))
    assert not files.exists(str(tmp_path / "b"))


def test_a_folder_is_renamed_but_never_onto_another(tmp_path):
    files = LocalFiles()
    folder = checkpoint(tmp_path, 1, 7)
    aside, other = f"{folder}.aside", tmp_path / "other"
    other.mkdir()
    with pytest.raises(FileExistsError, match=r"already exists: .*other"):
        files.rename(str(folder), f"file:{other}")
    with pytest.raises(FileNotFoundError):
        files.rename(str(tmp_path / "none"), aside)
    files.rename(f"file:{folder}", aside)
    assert Checkpoint(files, aside).query_id() == "q-1"
    assert not folder.exists()


def test_what_is_missing_stops_the_pipeline_and_what_may_pass_does_not(tmp_path):
    folder = checkpoint(tmp_path, 1, 7)
    with raises("checkpoint_unreadable", PromiseBrokenError) as gone:
        Checkpoint(LocalFiles(), str(folder)).ranges(5)
    assert gone.value.fields["path"] == f"{folder}/offsets/5"
    assert "(No such file" in gone.value.message
    (folder / "metadata").unlink()
    (folder / "metadata").mkdir()  # stands for a disk that answers with an error
    with raises("checkpoint_store_unavailable", UnavailableError) as error:
        Checkpoint(LocalFiles(), str(folder)).query_id()
    assert error.value.fields["path"] == f"{folder}/metadata"


def test_a_place_elsewhere_needs_spark_unless_it_is_a_bucket(tmp_path):
    assert isinstance(files_for(str(tmp_path)), LocalFiles)
    assert isinstance(files_for(f"file:{tmp_path}"), LocalFiles)
    assert isinstance(files_for("s3a://bucket/x", conf={}), BucketFiles)
    for location in ("hdfs://bucket/x", "abfss://bucket/x", "gs://bucket/x"):
        with raises("checkpoint_not_local", UsageError) as caught:
            files_for(location, conf={})
        assert location in caught.value.message
    of_jvm = {"spark.hadoop.fs.s3a.aws.credentials.provider": "org.example.Vault"}
    with raises("store_credentials_unsupported", UsageError):
        files_for("s3a://bucket/x", conf=of_jvm)
    with pytest.raises(OSError, match="not on a local or mounted disk"):
        LocalFiles().read("s3a://bucket/x")


@pytest.mark.parametrize(
    ("location", "scheme", "path"),
    [
        ("/a/b", "", "/a/b"),
        ("a:b/c", "", "a:b/c"),
        ("file:/a/b", "file", "/a/b"),
        ("file:///a/b", "file", "/a/b"),
        ("FILE:///a/b", "file", "/a/b"),
        ("s3a://b/c", "s3a", None),
        ("hdfs:/c", "hdfs", None),
    ],
)
def test_a_location_says_where_it_is(location, scheme, path):
    assert scheme_of(location) == scheme
    assert local_path(location) == (path and Path(path))


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("x/y/", "/base/x/y"),
        ("/x/", "/x"),
        ("s3a://bucket/", "s3a://bucket"),
        ("hdfs:///", "hdfs://"),  # what follows begins with a slash
        ("hdfs:/x/", "hdfs:/x"),
    ],
)
def test_a_location_is_resolved_without_a_slash_at_its_end(location, expected):
    assert resolved(location, Path("/base")) == expected


def test_reading_local_checkpoints_imports_no_spark():
    code = (
        "import sys, eos.checkpoint.offset_log;"
        "print([m for m in ('pyspark', 'py4j', 'kafka', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_stores_long_text_is_shortened_in_bounded_time() -> None:
    """Of ten times the text, the same part is read. It took a hundred times as long."""

    def shorten(count: int) -> float:
        began = time.process_time()
        module._short("a.b." * count)
        return time.process_time() - began

    assert (
        module._short("java.io.IOException: x.y.z.S3Exception: no")
        == "IOException: S3Exception: no"
    )
    assert shorten(10_000) < 20 * shorten(1_000) + 0.5


def test_a_folder_that_is_renamed_in_a_bucket_gets_its_plans_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the process dies in between, the copy is no checkpoint."""
    old, new, copied = tmp_path / "old", tmp_path / "new", list[str]()
    for name in ("commits/5", "offsets/5", "offsets/6", "metadata", "state/0/0/1.delta"):
        (old / name).parent.mkdir(parents=True, exist_ok=True)
        (old / name).touch()

    class Store:
        get_file_info = fs.LocalFileSystem().get_file_info

        def copy_file(self, _source: str, target: str) -> None:
            copied.append(target.removeprefix(f"{new}/"))

    monkeypatch.setattr(BucketFiles, "_at", lambda _self, path: nullcontext((Store(), path)))
    monkeypatch.setattr(BucketFiles, "remove", lambda _self, path: copied.append(path))
    BucketFiles({}).rename(str(old), str(new))
    assert set(copied[:3]) == {"commits/5", "metadata", "state/0/0/1.delta"}
    assert set(copied[3:5]) == {"offsets/5", "offsets/6"}
    assert copied[5:] == [str(old)]

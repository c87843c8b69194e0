"""Checkpoint files of a real Spark, read through the JVM and past it: both see the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.spark.spark_session import local_spark

from eos.checkpoint.files import Files, HadoopFiles, LocalFiles, files_for
from eos.checkpoint.offset_log import Checkpoint, newest_with_offsets
from eos.spark.session import write_checkpoints

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("files") as session:
        yield session


@pytest.fixture
def checkpoint(spark: SparkSession, tmp_path: Path) -> Path:
    """One that Spark itself has written."""
    lines, folder = tmp_path / "lines", tmp_path / "checkpoints" / "0001"
    lines.mkdir()
    (lines / "a.txt").write_text("one\n")
    writer = spark.readStream.text(str(lines)).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination()
    return folder


def seen(files: Files, folder: str) -> dict[str, str | None]:
    """Every path below the folder; with its text if it is a file."""
    found: dict[str, str | None] = {}
    for name in sorted(files.names(folder)):
        path = f"{folder}/{name}"
        is_folder = Path(path.removeprefix("file:")).is_dir()
        found |= {name: None if is_folder else files.read(path)}
        if is_folder:
            found |= {f"{name}/{below}": text for below, text in seen(files, path).items()}
    return found


def test_a_checkpoint_is_the_same_through_the_jvm_and_past_it(spark, checkpoint):
    hadoop, local = HadoopFiles(spark), LocalFiles()
    assert list(checkpoint.rglob(".*.crc")), "Spark wrote no checksums: nothing is hidden"
    (checkpoint / "odd").write_bytes(b"\0v1\r\n\xc3\xa4\xff\n")
    for lead in ("", "file:", "file://"):
        text = seen(local, f"{lead}{checkpoint}")
        assert text == seen(hadoop, f"{lead}{checkpoint}")
        assert {"metadata", "offsets/0", "commits/0", "odd"} <= text.keys()
    root = str(checkpoint.parent)
    both = [newest_with_offsets(files, root) for files in (hadoop, local)]
    assert both == [(str(checkpoint), f"{root}/0002")] * 2
    ids = [Checkpoint(files, str(checkpoint)).query_id() for files in (hadoop, local)]
    assert ids[0] == ids[1]


def test_both_rename_and_refuse_alike(spark, checkpoint):
    root = checkpoint.parent
    (root / "other").mkdir()
    aside = [str(checkpoint), f"{root}/a", f"{root}/b"]
    for number, files in enumerate((HadoopFiles(spark), LocalFiles())):
        old, new = aside[number : number + 2]
        with pytest.raises(FileExistsError, match=r"already exists: .*other"):
            files.rename(old, f"{root}/other")
        with pytest.raises(FileNotFoundError):
            files.rename(f"{root}/none", new)
        with pytest.raises(FileNotFoundError, match="none"):
            files.read(f"{root}/none")
        assert files.names(f"{root}/none") == []
        files.rename(old, new)
        assert (files.exists(old), files.exists(new)) == (False, True)
        assert files.exists(f"{new}/offsets/0")


def test_a_path_without_a_scheme_is_read_where_spark_would_look_for_it(spark, tmp_path):
    assert isinstance(files_for(str(tmp_path), spark), LocalFiles)
    assert isinstance(files_for("hdfs://nobody:1/x", spark), HadoopFiles)
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    before = conf.get("fs.defaultFS")
    conf.set("fs.defaultFS", "hdfs://nobody:1")
    try:
        assert isinstance(files_for(str(tmp_path), spark), HadoopFiles)
        assert isinstance(files_for(f"file:{tmp_path}", spark), LocalFiles)
    finally:
        conf.set("fs.defaultFS", before)


def test_a_place_that_spark_does_not_know_is_an_os_error(spark):
    with pytest.raises(OSError, match="No FileSystem for scheme"):
        files_for("nothing://x/y", spark).names("nothing://x/y")
    with pytest.raises(OSError, match="from an empty string"):
        HadoopFiles(spark).read("")


def test_a_checkpoint_on_local_disks_is_written_without_a_process_for_each_look(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And a name that is taken is refused, as by the way that Spark chooses itself."""
    manager = "spark.sql.streaming.checkpointFileManagerClass"
    assert spark.conf.get(manager, None) is None
    write_checkpoints(spark, is_local=True)
    try:
        jvm: Any = spark.sparkContext._jvm
        package = jvm.org.apache.spark.sql.execution.streaming.checkpointing
        state: Any = spark._jsparkSession.sessionState()
        folder = jvm.org.apache.hadoop.fs.Path(str(tmp_path))
        files = package.CheckpointFileManager.create(folder, state.newHadoopConf())
        assert files.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"

        path = jvm.org.apache.hadoop.fs.Path(f"{tmp_path}/0")
        first, second = (files.createAtomic(path, False) for _ in range(2))
        first.write(bytearray(b"ours"))
        first.close()
        second.write(bytearray(b"theirs"))
        with pytest.raises(Exception, match="already exists"):
            second.close()
        assert (tmp_path / "0").read_bytes() == b"ours"
        assert (tmp_path / ".0.crc").exists()
    finally:
        write_checkpoints(spark, is_local=False)
    assert spark.conf.get(manager, None) is None

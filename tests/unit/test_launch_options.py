"""Words on the command line: whose they are, and what becomes of them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from eos.errors import UsageError
from eos.launch import spark
from eos.launch.options import parse, project_of
from eos.launch.spark import Spark, master_of


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipelines" / "orders" / "pipeline.yaml"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_ours_are_taken_and_all_others_are_sparks(pipeline: Path) -> None:
    words = ["--master", "local[2]", "--json", "--profile", "prod", "--conf", "a=b"]
    found = parse([str(pipeline), *words])
    assert found.pipeline == pipeline
    assert (found.profile, found.as_json, found.demo_crash) == ("prod", True, False)
    assert found.spark == ("--master", "local[2]", "--conf", "a=b")


def test_a_folder_stands_for_its_pipeline_file(pipeline: Path) -> None:
    assert parse([str(pipeline.parent), "--profile=x"]).pipeline == pipeline


@pytest.mark.parametrize(
    "words", [[], ["--json"], ["nowhere.yaml"]], ids=["nothing", "no file first", "no such file"]
)
def test_a_missing_pipeline_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(words)


def test_a_profile_without_a_value_is_a_usage_error(pipeline: Path) -> None:
    with pytest.raises(UsageError, match="--profile"):
        parse([str(pipeline), "--profile"])


def test_the_project_is_where_the_pipelines_folder_is(pipeline: Path, tmp_path: Path) -> None:
    assert project_of(pipeline) == tmp_path
    assert project_of(Path("/nowhere/at-all/p.yaml")) == Path("/nowhere/at-all")


@pytest.mark.parametrize(
    ("words", "master"),
    [
        (["--name", "x"], None),
        (["--master", "yarn"], "yarn"),
        (["--master=local[3]"], "local[3]"),
        (["--conf", "spark.master=k8s://x"], "k8s://x"),
    ],
)
def test_the_users_master_is_found_however_it_is_written(
    words: list[str], master: str | None
) -> None:
    assert master_of(words) == master


def built(options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(spark, "ensure", lambda *_: {"spark": [Path("/j/a.jar")]})
    here = Spark(Path("/s"), is_installed=False)
    conf = {"spark.ui.enabled": "false"}
    return spark.command(here, ["p.yaml"], "local[*]", conf, options, tmp_path, tmp_path)


def test_a_local_run_ships_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = built([], tmp_path, monkeypatch)
    assert words == [
        *("/s/bin/spark-submit", "--master", "local[*]", "--conf", "spark.ui.enabled=false"),
        *("--jars", "/j/a.jar", str(spark.CHECKOUT / "jobs" / "run.py"), "p.yaml"),
    ]


def test_another_master_gets_eos_and_the_pipelines_as_a_zip(
    tmp_path: Path, pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pipeline.parent / "transform.py").touch()
    words = built(["--master", "spark://x:7077"], tmp_path, monkeypatch)
    assert words.count("--master") == 1
    archive = Path(words[words.index("--py-files") + 1])
    names = zipfile.ZipFile(archive).namelist()
    assert {"eos/errors.py", "pipelines/orders/transform.py"} <= set(names)


def test_the_users_jars_are_added_to_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = built(["--jars", "/u/b.jar,/u/c.jar"], tmp_path, monkeypatch)
    assert words[words.index("--jars") + 1] == "/j/a.jar,/u/b.jar,/u/c.jar"
    assert words.count("--jars") == 1


def test_a_spark_home_without_a_spark_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no bin/spark-submit"):
        spark.find_spark()

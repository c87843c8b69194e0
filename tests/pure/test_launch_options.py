"""Words on the command line: whose they are, and what becomes of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import pytest
from support.errors import raises

from eos.config.trigger import ending
from eos.errors import UsageError
from eos.launch import shipping, spark
from eos.launch.options import ENDINGS, parse
from eos.launch.spark import Spark, find_spark
from eos.launch.spark_options import SWITCHES, WITH_VALUE, master_of
from eos.location import project_root

SOCKETS = "spark.python.unix.domain.socket"


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipelines" / "orders" / "pipeline.yaml"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_ours_are_taken_and_all_others_are_sparks(pipeline: Path) -> None:
    words = ["--master", "local[2]", "--json", "--profile", "prod", "--conf", "a=b"]
    found = parse([str(pipeline), *words])
    assert found.pipelines == (pipeline,)
    assert (found.profile, found.as_json, found.demo_crash) == ("prod", True, False)
    assert found.spark == ("--master", "local[2]", "--conf", "a=b")


def test_flags_are_off_unless_they_are_given(pipeline: Path) -> None:
    found = parse([str(pipeline)])
    assert (found.take_over, found.accept_state_loss, found.ends) == (False, False, None)


def test_a_run_is_told_one_trigger_of_the_files_own_names(pipeline: Path) -> None:
    for flag, key in ENDINGS.items():
        assert parse([str(pipeline), flag]).ends == key
        assert getattr(ending(key), key) is True  # a key of `trigger`
    with raises("options_conflict"):
        parse([str(pipeline), "--once", "--available-now"])
    found = parse([str(pipeline), "--accept-state-loss"])
    assert (found.take_over, found.accept_state_loss, found.spark) == (False, True, ())


def test_a_folder_stands_for_its_pipeline_file(pipeline: Path) -> None:
    assert parse([str(pipeline.parent), "--profile=x"]).pipelines == (pipeline,)


@pytest.mark.parametrize("words", [[], ["--json"]], ids=["nothing", "no file first"])
def test_a_missing_pipeline_is_a_usage_error(words: list[str]) -> None:
    with raises("pipeline_argument_missing", UsageError):
        parse(words)
    with raises("pipeline_not_found", UsageError):
        parse(["nowhere.yaml"])


def test_a_profile_without_a_value_is_a_usage_error(pipeline: Path) -> None:
    with raises("option_value_missing"):
        parse([str(pipeline), "--profile"])


def test_the_project_is_where_the_pipelines_folder_is(pipeline: Path, tmp_path: Path) -> None:
    assert project_root(pipeline.parent) == tmp_path
    assert project_root(Path("/nowhere/at-all")) == Path("/nowhere/at-all")


@pytest.mark.parametrize(
    ("words", "master"),
    [
        (["--name", "x"], None),
        (["--master", "yarn"], "yarn"),
        (["--master=local[3]"], "local[3]"),
        (["--conf", "spark.master=k8s://x"], "k8s://x"),
        (["--conf=spark.master=yarn"], "yarn"),
        (["-c", "spark.master=yarn", "--master", "local"], "local"),
    ],
)
def test_the_users_master_is_found_however_it_is_written(
    words: list[str], master: str | None
) -> None:
    assert master_of(words) == master


def test_spark_submit_gets_one_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = built(["--conf=spark.master=yarn"], tmp_path, monkeypatch)
    assert words[1:3] == ["--master", "yarn"]
    assert not [each for each in words[3:] if "master" in each]


def built(
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    conf: Mapping[str, str] = MappingProxyType({"spark.ui.enabled": "false"}),
    *,
    is_installed: bool = False,
    sockets: Path | None = Path("/tmp/mine"),
) -> list[str]:
    monkeypatch.setattr(spark, "paths_of", lambda *_: [Path("/j/a.jar")])
    monkeypatch.setattr(shipping, "packages_zip", lambda *_: Path("/c/packages.zip"))
    here = Spark(Path("/s"), is_installed=is_installed, version="4.2.0")
    words = (here, ["p.yaml"], "local[*]", conf, options, tmp_path, tmp_path)
    return spark.command(*words, sockets=sockets)


def test_a_local_run_ships_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = built([], tmp_path, monkeypatch)
    assert words == [
        *("/s/bin/spark-submit", "--master", "local[*]", "--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.driver.extraClassPath=/j/a.jar"),
        *("--conf", "spark.python.daemon.module=eos.spark.worker_daemon"),
        *("--conf", f"{SOCKETS}.enabled=true", "--conf", f"{SOCKETS}.dir=/tmp/mine"),
        *(str(spark.CHECKOUT / "eos" / "job" / "run.py"), "p.yaml"),
    ]


@pytest.mark.parametrize("key", spark.LOCAL)
def test_how_workers_are_made_and_reached_is_ours_only_on_this_machine(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere Spark's process has not unpacked `eos` yet, and a socket's path may be too long;
    and the user's own choice stays."""
    remote = built(["--master", "spark://x:7077"], tmp_path, monkeypatch)
    assert not [word for word in remote if word.startswith(key)]
    own = built(["--conf", f"{key}=mine"], tmp_path, monkeypatch)
    assert [word for word in own if word.startswith(key)] == [f"{key}=mine"]


@pytest.mark.parametrize(
    ("folder", "fits"), [("/tmp/mine", True), ("/tmp/Mine", False), ("/tmp/" + "m" * 70, False)]
)
@pytest.mark.parametrize("is_named", [True, False], ids=["the user's", "ours"])
def test_workers_have_tcp_where_a_socket_would_not_be_found(
    folder: str, fits: bool, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark reads a socket's path in lower case, and the kernel bounds it."""
    options = ["--conf", f"{SOCKETS}.dir={folder}"] if is_named else []
    words = built(options, tmp_path, monkeypatch, sockets=None if is_named else Path(folder))
    assert f"{SOCKETS}.enabled={str(fits).lower()}" in words
    assert (f"{SOCKETS}.dir={folder}" in words) is (fits or is_named)


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
    remote = ["--master", "spark://x:7077"]
    words = built([*remote, "--jars", "/u/b.jar,/u/c.jar"], tmp_path, monkeypatch)
    assert after("--jars", words) == ["/j/a.jar,/u/b.jar,/u/c.jar"]


CLASS_PATH = "spark.driver.extraClassPath"


def test_one_jvm_has_our_jars_on_its_class_path_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's stay in Spark's list. A class path of the user's goes before ours."""
    conf = {CLASS_PATH: "/profile.jar"}
    options = ["--jars", "/u.jar", "--driver-class-path", "/o.jar:/p/*"]
    words = built(options, tmp_path, monkeypatch, conf)
    assert after("--jars", words) == ["/u.jar"]
    assert f"{CLASS_PATH}=/o.jar:/p/*:/j/a.jar" in after("--conf", words)
    assert "--driver-class-path" not in words


@pytest.mark.parametrize("home", [False, True], ids=["ours", "SPARK_HOME"])
@pytest.mark.parametrize("master", ["local", "local[2,3]", "local-cluster[2,1,1024]", "yarn"])
def test_executors_of_their_own_and_an_installed_spark_get_a_list_of_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, home: bool
) -> None:
    words = built(["--master", master], tmp_path, monkeypatch, {}, is_installed=home)
    has_one_jvm = not home and master in {"local", "local[2,3]"}
    assert (after("--jars", words) == ["/j/a.jar"]) is not has_one_jvm
    assert (f"{CLASS_PATH}=/j/a.jar" in after("--conf", words)) is has_one_jvm


def test_who_wants_jars_before_the_class_path_has_all_of_them_in_one_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--conf", "spark.driver.userClassPathFirst=True", "--jars", "/u.jar"]
    words = built(options, tmp_path, monkeypatch)
    assert after("--jars", words) == ["/j/a.jar,/u.jar"]
    assert CLASS_PATH not in " ".join(words)


@pytest.mark.parametrize("where", ["an option", "a folder"])
def test_a_class_path_of_the_users_file_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    options = ["--properties-file", "/u.conf"] if where == "an option" else []
    if not options:
        monkeypatch.setenv("SPARK_CONF_DIR", "/u")
    words = built(options, tmp_path, monkeypatch)
    assert after("--jars", words) == ["/j/a.jar"]
    assert CLASS_PATH not in " ".join(words)


def after(option: str, words: list[str]) -> list[str]:
    return [following for word, following in pairwise(words) if word == option]


def test_the_packages_go_to_workers_that_have_python_and_spark_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("EOS_NATIVE", "off")
    words = built(["--master", "spark://x:7077"], tmp_path, monkeypatch)
    assert "spark.executorEnv.EOS_NATIVE=off" in after("--conf", words)
    assert after("--archives", words) == ["/c/packages.zip#eos_packages"]
    assert "spark.executorEnv.PYTHONPATH=eos_packages" in after("--conf", words)
    assert "--archives" not in built(["--master", "local-cluster[2,1,1024]"], tmp_path, monkeypatch)


def test_what_the_user_ships_goes_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Profile, --conf and option: spark-submit would take one of them, and drop the others."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    conf = {"spark.archives": "/p.zip", "spark.jars": "/p.jar"}
    options = ["--master", "spark://x:7077", "--conf", "spark.archives=/c.zip#c"]
    options += ["--archives=/o.zip", "-c", "spark.executorEnv.PYTHONPATH=lib", "--jars", "/o.jar"]
    words = built([*options, "--py-files", "/o.py"], tmp_path, monkeypatch, conf)
    archives = ["/c/packages.zip#eos_packages", "/p.zip", "/c.zip#c", "/o.zip"]
    assert after("--archives", words) == [",".join(archives)]
    assert after("--jars", words) == ["/j/a.jar,/p.jar,/o.jar"]
    assert after("--py-files", words)[0].endswith(",/o.py")
    assert after("--conf", words) == ["spark.executorEnv.PYTHONPATH=eos_packages:lib"]


@pytest.mark.parametrize("is_variable", [True, False])
def test_executors_with_an_environment_of_the_users_get_no_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_variable: bool
) -> None:
    python = "./mine/bin/python"
    monkeypatch.setenv("PYSPARK_PYTHON", python if is_variable else "")
    conf = {} if is_variable else {"spark.pyspark.python": python}
    options = ["--master", "yarn", "--archives", "/mine.tar.gz#mine"]
    words = built(options, tmp_path, monkeypatch, conf)
    assert after("--archives", words) == ["/mine.tar.gz#mine"]
    # Spark would start the driver with it, too.
    assert is_variable or f"spark.pyspark.driver.python={sys.executable}" in after("--conf", words)


def test_the_workers_python_is_of_the_drivers_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    here = Spark(Path("/s"), is_installed=False, version="4.2.0")

    def python(master: str) -> str:
        found = spark.environment(here, Path("/java"), master, tmp_path, Path("/p"))
        return found["PYSPARK_PYTHON"]

    assert python("local-cluster[2,1,1024]") == sys.executable
    assert python("spark://x:7077") == f"python3.{sys.version_info[1]}"
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert python("yarn") == "/opt/python"


def test_a_module_in_a_folder_that_is_no_package_is_found_in_the_zip(tmp_path: Path) -> None:
    module = tmp_path / "pipelines" / "mine" / "late.py"
    module.parent.mkdir(parents=True)
    module.write_text("FOUND = 7\n")
    archive = shipping.eos_zip(tmp_path / "ship", tmp_path)
    program = (
        "import eos.errors, pipelines.mine.late as late; print(eos.errors.__file__, late.FOUND)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(archive)},
        cwd=tmp_path / "ship",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{archive}/eos/errors.py 7\n", done.stderr


def test_what_was_shipped_once_is_not_changed_and_what_nobody_holds_goes(tmp_path: Path) -> None:
    """An executor that starts later fetches it again. Four changes, one made while we hold all."""
    module = tmp_path / "pipelines" / "mine.py"
    module.parent.mkdir()
    program = (
        "import sys; from pathlib import Path; from eos.launch import shipping;"
        "print(shipping.eos_zip(Path(sys.argv[1]), Path(sys.argv[2])))"
    )

    def shipped(number: int) -> Path:
        """By a process that has ended, so that it holds nothing."""
        module.write_text(f"NUMBER = {number}\n")
        command = [sys.executable, "-c", program, str(tmp_path / "ship"), str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": str(shipping.CHECKOUT)}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        return Path(done.stdout.decode().strip())

    module.write_text("NUMBER = 1\n")
    held = shipping.eos_zip(tmp_path / "ship", tmp_path)
    before = held.read_bytes()
    assert shipped(1) == held
    others = [shipped(number) for number in range(2, 6)]
    assert held.read_bytes() == before
    left = sorted(path.name for path in (tmp_path / "ship").glob("*.zip"))
    assert left == sorted(path.name for path in (held, *others[-3:]))


def test_a_spark_home_without_a_spark_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with raises("spark_home_invalid"):
        spark.find_spark()


def test_sparks_options_are_those_of_its_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher's class holds them all as texts."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (jar,) = (find_spark().home / "jars").glob("spark-launcher_*.jar")
    with zipfile.ZipFile(jar) as found:
        told = found.read("org/apache/spark/launcher/SparkSubmitOptionParser.class")
    named = {each.decode() for each in re.findall(rb"--?[a-z][a-z-]*", told)}
    listed = {each for each in SWITCHES | WITH_VALUE if each.startswith("--")}
    assert listed == {each for each in named if each.startswith("--")}


@pytest.mark.parametrize(
    ("words", "code", "value"),
    [
        (["--onec"], "option_unknown", "`--onec`; did you mean `--once`?"),
        (["--drivermemory=1g"], "option_unknown", "did you mean `--driver-memory`?"),
        (["--zzz"], "option_unknown", "`--zzz`"),
        (["--master", "local[2]", "more"], "argument_unexpected", "`more`"),
        (["--jars"], "option_value_missing", "--jars"),
    ],
)
def test_what_is_no_option_is_refused_at_once(
    pipeline: Path, words: list[str], code: str, value: str
) -> None:
    with raises(code, UsageError) as caught:
        parse([str(pipeline), *words])
    assert value in caught.value.message


def test_a_value_may_look_like_an_option(pipeline: Path) -> None:
    words = ["--driver-java-options", "--onec", "--conf=a=b", "-c", "x=y", "--verbose"]
    assert parse([str(pipeline), *words]).spark == (*words,)


def test_files_older_than_zip_are_shipped(tmp_path: Path) -> None:
    """As images have them whose builds are reproducible."""
    old = tmp_path / "old.py"
    old.touch()
    os.utime(old, (0, 0))
    shipping._write(tmp_path / "a.zip", {"old.py": old})
    assert zipfile.ZipFile(tmp_path / "a.zip").namelist() == ["old.py"]

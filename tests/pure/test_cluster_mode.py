"""Runs whose driver is in the cluster: what is refused, what is sent, and how their end is read."""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.doubles import plan
from support.errors import raises

from eos.config.load import load_pipeline, load_profile
from eos.errors import Recovery
from eos.kafka.api import Identity
from eos.launch import relock_python, shipping, spark
from eos.launch.application import KILLED, Submission
from eos.launch.cluster_mode import ClusterMode, cluster_mode
from eos.launch.options import parse
from eos.launch.spark import Spark
from eos.launch.spark_options import is_cluster_mode, master_of, settings_of
from eos.ledger.record import LedgerRecord, Position
from eos.startup.ownership import owner, require_free
from eos.startup.yarn_attempt import YarnAttempt, yarn_attempt

PIPELINE = """\
version: 1
name: orders
source: {kafka: {topic: "${TOPIC:-orders}", max_records: 5}}
sink: {kafka: {topic: "${TARGET}"}}
"""
PROFILE = """\
kafka:
  bootstrap: "${BROKERS}"
  security: {protocol: SASL_SSL, mechanism: PLAIN, user: u, password: "${KAFKA_PW}"}
state: {root: "hdfs://n:8020/eos"}
deployment: prod
# once "${OLD_PASSWORD}"
opentelemetry: {endpoint: "http://c:4318", headers: {Authorization: "Bearer ${OTEL_TOKEN}"}}
"""
CLUSTER = ["--master", "yarn", "--deploy-mode", "cluster"]
ON_KUBERNETES = ["--master", "k8s://https://a:6443", "--deploy-mode", "cluster"]
UPLOADS = ["--conf", "spark.kubernetes.file.upload.path=s3a://b/u"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pipelines" / "orders"
    (folder / ".hidden").mkdir(parents=True)
    (folder / "__pycache__").mkdir()
    for name in ("transform.py", "codes.csv", ".env", ".hidden/x", "__pycache__/transform.pyc"):
        (folder / name).write_text("X = 1\n")
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "prod.yaml").write_text(PROFILE)
    (tmp_path / "conf" / "other.yaml").write_text("kafka: {bootstrap: 'a:1'}\n")
    for name, value in (("TARGET", "out"), ("BROKERS", "b:9092"), ("KAFKA_PW", "sesame")):
        monkeypatch.setenv(name, value)
    for name in ("OTEL_TOKEN", "OLD_PASSWORD"):
        monkeypatch.setenv(name, "sesame-too")
    for name in ("TOPIC", "PYSPARK_PYTHON", "EOS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def mode_of(project: Path, options: Sequence[str], profile: str = "prod") -> ClusterMode:
    path = str(project / "pipelines" / "orders" / "pipeline.yaml")
    words = parse([path, "--profile", profile, *options])
    loaded = load_profile(profile, project)
    assert is_cluster_mode(loaded.spark.conf, words.spark)
    master = master_of(words.spark) or loaded.spark.master
    settings, _ = settings_of(loaded.spark.conf, words.spark)
    return cluster_mode(master, settings, words, [load_pipeline(path)], loaded)


def built(
    project: Path, options: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], dict[str, str]]:
    """spark-submit's words and the settings in them."""
    monkeypatch.setattr(spark, "paths_of", lambda *_: [Path("/j/a.jar")])
    monkeypatch.setattr(shipping, "packages_zip", lambda *_: Path("/c/packages.zip"))
    mode = mode_of(project, options)
    here, ship = Spark(Path("/s"), is_installed=False, version="4.2.0"), project / "ship"
    words = spark.command(here, mode.job(), "local[*]", {}, options, ship, project, mode=mode)
    pairs = (word.partition("=") for word in words if word.startswith("spark."))
    return words, {key: value for key, _, value in pairs}


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "profile", "code"),
    [
        (["--deploy-mode", "cluster"], "", "deploy_mode_cluster"),
        (["--master", "spark://x:7077", "--deploy-mode=cluster"], "", "deploy_mode_cluster"),
        (CLUSTER, "state: {root: 'hdfs://n/eos'}\n", "cluster_mode_embedded_broker"),
        (CLUSTER, "kafka: {bootstrap: 'a:1'}\n", "cluster_mode_local_state"),
        ([*CLUSTER, "--demo-crash"], PROFILE, "cluster_mode_demo_crash"),
        (ON_KUBERNETES, PROFILE, "cluster_mode_upload_path"),
    ],
)
def test_a_driver_in_the_cluster_is_refused_with_the_remedy(
    project: Path, options: list[str], profile: str, code: str
) -> None:
    (project / "conf" / "tried.yaml").write_text(profile or PROFILE)
    with raises(code) as caught:
        mode_of(project, options, "tried")
    assert caught.value.recovery is Recovery.USAGE
    assert caught.value.hint


def test_a_state_root_on_a_shared_mount_is_accepted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eos.launch.cluster_mode.shared_type", lambda _: "nfs4")
    (project / "conf" / "tried.yaml").write_text("kafka: {bootstrap: 'a:1'}\n")
    assert mode_of(project, CLUSTER, "tried").manager == "yarn"


@pytest.mark.parametrize(
    ("conf", "options", "is_cluster"),
    [
        ({}, ["--deploy-mode", "cluster"], True),
        ({}, ["--conf", "spark.submit.deployMode=cluster"], True),
        ({"spark.submit.deployMode": "cluster"}, [], True),
        ({"spark.submit.deployMode": "cluster"}, ["--deploy-mode", "client"], False),
        ({}, ["--deploy-mode=client"], False),
        ({}, [], False),
    ],
)
def test_the_command_line_decides_before_the_profile(
    conf: dict[str, str], options: list[str], is_cluster: bool
) -> None:
    assert is_cluster_mode(conf, options) is is_cluster


# --- sent ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        (CLUSTER, "spark.yarn.appMasterEnv."),
        ([*ON_KUBERNETES, *UPLOADS], "spark.kubernetes.driverEnv."),
    ],
)
def test_pipeline_profile_and_packages_are_sent_and_named_by_their_places_there(
    project: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], prefix: str
) -> None:
    words, settings = built(project, options, monkeypatch)
    archives = words[words.index("--archives") + 1].split(",")
    assert archives[0] == "/c/packages.zip#eos_packages"
    sent, _, name = archives[1].partition("#")
    assert name == "eos_project"
    with zipfile.ZipFile(sent) as archive:
        files = {each for each in archive.namelist() if not each.endswith("/")}
    names = ("pipeline.yaml", "transform.py", "codes.csv")
    assert files == {"conf/prod.yaml", *(f"pipelines/orders/{each}" for each in names)}
    pipeline = "eos_project/pipelines/orders/pipeline.yaml"
    assert words[-3:] == [pipeline, "--profile", "eos_project/conf/prod.yaml"]
    assert settings[f"{prefix}PYTHONPATH"] == "eos_packages"
    assert settings["spark.executorEnv.PYTHONPATH"] == "eos_packages"
    assert settings["spark.pyspark.python"] == f"python3.{sys.version_info[1]}"
    assert "spark.pyspark.driver.python" not in settings
    assert settings["spark.app.name"] == "orders"


def test_variables_of_the_files_are_sent_and_secrets_never(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "spark.yarn.appMasterEnv.BROKERS=mine:1"
    words, settings = built(project, [*CLUSTER, "--conf", own], monkeypatch)
    prefix = "spark.yarn.appMasterEnv."
    found = {key[len(prefix) :]: text for key, text in settings.items() if key.startswith(prefix)}
    # TOPIC is not set here, so the driver uses the file's default, too.
    assert found == {"TARGET": "out", "BROKERS": "mine:1", "PYTHONPATH": "eos_packages"}
    assert "sesame" not in " ".join(words)


def test_an_environment_of_the_users_is_the_drivers_too(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./mine/bin/python")
    words, settings = built(project, [*CLUSTER, "--archives", "/m.tgz#mine"], monkeypatch)
    archives = words[words.index("--archives") + 1].split(",")
    assert [each.partition("#")[2] for each in archives] == ["eos_project", "mine"]
    assert settings["spark.pyspark.python"] == "./mine/bin/python"
    assert "spark.yarn.appMasterEnv.PYTHONPATH" not in settings


def test_the_users_java_options_come_after_ours(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options in (
        ["--driver-java-options", "-Da=b"],
        ["-c", "spark.driver.extraJavaOptions=-Da=b"],
    ):
        words, settings = built(project, [*CLUSTER, *options], monkeypatch)
        assert re.fullmatch(
            r"-Dorg\.apache\.avro\S+ .*-Da=b", settings["spark.driver.extraJavaOptions"]
        )
        assert "--driver-java-options" not in words


def test_this_machines_paths_are_not_the_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    here, words = (
        Spark(Path("/s"), is_installed=False, version="4.2.0"),
        (Path("/java"), "yarn", tmp_path, tmp_path),
    )
    assert {"PYTHONPATH", "PYSPARK_DRIVER_PYTHON"} <= set(spark.environment(here, *words))
    found = spark.environment(here, *words, is_elsewhere=True)
    assert not {"PYTHONPATH", "PYSPARK_DRIVER_PYTHON"} & set(found)
    assert "spark-log4j2-status.properties" in found["SPARK_SUBMIT_OPTS"]


def test_data_in_the_project_is_not_sent_by_accident(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "_PROJECT_BYTES_MAX", 1_000)
    (project / "pipelines" / "orders" / "large.csv").write_bytes(b"x" * 2_000)
    with raises("project_too_large") as caught:
        shipping.project_zip(project / "ship", project, {})
    assert "pipelines/orders/large.csv" in caught.value.message


def test_workers_of_the_same_image_get_the_project_only(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EOS_SHIP", "project")
    monkeypatch.setattr(spark, "paths_of", lambda *sets: [Path("/j.jar") for _ in sets])
    words = (
        Spark(Path("/s"), is_installed=False, version="4.2.0"),
        [],
        "k8s://https://a:1",
        {},
        [],
    )
    found = spark.command(*words, project / "ship", project, with_delta=True)
    assert not {"--jars", "--archives"} & set(found)
    assert "eos_packages" not in " ".join(found)
    assert "/ship/eos-" in found[found.index("--py-files") + 1]
    mode = mode_of(project, CLUSTER)
    words = (words[0], mode.job(), "yarn", {}, CLUSTER)
    found = spark.command(*words, project / "ship", project, mode=mode)
    archives = found[found.index("--archives") + 1].split(",")
    assert [each.partition("#")[2] for each in archives] == ["eos_project"]
    monkeypatch.setenv("EOS_SHIP", "nothing")
    with raises("ship_unknown"):
        spark.command(*words, project / "ship", project)


def test_the_driver_gets_each_dependency() -> None:
    users = relock_python.requirements()[relock_python.USERS]
    names = {re.split(r"[=<>]", each)[0] for each in users}
    # Spark's own; of commands; of demos; of tests.
    elsewhere = {"pyspark", "argcomplete", "confluent-kafka", "pytest", "chispa"}
    assert names - elsewhere == {*shipping._ROOTS, *shipping.OF_DRIVER}
    assert "pyspark" not in shipping._closure(shipping.OF_DRIVER)


# --- its end ------------------------------------------------------------------------------------

_SUBMITTED = "10:00:00 Submitting application application_17_0001 to ResourceManager"
_ACCEPTED = "10:00:01 Application report for application_17_0001 (state: ACCEPTED)"
_STATUS = "10:00:09 Application diagnostics message: User application exited with status 3"
_POD = "10:00:00 x with submission ID eos:orders-1-driver"
_DRIVER = "spark-kubernetes-driver"
_KILLED = "10:00:09 Application report for application_17_0001 (state: KILLED)"


def _ended(container: str, code: int) -> list[str]:
    return [f"\t container name: {container}", f"\t exit code: {code}"]


@pytest.mark.parametrize(
    ("lines", "submits", "code"),
    [
        ([_SUBMITTED, _ACCEPTED], 0, 0),
        ([_SUBMITTED, _STATUS], 1, 3),
        ([_SUBMITTED, _STATUS, _ACCEPTED], 0, 0),  # its second attempt succeeded
        ([_SUBMITTED, _ACCEPTED, _KILLED], 1, KILLED),
        ([_SUBMITTED, "10:00:09 Application diagnostics message: AM Container exited"], 1, 5),
        (
            ["10:00:00 Deployed Spark application orders with submission ID eos:orders-1-driver"],
            0,
            0,
        ),
        (["10:00:00 x with submission ID eos:orders-1-driver", "\t exit code: 4"], 0, 4),
        ([_POD, *_ended("istio-proxy", 1), *_ended(_DRIVER, 3), *_ended("vault-agent", 0)], 0, 3),
        ([_POD, *_ended(_DRIVER, 0), *_ended("vault-agent", 137)], 0, 0),
        ([_POD, *_ended("mine", 4)], 0, 4),
    ],
)
def test_the_exit_code_is_the_drivers(lines: list[str], submits: int, code: int) -> None:
    found = Submission()
    said = [message for line in lines for message in found.read(line)]
    assert found.code(submits) == code
    assert said[0] in {"submitted as application_17_0001", "submitted as eos:orders-1-driver"}


def test_a_status_is_reported_when_it_changes() -> None:
    found = Submission()
    said = [message for line in (_SUBMITTED, _ACCEPTED, _ACCEPTED) for message in found.read(line)]
    assert said == ["submitted as application_17_0001", "application_17_0001 is ACCEPTED"]
    assert found.command("application -kill", "") == "yarn application -kill application_17_0001"


# --- restarts by YARN ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("container", "number"),
    [("container_17_0004_01_000001", 1), ("container_e08_17_0004_12_000001", 12), ("", None)],
)
def test_yarns_attempt_is_in_its_environment(container: str, number: int | None) -> None:
    env = {"CONTAINER_ID": container, "APP_SUBMIT_TIME_ENV": "99"}
    assert yarn_attempt(env) is None  # a client in a container is not Spark's own
    found = yarn_attempt({**env, "SPARK_YARN_STAGING_DIR": "hdfs://n/s"})
    assert found == (None if number is None else YarnAttempt("application_17_0004", number, 99))


def test_the_ledger_names_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "application" not in owner(plan())
    monkeypatch.setenv("CONTAINER_ID", "container_17_0004_01_000001")
    monkeypatch.setenv("SPARK_YARN_STAGING_DIR", "hdfs://n/s")
    assert owner(plan())["application"] == "application_17_0004"


@pytest.mark.parametrize(
    ("number", "by", "kind", "at_ms", "is_refused"),
    [
        (2, "application_17_0005", "attempt", 100, True),
        (2, None, "attempt", 100, True),
        (1, "application_17_0005", "attempt", 100, False),  # the deployment decides about a start
        (2, "application_17_0004", "attempt", 100, False),  # our earlier attempt died
        (2, "application_17_0005", "stop", 100, False),
        (2, "application_17_0003", "attempt", 98, False),  # died before we were submitted
    ],
)
def test_a_restart_takes_nothing_back(
    number: int, by: str | None, kind: str, at_ms: int, is_refused: bool
) -> None:
    wrote = {"deployment": "d", "host": "mars", "process": 7, **({"application": by} if by else {})}
    last = LedgerRecord(kind, Position({}, {}), wrote, at_ms, 0, Identity(1, 0))
    attempt = YarnAttempt("application_17_0004", number, 99)
    if not is_refused:
        require_free(plan(), last, is_forced=True, attempt=attempt)
        return
    with raises("replaced_before_restart") as caught:
        require_free(plan(), last, is_forced=True, attempt=attempt)
    assert caught.value.recovery is Recovery.FENCED
    assert "host mars, process 7" in caught.value.message

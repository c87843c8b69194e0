"""The files in conf/deploy: each by its schema, and what the schemas do not know."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from jsonschema import Draft202012Validator
from support.docs import ROOT

from eos.config.load import load_profile
from eos.errors import Recovery
from eos.local.jars import BROKER_VERSION
from eos.local.java import AVRO_LIMITS
from eos.run.shutdown import FINISH_S

DEPLOY = ROOT / "conf" / "deploy"
SCHEMAS = ROOT / "tests" / "fixtures" / "schemas"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
CLUSTERS = {"kubernetes.json", "spark-application.json"}


def schemas() -> dict[str, dict[str, Any]]:
    """By `apiVersion/kind`. Unknown keys are errors, as for `kubectl --validate=strict`."""
    found = {}
    for name in CLUSTERS:
        document = json.loads((SCHEMAS / name).read_text())
        strict = _strict(document["$defs"])
        for kind, of_kind in document["kinds"].items():
            found[kind] = {"$ref": f"#/$defs/{of_kind}", "$defs": strict}
    return found


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: _strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        changed.setdefault("additionalProperties", False)
    return changed


def problems(document: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    found = Draft202012Validator(schema).iter_errors(document)
    return [f"{each.json_path}: {each.message[:300]}" for each in found]


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def of_kind(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in MANIFESTS:
        yield from ((path.name, each) for each in documents(path) if each["kind"] == kind)


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """The specifications of all pods of manifests for plain spark-submit."""
    for kind in ("Job", "Deployment"):
        yield from ((name, each["spec"]["template"]["spec"]) for name, each in of_kind(kind))
    yield "base.yaml", yaml.safe_load(files_of("base.yaml")["executor.yaml"])["spec"]


def files_of(manifest: str) -> dict[str, str]:
    """The files in a manifest's ConfigMap."""
    return next(each["data"] for name, each in of_kind("ConfigMap") if name == manifest)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_has_the_form_of_its_kind(path: Path) -> None:
    known = schemas()
    for each in documents(path):
        kind = f"{each['apiVersion']}/{each['kind']}"
        assert problems(each, known[kind]) == [], kind
        for text in each.get("data", {}).values():
            inside = yaml.safe_load(text)
            if "kind" in inside:
                assert problems(inside, known[f"{inside['apiVersion']}/{inside['kind']}"]) == []


@pytest.mark.parametrize(
    ("kind", "at", "value"),
    [
        ("Job", ("spec", "template", "spec", "restartPolicys"), "Never"),
        ("Job", ("spec", "backoffLimit"), "many"),
        ("SparkApplication", ("spec", "restartPolicy", "onFailureRetrys"), 3),
        ("SparkApplication", ("spec", "driver", "securityContext", "readOnly"), True),
    ],
)
def test_a_mistake_in_a_manifest_is_found(kind: str, at: tuple[str, ...], value: object) -> None:
    _, document = next(of_kind(kind))
    place: Any = document
    for key in at[:-1]:
        place = place[key]
    place[at[-1]] = value
    schema = schemas()[f"{document['apiVersion']}/{kind}"]
    assert any(at[-1] in each for each in problems(document, schema))


def test_the_compose_file_has_its_form() -> None:
    schema = json.loads((SCHEMAS / "compose.json").read_text())
    (document,) = documents(DEPLOY / "compose" / "compose.yaml")
    assert problems(document, schema) == []
    document["services"]["orders"]["read_onyl"] = True
    assert problems(document, schema)
    mounted = re.findall(r"- (\.\S+?):", (DEPLOY / "compose" / "compose.yaml").read_text())
    assert len(mounted) == 6
    for each in mounted:
        assert (DEPLOY / "compose" / each).is_file(), each


def test_the_services_of_the_compose_file_find_each_other() -> None:
    """Addresses, ports and paths are those of another service, or of a file in this folder."""
    place = DEPLOY / "compose"
    (document,) = documents(place / "compose.yaml")
    services: dict[str, Any] = document["services"]
    brokers = [f"kafka-{number}" for number in (1, 2, 3)]
    assert list(services) == [*brokers, "registry", "orders", "prometheus", "grafana"]

    for number, name in enumerate(brokers, 1):
        env = services[name]["environment"]
        assert f"{number}@{name}:9093" in env["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
        assert env["KAFKA_NODE_ID"] == str(number)
        assert env["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{name}:9092"
        assert "PLAINTEXT://:9092" in env["KAFKA_LISTENERS"].split(",")
        assert services[name]["image"].startswith(f"apache/kafka:{BROKER_VERSION}.")
    bootstrap = ",".join(f"{name}:9092" for name in brokers)
    profile = yaml.safe_load((place / "profile.yaml").read_text())
    registry = services["registry"]["environment"]
    assert profile["kafka"]["bootstrap"] == bootstrap
    assert registry["SCHEMA_REGISTRY_KAFKASTORE_BOOTSTRAP_SERVERS"] == bootstrap
    assert set(services["orders"]["depends_on"]) == {*brokers}
    own = urlsplit(profile["registry"]["url"])
    assert (own.hostname, own.port) == ("registry", urlsplit(registry[LISTENERS]).port)

    scraped = yaml.safe_load((place / "prometheus.yaml").read_text())
    ((target,),) = (each["targets"] for each in scraped["scrape_configs"][0]["static_configs"])
    assert target == f"orders:{profile['metrics']['prometheus']['port']}"
    (source,) = yaml.safe_load((place / "grafana-source.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert "127.0.0.1:9090:9090" in services["prometheus"]["ports"]


LISTENERS = "SCHEMA_REGISTRY_LISTENERS"


def test_the_files_of_the_compose_file_are_where_its_services_look() -> None:
    (document,) = documents(DEPLOY / "compose" / "compose.yaml")
    services: dict[str, Any] = document["services"]
    inside = {
        name: {each.split(":")[1] for each in service["volumes"]}
        for name, service in services.items()
        if "volumes" in service
    }
    named = {each.split(":")[0] for one in services.values() for each in one.get("volumes", [])}
    assert {each for each in named if not each.startswith(".")} == set(document["volumes"])
    command, (config,) = services["orders"]["command"], services["prometheus"]["command"]
    assert command[-1] in inside["orders"]
    assert "/state" in inside["orders"]
    assert config.removeprefix("--config.file=") in inside["prometheus"]
    rules = yaml.safe_load((DEPLOY / "compose" / "prometheus.yaml").read_text())["rule_files"]
    assert {f"/etc/prometheus/{each}" for each in rules} < inside["prometheus"]
    (provider,) = yaml.safe_load((DEPLOY / "compose" / "grafana-dashboards.yaml").read_text())[
        "providers"
    ]
    shown = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert shown in inside["grafana"]
    assert Path(shown).parent == Path(provider["options"]["path"])
    # The pipeline's image is the user's, on the one that is built here; all others are fixed.
    images = {name: service["image"] for name, service in services.items()}
    assert images.pop("orders") == "${ORDERS_IMAGE:-orders:1}"
    assert (DEPLOY / "image" / "Containerfile").is_file()
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images.values()), images


def test_each_budget_for_disruptions_is_of_pods_that_exist() -> None:
    """By file and part: a budget whose labels are of no pod protects nothing."""
    started = [each for kind in ("Job", "Deployment") for _, each in of_kind(kind)]
    drivers = [each["spec"]["template"]["metadata"]["labels"] for each in started]
    _, application = next(of_kind("SparkApplication"))
    executor = yaml.safe_load(files_of("base.yaml")["executor.yaml"])["metadata"]["labels"]
    found = []
    for name, budget in of_kind("PodDisruptionBudget"):
        assert budget["spec"]["minAvailable"] == 1
        wanted = budget["spec"]["selector"]["matchLabels"].items()
        own = (
            [executor, *drivers]
            if name == "base.yaml"
            else [application["spec"]["driver"]["labels"]]
        )
        found.append((name, [wanted <= each.items() for each in own]))
        assert {each["metadata"]["namespace"] for each in [budget, application, *started]} == {
            "pipelines"
        }
    assert found == [
        ("base.yaml", [True, False, False]),
        ("base.yaml", [False, True, True]),
        ("spark-application.yaml", [True]),
    ]


def test_profiles_in_manifests_are_valid(tmp_path: Path) -> None:
    """With the variables that the manifests set."""
    env = dict.fromkeys(("EOS_DEPLOYMENT", "EOS_IMAGE", "POD_NAME", "POD_IP"), "x")
    texts = [files_of(name)["profile.yaml"] for name in ("base.yaml", "spark-application.yaml")]
    for text in [*texts, (DEPLOY / "compose" / "profile.yaml").read_text()]:
        path = tmp_path / "profile.yaml"
        path.write_text(text)
        found = load_profile(str(path), tmp_path, env)
        assert found.kafka.bootstrap
        assert found.deployment, "an empty folder has no deployment that lasts"
    for name, pod in pods():
        given = {each["name"] for each in pod["containers"][0].get("env", [])}
        assert given in ({*env}, set()), name


def test_a_job_is_not_repeated_where_a_restart_can_not_help() -> None:
    _, job = next(of_kind("Job"))
    rules = job["spec"]["podFailurePolicy"]["rules"]
    codes = next(each["onExitCodes"] for each in rules if each["action"] == "FailJob")
    final = {Recovery.USAGE, Recovery.FENCED, Recovery.STOP}
    assert codes["values"] == sorted(each.value for each in final)
    assert codes["operator"] == "In"
    spec = job["spec"]["template"]["spec"]
    assert codes["containerName"] in [each["name"] for each in spec["containers"]]
    assert spec["restartPolicy"] == "Never"  # the policy needs it
    # A second pod would fence the first one, whose exit code would then fail the job.
    assert job["spec"]["podReplacementPolicy"] == "Failed"


def test_a_second_replica_is_another_deployment() -> None:
    """So it ends with exit 4 before it fences the first one."""
    _, found = next(of_kind("Deployment"))
    assert found["spec"]["replicas"] == 1
    assert found["spec"]["strategy"] == {"type": "Recreate"}
    (container,) = found["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each for each in container["env"]}
    assert variables["EOS_DEPLOYMENT"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"


def test_containers_have_no_rights_and_an_end_that_fits() -> None:
    for name, pod in pods():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"], name
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert "/tmp" in [each["mountPath"] for each in container["volumeMounts"]], name
        if container["name"] == "driver":
            assert pod["terminationGracePeriodSeconds"] >= FINISH_S + 10, name
    _, application = next(of_kind("SparkApplication"))
    for part in ("driver", "executor"):
        assert application["spec"][part]["securityContext"]["readOnlyRootFilesystem"]
    assert application["spec"]["driver"]["terminationGracePeriodSeconds"] >= FINISH_S + 10


def test_the_operators_driver_has_avros_limits() -> None:
    """`eos run` sets them, and the operator calls spark-submit itself."""
    _, application = next(of_kind("SparkApplication"))
    found = application["spec"]["sparkConf"]["spark.driver.extraJavaOptions"]
    assert found.split() == list(AVRO_LIMITS)


def test_the_user_of_the_image_is_that_of_the_manifests() -> None:
    text = (DEPLOY / "image" / "Containerfile").read_text()
    user = re.search(r"^USER (\d+):\1$", text, re.MULTILINE)
    assert user
    assert {pod["securityContext"]["runAsUser"] for _, pod in pods()} == {int(user[1])}


# --- the image's entry point ----------------------------------------------------------------------


@pytest.fixture
def entered(tmp_path: Path) -> Any:
    """Runs the entry point with commands that print their words, in place of `eos` and `java`."""
    for name in ("eos", "java"):
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text('#!/bin/sh\nprintf "%s|" "$(basename "$0")" "$@"; pwd; eval "$THEN"\n')
        command.chmod(0o755)

    def run(*words: str, **env: str) -> subprocess.Popen[str]:
        path = f"{tmp_path}/bin:{os.environ['PATH']}"
        command = ["/bin/sh", str(DEPLOY / "image" / "entrypoint.sh"), *words]
        given = {"PATH": path, "THEN": "exit 0", **env}
        return subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True, cwd=tmp_path)

    return run


@pytest.mark.parametrize("code", [0, 3, 4, 5])
def test_the_exit_code_is_that_of_the_run(entered: Any, code: int) -> None:
    process = entered("run", "a b", THEN=f"exit {code}")
    said, _ = process.communicate(timeout=60)
    assert said.startswith("eos|run|a b|")
    assert process.returncode == code


@pytest.mark.parametrize(("code", "seen"), [(0, 143), (5, 5)])
def test_a_stop_is_not_the_end_of_a_job(entered: Any, code: int, seen: int) -> None:
    then = f"trap 'exit {code}' TERM; echo waits; while :; do sleep 0.05; done"
    with entered("run", THEN=then) as process:
        assert process.stdout.readline()
        assert process.stdout.readline() == "waits\n"
        process.terminate()
        assert process.wait(60) == seen


def test_an_executor_starts_as_spark_asks(entered: Any, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    names = ("DRIVER_URL", "EXECUTOR_ID", "EXECUTOR_CORES", "APPLICATION_ID", "EXECUTOR_POD_IP")
    names = (*names, "RESOURCE_PROFILE_ID", "EXECUTOR_POD_NAME")
    env = {f"SPARK_{name}": name.lower() for name in names}
    env |= {"SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dd", "SPARK_EXECUTOR_MEMORY": "2g"}
    process = entered("executor", SPARK_LOCAL_DIRS=f"{local},/other", **env)
    *words, place = process.communicate(timeout=60)[0].strip().split("|")
    assert words[:5] == ["java", "-Da=b c", "-Dd", "-Xms2g", "-Xmx2g"]
    assert words[words.index("--driver-url") + 1] == "driver_url"
    assert words[-2:] == ["--podName", "executor_pod_name"]
    assert place == str(local)

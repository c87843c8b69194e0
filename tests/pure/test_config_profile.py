"""A profile says where pipelines run: found by name, path or environment, rooted in its project."""

import subprocess
from pathlib import Path
from textwrap import dedent

import pytest
from support.errors import raises

from eos.config.load import load_profile
from eos.errors import UsageError


def conf(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / "conf" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(dedent(text))
    return path


def test_a_profile_is_found_by_name_path_and_environment(tmp_path):
    path = conf(tmp_path, "prod", "kafka: {bootstrap: 'a:1, b:2'}")
    conf(tmp_path, "local", "kafka: {bootstrap: [c:3]}")
    by_name = load_profile("prod", tmp_path, {"EOS_PROFILE": "local"})
    assert by_name.kafka.bootstrap == ("a:1", "b:2")
    assert by_name.name == "prod"
    assert load_profile(str(path), Path("/nowhere"), {}) == by_name
    assert load_profile(None, tmp_path, {"EOS_PROFILE": "prod"}) == by_name
    assert load_profile(None, tmp_path, {}).kafka.bootstrap == ("c:3",)


def test_the_default_profile_needs_no_file(tmp_path):
    found = load_profile(None, tmp_path, {})
    assert found.name == "local"
    assert found.kafka.bootstrap is None
    assert found.state.root == str(tmp_path / ".eos")


def test_a_profile_that_was_asked_for_must_exist(tmp_path):
    conf(tmp_path, "production", "{}")
    with raises("profile_missing", UsageError) as caught:
        load_profile("prodution", tmp_path, {})
    assert "did you mean `production`" in caught.value.message


def test_the_state_root_is_relative_to_the_profiles_project(tmp_path):
    path = conf(tmp_path, "a", "state: {root: here}")
    found = load_profile(str(path), Path("/nowhere"), {})
    assert found.state.root == str(tmp_path / "here")
    assert found.deployment is None
    conf(tmp_path, "b", "state: {root: /abs}\ndeployment: mine")
    assert load_profile("b", tmp_path, {}).state.root == "/abs"
    assert load_profile("b", tmp_path, {}).deployment == "mine"


@pytest.mark.parametrize(
    ("written", "root"),
    [
        ("s3a://bucket/x", "s3a://bucket/x"),
        ("abfss://c@a.dfs.core.windows.net/eos/", "abfss://c@a.dfs.core.windows.net/eos"),
        ("hdfs:///eos", "hdfs:///eos"),
    ],
)
def test_a_state_root_elsewhere_stays_a_uri_and_what_must_be_local_stays_here(
    tmp_path, written, root
):
    conf(tmp_path, "a", f"state: {{root: '{written}'}}")
    found = load_profile("a", tmp_path, {})
    assert found.state.root == root
    assert found.local_root == tmp_path / ".eos"


@pytest.mark.parametrize("written", ["file:///var/eos", "file:/var/eos", "/var/eos", "/var/eos/"])
def test_a_local_state_root_holds_everything(tmp_path, written):
    conf(tmp_path, "a", f"state: {{root: '{written}'}}")
    found = load_profile("a", tmp_path, {})
    assert found.local_root == Path("/var/eos")
    assert found.state.root == written.rstrip("/")


def test_a_state_root_below_the_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    conf(tmp_path, "a", "state: {root: ~/state}")
    assert load_profile("a", tmp_path, {}).state.root == str(tmp_path / "home" / "state")


@pytest.mark.parametrize("written", ["file:eos", "file://host/eos", "file:/", ""])
def test_a_state_root_that_says_no_place_is_refused(tmp_path, written):
    conf(tmp_path, "a", f"state: {{root: '{written}'}}")
    with pytest.raises(UsageError, match=r"expected (an absolute path|a text that is not empty)"):
        load_profile("a", tmp_path, {})


def test_settings_are_texts_however_yaml_reads_them(tmp_path):
    conf(tmp_path, "a", "spark: {conf: {a: false, b: 4, c: 1.5, d: x}}")
    found = load_profile("a", tmp_path, {})
    assert found.spark.conf == {"a": "false", "b": "4", "c": "1.5", "d": "x"}


@pytest.mark.parametrize("number", ["1.10", "027", "12:30:00", "0x1F", "1_000", "1e5"])
def test_a_number_among_the_settings_is_passed_on_as_it_is_written(tmp_path, number):
    text = f"{{spark: {{conf: {{x: {number}}}}}, kafka: {{bootstrap: 'k:9', client: {{}}}}}}"
    conf(tmp_path, "a", text)
    assert load_profile("a", tmp_path, {}).spark.conf == {"x": number.replace("_", "")}
    client = "{connections.max.idle.ms: 060000}"
    conf(tmp_path, "a", f"{{clusters: {{b: {{bootstrap: 'k:9', client: {client}}}}}}}")
    found = load_profile("a", tmp_path, {}).clusters["b"].client
    assert found == {"connections.max.idle.ms": "060000"}


def test_a_master_among_the_settings_is_refused(tmp_path):
    conf(tmp_path, "a", "spark: {conf: {spark.master: yarn}}")
    with pytest.raises(UsageError, match="it is the key `master` of `spark`"):
        load_profile("a", tmp_path, {})


@pytest.mark.parametrize("number", ["010", "-07", "1:30"])
def test_a_number_of_another_base_is_refused_where_a_number_is_read(tmp_path, number):
    conf(tmp_path, "a", f"audit: {{behind_max: {number}}}")
    with pytest.raises(UsageError, match="expected a decimal number without a leading 0 or `:`"):
        load_profile("a", tmp_path, {})


@pytest.mark.parametrize("address", ["nohost", "a:", ":9", "a b:9", "http://a:9"])
def test_an_address_needs_host_and_port(tmp_path, address):
    conf(tmp_path, "a", f"kafka: {{bootstrap: '{address}'}}")
    with pytest.raises(UsageError, match="expected an address as `host:port`"):
        load_profile("a", tmp_path, {})


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_an_address_has_a_port_that_exists(tmp_path, port):
    conf(tmp_path, "a", f"kafka: {{bootstrap: 'k:{port}'}}")
    with pytest.raises(UsageError, match="expected a port from 1 to 65535"):
        load_profile("a", tmp_path, {})


ROOT = Path(__file__).parents[2]


def test_the_projects_own_profile_is_valid():
    found = load_profile("local", ROOT, {})
    assert found.kafka.bootstrap is None
    assert found.state.root == str(ROOT / ".eos")


def test_the_profile_of_a_container_has_defaults_and_takes_what_is_set():
    """Its state root is not that of `local`: a checkpoint is of one broker."""
    found = load_profile("container", ROOT, {})
    assert found.kafka.bootstrap == ("localhost:9092",)
    assert found.state.root == str(ROOT / ".eos" / "container")
    assert found.names.prefix == "eos"
    said = {"KAFKA_BOOTSTRAP": "kafka:29092", "EOS_STATE": "/state", "EOS_PREFIX": "ci-7"}
    found = load_profile("container", ROOT, said)
    assert found.kafka.bootstrap == ("kafka:29092",)
    assert (found.state.root, found.names.prefix) == ("/state", "ci-7")


def test_every_profile_of_the_project_is_loaded_by_a_test():
    """`cluster`, which has secrets, in test_config_security.py. A developer's own is no error."""
    found = subprocess.run(
        ["git", "ls-files", ":(glob)conf/*.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    named = {Path(path).stem for path in found.stdout.split()}
    assert named == {"local", "container", "cluster"}

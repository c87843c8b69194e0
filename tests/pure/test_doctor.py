"""What `eos doctor` finds on a machine: each thing that is wrong, with a remedy, and no other."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from support.verbs import doctor

from eos.config.load import load_profile
from eos.deadline import Deadline
from eos.inspect import cluster_check, machine_check
from eos.inspect.check import Check, checked
from eos.kafka.cluster_shape import Shape


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "conf").mkdir()
    write(tmp_path, "state: {root: state}\n")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delenv("EOS_PROFILE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def write(project: Path, text: str) -> None:
    (project / "conf" / "local.yaml").write_text(text)


def told(
    capsys: pytest.CaptureFixture[str], code: int, *pipeline: str
) -> dict[str, tuple[str, str, str]]:
    """Level, words and remedy of each thing that is not as it should be."""
    assert doctor(["--json", *pipeline]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["fine"] == (code == 0)
    return {
        each["what"]: (each["level"], each["says"], each["remedy"] or "")
        for each in found["checks"]
        if each["level"] != "ok"
    }


def test_a_machine_on_which_pipelines_run_has_no_findings(project, capsys):
    assert doctor([]) == 0
    said = capsys.readouterr().out
    assert said.endswith("no findings\n")
    for what in ("python", "packages", "java", "spark", "jars", "state root", "host name", "ports"):
        assert f" {what} " in said
    assert not (project / "state").exists(), "it makes nothing"


def test_what_is_not_fetched_yet_is_a_note_with_its_size(project, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
    level, says, remedy = told(capsys, 0)["jars"]
    assert level == "note"
    assert " MB" in says
    assert "eos fetch" in remedy


def test_missing_jars_that_a_run_may_not_download_are_a_finding(project, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
    monkeypatch.setenv("EOS_OFFLINE", "")
    level, says, remedy = told(capsys, 1)["jars"]
    assert (level, remedy) == ("finding", "eos fetch")
    assert says.endswith(" MB, and a run may not download them")


@pytest.mark.parametrize(
    ("sink", "is_missing"), [("kafka: {topic: b}", False), ("delta: {path: lake}", True)]
)
def test_jars_of_delta_are_needed_by_a_pipeline_with_a_table(
    project, capsys, monkeypatch, sink, is_missing
):
    place = project / "pipelines" / "one"
    place.mkdir(parents=True)
    (place / "pipeline.yaml").write_text(
        f"version: 1\nname: one\nsource: {{kafka: {{topic: a}}}}\nsink: {{{sink}}}\n"
    )
    monkeypatch.setattr(machine_check, "is_present", lambda jar, _: "delta" not in jar.purpose)
    assert "jars" not in told(capsys, 0)
    found = told(capsys, 0, "one")
    assert ("jars" in found) is is_missing
    if is_missing:
        assert found["jars"][1].startswith("2 of ")


def test_a_spark_that_is_not_there(project, capsys, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(project))
    level, says, remedy = told(capsys, 1)["spark"]
    assert level == "finding"
    assert str(project) in says
    assert "unset SPARK_HOME" in remedy


@pytest.mark.parametrize("root", ["file/state", "file", "/proc/eosroot"])
def test_a_state_root_that_no_run_could_make(project, capsys, root):
    (project / "file").touch()
    write(project, f"state: {{root: {root}}}\n")
    level, says, _ = told(capsys, 1)["state root"]
    assert (level, "can't be " in says) == ("finding", True)


def test_a_disk_that_is_almost_full(project, capsys, monkeypatch):
    monkeypatch.setattr(machine_check, "_FREE_BYTES_MIN", 2**60)
    found = told(capsys, 1)
    assert {what for what, each in found.items() if each[0] == "finding"} == {"state root", "cache"}
    assert "at least 1 GB" in found["cache"][2]
    assert (project / "conf").exists()


def test_a_host_name_that_spark_would_not_find(project, capsys, monkeypatch):
    def unknown(_name: str) -> str:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "gethostbyname", unknown)
    assert "host name" not in told(capsys, 0)  # a local Spark does not look it up
    write(project, "spark: {master: yarn}\n")
    level, says, remedy = told(capsys, 1)["host name"]
    assert (level, "does not resolve" in says) == ("finding", True)
    assert "SPARK_LOCAL_IP" in remedy
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    assert "host name" not in told(capsys, 0)


def test_what_a_check_can_not_ask_is_no_reason_to_leave_out_the_others(
    project, capsys, monkeypatch
):
    def not_installed(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", not_installed)
    monkeypatch.setattr(socket, "gethostname", lambda: "a" * 64)
    write(project, "spark: {master: yarn}\n")
    found = told(capsys, 1)
    assert found["packages"][0] == "note"
    assert "does not resolve" in found["host name"][1]


def test_the_remedy_of_an_os_error_is_that_of_its_code():
    def check(code: int) -> tuple[str, str]:
        def fails() -> Check:
            raise OSError(code, os.strerror(code), "/place")

        (found,) = checked("state root", fails)
        return found.message, found.remedy

    assert "right to read and write" in check(errno.EACCES)[1]
    assert check(errno.ENOSPC) == ("/place: No space left on device", "free some disk space")
    assert check(errno.EMFILE)[1] == ""


LOCAL, STANDALONE = "local[*]", "spark://host:7077"


@pytest.mark.parametrize(
    ("master", "conf", "ports", "ui"),
    [
        (LOCAL, {}, "", ""),
        (LOCAL, {"spark.driver.bindAddress": "localhost"}, "", ""),
        (LOCAL, {"spark.driver.bindAddress": "0.0.0.0"}, "remove spark.driver.bindAddress,", ""),
        (LOCAL, {"spark.driver.host": "my-host"}, "remove spark.driver.host,", ""),
        ("yarn", {}, "", "spark.ui.enabled: false"),
        ("yarn", {"spark.ui.enabled": "false"}, "", ""),
        ("k8s://https://host", {"spark.ui.filters": "a.Filter"}, "", ""),
        ("yarn", {"spark.authenticate": "false"}, "remove spark.authenticate", "spark.ui.enabled"),
        (STANDALONE, {}, "docs/security.md", "spark.ui.enabled: false"),
        (STANDALONE, {"spark.authenticate": "true"}, "", "spark.ui.filters"),
        ("local-cluster[2,1,1024]", {}, "", ""),
    ],
)
def test_what_other_machines_can_reach_of_spark_is_a_note(
    project, capsys, monkeypatch, master, conf, ports, ui
):
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    write(project, json.dumps({"spark": {"master": master, "conf": conf}}))
    found = told(capsys, 0)
    for what, remedy in (("spark ports", ports), ("spark ui", ui)):
        assert (what in found) is bool(remedy)
        if remedy:
            assert found[what][0] == "note"
            assert remedy in found[what][2]


def test_an_address_of_the_environment_is_a_note_unless_it_is_of_this_machine(
    project, capsys, monkeypatch
):
    assert project.is_dir()
    monkeypatch.setenv("SPARK_LOCAL_IP", "0.0.0.0")
    assert "SPARK_LOCAL_IP is 0.0.0.0: other machines can" in told(capsys, 0)["spark ports"][1]
    write(project, "spark: {master: yarn}\n")
    assert "spark ui" in told(capsys, 0)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    assert "spark ui" not in told(capsys, 0)


def test_addresses_of_a_cluster_of_which_one_or_none_listens(project, capsys, listening, nobody):
    write(project, f'kafka: {{bootstrap: "{nobody}"}}\nstate: {{root: state}}\n')
    level, says, remedy = told(capsys, 1)["ports"]
    assert level == "finding"
    assert f"{nobody}: Connection refused" in says
    assert "kafka.bootstrap of profile 'local'" in remedy
    write(project, f'kafka: {{bootstrap: "{nobody},{listening}"}}\n')
    found = list(machine_check._ports(load_profile("local", project)))
    assert [each.level for each in found] == ["note"]


class Careless:
    """Three brokers that one may not rely on, as a cluster's answers."""

    def shape(self, names: list[str], _deadline: Deadline) -> Shape:
        return Shape((1, 2, 3), dict.fromkeys(names, 1), dict.fromkeys(names, 1))

    def broker_config(self, name: str, _deadline: Deadline) -> str:
        return {"unclean.leader.election.enable": "true"}.get(name, "900000")


def test_settings_that_would_lose_acknowledged_records_are_findings():
    found = [each for each in cluster_check._settings(Careless(), None) if each.level == "finding"]
    assert [each.subject for each in found] == ["elections", "replicas", "replicas"]
    assert "unclean.leader.election.enable=false" in found[0].remedy
    assert "__transaction_state has 1 of 3" in found[1].message

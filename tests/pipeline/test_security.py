"""Pipelines with Spark on a broker that asks who they are, with exactly the rights that
docs/security.md lists; and a planted secret that is in nothing they leave behind."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka import kafka_io
from support.security import (
    EVERYTHING,
    PASSWORD,
    USER,
    Right,
    SecuredKafka,
    documented,
    holding,
    secured_kafka,
)
from support.spark.project import PROFILE, RUN_S_MAX, Project, WarmDriver
from support.waiting import wait_until

RECORDS, PARTITIONS = 600, 2
VARIABLE = "PIPELINE_KAFKA_PASSWORD"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.fixture
def own(tmp_path: Path, secured: SecuredKafka, warm: WarmDriver) -> Project:
    (tmp_path / "project").mkdir()
    made = Project.made(tmp_path / "project", secured.broker, warm)
    made.declare(200, PARTITIONS, text=PIPELINE)
    kafka_io.create_topics(secured.broker.bootstrap, PARTITIONS, made.source, made.target)
    kafka_io.fill(secured.broker.bootstrap, made.source, range(RECORDS))
    return made


# With a step, so that Spark's tasks read and write. The driver would write few records itself.
PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
transform:
  - {{python: "pipelines.{module}.transform:passed_on"}}
sink: {{kafka: {{topic: {target}}}}}
trigger: {{available_now: true}}
"""


def secure(project: Project, address: str, spark: str = "", **block: str) -> None:
    """Writes the profile anew, for this listener."""
    text = PROFILE.format(bootstrap=address, root=project.folder / "state") + spark
    lines = "".join(f"\n    {key}: '{value}'" for key, value in block.items())
    written = f'kafka:\n  bootstrap: "{address}"\n  security:{lines}'
    secured, count = re.subn(r"(?m)^kafka: .*$", lambda _: written, text)
    assert count == 1
    project.profile.write_text(secured)


def login(secured: SecuredKafka, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    return {
        "protocol": "SASL_SSL",
        "mechanism": mechanism,
        "user": USER,
        "password": password,
        "ca": str(secured.ca.certificate),
    }


def rights(project: Project) -> list[Right]:
    names = {
        "orders": project.source,
        "orders.enriched": project.target,
        "eos.ledger.orders_enriched": project.ledger,
        "eos.orders_enriched": project.group,
    }
    return [right.of(names) for right in documented()]


def all_read(project: Project) -> bool:
    bootstrap = project.broker.bootstrap
    if project.group not in kafka_io.groups(bootstrap):
        return False
    ends = kafka_io.ends(bootstrap, project.source)
    return kafka_io.group_offsets(bootstrap, project.group, project.source) == ends


def check(project: Project, records: int = RECORDS) -> None:
    bootstrap = project.broker.bootstrap
    went_in = Counter(row.value for row in kafka_io.read(bootstrap, project.source))
    assert Counter(row.value for row in kafka_io.read(bootstrap, project.target)) == went_in
    assert sum(went_in.values()) == records
    assert all_read(project)


def command_lines() -> Iterator[bytes]:
    """Of all processes of this machine, this moment."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes()
        except OSError:  # it ended
            continue


def run_watched(project: Project, **extra: str) -> tuple[int, str, int]:
    """The exit code, what it said, and how many of its processes' command lines were read."""
    said = project.folder / "said.log"
    with said.open("wb") as output:
        process = subprocess.Popen(
            project.command(),
            env=project.environment(**extra),
            cwd=project.folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            seen = _watch(process, project.name.encode())
        finally:
            process.terminate()  # if it still runs, what was seen is to be told
            process.wait(RUN_S_MAX)
    return process.returncode, said.read_text(), seen


def _watch(process: subprocess.Popen[bytes], name: bytes) -> int:
    seen = 0
    while process.poll() is None:
        lines = list(command_lines())
        assert not [line for line in lines if PASSWORD.encode() in line]
        seen += sum(name in line for line in lines)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
    return seen


@pytest.mark.long
@pytest.mark.parametrize(
    ("reader", "client"),
    [
        ("arrow", "AdminClientConfig"),
        pytest.param("spark", "ConsumerConfig", marks=pytest.mark.nightly),
    ],
)
def test_scram_over_tls_and_a_planted_secret_that_is_nowhere(
    secured: SecuredKafka, own: Project, reader: str, client: str
) -> None:
    """Spark's log has the settings of the Java client that each reader uses."""
    events = own.folder / "state" / "events"
    events.mkdir(parents=True)
    (own.folder / "conf" / "log4j2.properties").write_text(EVERYTHING)
    spark = f"    spark.eventLog.enabled: true\n    spark.eventLog.dir: '{events}'\n"
    spark += "    spark.eventLog.compress: false\n"
    secure(own, secured.login, spark, **login(secured, f"${{{VARIABLE}}}"))
    secured.grant(rights(own))
    code, said, seen = run_watched(own, EOS_READER=reader, **{VARIABLE: PASSWORD})
    assert code == 0, said
    check(own)
    assert seen > 10, "the processes that were looked at are not those of the run"
    for verb in (["recover"], ["audit", "--live"]):  # with the same rights
        done = subprocess.run(
            [sys.executable, "-m", "eos", *verb, *own.words()],
            env=own.environment(**{VARIABLE: PASSWORD}),
            cwd=own.folder,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "lacks" not in done.stdout + done.stderr
        assert PASSWORD not in done.stdout + done.stderr
    logged = [path for path in events.rglob("events_*") if path.is_file()]
    assert any("SparkListenerSQLExecutionStart" in path.read_text() for path in logged)
    assert client in (own.folder / "state" / "logs" / own.name / "spark.log").read_text()
    assert list(own.folder.rglob("offsets/0")), "no checkpoint was looked at"
    assert holding(PASSWORD, [own.folder]) == []
    ledger = kafka_io.read(secured.broker.bootstrap, own.ledger)
    assert ledger
    for row in ledger:
        assert PASSWORD.encode() not in (row.key or b"") + (row.value or b"")


@pytest.mark.long
def test_a_certificate_says_who_we_are(secured: SecuredKafka, own: Project) -> None:
    secured.ca.sign(own.name)
    secure(
        own,
        secured.mutual,
        protocol="SSL",
        ca=str(secured.ca.certificate),
        certificate=str(secured.ca.folder / f"{own.name}.crt"),
        key=str(secured.ca.folder / f"{own.name}.key"),
    )
    secured.grant(rights(own), user=f"CN={own.name}")
    done = own.run_warm()
    assert done.returncode == 0, done.stderr
    check(own)
    assert holding(PASSWORD, [own.folder]) == []


@pytest.mark.long
def test_plain_over_tls_with_a_secret_from_a_file(
    secured: SecuredKafka, own: Project, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(PASSWORD)
    secure(own, secured.login, **login(secured, f"${{file:{tmp_path}/secret}}", "PLAIN"))
    secured.grant(rights(own))
    done = own.run_warm()
    assert done.returncode == 0, done.stderr
    check(own)
    assert holding(PASSWORD, [own.folder]) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("reader", "code"),
    [
        ("arrow", "[kafka_topic_authorization_failed]"),
        pytest.param("spark", "[source_access_denied]", marks=pytest.mark.nightly),
    ],
)
def test_a_permission_revoked_during_a_run_is_named(
    secured: SecuredKafka, own: Project, tmp_path: Path, reader: str, code: str
) -> None:
    """The startup asks for the permission itself; after it, an executor is the first to lack it."""
    (tmp_path / "secret").write_text(PASSWORD)
    secure(own, secured.login, **login(secured, f"${{file:{tmp_path}/secret}}"))
    secured.grant(rights(own))
    own.declare(200, PARTITIONS, text=PIPELINE.replace("available_now: true", "every: 200 ms"))
    run = own.start_warm(EOS_READER=reader)
    wait_until(lambda: all_read(own) or run.poll() is not None)
    missing = Right("--topic", own.source, "Read")
    secured.grant([missing._replace(operation="Describe")])  # the driver may still look
    secured.revoke(missing)
    kafka_io.fill(secured.broker.bootstrap, own.source, range(RECORDS, 2 * RECORDS))
    assert run.wait() == 4, run.said()
    assert code in run.said()
    assert f"User:{USER} lacks READ on Topic '{own.source}'." in run.said()
    assert f"--allow-principal User:{USER} --operation Read --topic {own.source}" in run.said()
    secured.grant([missing])
    own.declare(200, PARTITIONS, text=PIPELINE)
    again = own.run_warm(EOS_READER=reader)
    assert again.returncode == 0, again.stderr
    check(own, 2 * RECORDS)


@pytest.mark.nightly
def test_a_secret_that_only_the_driver_has_is_told_in_our_words(
    secured: SecuredKafka, own: Project
) -> None:
    """As on a cluster whose executors lack it: this variable is there for Python, not the JVM."""
    secure(own, secured.login, **login(secured, f"${{{VARIABLE}}}"))
    secured.grant(rights(own))
    done = own.run_warm(**{VARIABLE: PASSWORD})
    assert done.returncode == 4, done.stderr
    assert "[source_login_failed]" in done.stderr
    assert "the same on each machine" in done.stderr
    assert PASSWORD not in done.stderr


def test_a_wrong_password_ends_the_run_with_a_sentence(
    secured: SecuredKafka, own: Project, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("wrong-but-secret")
    secure(own, secured.login, **login(secured, f"${{file:{tmp_path}/secret}}"))
    done = own.run_warm()
    assert done.returncode == 4, done.stderr
    assert "[sasl_authentication_failed]" in done.stderr
    assert f"{secured.login} rejected the login of {USER} by SCRAM-SHA-512" in done.stderr
    assert "wrong-but-secret" not in done.stderr
    assert holding("wrong-but-secret", [own.folder]) == []

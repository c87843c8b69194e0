"""Pipelines with Spark whose two clients log in by Kerberos: Python's, and Kafka's Java client."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka import kafka_io
from support.security.kdc import REALM, KerberosKafka, kerberos_kafka
from support.spark.project import PROFILE, Project
from support.waiting import wait_until

RECORDS, PARTITIONS = 600, 2
LIFE_S = 75  # Kafka's Java client renews no ticket within a minute of the last one
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


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosKafka]:
    with kerberos_kafka(tmp_path_factory.mktemp("kerberos")) as found:
        yield found


@pytest.fixture
def own(tmp_path: Path, kafka: KerberosKafka) -> Project:
    (tmp_path / "project").mkdir()
    made = Project.made(tmp_path / "project", kafka.broker)
    made.declare(200, PARTITIONS, text=PIPELINE)
    kafka_io.create_topics(kafka.broker.bootstrap, PARTITIONS, made.source, made.target)
    kafka_io.fill(kafka.broker.bootstrap, made.source, range(RECORDS))
    return made


def write_profile(
    project: Project, kafka: KerberosKafka, block: str, listener: str = "KERBEROS"
) -> None:
    text = PROFILE.format(bootstrap="-", root=project.folder / "state")
    (line,) = (each for each in text.splitlines() if each.startswith("kafka: "))
    security = "protocol: SASL_PLAINTEXT, mechanism: GSSAPI"
    if listener == "SECURE":
        security = f"protocol: SASL_SSL, mechanism: GSSAPI, ca: {kafka.ca.certificate}"
    address = kafka.addresses[listener]
    login = f"{{bootstrap: '{address}', security: {{{security}, kerberos: {{{block}}}}}}}"
    java = f'extraJavaOptions: "-Djava.security.krb5.conf={kafka.kdc.config} '
    text = text.replace(line, f"kafka: {login}").replace('extraJavaOptions: "', java)
    project.profile.write_text(text)


def counted(project: Project, topic: str) -> Counter[bytes | None]:
    return Counter(row.value for row in kafka_io.read(project.broker.bootstrap, topic))


def check(project: Project, records: int) -> None:
    source = counted(project, project.source)
    assert counted(project, project.target) == source
    assert sum(source.values()) == records


@pytest.mark.long
@pytest.mark.parametrize(
    ("reader", "listener"), [("arrow", "SECURE"), ("spark", "SECURE"), ("spark", "KERBEROS")]
)
def test_both_clients_log_in_by_a_keytab(
    kafka: KerberosKafka, own: Project, reader: str, listener: str
) -> None:
    write_profile(own, kafka, f"principal: {kafka.principal}, keytab: {kafka.keytab}", listener)
    done = own.run(EOS_READER=reader)
    assert done.returncode == 0, done.stderr
    check(own, RECORDS)


@pytest.mark.long
def test_both_clients_log_in_by_the_ticket_cache(
    kafka: KerberosKafka, own: Project, tmp_path: Path
) -> None:
    cache = f"FILE:{tmp_path}/cache"
    kafka.kdc.run("kinit", "-c", cache, "-k", "-t", str(kafka.keytab), kafka.principal)
    write_profile(own, kafka, f"principal: {kafka.principal}")
    done = own.run(EOS_READER="spark", KRB5CCNAME=cache)
    assert done.returncode == 0, done.stderr
    check(own, RECORDS)


@pytest.mark.long
def test_a_faulty_keytab_and_a_kdc_that_is_down_end_the_run(
    kafka: KerberosKafka, own: Project
) -> None:
    write_profile(own, kafka, f"principal: {kafka.principal}, keytab: {own.folder}/missing")
    done = own.run()
    assert done.returncode == 2, done.stderr
    assert "[kerberos_keytab_unreadable]" in done.stderr
    write_profile(own, kafka, f"principal: {kafka.principal}, keytab: {kafka.keytab}")
    with kafka.kdc.stopped():
        done = own.run()
    assert done.returncode == 5, done.stderr
    assert "[kerberos_kdc_unreachable]" in done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("reader", ["arrow", "spark"])
def test_tickets_end_while_the_run_goes_on(
    kafka: KerberosKafka, own: Project, reader: str, tmp_path: Path
) -> None:
    """At a listener that ends each login after two seconds: both clients need new tickets."""
    principal = f"brief/{reader}@{REALM}"
    keytab = kafka.kdc.add(principal.partition("@")[0], "-maxlife", f"{LIFE_S} seconds")
    write_profile(own, kafka, f"principal: {principal}, keytab: {keytab}", "SHORT")
    own.declare(200, PARTITIONS, text=PIPELINE.replace("available_now: true", "every: 200 ms"))
    log = tmp_path / "run.log"
    with log.open("wb") as output:
        run = subprocess.Popen(
            own.command(),
            env=own.environment(EOS_READER=reader),
            cwd=own.folder,
            stdout=output,
            stderr=output,
        )
    total = RECORDS

    def is_over() -> bool:
        return counted(own, own.target).total() >= total or run.poll() is not None

    def await_all() -> None:
        wait_until(is_over)
        assert run.poll() is None, log.read_text()

    try:
        await_all()
        ends_at = time.monotonic() + LIFE_S + 10
        while time.monotonic() < ends_at:
            kafka_io.fill(own.broker.bootstrap, own.source, range(total, total + 50))
            total += 50
            await_all()
        run.send_signal(signal.SIGTERM)
        assert run.wait(120) == 0, log.read_text()
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()
    check(own, total)

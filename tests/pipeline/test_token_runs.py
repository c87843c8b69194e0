"""Pipelines with Spark whose two clients log in by token: Python's, and Kafka's Java client."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.errors import in_turn
from support.kafka import kafka_io
from support.security import EVERYTHING, SecuredKafka, documented, holding, token_kafka
from support.security.tokens import CLIENT, SECRET, Issuer, token_endpoint
from support.spark.project import CHECKOUT, PROFILE, Project, WarmDriver
from support.waiting import wait_until

from eos.login.tokens import claims

RECORDS, PARTITIONS = 600, 2
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


@dataclass(frozen=True)
class TokenKafka:
    secured: SecuredKafka
    issuer: Issuer


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenKafka]:
    with token_kafka(tmp_path_factory.mktemp("tokens")) as found:
        yield TokenKafka(*found)


@pytest.fixture
def own(tmp_path: Path, kafka: TokenKafka, warm: WarmDriver) -> Project:
    (tmp_path / "project").mkdir()
    broker = kafka.secured.broker
    made = Project.made(tmp_path / "project", broker, warm)
    made.declare(200, PARTITIONS, text=PIPELINE)
    kafka_io.create_topics(broker.bootstrap, PARTITIONS, made.source, made.target)
    kafka_io.fill(broker.bootstrap, made.source, range(RECORDS))
    names = {
        "orders": made.source,
        "orders.enriched": made.target,
        "eos.ledger.orders_enriched": made.ledger,
        "eos.orders_enriched": made.group,
    }
    kafka.secured.grant([right.of(names) for right in documented()], user=CLIENT)
    return made


def write_profile(
    project: Project, kafka: TokenKafka, address: str, oauth: str, client: str = ""
) -> None:
    text = PROFILE.format(bootstrap=address, root=project.folder / "state")
    (line,) = (each for each in text.splitlines() if each.startswith("kafka: "))
    security = f"protocol: SASL_SSL, mechanism: OAUTHBEARER, ca: {kafka.secured.ca.certificate}"
    block = f"kafka: {{bootstrap: '{address}', client: {{{client}}}, security: {{{security}, "
    block += f"oauth: {{{oauth}}}}}}}"
    project.profile.write_text(text.replace(line, block))


def counted(project: Project, topic: str) -> Counter[bytes | None]:
    return Counter(row.value for row in kafka_io.read(project.broker.bootstrap, topic))


def check(project: Project, records: int) -> None:
    source = counted(project, project.source)
    assert counted(project, project.target) == source
    assert sum(source.values()) == records


@pytest.mark.long
@pytest.mark.parametrize("reader", in_turn(["arrow", "spark"], 1))
def test_both_clients_ask_the_token_endpoint(
    kafka: TokenKafka, own: Project, tmp_path: Path, reader: str
) -> None:
    """At an address that is not in the broker's certificate, which neither client may check."""
    (tmp_path / "secret").write_text(SECRET)
    elsewhere = kafka.secured.oauth.replace("127.0.0.1", "localhost")
    unchecked = "client.id: eos-test, ssl.endpoint.identification.algorithm: ''"
    with token_endpoint(kafka.issuer) as endpoint:
        block = f"token_endpoint: '{endpoint.url}', client_id: {CLIENT}, scope: kafka, "
        block += f"client_secret: '${{file:{tmp_path}/secret}}'"
        write_profile(own, kafka, elsewhere, block, unchecked)
        done = own.run_warm(EOS_READER=reader)
        assert done.returncode == 0, done.stderr
        assert len(endpoint.tokens) > 1, "only one of the two clients has asked"
    check(own, RECORDS)


@contextmanager
def renewed(path: Path, issuer: Issuer) -> Iterator[None]:
    """A file with a token of six seconds, which is replaced each second."""
    stopped = threading.Event()

    def renew() -> None:
        new = path.with_name("new")
        while True:
            new.write_text(issuer.token(6))
            new.rename(path)
            if stopped.wait(1):
                return

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        wait_until(path.exists)
        yield
    finally:
        stopped.set()
        thread.join()


@pytest.mark.long
@pytest.mark.parametrize("reader", ["arrow", "spark"])
def test_a_file_whose_tokens_end_while_the_run_goes_on(
    kafka: TokenKafka, own: Project, tmp_path: Path, reader: str
) -> None:
    """Logins of two seconds, tokens of six: both clients need new tokens to go on."""
    path = tmp_path / "token"
    with renewed(path, kafka.issuer):
        write_profile(own, kafka, kafka.secured.short, f"token_file: {path}")
        own.declare(200, PARTITIONS, text=PIPELINE.replace("available_now: true", "every: 200 ms"))
        run = own.start_warm(EOS_READER=reader)

        def await_all(records: int) -> None:
            def is_over() -> bool:
                return counted(own, own.target).total() >= records or run.poll() is not None

            wait_until(is_over)
            assert run.poll() is None, run.said()

        total = RECORDS
        await_all(total)
        ends_at = claims(path.read_text())["exp"]  # each client has this token, or an older one
        while time.time() < ends_at + 3:
            kafka_io.fill(own.broker.bootstrap, own.source, range(total, total + 50))
            total += 50
            await_all(total)
        run.send_signal(signal.SIGTERM)
        assert run.wait() == 0, run.said()
    check(own, total)


@pytest.mark.long
def test_an_expired_token_ends_the_run_with_its_end(
    kafka: TokenKafka, own: Project, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(kafka.issuer.token(-600))
    write_profile(own, kafka, kafka.secured.oauth, f"token_file: {tmp_path}/token")
    done = own.run_warm()
    assert done.returncode == 4, done.stderr
    assert "[kafka_token_expired]" in done.stderr


@pytest.mark.long
def test_a_java_class_that_no_jar_has_is_named(
    kafka: TokenKafka, own: Project, tmp_path: Path
) -> None:
    """The Python client logs in by the file, so only the Java client uses the class."""
    (tmp_path / "token").write_text(kafka.issuer.token())
    block = f"token_file: {tmp_path}/token, java_class: com.nowhere.Tokens"
    write_profile(own, kafka, kafka.secured.oauth, block)
    done = own.run_warm()
    assert done.returncode == 4, done.stderr
    assert "[source_settings_invalid]" in done.stderr
    assert "com.nowhere.Tokens" in done.stderr
    assert "`spark.jars`" in done.stderr


@pytest.mark.long
def test_a_function_gives_the_tokens_of_a_run_by_spark_submit(
    kafka: TokenKafka, own: Project, tmp_path: Path
) -> None:
    """It is imported in the driver and in the tasks, and each notes its call. The token is nowhere
    else, even if Spark and Kafka's client log all they do."""
    token = kafka.issuer.token()
    (tmp_path / "token").write_text(token)
    (own.folder / "conf" / "log4j2.properties").write_text(EVERYTHING)
    (tmp_path / "company_tokens.py").write_text(
        "import os, pathlib\n"
        "place = pathlib.Path(__file__).parent\n"
        "def kafka_token():\n"
        "    (place / f'called-{os.getpid()}').touch()\n"
        "    return (place / 'token').read_text()\n"
    )
    write_profile(own, kafka, kafka.secured.oauth, "callback: 'company_tokens:kafka_token'")
    done = own.run(PYTHONPATH=f"{CHECKOUT}:{tmp_path}")
    assert done.returncode == 0, done.stderr
    check(own, RECORDS)
    assert len(list(tmp_path.glob("called-*"))) > 1
    log = (own.folder / "state" / "logs" / own.name / "spark.log").read_text()
    assert "sasl.oauthbearer.token.endpoint.url = http://127.0.0.1:" in log
    assert holding(token.rpartition(".")[2], [own.folder]) == []

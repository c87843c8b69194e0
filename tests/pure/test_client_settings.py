"""The settings travel and keep their secrets; equal settings share one Wire in a process."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from support.errors import raises
from support.security import Authority

from eos.deadline import Deadline
from eos.kafka import connection_cache
from eos.kafka.api import TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.client_options import security_options
from eos.kafka.settings import KafkaSettings
from eos.transaction.micro_batch import STEP_TIMEOUT_MS

SETTINGS = KafkaSettings(
    ("a:1", "b:2"),
    client_id="me",
    security=(("security_protocol", "SASL_SSL"), ("sasl_plain_password", "hunter2")),
)


def test_settings_pickle_and_never_show_a_secret():
    assert pickle.loads(pickle.dumps(SETTINGS)) == SETTINGS
    for text in (repr(SETTINGS), str(SETTINGS), f"{SETTINGS}"):
        assert "hunter2" not in text
        assert "sasl_plain_password=***" in text
        assert "security_protocol=SASL_SSL" in text


def test_a_reference_is_followed_where_the_client_connects(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("hunter2")
    monkeypatch.setenv("KAFKA", "hunter3")
    for written, secret in (
        (f"${{file:{tmp_path}/secret}}", "hunter2"),
        ("${KAFKA}", "hunter3"),
        ("hunter4", "hunter4"),
    ):
        settings = KafkaSettings(("a:1",), security=(("sasl_plain_password", written),))
        assert security_options(settings) == {"sasl_plain_password": secret}


@pytest.fixture(scope="module")
def signed(tmp_path_factory) -> Authority:
    made = Authority.made(tmp_path_factory.mktemp("pem") / "ca")
    made.sign("one")
    made.sign("other")
    openssl = ["openssl", "pkcs8", "-topk8", "-passout", "pass:x"]
    files = ["-in", made.folder / "one.key", "-out", made.folder / "locked.key"]
    subprocess.run([*openssl, *files], check=True, timeout=60)
    (made.folder / "empty.pem").write_text("no certificate")
    return made


@pytest.mark.parametrize(
    ("files", "code", "text"),
    [
        ({"ssl_cafile": "empty.pem"}, "kafka_ca_unusable", "empty.pem"),
        ({"ssl_certfile": "empty.pem"}, "kafka_certificate_unusable", "empty.pem"),
        (
            {"ssl_certfile": "one.crt", "ssl_keyfile": "other.key"},
            "kafka_certificate_unusable",
            "KEY_VALUES_MISMATCH",
        ),
        (
            {"ssl_certfile": "one.crt", "ssl_keyfile": "locked.key"},
            "kafka_certificate_unusable",
            "locked.key",
        ),
        ({"ssl_certfile": "one.crt"}, "kafka_certificate_unusable", "one.crt"),
    ],
)
def test_files_that_can_not_be_used_are_told_before_anything_connects(signed, files, code, text):
    security = tuple((name, str(signed.folder / file)) for name, file in files.items())
    with raises(code) as caught:
        security_options(KafkaSettings(("a:1",), security=security))
    assert text in caught.value.message
    assert "PEM" in caught.value.hint


def test_files_that_can_be_used_are_taken(signed):
    both = (("ssl_cafile", signed.certificate), ("ssl_certfile", signed.folder / "one.pem"))
    security = tuple((name, str(file)) for name, file in both)
    assert security_options(KafkaSettings(("a:1",), security=security)) == dict(security)


def test_equal_settings_share_a_wire_until_it_is_closed():
    settings = KafkaSettings(("127.0.0.1:1",))
    first = KafkaClient.shared(settings, TransactionProfile.TV2)
    try:
        assert KafkaClient.shared(KafkaSettings(("127.0.0.1:1",)), TransactionProfile.TV2) is first
        looking = KafkaClient.shared(settings)
        assert looking is not first
        looking.close()
    finally:
        first.close()
    again = KafkaClient.shared(settings, TransactionProfile.TV2)
    assert again is not first
    again.close()


def test_brokers_that_answer_nothing_leave_a_step_its_time():
    """A machine that is cut off refuses nothing. Leader and coordinators may have been on it, and
    each connection finds out by itself."""
    assert 4 * KafkaSettings(("a:1",)).request_timeout_ms <= STEP_TIMEOUT_MS


def test_one_of_several_brokers_that_answers_nothing_is_left_sooner():
    several, one = (
        KafkaClient(KafkaSettings(("127.0.0.1:1", "127.0.0.1:2"))),
        KafkaClient(KafkaSettings(("a:1",))),
    )
    minute = Deadline.after_ms(60_000)
    turns_ms = [client._cluster._turn_deadline(minute).left_ms for client in (several, one)]
    for client in (several, one):
        client.close()
    assert turns_ms[0] < turns_ms[1] <= KafkaSettings(("a:1",)).request_timeout_ms


def test_the_number_of_shared_wires_is_bounded():
    clients = [KafkaClient.shared(KafkaSettings((f"127.0.0.1:{n}",))) for n in range(1, 12)]
    assert [client.closed for client in clients[:3]] == [True, True, True]
    assert not clients[-1].closed
    assert len(connection_cache._clients) <= 8
    for client in clients:
        client.close()


def test_importing_the_settings_loads_nothing_heavy():
    code = (
        "import sys, eos.kafka.settings, eos.kafka.api;"
        "print(sorted({'kafka', 'pyspark', 'yaml', 'pydantic', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"

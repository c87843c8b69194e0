"""The Python client's login by Kerberos: its tickets, their renewal, and each error."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.errors import raises
from support.kafka import kafka_io
from support.kafka.varied_topics import expected, ranges_of, read_ranges
from support.security.kdc import NAME, REALM, KerberosKafka, kerberos_kafka
from support.waiting import wait_until

from eos.deadline import Deadline
from eos.errors import EosError, KafkaRefusedError, UnavailableError
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from eos.login import gssapi, kerberos
from eos.login.kerberos import TicketSource, _caches

WAIT_MS, LIFE_S = 300_000, 6


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosKafka]:
    with kerberos_kafka(tmp_path_factory.mktemp("kerberos")) as found:
        yield found


@pytest.fixture(scope="module")
def brief(kafka: KerberosKafka) -> TicketSource:
    """Tickets of a few seconds."""
    keytab = kafka.kdc.add("brief", "-maxlife", f"{LIFE_S} seconds")
    return TicketSource(f"brief@{REALM}", str(keytab))


def client(kafka: KerberosKafka, tickets: TicketSource, listener: str = "KERBEROS") -> KafkaClient:
    security = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    if listener == "SECURE":
        security = {**security, "security_protocol": "SASL_SSL"}
        security["ssl_cafile"] = str(kafka.ca.certificate)
    address = kafka.addresses[listener]
    return KafkaClient(KafkaSettings((address,), security=(*security.items(),), tickets=tickets))


def version(opened: KafkaClient) -> int | None:
    return opened.transaction_version(Deadline.after_ms(WAIT_MS))


def of(kafka: KerberosKafka, **other: str) -> TicketSource:
    return TicketSource(**{"principal": kafka.principal, "keytab": str(kafka.keytab), **other})


def refused(kafka: KerberosKafka, tickets: TicketSource, listener: str = "KERBEROS") -> EosError:
    """Long before the deadline: nothing was tried again until then."""
    deadline = Deadline.after_ms(WAIT_MS)
    with pytest.raises(EosError) as caught, closing(client(kafka, tickets, listener)) as opened:
        opened.transaction_version(deadline)
    assert deadline.left_ms > WAIT_MS - 100_000
    return caught.value


@pytest.mark.parametrize("listener", ["KERBEROS", "SECURE"])
def test_a_keytab_logs_both_connections_in(kafka: KerberosKafka, listener: str) -> None:
    name, bootstrap = f"read-{listener}", kafka.broker.bootstrap
    kafka_io.create_topics(bootstrap, 1, name)
    kafka_io.fill(bootstrap, name, range(1000))
    ranges = ranges_of(bootstrap, [name])
    with closing(client(kafka, of(kafka), listener)) as opened:
        assert version(opened) == 2
        assert read_ranges(opened, ranges) == expected(bootstrap, ranges)


def test_the_ticket_cache_is_used_without_a_keytab(
    kafka: KerberosKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tickets = TicketSource(kafka.principal)
    error = refused(kafka, tickets)
    assert error.code == "kerberos_ticket_missing"
    assert f"kinit {kafka.principal}" in error.hint
    cache = f"FILE:{tmp_path}/cache"
    kafka.kdc.run("kinit", "-c", cache, "-k", "-t", str(kafka.keytab), kafka.principal)
    monkeypatch.setenv("KRB5CCNAME", cache)
    with closing(client(kafka, tickets)) as opened:
        assert version(opened) == 2
    kafka.kdc.run("kinit", "-c", cache, "-k", "-t", f"{kafka.kdc.folder}/kafka-{NAME}.keytab",
                  f"kafka/{NAME}@{REALM}")  # fmt: skip
    assert refused(kafka, tickets).code == "kerberos_ticket_missing"


def test_each_fault_of_the_profile_is_named(kafka: KerberosKafka) -> None:
    outdated, gone = kafka.kdc.add("outdated"), kafka.kdc.add("gone")
    kafka.kdc.admin("cpw", "-randkey", "outdated")
    kafka.kdc.admin("delprinc", "-force", "gone")
    for other, code, text in (
        ({"keytab": "/nowhere.keytab"}, "keytab_unreadable", "/nowhere.keytab"),
        ({"principal": f"else@{REALM}"}, "keytab_unusable", f"else@{REALM}"),
        ({"keytab": str(kafka.ca.certificate)}, "keytab_unusable", "ca.pem"),
        ({"principal": f"gone@{REALM}", "keytab": str(gone)}, "principal_unknown", "gone@"),
        (
            {"principal": f"outdated@{REALM}", "keytab": str(outdated)},
            "keytab_outdated",
            str(outdated),
        ),
        ({"service": "queue"}, "service_unknown", f"queue/{NAME}"),
    ):
        error = refused(kafka, of(kafka, **other))
        assert error.code == f"kerberos_{code}"
        assert text in error.message
        assert error.hint


def test_a_realm_without_a_kdc_is_named(
    kafka: KerberosKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "krb5.conf"
    config.write_text(kafka.kdc.config.read_text().replace("kdc = ", "admin_server = "))
    for path in (config, tmp_path / "missing"):
        monkeypatch.setenv("KRB5_CONFIG", str(path))
        with raises("kerberos_realm_unknown") as caught:
            client(kafka, of(kafka, service="anew"))
        assert kafka.principal in caught.value.message
        assert "KRB5_CONFIG" in caught.value.hint


def test_a_broker_with_an_older_key_rejects_the_login(kafka: KerberosKafka) -> None:
    error = refused(kafka, of(kafka, service="stale"), "STALE")
    assert isinstance(error, KafkaRefusedError)
    assert error.code == "kerberos_login_rejected"
    assert kafka.addresses["STALE"] in error.message
    assert "its keytab is older than its key" in error.hint


def test_a_kdc_that_is_down_is_named(kafka: KerberosKafka) -> None:
    tickets = TicketSource(f"down@{REALM}", str(kafka.kdc.add("down")))
    with kafka.kdc.stopped(), raises("kerberos_kdc_unreachable") as caught:
        client(kafka, tickets)
    assert isinstance(caught.value, UnavailableError)


def test_a_kdc_that_hangs_is_not_waited_for(kafka: KerberosKafka) -> None:
    """Its port accepts connections, and nothing answers."""
    process = kafka.kdc._process
    assert process is not None
    tickets = TicketSource(f"hang@{REALM}", str(kafka.kdc.add("hang")))
    process.send_signal(signal.SIGSTOP)
    try:
        with raises("kerberos_kdc_unreachable") as caught:
            kerberos.begin_login(tickets, NAME, Deadline.after_ms(1_000))
    finally:
        process.send_signal(signal.SIGCONT)
    assert "no answer in time" in caught.value.message


def test_a_login_is_repeated_on_the_same_connection_with_new_tickets(
    kafka: KerberosKafka, brief: TicketSource
) -> None:
    """The listener ends logins after two seconds (KIP-368), and a ticket ends after six.

    A new ticket comes into the same cache before the old one has ended."""
    with closing(client(kafka, brief, "SHORT")) as opened:
        deadline = Deadline.after_ms(WAIT_MS)
        opened.transaction_version(deadline)
        (lane,) = opened._connections._channels.values()
        watched, began, logins = (lane.connection, _caches[brief]), time.monotonic(), set()
        while len(logins) < 3 or time.monotonic() < began + 2 * LIFE_S:
            assert not deadline.has_passed
            opened.transaction_version(deadline)
            now = (lane.connection, _caches[brief])
            if now != watched:  # a machine that stalled: watch the next ones
                watched, began, logins = now, time.monotonic(), set()
            logins.add(lane.connection._reauth.authenticated_at)


def reconnect(opened: KafkaClient) -> int | None:
    for node in list(opened._connections._channels):
        opened._connections.drop(node)
    return version(opened)


def test_a_ticket_is_used_while_the_kdc_is_down_and_not_after_its_end(
    kafka: KerberosKafka, brief: TicketSource
) -> None:
    """After its end the client waits, and logs in as soon as the KDC is back."""
    with closing(client(kafka, brief)) as opened:
        assert version(opened) == 2
        with kafka.kdc.stopped():
            assert reconnect(opened) == 2
            ends_at = time.monotonic() + LIFE_S + 2  # the library counts whole seconds

            def is_over() -> bool:
                return time.monotonic() > ends_at

            wait_until(is_over)
            with raises("kerberos_kdc_unreachable"):
                kerberos.begin_login(brief, NAME, Deadline.after_ms(WAIT_MS))
        assert reconnect(opened) == 2


def test_a_clock_that_differs_is_named(
    kafka: KerberosKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default the library corrects its own clock by the KDC's, and the broker rejects it."""
    keytab = str(kafka.kdc.add("skewed"))
    strict = tmp_path / "krb5.conf"
    text = kafka.kdc.config.read_text()
    strict.write_text(text.replace("[libdefaults]", "[libdefaults]\n kdc_timesync = 0"))
    with kafka.kdc.with_another_clock():
        rejected = refused(kafka, TicketSource(f"skewed@{REALM}", keytab))
        monkeypatch.setenv("KRB5_CONFIG", str(strict))
        skewed = refused(kafka, TicketSource(f"strict@{REALM}", str(kafka.kdc.add("strict"))))
    assert rejected.code == "kerberos_login_rejected"
    assert skewed.code == "kerberos_clock_skew"
    assert "five minutes" in skewed.hint
    assert "five minutes" in rejected.hint


def test_a_machine_without_the_library_is_named(
    kafka: KerberosKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise OSError(f"{gssapi.LIBRARY}: cannot open shared object file")

    monkeypatch.setattr(gssapi, "_library", missing)
    with raises("kerberos_library_missing") as caught:
        client(kafka, of(kafka, service="other"))
    assert "libgssapi-krb5-2" in caught.value.hint

"""Addresses where no broker is, or none that answers; real sockets, no JVM."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.errors import raises

from eos.deadline import Deadline
from eos.errors import NoAnswerError, UnavailableError
from eos.kafka import connection, exclusive_connection, requests
from eos.kafka.api import NO_IDENTITY, TopicPartition, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.exclusive_connection import ExclusiveConnection
from eos.kafka.pending_request import PendingRequest
from eos.kafka.settings import KafkaSettings

TLS = (("security_protocol", "SSL"), ("ssl_check_hostname", "false"))


@contextmanager
def server(answer: bytes | None):
    """Accepts connections, then says `answer` (None: nothing at all) and holds the line."""
    held = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                held.append(connection)
                if answer is not None:
                    connection.recv(1024)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for each in held:
        each.close()


@contextmanager
def client_to(*bootstrap, security=()):
    client = KafkaClient(KafkaSettings(bootstrap, security=security), TransactionProfile.TV2)
    try:
        yield client
    finally:
        client.close()


def no_answer_from(address):
    return pytest.raises(UnavailableError, match=f"no broker of {address} answers")


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_refused_connection_is_one_sentence_with_the_address_and_the_likely_cause(free_port):
    with client_to(f"127.0.0.1:{free_port}") as client, pytest.raises(UnavailableError) as caught:
        client.agree_on_profile(Deadline.after_ms(2_000))
    assert f"no broker of 127.0.0.1:{free_port} answers" in caught.value.message
    assert "ECONNREFUSED" in caught.value.message
    assert "nothing listens on this port" in caught.value.hint
    assert "\n" not in caught.value.message


def test_unknown_host_is_named():
    no_broker = pytest.raises(UnavailableError, match=r"no broker of no-such-host\.invalid:9092")
    with client_to("no-such-host.invalid:9092") as client, no_broker as caught:
        client.transaction_version(Deadline.after_ms(2_000))
    assert "can't resolve the host name" in caught.value.hint


def test_a_broker_that_never_answers_costs_the_deadline_and_no_more():
    with server(None) as address, client_to(address) as client, no_answer_from(address):
        client.topics(["t"], Deadline.after_ms(400))


def test_a_tls_handshake_that_never_ends_costs_the_deadline_and_no_more():
    with (
        server(None) as address,
        client_to(address, security=TLS) as client,
        no_answer_from(address),
    ):
        client.topics(["t"], Deadline.after_ms(400))


def test_a_tls_handshake_that_never_ends_is_hung_up_at_the_deadline():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with client_to(address, security=TLS) as client:
            with no_answer_from(address):
                client.topics(["t"], Deadline.after_ms(400))
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(30)
                while connection.recv(4096):  # its hello, then the end: the wire is still open
                    pass


def test_a_request_that_its_caller_gave_up_never_leaves():
    pending = PendingRequest(
        1, requests.end_txn(5, "t", NO_IDENTITY, True), Deadline.after_ms(60_000)
    )
    with pytest.raises(NoAnswerError) as caught:
        pending.wait(Deadline.after_ms(0))
    assert caught.value.fields == {"api": "EndTxn", "node": 1, "sent": False}
    assert pending.begin() is False
    pending.succeed("too late")
    with pytest.raises(NoAnswerError):
        pending.wait(Deadline.after_ms(0))


def test_tls_to_a_port_without_tls_is_refused_at_once():
    with server(b"\0\0\0\x04nope") as address, client_to(address, security=TLS) as client:
        deadline = Deadline.after_ms(60_000)
        with raises("tls_handshake_failed") as caught:
            client.topics(["t"], deadline)
        assert address in caught.value.message
        assert not deadline.has_passed


def test_no_tls_to_a_port_with_tls_is_refused_at_once():
    alert = bytes.fromhex("15030300020246")  # what a TLS server says to plain text
    refused = raises("listener_requires_tls")
    with server(alert) as address, client_to(address) as client, refused as caught:
        client.topics(["t"], Deadline.after_ms(60_000))
    assert "PLAINTEXT" in caught.value.message


def test_an_answer_that_is_no_kafka_hints_at_another_port():
    web = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with server(web) as address, client_to(address) as client, no_answer_from(address) as caught:
        client.topics(["t"], Deadline.after_ms(600))
    assert "frame length" in caught.value.message
    assert "TLS" in caught.value.hint


def test_a_malformed_answer_during_login_is_no_matter_of_settings():
    # To correlation id 1, without an error: one version, then a number of tags above any limit.
    body = bytes.fromhex("00000001 0000 02 0001 0000 0001 ffffffffff7f")
    answer = len(body).to_bytes(4, "big") + body
    with server(answer) as address, client_to(address) as client, no_answer_from(address) as caught:
        client.topics(["t"], Deadline.after_ms(600))
    assert "Unable to decode response" in caught.value.message


def test_certificate_file_that_is_missing_is_named(tmp_path: Path):
    missing = str(tmp_path / "ca.pem")
    with raises("kafka_security_file_unreadable") as caught:
        KafkaClient(KafkaSettings(("none:1",), security=(*TLS, ("ssl_cafile", missing))))
    assert f"{missing} (ssl_cafile)" in caught.value.message


def test_a_produce_request_that_never_left_says_so(free_port):
    with client_to(f"127.0.0.1:{free_port}") as client:
        pending = client.send_produce("bootstrap-0", "t", {TopicPartition("t", 0): b"x"}, 500)
        with raises("request_not_sent") as caught:
            pending.wait(Deadline.after_ms(5000))
        assert pending.done
        assert caught.value.fields == {"api": "Produce", "node": "bootstrap-0", "sent": False}
        behind = client.send_produce(
            "bootstrap-0", "t", {TopicPartition("t", 0): b"x"}, 500, after=pending
        )
        with pytest.raises(NoAnswerError):
            behind.wait(Deadline.after_ms(5000))


def test_unknown_security_option_is_refused_before_anything_connects():
    with raises("kafka_security_option_unknown") as caught:
        KafkaClient(KafkaSettings(("a:1",), security=(("ssl_calfile", "x"),)))
    assert "ssl_calfile" in caught.value.message
    with raises("ssl_check_hostname_invalid"):
        KafkaClient(KafkaSettings(("a:1",), security=(("ssl_check_hostname", "maybe"),)))
    with raises("kafka_security_option_unknown"):
        KafkaClient(KafkaSettings(("a:1",), security=(("sasl_oauth_token_provider", "a:B"),)))


def test_a_client_without_profile_can_only_look(free_port):
    client = KafkaClient(KafkaSettings((f"127.0.0.1:{free_port}",)))
    try:
        with raises("no_transaction_profile"):
            client.init_producer_id("t", 1000, NO_IDENTITY, Deadline.after_ms(100))
    finally:
        client.close()


def test_closing_leaves_neither_thread_nor_file_descriptor(free_port):
    def held():
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    before = held()
    with server(None) as silent, client_to(silent, f"127.0.0.1:{free_port}") as client:
        with pytest.raises(UnavailableError):
            client.topics(["t"], Deadline.after_ms(500))
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            client.topics(["t"], Deadline.after_ms(100))
    assert held() == before


def test_closing_while_a_name_lookup_hangs_hides_no_other_error(monkeypatch):
    """And no request whose deadline has passed begins another lookup."""
    began, released, lookups = threading.Event(), threading.Event(), []

    def hangs(host, *_):
        lookups.append(host)
        began.set()
        released.wait(60)
        raise socket.gaierror("no such name")

    monkeypatch.setattr(connection, "_CLOSE_MS", 50)
    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    with client_to("slow.invalid:9092", "other.invalid:9092") as client:
        net = client._connections._net
        io_thread = net._io_thread
        first = client.send_produce("bootstrap-0", "t", {TopicPartition("t", 0): b"x"}, 60_000)
        assert began.wait(60)
        later = client.send_produce("bootstrap-1", "t", {TopicPartition("t", 0): b"x"}, 1)
        with pytest.raises(NoAnswerError):
            later.wait(Deadline.after_ms(0))
    released.set()
    io_thread.join(60)
    assert not io_thread.is_alive()
    net.close()
    with pytest.raises(NoAnswerError):
        first.wait(Deadline.after_ms(0))
    assert len(lookups) == 1


def test_a_connection_that_closes_while_it_is_throttled_is_replaced(monkeypatch, free_port):
    class Throttled:
        paused, closed = True, False

    async def connect(*_):
        return fresh

    fresh, old = Throttled(), Throttled()
    fresh.paused = False
    with client_to(f"127.0.0.1:{free_port}") as client:
        connections = client._connections
        monkeypatch.setattr(connections, "_connect", connect)
        channel = connection._Channel(1)
        channel.connection = old
        ready = connections._ready(channel, Deadline.after_ms(60_000))
        ready.send(None)  # waits for the end of the pause
        old.closed, old.paused = True, False
        with pytest.raises(StopIteration) as returned:
            ready.send(None)
        assert returned.value.value is fresh


def test_a_connection_with_a_part_of_a_request_is_not_used_again():
    class Interrupted(socket.socket):
        def sendall(self, data):
            super().sendall(data[:1])
            raise KeyboardInterrupt

    ours, theirs = socket.socketpair()
    with theirs, Interrupted(fileno=ours.detach()) as interrupted:
        exclusive = ExclusiveConnection(1, interrupted, KafkaSettings(("a:1",)), None)
        with pytest.raises(KeyboardInterrupt):
            exclusive.send(b"request", Deadline.after_ms(60_000))
        assert not exclusive.is_usable


def test_a_connection_that_the_broker_closes_right_after_the_login_gives_no_answer(
    monkeypatch, free_port
):
    async def logged_in(*_):
        pass

    closed = SimpleNamespace(closed=True, init_future=None, transport=None)
    closed.broker_version_data = SimpleNamespace(api_versions={1: (0, 17)})
    closed._reauth = SimpleNamespace(session_lifetime_ms=None)
    monkeypatch.setattr(exclusive_connection, "KafkaConnection", lambda *_, **__: closed)
    with client_to(f"127.0.0.1:{free_port}") as client:
        exclusive = client._connections.exclusive
        exclusive._manager.wait_for, exclusive._manager._connect = logged_in, logged_in
        with raises("request_not_sent", NoAnswerError):
            exclusive.take("bootstrap-0", 1, 12, Deadline.after_ms(60_000))


def test_closing_ends_the_wait_of_another_thread():
    with server(None) as address:
        client = KafkaClient(KafkaSettings((address,)), TransactionProfile.TV2)
        pending = client.send_produce("bootstrap-0", "t", {TopicPartition("t", 0): b"x"}, 60_000)
        client.close()
        with pytest.raises(NoAnswerError):
            pending.wait(Deadline.after_ms(60_000))

"""Tokens of a login: from a token endpoint, a file and a function; and how long one is used."""

from __future__ import annotations

import base64
import http.client
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.errors import raises
from support.security import Authority
from support.security.tokens import (
    CLIENT,
    SECRET,
    Issuer,
    TokenEndpoint,
    server_tls,
    token_endpoint,
)
from support.waiting import wait_until

from eos.deadline import Deadline
from eos.errors import UnavailableError
from eos.login import token_server, tokens
from eos.login.bounded_call import bounded_call
from eos.login.http_connection import TlsFiles
from eos.login.token_endpoint import ClientCredentials
from eos.login.tokens import TokenFile, TokenFunction, claims, current

BLOCK = "kafka.security.oauth"


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def endpoint(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenEndpoint]:
    monkeypatch.setenv("OAUTH_SECRET", SECRET)
    with token_endpoint(issuer) as made:
        yield made


def soon() -> Deadline:
    return Deadline.after_ms(60_000)


def credentials(of: TokenEndpoint, client: str = CLIENT, ca: Path | None = None, **more: str):
    files = TlsFiles(BLOCK, None if ca is None else str(ca))
    return ClientCredentials(of.url, client, "${OAUTH_SECRET}", more.get("scope"), files)


def test_a_token_is_used_again_until_most_of_its_time_is_over(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = credentials(endpoint, scope="kafka read")
    first = current(source, soon())
    assert first.value == endpoint.tokens[0]
    assert endpoint.forms == [{"grant_type": ["client_credentials"], "scope": ["kafka read"]}]
    assert current(source, soon()) is first
    assert first.ends_at is not None
    at = first.got_at + 0.79 * 3600
    monkeypatch.setattr(tokens.time, "time", lambda: at)
    assert current(source, soon()) is first
    at = first.got_at + 0.81 * 3600
    assert current(source, soon()).value == endpoint.tokens[1] != first.value
    assert len(endpoint.tokens) == 2


@pytest.mark.parametrize(
    ("status", "code"), [(503, "token_endpoint_unavailable"), (400, "token_request_rejected")]
)
def test_an_endpoint_that_gives_none_costs_nothing_while_the_token_is_valid(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch, status: int, code: str
) -> None:
    source = credentials(endpoint)
    first = current(source, soon())
    endpoint.refusing[:] = [503] * 100 if status == 503 else [400] * 100
    at = first.got_at + 0.9 * 3600
    monkeypatch.setattr(tokens.time, "time", lambda: at)
    assert current(source, Deadline.after_ms(200)) is first
    at = first.got_at + 3601
    with raises(code) as caught:
        current(source, Deadline.after_ms(200))
    assert f"the token endpoint {endpoint.url} " in caught.value.message


def test_what_passes_is_asked_again(endpoint: TokenEndpoint) -> None:
    endpoint.refusing[:] = [503, 429]
    assert credentials(endpoint).fetch(soon()).value == endpoint.tokens[0]


def test_a_client_that_is_refused_is_named_without_its_secret(endpoint: TokenEndpoint) -> None:
    with raises("token_request_rejected") as caught:
        credentials(endpoint, "stranger").fetch(soon())
    assert "the client stranger: 401 invalid_client no such client" in caught.value.message
    assert f"`client_secret` and `scope` of `{BLOCK}`" in caught.value.hint
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [{}, {"access_token": 5}, {"access_token": "a b"}, {"access_token": ""}, [], "text", None],
)
def test_an_answer_without_a_token_is_named(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setattr(TokenEndpoint, "answer", lambda *_: (200, answer))
    with raises("token_endpoint_invalid") as caught:
        credentials(endpoint).fetch(soon())
    assert endpoint.url in caught.value.message


@pytest.mark.parametrize("seconds", [None, 0, -1, "3600", 1e12, float("nan"), [1]])
def test_the_end_of_a_token_without_a_usable_one_in_the_answer_is_the_jwts(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch, seconds: object
) -> None:
    token = endpoint.issuer.token(500)
    answer = {"access_token": token, "expires_in": seconds}
    monkeypatch.setattr(TokenEndpoint, "answer", lambda *_: (200, answer))
    assert credentials(endpoint).fetch(soon()).ends_at == claims(token)["exp"]


def test_a_token_endpoint_behind_tls(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OAUTH_SECRET", SECRET)
    ca, other = Authority.made(tmp_path / "ca"), Authority.made(tmp_path / "other")
    with token_endpoint(issuer, server_tls(ca.sign("server"))) as made:
        assert credentials(made, ca=ca.certificate).fetch(soon()).value == made.tokens[0]
        with raises("token_endpoint_untrusted") as caught:
            credentials(made, ca=other.certificate).fetch(soon())
    assert f"set `{BLOCK}.ca`" in caught.value.hint


def test_a_file_is_read_again_at_each_login(tmp_path: Path) -> None:
    """As Kubernetes projects a token: the file is a link to one in a folder that is replaced."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(f"{name}\n")
    (tmp_path / "data").symlink_to("first")
    source = TokenFile(str(tmp_path / "data" / "token"), BLOCK)
    assert current(source, soon()).value == "first"
    (tmp_path / "new").symlink_to("second")
    (tmp_path / "new").rename(tmp_path / "data")
    assert current(source, soon()).value == "second"


@pytest.mark.parametrize("text", [None, "", "two words", "caf\u00e9"])
def test_a_file_without_a_token_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    with raises("token_file_unusable") as caught:
        current(TokenFile(str(path), BLOCK), soon())
    assert str(path) in caught.value.message
    assert f"`{BLOCK}.token_file`" in caught.value.hint


def test_a_file_that_is_written_again_may_be_empty_for_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("")
    late = threading.Timer(0.1, path.write_text, ["new"])
    late.start()
    assert current(TokenFile(str(path), BLOCK), soon()).value == "new"
    late.join()


FUNCTIONS = """
import threading
import time
calls = []
going_on = threading.Event()
def plain():
    calls.append(1)
    return "plain"
def ending():
    calls.append(1)
    return f"ending-{len(calls)}", time.time() + 600
def nothing(): return None
def failing(): raise ValueError("with a secret")
def hanging():
    calls.append(1)
    going_on.wait()
    return "late"
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own_tokens.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_tokens"
    sys.modules.pop("own_tokens", None)


def test_a_function_is_called_again_unless_it_says_when_its_token_ends(functions: str) -> None:
    plain, ending = (TokenFunction(f"{functions}:{n}", BLOCK) for n in ("plain", "ending"))
    assert {current(plain, soon()).value for _ in range(2)} == {"plain"}
    assert len(sys.modules[functions].calls) == 2
    assert [current(ending, soon()).value for _ in range(2)] == ["ending-3"] * 2


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("nothing", "token_function_invalid", "a value of type NoneType"),
        ("failing", "token_function_failed", "raised ValueError"),
        ("missing", "token_function_missing", "own_tokens:missing"),
    ],
)
def test_a_function_without_a_token_is_named(
    functions: str, name: str, code: str, text: str
) -> None:
    with raises(code) as caught:
        current(TokenFunction(f"{functions}:{name}", BLOCK), soon())
    assert text in caught.value.message
    assert "with a secret" not in str(caught.value)


def test_a_function_that_hangs_is_cut_off_and_called_once(functions: str) -> None:
    source = TokenFunction(f"{functions}:hanging", BLOCK)
    for _ in range(2):
        with raises("token_function_late", UnavailableError):
            current(source, Deadline.after_ms(50))
    own = sys.modules[functions]
    assert len(own.calls) == 1, "a call that hangs keeps a thread"
    own.going_on.set()
    assert current(source, soon()).value == "late"


def test_a_clock_that_is_set_back_makes_no_token_fresh_again(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = credentials(endpoint)
    first = current(source, soon())
    at, since = first.got_at - 2000, first.since + 3601
    monkeypatch.setattr(tokens.time, "time", lambda: at)
    monkeypatch.setattr(tokens.time, "monotonic", lambda: since)
    assert current(source, soon()).value == endpoint.tokens[1] != first.value


def test_a_thread_does_not_wait_longer_for_anothers_token_than_its_own_deadline(
    functions: str,
) -> None:
    source = TokenFunction(f"{functions}:hanging", BLOCK)
    other = threading.Thread(target=current, args=(source, soon()))
    other.start()
    # While the other thread imports the module, it has no `calls` yet.
    wait_until(lambda: getattr(sys.modules.get(functions), "calls", ()))
    with raises("token_timeout", UnavailableError):
        current(source, Deadline.after_ms(50))
    sys.modules[functions].going_on.set()  # until then, the other one hangs
    other.join(60)


def test_a_call_whose_thread_can_not_start_keeps_no_later_one_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError):
            bounded_call("f", lambda: 1, soon())
    assert bounded_call("f", lambda: 2, soon()) == 2


@pytest.mark.parametrize("end", [10**400, float("nan"), float("inf"), -1, True, "soon"])
def test_an_end_that_is_no_time_is_unknown(end: object) -> None:
    body = base64.urlsafe_b64encode(json.dumps({"exp": end}).encode()).decode().rstrip("=")
    assert tokens.token_of(f"e30.{body}.x").ends_at is None


def test_claims_of_anything(issuer: Issuer) -> None:
    assert claims(issuer.token(sub="someone"))["sub"] == "someone"
    for text in ("", "opaque", "a.b.c", "a.%.c", "..", "a." + "WzFd" + ".c", "a.\u00e9.c"):
        assert claims(text) == {}, text


def ask(served: token_server.Served, secret: str) -> tuple[int, dict[str, object]]:
    login = base64.b64encode(f"{token_server.CLIENT}:{secret}".encode()).decode()
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=60)
    form = b"grant_type=client_credentials"
    with closing(connection):
        connection.request("POST", "/token", form, {"Authorization": f"Basic {login}"})
        answer = connection.getresponse()
        return answer.status, json.load(answer)


def test_a_client_that_sends_its_form_later_gets_the_answer(issuer: Issuer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(issuer.token(sub="first"))
    served = token_server.serve(TokenFile(str(path), BLOCK))
    login = base64.b64encode(
        f"{token_server.CLIENT}:{served.secret_file.read_text()}".encode()
    ).decode()
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=60)
    with closing(connection):
        connection.putrequest("POST", "/token")
        connection.putheader("Authorization", f"Basic {login}")
        connection.putheader("Content-Length", "4")
        connection.endheaders(b"f")
        for part in (b"o", b"r", b"m"):
            time.sleep(0.1)
            connection.send(part)
        assert connection.getresponse().status == 200


def test_this_process_serves_its_tokens_to_the_java_client_alone(
    issuer: Issuer, tmp_path: Path
) -> None:
    path, tokens = tmp_path / "token", [issuer.token(sub=name) for name in ("first", "second")]
    path.write_text(tokens[0])
    source = TokenFile(str(path), BLOCK)
    served = token_server.serve(source)
    assert token_server.serve(source) is served
    assert served.url.startswith("http://127.0.0.1:")
    assert served.secret_file.stat().st_mode & 0o777 == 0o600
    assert served.secret_file.parent.stat().st_mode & 0o777 == 0o700
    secret = served.secret_file.read_text()
    assert ask(served, secret)[1]["access_token"] == tokens[0]
    path.write_text(tokens[1])
    assert ask(served, secret)[1]["access_token"] == tokens[1]
    assert ask(served, "guessed") == (401, {"error": "invalid_client"})
    path.write_text("opaque")
    status, answer = ask(served, secret)
    assert (status, answer["error"]) == (400, "token_not_for_java")
    assert "opaque" not in str(answer)
    path.unlink()
    status, answer = ask(served, secret)
    assert (status, answer["error"]) == (400, "token_file_unusable")

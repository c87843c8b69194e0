"""An authorization server on this machine: a key, signed JWTs, and a real token endpoint."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

ISSUER, AUDIENCE, CLIENT, SECRET = "https://issuer.test", "kafka", "eos", "Planted-0auth.secret"
_KEY_ID = "one"


class Issuer:
    """A signing key, as an authorization server has it."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)

    def write_jwks(self, path: Path) -> Path:
        """Write the public key as a key set, which brokers read."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": _KEY_ID}
        key |= {"n": _number(numbers.n), "e": _number(numbers.e)}
        path.write_text(json.dumps({"keys": [key]}))
        return path

    def token(self, seconds: float = 3600, **more: Any) -> str:
        """Return a signed token that ends in `seconds`; with a negative number it has expired."""
        now = time.time()
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": CLIENT, "scope": "kafka"}
        claims |= {"iat": int(now - max(0, -seconds) - 1), "exp": int(now + seconds), **more}
        head = {"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}
        text = b".".join(_base64(json.dumps(part).encode()) for part in (head, claims))
        signature = self._key.sign(text, padding.PKCS1v15(), SHA256())
        return b".".join((text, _base64(signature))).decode()


@dataclass
class TokenEndpoint:
    """A token endpoint for one client. `seconds`: the lifetime of its tokens. `refusing`: statuses
    of the next answers. `forms`: what was asked."""

    issuer: Issuer
    url: str = ""
    seconds: float = 3600
    claims: dict[str, Any] = field(default_factory=dict)
    refusing: list[int] = field(default_factory=list)
    forms: list[dict[str, list[str]]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    def answer(self, login: str, form: str) -> tuple[int, dict[str, Any]]:
        if self.refusing:
            return self.refusing.pop(0), {}
        if login != f"Basic {base64.b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}":
            return 401, {"error": "invalid_client", "error_description": "no such client"}
        found = parse_qs(form)
        self.forms.append(found)
        if found["grant_type"] != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        self.tokens.append(self.issuer.token(self.seconds, **self.claims))
        answer = {"access_token": self.tokens[-1], "token_type": "Bearer"}
        return 200, answer | {"expires_in": self.seconds}


@contextmanager
def token_endpoint(
    issuer: Issuer, tls: ssl.SSLContext | None = None, **more: Any
) -> Iterator[TokenEndpoint]:
    made = TokenEndpoint(issuer, **more)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, answer = made.answer(self.headers.get("Authorization", ""), form)
            raw = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            with suppress(OSError):  # the client may have given up
                self.wfile.write(raw)

        def log_message(self, *_words: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    made.url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_address[1]}/token"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def server_tls(certificate: Path, clients_of: Path | None = None) -> ssl.SSLContext:
    """A server's side of TLS. With `clients_of`, clients need a certificate of that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if clients_of is not None:
        context.load_verify_locations(clients_of)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8, "big")).decode()


def _base64(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")

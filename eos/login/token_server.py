"""A token endpoint on this machine, from which Kafka's Java client gets the tokens of this process.

The Java client can only ask a token endpoint, or read a file once. So it asks this server, which
returns tokens of any source: a file that changes, or a Python function. It listens at 127.0.0.1
only. A request must have a random secret, which is in a private file.
"""

from __future__ import annotations

import atexit
import base64
import hmac
import json
import secrets
import shutil
import tempfile
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from eos import private_files
from eos.bounded_server import BoundedConnections
from eos.deadline import Deadline
from eos.errors import EosError
from eos.login.tokens import TokenSource, current, require_jwt

CLIENT = "eos"
_FORM_BYTES_MAX = 65_536
_TOKEN_MS_MAX = 8_000  # less than a connection may last


@dataclass(frozen=True, slots=True)
class Served:
    """The address of a served source, and the file that has the secret for it."""

    url: str
    secret_file: Path


_served: dict[TokenSource, Served] = {}
_lock = threading.Lock()


def serve(source: TokenSource) -> Served:
    """Return the address at which this process serves the source's tokens until it ends."""
    with _lock:
        if source not in _served:
            _served[source] = _start(source)
        return _served[source]


def _start(source: TokenSource) -> Served:
    folder = Path(tempfile.mkdtemp(prefix="eos-tokens-"))  # private: mode 0700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    secret, file = secrets.token_urlsafe(32), folder / "secret"
    with open(file, "w", encoding="ascii", opener=private_files.opener) as out:
        out.write(secret)
    server = _Server(source, secret)
    threading.Thread(target=server.serve_forever, name="eos-tokens", daemon=True).start()
    return Served(f"http://127.0.0.1:{server.server_address[1]}/token", file)


class _Server(BoundedConnections, HTTPServer):
    """A server of one source's tokens, with a bound on its connections and on their time."""

    def __init__(self, source: TokenSource, secret: str) -> None:
        self.bound()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.source = source
        self.login = f"Basic {base64.b64encode(f'{CLIENT}:{secret}'.encode()).decode()}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        # Closing a socket with unread data resets the connection, and the client may lose the
        # answer.
        length = self.headers.get("Content-Length", "")
        self.rfile.read(min(int(length), _FORM_BYTES_MAX) if length.isdecimal() else 0)
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), self.server.login.encode()):
            self._answer(401, {"error": "invalid_client"})
            return
        try:
            token = current(self.server.source, Deadline.after_ms(_TOKEN_MS_MAX))
            require_jwt(token)
        except EosError as error:
            # The Java client logs and reports this text, which has no secret.
            self._answer(400, {"error": error.code, "error_description": error.message})
            return
        # Without `expires_in`: the Java client reads the end from the JWT.
        self._answer(200, {"access_token": token.value, "token_type": "Bearer"})

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""

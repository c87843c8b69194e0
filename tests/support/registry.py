"""A schema registry with the part of Confluent's API that matters here, on a port of its own."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FakeRegistry:
    """`refusing`: codes that the next requests are answered with. `asked`: all requests.
    `references`: of a schema to subjects and versions. `kinds`: of schemas that are not Avro.
    `connections`: that clients opened."""

    url: str = ""
    schemas: dict[int, str] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    references: dict[int, list[Any]] = field(default_factory=dict)
    refusing: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    login: str = ""
    kinds: dict[int, str] = field(default_factory=dict)
    connections: int = 0
    _sockets: list[socket.socket] = field(default_factory=list)

    def drop(self) -> None:
        """Close all connections, as an idle server does."""
        while self._sockets:
            with suppress(OSError):
                self._sockets.pop().shutdown(socket.SHUT_RDWR)

    def add(self, subject: str, schema: Any, *references: tuple[str, int]) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        number = next((n for n, each in self.schemas.items() if each == text), 0)
        if not number:
            number = 1000 + len(self.schemas)
            self.schemas[number] = text
            self.references[number] = [
                {"name": f"{name}.of.it", "subject": name, "version": version}
                for name, version in references
            ]
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> Any:
        """None: there is no such thing."""
        match method, *path.strip("/").split("/"):
            case "GET", "config":
                return {"compatibilityLevel": "BACKWARD"}
            case "GET", "schemas", "ids", number:
                return self._told(int(number)) if int(number) in self.schemas else None
            case "GET", "subjects", subject, "versions":
                return list(range(1, len(self.subjects.get(subject, [])) + 1)) or None
            case "GET", "subjects", subject, "versions", version:
                numbers = self.subjects.get(subject, [])
                at = len(numbers) if version == "latest" else int(version)
                if not 0 < at <= len(numbers):
                    return None
                return {"id": numbers[at - 1], "version": at, **self._told(numbers[at - 1])}
            case "POST", "subjects", subject:
                numbers = self.subjects.get(subject, [])
                return next(({"id": n} for n in numbers if self.schemas[n] == body["schema"]), None)
            case "POST", "subjects", subject, "versions":
                return {"id": self.add(subject, body["schema"])}
        raise AssertionError(f"{method} {path}")

    def _told(self, number: int) -> dict[str, Any]:
        """Without the key where there are none, as registries answer."""
        named = self.references.get(number)
        kind = {"schemaType": self.kinds[number]} if number in self.kinds else {}
        found = {"schema": self.schemas[number], **({"references": named} if named else {})}
        return {**found, **kind}


@contextmanager
def registry() -> Iterator[FakeRegistry]:
    made = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            made.connections += 1
            made._sockets.append(self.connection)

        def do_GET(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            self.answer(json.loads(self.rfile.read(length)))

        def answer(self, body: Any) -> None:
            made.asked.append(f"{self.command} {self.path}")
            made.login = self.headers.get("Authorization", "")
            code, told = 200, made.answer(self.command, self.path, body)
            if made.refusing:
                code, told = made.refusing.pop(0), {"error_code": 1, "message": "not now"}
            elif told is None:
                code, told = 404, {"error_code": 40403, "message": "not found"}
            raw = json.dumps(told).encode()
            self.send_response(code)
            if 300 <= code < 400:
                self.send_header("Location", f"{made.url}/elsewhere")
            self.send_header("Content-Length", str(len(raw)))
            with suppress(OSError):  # the client may have given up
                self.end_headers()
                self.wfile.write(raw)

        def log_message(self, *_words: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield made
        server.shutdown()
        made.drop()
        thread.join()

"""A schema registry with the part of Confluent's API that matters, and protoc's descriptors."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2

from eos.protobuf.message import Message, message_in


@dataclass
class FakeRegistry:
    """`refusing`: codes that the next requests are answered with. `asked`: all requests.
    `references`: of a schema to subjects and versions. `kinds`: of schemas that are not Avro.
    `connections`: that clients opened. `login`, `headers`: of the last request."""

    url: str = ""
    schemas: dict[int, str] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    references: dict[int, list[Any]] = field(default_factory=dict)
    refusing: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    login: str = ""
    headers: dict[str, str] = field(default_factory=dict)
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
def registry(tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
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
            made.headers = dict(self.headers)
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
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        made.url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield made
        server.shutdown()
        made.drop()
        thread.join()


_OF = descriptor_pb2.FieldDescriptorProto
_WELL_KNOWN = (timestamp_pb2, duration_pb2)


def add(message: Any, number: int, kind: str, name: str, **more: Any) -> None:
    """`kind`: a word of protoc's, or the full name of a message or, behind `enum `, of an enum;
    `repeated`, `optional` and `required` may stand before it."""
    words = kind.split()
    field = message.field.add(name=name, number=number, label=_OF.LABEL_OPTIONAL)
    if words[0] in ("repeated", "required"):
        field.label = getattr(_OF, f"LABEL_{words[0].upper()}")
    elif words[0] == "optional":  # of proto3: a choice of its own
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    if hasattr(_OF, f"TYPE_{words[-1].upper()}"):
        field.type = getattr(_OF, f"TYPE_{words[-1].upper()}")
    else:
        field.type = _OF.TYPE_ENUM if "enum" in words else _OF.TYPE_MESSAGE
        field.type_name = f".{words[-1]}"
    for key, value in more.items():
        setattr(field, key, value)


def add_map(message: Any, scope: str, number: int, kinds: tuple[str, str], name: str) -> None:
    entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
    entry.options.map_entry = True
    add(entry, 1, kinds[0], "key")
    add(entry, 2, kinds[1], "value")
    add(message, number, f"repeated {scope}.{entry.name}", name)


def file_of(name: str, syntax: str = "proto3") -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package=name, syntax=syntax)
    file.dependency.extend(each.DESCRIPTOR.name for each in _WELL_KNOWN)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="OLD", number=1)
    return file


def descriptor_file(*files: Any, has_imports: bool = True) -> bytes:
    found = descriptor_pb2.FileDescriptorSet()
    for each in _WELL_KNOWN if has_imports else ():
        each.DESCRIPTOR.CopyToProto(found.file.add())
    for each in reversed(files):  # protoc's own order is not relied on
        found.file.add().CopyFrom(each)
    return found.SerializeToString()


def shop() -> Any:
    """`shop.Order`, with a field of each kind, and what can't be columns."""
    file = file_of("shop")
    line = file.message_type.add(name="Line")
    add(line, 1, "string", "sku")
    add(line, 2, "sint32", "n")
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="paid")
    add(order, 1, "int64", "id")
    add(order, 2, "optional string", "name")
    add(order, 3, "enum shop.Kind", "kind")
    add(order, 4, "google.protobuf.Timestamp", "at")
    add(order, 5, "google.protobuf.Duration", "took")
    add(order, 6, "repeated shop.Line", "lines")
    add_map(order, "shop.Order", 7, ("string", "shop.Line"), "by")
    add(order, 8, "shop.Line", "first")
    add(order, 9, "uint32", "u32")
    add(order, 10, "fixed64", "u64")
    add(order, 11, "float", "weight")
    add(order, 12, "double", "price")
    add(order, 13, "bool", "ok")
    add(order, 14, "bytes", "raw")
    add(order, 15, "repeated enum shop.Kind", "kinds")
    add(order, 16, "sfixed32", "i32")
    add(order, 17, "string", "card", oneof_index=0)
    add(order, 18, "int32", "voucher", oneof_index=0)
    add_map(order, "shop.Order", 19, ("uint64", "google.protobuf.Timestamp"), "seen")
    add(order, 20, "shop.Nothing", "nothing")
    file.message_type.add(name="Nothing")
    small = file.message_type.add(name="Small")
    add(small, 1, "int32", "id")
    add(small, 2, "optional double", "gross")
    add(small, 3, "enum shop.Kind", "kind")
    key = file.message_type.add(name="Key")
    add(key, 1, "int32", "id")
    reading = file.message_type.add(name="Reading")
    add(reading, 1, "string", "sensor")
    add(reading, 2, "optional double", "value")
    node = file.message_type.add(name="Node")
    add(node, 1, "repeated shop.Node", "children")
    twice = file.message_type.add(name="Twice")
    add(twice, 1, "int32", "some")
    add(twice, 2, "int32", "Some")
    return file


def old() -> Any:
    """`old.Order`: proto2, with required fields and defaults."""
    file = file_of("old", "proto2")
    order = file.message_type.add(name="Order")
    add(order, 1, "required int32", "id")
    add(order, 2, "int32", "five", default_value="5")
    add(order, 3, "string", "name")
    add(order, 4, "enum old.Kind", "kind")
    add(order, 5, "old.Order.Part", "part")
    part = order.nested_type.add(name="Part")
    add(part, 1, "required int32", "n")
    return file


def message(name: str) -> Message:
    return message_in(descriptor_file(shop(), old()), name)

"""Requests and responses on the wire, decoded by kafka-python: what a proxy looks for or changes.

kafka-python shares no code with eos. A version that it does not know is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer  # noqa: F401 - these imports register all messages
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.data_container import DataContainer

NO_PORT = -1  # in place of an address that is not known


def request(frame: bytes, api: int, version: int) -> Any:
    return _request_class(api).decode(frame, version=version, header=True)


def partitions_of(frame: bytes, api: int, version: int) -> set[tuple[str, int]]:
    """The (topic, partition) pairs in a request. A request with topic ids has "" for topics."""
    found = set()
    for topic, part in _topic_parts(request(frame, api, version)):
        names = (getattr(topic, name, None) for name in ("name", "topic"))
        numbers = (getattr(part, name, None) for name in ("index", "partition", "partition_index"))
        number = part if isinstance(part, int) else next(n for n in numbers if n is not None)
        found.add((next(filter(None, names), ""), number))
    return found


def with_error(frame: bytes, api: int, version: int, code: int) -> bytes:
    """The response with this error code in each place that has the result of a single thing."""
    response = _response(frame, api, version)
    holders = [part for part in _parts(response) if hasattr(part, "error_code")]
    assert holders, f"a response to API {api} version {version} has no error code"
    inner = [part for part in holders if part is not response]
    for part in inner or holders:
        part.error_code = code
    return bytes(response.encode(header=True))


def with_addresses(
    frame: bytes, api: int, version: int, port_of: Callable[[str, int], int]
) -> bytes:
    """The response with another port for each broker that it names."""
    response = _response(frame, api, version)
    for part in _parts(response):
        if getattr(part, "host", "") and getattr(part, "port", NO_PORT) != NO_PORT:
            part.port = port_of(part.host, part.port)
            part.host = "127.0.0.1"
    return bytes(response.encode(header=True))


def _response(frame: bytes, api: int, version: int) -> ApiMessage:
    registered = ResponseClassRegistry._response_class_registry[api]
    return registered[version].decode(frame, header=True)


def _request_class(api: int) -> Any:
    return next(
        each
        for each in _subclasses(ApiMessage)
        if each._json and each.is_request() and api == each.API_KEY
    )


def _subclasses(of: type) -> Iterator[Any]:
    for each in of.__subclasses__():
        yield each
        yield from _subclasses(each)


def _topic_parts(of: ApiMessage) -> Iterator[tuple[Any, Any]]:
    """Each topic of the request with each of its partitions, a number or a structure."""
    for topic in _parts(of):
        for name in ("partition_data", "partitions"):
            for part in getattr(topic, name, None) or ():
                yield topic, part


def _parts(of: Any) -> Iterator[DataContainer]:
    """The message itself and all structures inside it."""
    if isinstance(of, list | tuple):
        for each in of:
            yield from _parts(each)
    elif isinstance(of, DataContainer):
        yield of
        for name in of._struct.fields:
            yield from _parts(getattr(of, name, None))

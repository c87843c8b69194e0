"""What this project uses and overrides inside kafka-python; what a new version moves is named."""

from __future__ import annotations

import importlib
import inspect
import socket
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from eos.launch.relock_python import USERS, requirements

_NET = "kafka.net"
# By class: methods with the parameters that are passed or overridden, and other names without.
CLASSES: dict[tuple[str, str], dict[str, tuple[str, ...] | None]] = {
    (f"{_NET}.manager", "KafkaConnectionManager"): {
        "DEFAULT_CONFIG": None,
        "_build_transport": ("node", "timeout_at"),
        "_connect": ("node", "conn", "timeout_at"),
        "close": (),
        "connection_delay": ("node_id",),
        "get_connection": ("node_id", "timeout_ms", "refresh_metadata_on_err"),
        "ssl_enabled": None,
        "update_backoff": ("node_id",),
        "wait_for": ("future", "timeout_ms"),
    },
    (f"{_NET}.transport", "KafkaTCPTransport"): {
        "__init__": ("net", "sock", "host"),
        "_sock_recv": (),
        "abort": (),
        "write": ("data",),
    },
    (f"{_NET}.transport", "KafkaSSLTransport"): {
        "__init__": ("net", "sock", "host", "configs"),
        "_sock_recv": (),
    },
    (f"{_NET}.inet", "KafkaNetSocket"): {
        "dns_lookup": ("host", "port"),
        "register_class": ("klass",),  # registers a subclass by its SCHEMES
        "sock_connect": ("net", "sock"),
    },
    (f"{_NET}.selector", "NetworkSelector"): {
        "call_soon": ("task",),
        "call_soon_threadsafe": ("callback",),
        "cancel": ("task",),
        "close": (),
        "sleep": ("delay",),
        "start": (),
        "stop": ("timeout_ms",),
        "wait_read": ("fileobj", "timeout_at"),
        "wait_write": ("fileobj", "timeout_at"),
    },
    (f"{_NET}.connection", "KafkaConnection"): {
        "__init__": ("net", "node_id", "broker_version_data", "configs"),
        "close": (),
        "send_request": ("request", "request_timeout_ms"),
    },
}
FUNCTIONS = {
    (f"{_NET}.inet", "create_connection"): (
        *("net", "host", "port", "socket_options", "proxy_url", "timeout_at"),
    ),
}
CONNECTION = ("_reauth", "broker_version_data", "closed", "init_future", "paused", "transport")
TRANSPORT = ("_closed", "_net", "_read_task", "_sock", "_write_buffer")


def moved() -> Iterator[str]:
    """Yield what the installed version lacks, by name."""
    for (module, name), members in CLASSES.items():
        found = _found(module, name)
        if found is None:
            yield f"{module}.{name}"
            continue
        for member, parameters in members.items():
            if not hasattr(found, member):
                yield f"{name}.{member}"
            elif parameters is not None:
                yield from _lacking(getattr(found, member), parameters, f"{name}.{member}")
    for (module, name), parameters in FUNCTIONS.items():
        found = _found(module, name)
        yield from [f"{module}.{name}"] if found is None else _lacking(found, parameters, name)
    yield from _lacking_in_objects()


def _found(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def _lacking(function: Any, parameters: tuple[str, ...], name: str) -> Iterator[str]:
    known = inspect.signature(function).parameters
    yield from (f"{name}({each})" for each in parameters if each not in known)


def _lacking_in_objects() -> Iterator[str]:
    """Yield the attributes that objects lack: they exist only once `__init__` has run."""
    transport = _found(f"{_NET}.transport", "KafkaTCPTransport")
    connection = _found(f"{_NET}.connection", "KafkaConnection")
    if transport is None or connection is None:
        return
    with socket.socket() as sock:
        made = transport(None, sock)
        yield from (f"KafkaTCPTransport.{name}" for name in TRANSPORT if not hasattr(made, name))
    net = importlib.import_module(f"{_NET}.selector").NetworkSelector()
    yield from [] if hasattr(net, "_io_thread") else ["NetworkSelector._io_thread"]
    net.close()
    made = connection(None)
    yield from (f"KafkaConnection.{name}" for name in CONNECTION if not hasattr(made, name))


def sentence(names: list[str]) -> str:
    return (
        f"kafka-python {version('kafka-python')} lacks {', '.join(names)}, which eos/kafka/"
        "connection.py, connection_manager.py and exclusive_connection.py use or override: compare "
        "them with this version, then raise the bound in pyproject.toml"
    )


def test_the_installed_version_has_what_is_used_and_overridden() -> None:
    names = list(moved())
    assert not names, sentence(names)


def test_a_version_that_moves_something_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = importlib.import_module(f"{_NET}.manager")
    inet = importlib.import_module(f"{_NET}.inet")
    monkeypatch.delattr(manager.KafkaConnectionManager, "_build_transport")
    monkeypatch.setattr(inet, "create_connection", lambda **_: None)
    names = list(moved())
    assert names[0] == "KafkaConnectionManager._build_transport"
    assert "create_connection(timeout_at)" in names
    assert "lacks KafkaConnectionManager._build_transport, create_connection(" in sentence(names)
    assert "raise the bound in pyproject.toml" in sentence(names)


def test_only_the_minor_version_that_is_tested_can_be_installed() -> None:
    (wanted,) = (
        each for each in map(Requirement, requirements()[USERS]) if each.name == "kafka-python"
    )
    major, minor, _ = version("kafka-python").split(".")
    assert wanted.specifier.contains(version("kafka-python"))
    assert not wanted.specifier.contains(f"{major}.{int(minor) + 1}.0")
    text = Path(__file__).parents[2].joinpath(USERS).read_text(encoding="ascii")
    assert f"\nkafka-python=={version('kafka-python')} " in text

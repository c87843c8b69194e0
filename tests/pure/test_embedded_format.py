"""The format of the embedded broker's data folder, with another program as Kafka's tool."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.errors import raises

from eos.errors import UnavailableError
from eos.local import broker_node
from eos.local.broker_node import Node, Ports


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        (["sh", "-c", "sleep 60"], "has not ended within 0.2 s"),
        (["sh", "-c", "echo no space >&2; exit 1"], "could not be formatted: no space"),
    ],
)
def test_a_tool_that_fails_or_hangs_is_an_error_with_its_reason(
    tool: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_node, "_FORMAT_S_MAX", 0.2)
    monkeypatch.setattr(broker_node, "java_command", lambda *_, **__: tool)
    node = Node(1, tmp_path, Ports(1, 2))
    with raises("broker_format_failed", UnavailableError) as caught:
        node.prepare("E", [node], {}, {})
    assert reason in caught.value.message

"""The profile's block `kafka.client`: properties of both Kafka clients, by Kafka's own names.

A property is accepted only if both clients apply it: this project's and Kafka's Java client in
Spark. All others are refused, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from eos.config.base import SettingText
from eos.suggestion import suggestion

CLIENT_ID = "client.id"
CHECK_HOST_NAME = "ssl.endpoint.identification.algorithm"
_MB = 1 << 20
# Whole numbers: from, to.
_NUMBERS: Mapping[str, tuple[int, int]] = {
    "connections.max.idle.ms": (10_000, 86_400_000),
    "reconnect.backoff.ms": (1, 10_000),
    "reconnect.backoff.max.ms": (1, 10_000),
    "receive.buffer.bytes": (4096, 64 * _MB),
    "send.buffer.bytes": (4096, 64 * _MB),
}
NAMES = (CLIENT_ID, *_NUMBERS, CHECK_HOST_NAME)
_CLIENT_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")

_EXACTLY_ONCE = "exactly-once needs the value that the project sets"
_ELSEWHERE = "it has a key of its own: "
_ONE_CLIENT = "only one of the two clients has it"
_REASONS: Mapping[str, str] = {
    "acks": _EXACTLY_ONCE,
    "auto.offset.reset": f"{_ELSEWHERE}`start` of the pipeline file",
    "batch.size": _ONE_CLIENT,
    "bootstrap.servers": f"{_ELSEWHERE}`kafka.bootstrap`",
    "client.rack": _ONE_CLIENT,
    "compression.type": f"{_ELSEWHERE}`compression` of a sink",
    "default.api.timeout.ms": "the limits of a transaction depend on it",
    "enable.auto.commit": _EXACTLY_ONCE,
    "enable.idempotence": _EXACTLY_ONCE,
    "group.id": _EXACTLY_ONCE,
    "isolation.level": _EXACTLY_ONCE,
    "linger.ms": _ONE_CLIENT,
    "max.poll.records": f"{_ELSEWHERE}`max_records` of the source",
    "request.timeout.ms": "the limits of a transaction depend on it",
    "retries": _EXACTLY_ONCE,
    "security.protocol": f"{_ELSEWHERE}`kafka.security.protocol`",
    "transaction.timeout.ms": f"{_ELSEWHERE}`transaction` of the pipeline file",
    "transactional.id": f"{_ELSEWHERE}`names.prefix`",
}


def _checked(properties: dict[str, str]) -> dict[str, str]:
    for name, value in properties.items():
        if name not in NAMES:
            raise ValueError(_refusal(name))
        if name in _NUMBERS:
            low, high = _NUMBERS[name]
            if not re.fullmatch(r"[0-9]{1,9}", value) or not low <= int(value) <= high:
                raise ValueError(f"expected `{name}` from {low:,} to {high:,}, got `{value}`")
        elif name == CLIENT_ID and not _CLIENT_ID.fullmatch(value):
            raise ValueError(
                f"expected `{name}` of at most 100 letters, digits, `.`, `_` and `-`, got `{value}`"
            )
        elif name == CHECK_HOST_NAME and value not in ("https", ""):
            raise ValueError(
                f"expected `{name}` to be `https` or, without a check of the brokers' names, an "
                f"empty text, got `{value}`"
            )
    return properties


def _refusal(name: str) -> str:
    reason = _REASONS.get(name, "")
    if not reason and name.startswith(("ssl.", "sasl.")):
        reason = f"{_ELSEWHERE}see `kafka.security`"
    if reason:
        return f"expected no `{name}`: {reason}"
    known = ", ".join(NAMES)
    return f"unknown property `{name}`{suggestion(name, list(NAMES))}; expected one of {known}"


ClientProperties = Annotated[
    dict[str, SettingText],
    AfterValidator(_checked),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {name: {"type": ["string", "integer"]} for name in NAMES},
            "additionalProperties": False,
        }
    ),
]

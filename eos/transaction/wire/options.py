"""From the settings' security names to kafka-python's options."""

from __future__ import annotations

import importlib
from typing import Any

from kafka.net.manager import KafkaConnectionManager

from eos.errors import UsageError
from eos.transaction.settings import KafkaSettings

_FLAGS = {"true": True, "false": False}


def security_options(settings: KafkaSettings) -> dict[str, Any]:
    """kafka-python ignores names that it doesn't know, so they are refused here."""
    known = sorted(
        name
        for name in KafkaConnectionManager.DEFAULT_CONFIG
        if name.startswith(("ssl_", "sasl_")) or name == "security_protocol"
    )
    options: dict[str, Any] = {}
    for name, value in settings.security:
        if name not in known or name == "ssl_context":
            raise UsageError(
                f"{name} is no security option of the Kafka client",
                hint=f"known are {', '.join(n for n in known if n != 'ssl_context')}",
            )
        if name == "ssl_check_hostname":
            if value.lower() not in _FLAGS:
                raise UsageError(f"ssl_check_hostname is {value!r}: say true or false")
            options[name] = _FLAGS[value.lower()]
        elif name == "sasl_oauth_token_provider":
            options[name] = _load(value)
        else:
            options[name] = value
    return options


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"sasl_oauth_token_provider {path!r} can't be loaded: {error}",
            hint="package.module:Class, whose token() returns the token",
        ) from error

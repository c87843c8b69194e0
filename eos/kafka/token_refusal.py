"""The error for a token that a broker rejects: it has expired, or the broker does not trust it."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from typing import Any

from eos.errors import KafkaRefusedError
from eos.login.tokens import TokenSource, claims, last_token

_SHOWN = ("sub", "iss", "aud")  # claims that are no secret
_TEXT_MAX = 200


def token_refusal(source: TokenSource, address: str, reason: str) -> KafkaRefusedError:
    """Return the error for the login with the newest token of `source`."""
    token = last_token(source)
    found = claims(token.value) if token is not None else {}
    end = found.get("exp")
    if isinstance(end, int | float) and end <= time.time():
        return KafkaRefusedError(
            "kafka_token_expired",
            f"{address} rejected the login by OAUTHBEARER: the token expired at {_time(end)}",
            hint="renew the token: check what writes the file of `token_file`, or the function of "
            "`callback`; and compare the clocks of this machine and of the token's issuer",
            address=address,
        )
    shown = ", ".join(f"{name} {_text(found[name])}" for name in _SHOWN if name in found)
    about = f"a token with {shown}" if shown else "a token without readable claims"
    return KafkaRefusedError(
        "kafka_token_rejected",
        f"{address} rejected the login by OAUTHBEARER with {about}: {reason}",
        hint="the broker's log has the cause. Compare issuer, audience and scope of the token with "
        "sasl.oauthbearer.expected.issuer, sasl.oauthbearer.expected.audience and "
        "sasl.oauthbearer.jwks.endpoint.url of the broker's listener",
        address=address,
    )


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value))[:_TEXT_MAX]

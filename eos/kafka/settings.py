"""The settings of a connection to a Kafka cluster.

The driver sends them to the executors, so this module imports no slow library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eos.login.kerberos import TicketSource
    from eos.login.tokens import TokenSource

_SHOWN = ("security_protocol", "sasl_mechanism")  # all other values may be secrets


@dataclass(frozen=True, slots=True, repr=False)
class KafkaSettings:
    """Address, limits and security settings of a cluster. Equal settings share connections.

    `security` has kafka-python's option names. With the mechanism OAUTHBEARER, `token` says where
    tokens are from, and `token_extensions` what is sent with them. With GSSAPI, `tickets` says
    where tickets are from. `properties` has Kafka's own names.

    If a broker never answers, an attempt waits for `request_timeout_ms` several times, because each
    connection to this broker times out separately. So this timeout is much shorter than the part of
    the transaction timeout that a step or a writer may use.
    """

    bootstrap: tuple[str, ...]
    client_id: str = "eos"
    security: tuple[tuple[str, str], ...] = ()
    request_timeout_ms: int = 10_000
    max_request_bytes: int = 1_048_576
    properties: tuple[tuple[str, str], ...] = ()
    token: TokenSource | None = None
    token_extensions: tuple[tuple[str, str], ...] = ()
    tickets: TicketSource | None = None

    def __repr__(self) -> str:
        security = ", ".join(
            f"{name}={value if name in _SHOWN else '***'}" for name, value in self.security
        )
        return (
            f"KafkaSettings(bootstrap={','.join(self.bootstrap)}, client_id={self.client_id}, "
            f"security=[{security}], request_timeout_ms={self.request_timeout_ms}, "
            f"max_request_bytes={self.max_request_bytes})"
        )

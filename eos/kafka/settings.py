"""How to reach a Kafka cluster. Travels from the driver to the executors; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

_SHOWN = ("security_protocol", "sasl_mechanism")  # names of methods; all else may be a secret


@dataclass(frozen=True, slots=True, repr=False)
class KafkaSettings:
    """Equal settings share their connections. `security` holds kafka-python's option names.

    `request_timeout_ms` is what a broker that answers nothing costs, several times in one attempt:
    each of its connections finds out by itself. So it is well below the shortest share that a step
    or a writer has of the transaction's time.
    `sasl_oauth_token_provider` is given as `package.module:Class`, called without arguments.
    """

    bootstrap: tuple[str, ...]
    client_id: str = "eos"
    security: tuple[tuple[str, str], ...] = ()
    request_timeout_ms: int = 10_000
    max_request_bytes: int = 1_048_576

    def __repr__(self) -> str:
        security = ", ".join(
            f"{name}={value if name in _SHOWN else '***'}" for name, value in self.security
        )
        return (
            f"KafkaSettings(bootstrap={','.join(self.bootstrap)}, client_id={self.client_id}, "
            f"security=[{security}], request_timeout_ms={self.request_timeout_ms}, "
            f"max_request_bytes={self.max_request_bytes})"
        )

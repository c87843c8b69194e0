"""The login by GSSAPI (Kerberos) as kafka-python calls it: RFC 4752, without a security layer.

kafka-python's own mechanism needs the package `gssapi`, which has no wheels for Linux.
"""

from __future__ import annotations

from typing import Any

from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.abc import SaslMechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

from eos.deadline import Deadline
from eos.login.gssapi import GssError
from eos.login.kerberos import TicketSource, begin_login, ticket_error

_TICKET_MS = 4_000  # the KDC is asked on the IO thread, while a connection logs in
# No security layer, and so no size of its messages; and no other name to act as.
_CHOICE = b"\x01\x00\x00\x00"


class _Login(SaslMechanism):  # type: ignore[misc]  # its base has no type hints
    """One login at one broker. The last answer of a broker is empty."""

    def __init__(self, source: TicketSource, host: str) -> None:
        self._source, self._host = source, host
        self._context, self._next = begin_login(source, host, Deadline.after_ms(_TICKET_MS))
        self._has_chosen = self._is_over = False

    def auth_bytes(self) -> bytes:
        self._is_over = self._has_chosen
        return self._next

    def receive(self, answer: bytes) -> None:
        if self._is_over:
            return
        try:
            if self._context.is_complete:
                self._context.unwrap(answer)  # raises unless the broker has the key of the ticket
                self._next, self._has_chosen = self._context.wrap(_CHOICE), True
            else:
                self._next = self._context.step(answer)
        except GssError as error:
            raise ticket_error(self._source, self._host, error) from error

    def is_done(self) -> bool:
        return self._is_over

    def is_authenticated(self) -> bool:
        return self._is_over


def _mechanism(**config: Any) -> SaslMechanism:
    source = config["sasl_kerberos_name"]
    if isinstance(source, TicketSource):
        return _Login(source, config["host"])
    return SaslMechanismGSSAPI(**config)  # of another user of kafka-python in this process


def register() -> None:
    """Let kafka-python use this mechanism for connections with a TicketSource."""
    register_sasl_mechanism("GSSAPI", _mechanism, overwrite=True)

"""The block `kerberos` of a profile: the principal of a login by GSSAPI."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from eos.config.base import Strict
from eos.login.kerberos import TicketSource

PRINCIPAL_PATTERN = r"^[^\s@/\"\\$]{1,100}(/[^\s@/\"\\$]{1,255})?@[^\s@/\"\\$]{1,255}$"
# The path is in quotes in the settings of Kafka's Java client.
KEYTAB_PATTERN = r"^/[^:${}\"\\\x00-\x1f]*[^/:${}\"\\\x00-\x1f]$"
SERVICE_PATTERN = r"^[A-Za-z0-9_.-]{1,64}$"


class Kerberos(Strict):
    """The principal of a login by GSSAPI, and its keytab. Without `keytab`, the ticket cache of the
    user is used. `service_name` is the first part of the brokers' principals."""

    principal: Annotated[str, Field(pattern=PRINCIPAL_PATTERN)]
    keytab: Annotated[str, Field(pattern=KEYTAB_PATTERN)] | None = None
    service_name: Annotated[str, Field(pattern=SERVICE_PATTERN)] = "kafka"

    @property
    def tickets(self) -> TicketSource:
        return TicketSource(self.principal, self.keytab, self.service_name)

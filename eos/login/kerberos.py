"""Kerberos tickets of this process, from a keytab or the user's ticket cache.

Tickets from a keytab are kept in memory. After half of a ticket's lifetime, the next login asks the
KDC for a new one; if the KDC does not answer then, the ticket is used to its end.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from eos.deadline import Deadline
from eos.errors import EosError, UnavailableError, UsageError
from eos.login.bounded_call import LateError, bounded_call
from eos.login.gssapi import LIBRARY, Context, Credential, GssError

BLOCK = "kafka.security.kerberos"
# Error numbers of Kerberos, as in `krb5.h`, and one of GSSAPI's for a cache of another principal.
_PRINCIPAL_UNKNOWN, _SERVICE_UNKNOWN, _EXPIRED = -1765328378, -1765328377, -1765328352
_WRONG_KEY = {-1765328360, -1765328353}  # with preauthentication, and without
_SKEW = {-1765328347, -1765328236, -1765328351}  # at the KDC, in its answer, "not yet valid"
_NO_KDC = {-1765328228}
_NO_REALM = {-1765328230, -1765328164, -1765328250, -1765328249, -1765328160}
_NO_TICKET = {-1765328189, -1765328243, -1765328203, 39756032, _EXPIRED}

_numbers = itertools.count(1)
_caches: dict[TicketSource, str] = {}


@dataclass(frozen=True, slots=True)
class TicketSource:
    """A description of where tickets are from: without a keytab, from the user's ticket cache."""

    principal: str
    keytab: str | None = None
    service: str = "kafka"

    @property
    def _store(self) -> dict[str, str]:
        if self.keytab is None:
            return {}
        if self not in _caches:
            _caches[self] = f"MEMORY:eos-{next(_numbers)}"
        return {"client_keytab": f"FILE:{self.keytab}", "ccache": _caches[self]}


def require_ticket(source: TicketSource, deadline: Deadline) -> None:
    """Raise EosError unless the KDC gives this process a ticket, or it has one."""
    _credential(source, None, deadline)


def begin_login(source: TicketSource, host: str, deadline: Deadline) -> tuple[Context, bytes]:
    """Return a login at a broker, and its first bytes. Raise EosError without a ticket."""
    credential = _credential(source, host, deadline)
    with_broker = Context(credential, f"{source.service}@{host}")
    try:
        return with_broker, with_broker.step()  # asks nobody, since the ticket is in the cache
    except GssError as error:
        raise ticket_error(source, host, error) from error


def _credential(source: TicketSource, host: str | None, deadline: Deadline) -> Credential:
    """Return a credential with a ticket for the broker, if a host is given."""
    if source.keytab is not None:
        _require_readable(source.keytab)
    try:
        name = f"kerberos {source} {host}"
        found: Credential = bounded_call(name, lambda: _ask(source, host), deadline)
    except LateError as error:
        raise _unreachable(source, "no answer in time") from error
    except GssError as error:
        raise ticket_error(source, host, error) from error
    except OSError as error:
        raise UsageError(
            "kerberos_library_missing",
            f"`mechanism: GSSAPI` needs MIT Kerberos's library, which can't be loaded: {error}",
            hint=f"install {LIBRARY} on the driver and all executors: the package "
            "libgssapi-krb5-2 of Debian and Ubuntu, krb5-libs of Red Hat",
        ) from error
    return found


def _ask(source: TicketSource, host: str | None) -> Credential:
    """Get the tickets. This may ask the KDC twice: for a first ticket, and for the broker's."""
    try:
        return _ask_once(source, host)
    except GssError as error:
        # The library does not report why it got no new ticket in place of one that has expired. An
        # attempt without the old ticket has the reason.
        if error.minor != _EXPIRED or _caches.pop(source, None) is None:
            raise
        return _ask_once(source, host)


def _ask_once(source: TicketSource, host: str | None) -> Credential:
    credential = Credential(source.principal, source._store)  # noqa: SLF001 - of this module
    if host is not None:
        Context(credential, f"{source.service}@{host}").step()
    return credential


def _require_readable(keytab: str) -> None:
    try:
        Path(keytab).open("rb").close()
    except OSError as error:
        raise UsageError(
            "kerberos_keytab_unreadable",
            f"the keytab {keytab} of `{BLOCK}.keytab` can't be read: {error.strerror}",
            hint="the file must be readable under this path on the driver and all executors",
        ) from error


def ticket_error(source: TicketSource, host: str | None, error: GssError) -> EosError:
    """Return the error for a login that Kerberos's library refuses."""
    principal, number, reason = source.principal, error.minor, str(error)
    if number in _NO_KDC:
        return _unreachable(source, reason)
    if number in _NO_REALM:
        return UsageError(
            "kerberos_realm_unknown",
            f"this machine knows no KDC of the realm of {principal}: {reason}",
            hint="name the realm's KDC in /etc/krb5.conf, or in the file of the variable "
            f"KRB5_CONFIG; and compare the realm of `{BLOCK}.principal` with it (capitals matter)",
        )
    if number in _SKEW:
        return UsageError(
            "kerberos_clock_skew",
            f"the KDC refuses {principal}, or its ticket is not valid now: {reason}",
            hint="the clocks of this machine, the KDC and the brokers may differ by five minutes "
            "at most: synchronize them by NTP",
        )
    if number == _PRINCIPAL_UNKNOWN:
        return UsageError(
            "kerberos_principal_unknown",
            f"the KDC does not know the principal {principal}",
            hint=f"correct `{BLOCK}.principal`, or create it: `kadmin -q 'addprinc -randkey "
            f"{principal}'`",
        )
    if number == _SERVICE_UNKNOWN:
        return UsageError(
            "kerberos_service_unknown",
            f"the KDC does not know the broker as {source.service}/{host}: {reason}",
            hint="the broker's principal must have the name of its advertised.listeners. Compare "
            f"the principals in its keytab (`klist -kt`), `{BLOCK}.service_name` (here "
            f"{source.service}), and how this machine resolves {host}",
        )
    if number in _WRONG_KEY and source.keytab is not None:
        return UsageError(
            "kerberos_keytab_outdated",
            f"the KDC rejects the key of {principal} in the keytab {source.keytab}: {reason}",
            hint="the key was changed after the keytab was written. Write it again: `kadmin -q "
            f"'ktadd -k FILE {principal}'`",
        )
    return _without_ticket(source, number, reason)


def _without_ticket(source: TicketSource, number: int, reason: str) -> EosError:
    principal, keytab = source.principal, source.keytab
    if number not in _NO_TICKET:
        return UsageError(
            "kerberos_login_failed",
            f"the Kerberos login of {principal} failed: {reason}",
            hint=f"log in by hand on this machine: `KRB5_TRACE=/dev/stderr kinit {principal}`"
            if keytab is None
            else f"log in by hand on this machine: `KRB5_TRACE=/dev/stderr kinit -kt {keytab} "
            f"{principal}`",
        )
    if keytab is not None:
        return UsageError(
            "kerberos_keytab_unusable",
            f"the keytab {keytab} has no key of {principal}, or is no keytab",
            hint=f"`klist -kt {keytab}` lists its principals: correct `{BLOCK}.principal` or "
            "`keytab`",
        )
    return UsageError(
        "kerberos_ticket_missing",
        f"the ticket cache has no valid ticket of {principal}: {reason}",
        hint=f"run `kinit {principal}` as the user of this process (the variable KRB5CCNAME names "
        f"another cache), or set `{BLOCK}.keytab`, so that the pipeline gets its own tickets",
    )


def _unreachable(source: TicketSource, reason: str) -> UnavailableError:
    return UnavailableError(
        "kerberos_kdc_unreachable",
        f"no KDC answers for {source.principal}: {reason}",
        hint="check that the KDC runs, that /etc/krb5.conf (or the file of KRB5_CONFIG) has its "
        "address, and that this machine reaches its port (88, TCP and UDP)",
    )

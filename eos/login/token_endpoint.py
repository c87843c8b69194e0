"""Tokens from an OAuth token endpoint, by the grant "client credentials" (RFC 6749, section 4.4).

Kafka's Java client asks in the same way: id and secret are in the header `Authorization: Basic`, as
they are, without URL encoding.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from eos.deadline import Backoff, Deadline
from eos.errors import UnavailableError, UsageError
from eos.login.http_connection import Connection, TlsFiles
from eos.login.tokens import Token, is_token, token_of
from eos.secret import reveal

_RETRIED = frozenset({408, 425, 429})  # and all from 500 on
_SECONDS_MAX = 10 * 365 * 86_400


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """A token endpoint, and the client that asks it. `client_secret` is a reference."""

    url: str
    client_id: str
    client_secret: str
    scope: str | None
    files: TlsFiles

    def fetch(self, deadline: Deadline) -> Token:
        """Request a token, and again after a failure that may pass, until the deadline."""
        backoff, reason = Backoff(100), "earlier requests used up the time"
        while not deadline.has_passed:
            try:
                status, raw = self._once(deadline)
                if status == 200:
                    return self._token(raw)
                if status < 500 and status not in _RETRIED:
                    raise self._rejected(status, raw)
                reason = f"it answers {status}"
            except ssl.SSLCertVerificationError as error:
                raise self._untrusted(error) from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = str(error) or type(error).__name__
            backoff.sleep(deadline)
        reason = reason[:500]
        raise UnavailableError(
            "token_endpoint_unavailable",
            f"the token endpoint {self.url} gives no token: {reason}",
            hint=f"check that it runs and is reachable from this machine, and `token_endpoint` of "
            f"`{self.files.block}` in the profile",
        )

    def _once(self, deadline: Deadline) -> tuple[int, bytes]:
        pair = f"{self.client_id}:{reveal(self.client_secret)}".encode()
        form = {"grant_type": "client_credentials"}
        if self.scope:
            form["scope"] = self.scope
        headers = {
            "Accept": "application/json",
            "Authorization": f"Basic {base64.b64encode(pair).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        connection = Connection(self.url, self.files)
        try:
            return connection.request("POST", "", urlencode(form).encode(), headers, deadline)
        finally:
            connection.close()

    def _token(self, raw: bytes) -> Token:
        answer = _json(raw)
        value, seconds = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(value, str) or not is_token(value):
            raise UsageError(
                "token_endpoint_invalid",
                f"the token endpoint {self.url} answers without a usable `access_token`",
                hint=f"check `token_endpoint` of `{self.files.block}` in the profile: it is the "
                "URL that issues tokens, not that of a page or of the discovery document",
            )
        if isinstance(seconds, int | float) and 0 < seconds <= _SECONDS_MAX:
            return token_of(value, time.time() + seconds)
        return token_of(value)

    def _rejected(self, status: int, raw: bytes) -> UsageError:
        answer = _json(raw)
        reason = " ".join(
            str(answer[key])[:300] for key in ("error", "error_description") if answer.get(key)
        )
        block = self.files.block
        return UsageError(
            "token_request_rejected",
            f"the token endpoint {self.url} refused a token for the client {self.client_id}: "
            f"{status} {reason}".rstrip(),
            hint=f"check `client_id`, `client_secret` and `scope` of `{block}` in the profile, and "
            "that the client may use the grant `client_credentials`",
        )

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> UsageError:
        return UsageError(
            "token_endpoint_untrusted",
            f"the certificate of the token endpoint {self.url} is not trusted: "
            f"{error.verify_message}",
            hint=f"set `{self.files.block}.ca` in the profile to the certificate file of the "
            "authority that signed it",
        )


def _json(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}

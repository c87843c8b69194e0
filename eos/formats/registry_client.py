"""The client of a schema registry. No other module sends requests to the registry.

Each request has a time limit, and all requests of a startup have one deadline. An id means the same
schema forever, so callers may cache an answer (`formats/schema_ids.py`). An invalid answer raises
one of the project's own errors, whatever its content.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeGuard
from urllib.parse import quote

from eos.deadline import Backoff, Deadline
from eos.errors import UnavailableError, UsageError
from eos.formats.registry_references import RegisteredSchema, Version, without_references
from eos.login.http_connection import Connection, TlsFiles, is_about_our_certificate
from eos.login.tokens import current
from eos.secret import reveal

if TYPE_CHECKING:
    from eos.config.registry import Registry

ANSWER_MS_MAX = 20_000
_VERSIONS_MAX = 200  # newest versions; older ones are requested on demand
_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_THERE = 404
_RETRIED = frozenset({408, 425, 429})  # and all from 500 on
_API = "check that `registry.url` is a schema registry with Confluent's API"

Kind = Literal["AVRO", "JSON", "PROTOBUF"]
_Known = dict[Version, RegisteredSchema | None]


class _UnusableError(ValueError):
    """Error of a registered schema of another kind, or with references that can't be resolved."""


@dataclass(frozen=True, slots=True)
class RegistryClient:
    registry: Registry
    kind: Kind = "AVRO"  # of the schemas that are usable
    _connection: Connection = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = self.registry
        files = TlsFiles("registry", given.ca, given.certificate, given.key)
        connection = Connection(given.url, files)
        object.__setattr__(self, "_connection", connection)

    def schema(self, schema_id: int, deadline: Deadline) -> str | None:
        """Return the schema of an id; None if it is missing, or of another kind, or not usable.

        Any producer may register an unusable schema, so it must not stop the pipeline. Raise if the
        registry does not answer or rejects the request.
        """
        # Any record may have four bytes that look like an id. Registries assign positive 32-bit
        # numbers. They answer a larger number like a wrong path, which would end the run.
        if not _is_number(schema_id):
            return None
        found = self._request("GET", f"/schemas/ids/{schema_id}", deadline)
        try:
            return None if found is None else self._alone(found, {}, deadline)
        except _UnusableError:
            return None

    def versions(self, subject: str, deadline: Deadline) -> dict[int, str]:
        """Return the subject's schemas by id, the newest version last.

        Older versions that can't be used are skipped.
        """
        path = f"{_path(subject)}/versions"
        numbers = self._request("GET", path, deadline)
        if not numbers:
            self._raise_no_subject(subject)
        if not isinstance(numbers, list) or not all(map(_is_number, numbers)):
            raise self._invalid(path)
        found: dict[int, str] = {}
        referred: _Known = {}
        latest = sorted(set(numbers))[-_VERSIONS_MAX:]
        for number in latest:
            at = Version(subject, number)
            version = self._request("GET", _path(*at), deadline)
            if version is None:  # deleted meanwhile
                continue
            schema_id = self._id(version, _path(*at))
            found.pop(schema_id, None)  # a schema that was registered again moves to the end
            try:
                found[schema_id] = self._alone(version, referred, deadline)
            except _UnusableError as error:
                if number == latest[-1]:
                    raise self._unusable(str(at), error) from error
        return found or self._raise_no_subject(subject)

    def latest(self, subject: str, deadline: Deadline) -> tuple[int, str]:
        """Return the id and the schema of the subject's newest version."""
        path = f"{_path(subject)}/versions/latest"
        version = self._request("GET", path, deadline)
        if version is None:
            self._raise_no_subject(subject)
        try:
            return self._id(version, path), self._alone(version, {}, deadline)
        except _UnusableError as error:
            raise self._unusable(f"{subject!r}, latest version,", error) from error

    def id_of(self, subject: str, schema: str, deadline: Deadline, *, registers: bool) -> int:
        """Return a schema's id under a subject. With `registers`, register it if it is new."""
        path, body = _path(subject), {"schema": schema}
        found = self._request("POST", f"{path}/versions" if registers else path, deadline, body)
        if found is None:
            url = self.registry.url
            raise UsageError(
                "registry_schema_not_registered",
                f"the schema registry {url} does not have the sink's schema under the subject "
                f"{subject!r}",
                hint="register the schema, or set `register: true` next to `subject`",
            )
        return self._id(found, path)

    def _alone(self, found: Any, known: _Known, deadline: Deadline) -> str:
        """Return the schema in an answer of the registry. Schemas that Avro refers to are inlined.

        `known` caches the referenced versions that were requested before.
        """

        def fetch(at: Version) -> RegisteredSchema | None:
            if at not in known:
                version = self._request("GET", _path(*at), deadline)
                known[at] = None if version is None else self._usable(version, str(at))
            return known[at]

        try:
            own = self._usable(found, "")
            return own.schema if self.kind != "AVRO" else without_references(own, fetch)
        except _UnusableError:
            raise
        except ValueError as error:
            raise _UnusableError(f"its references can't be resolved: {error}") from error

    def _usable(self, found: Any, what: str) -> RegisteredSchema:
        if not isinstance(found, dict):
            raise self._invalid(what or "a schema")
        kind = found.get("schemaType") or "AVRO"
        if kind != self.kind:
            expected = f"expected {self.kind}"
            raise _UnusableError(f"{what} is of type {str(kind)[:100]}; {expected}".lstrip())
        schema, references = found.get("schema"), found.get("references") or ()
        if not isinstance(schema, str) or not isinstance(references, list | tuple):
            raise self._invalid(what or "a schema")
        targets = []
        for each in references:
            subject, version = (
                (each.get("subject"), each.get("version")) if isinstance(each, dict) else (0, 0)
            )
            if not isinstance(subject, str) or not _is_number(version):
                raise _UnusableError(f"{what} has a reference without subject and version".lstrip())
            targets.append(Version(subject, version))
        return RegisteredSchema(schema, tuple(targets))

    def require_there(self, deadline: Deadline) -> None:
        """Raise unless the registry answers and accepts the login."""
        self._request("GET", "/config", deadline)

    def _request(self, method: str, path: str, deadline: Deadline, body: Any = None) -> Any:
        """Send a request, retry it, and return the JSON answer; None if the object does not exist.

        Raise UnavailableError without an answer in time, and UsageError for a rejected request."""
        patience, backoff = Deadline.after_ms(deadline.at_most_ms(ANSWER_MS_MAX)), Backoff(100)
        reason = "earlier requests used up the time"
        while not deadline.has_passed:
            was_open = self._connection.is_open
            try:
                status, raw = self._once(method, path, body, patience)
                if status == _NOT_THERE and _is_of_registry(raw):
                    return None
                if status < 300:
                    return _json(raw)
                if status < 500 and status not in _RETRIED:
                    raise self._rejected_error(f"{method} {path}", status, _message(raw))
                reason = f"it answers {status} {_message(raw)}"
            except ssl.SSLCertVerificationError as error:
                raise self._untrusted_error(str(error)) from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                if isinstance(error, ssl.SSLError) and is_about_our_certificate(error):
                    raise self._certificate_error(error) from error
                reason = str(error) or type(error).__name__
                if was_open and not patience.has_passed:
                    continue  # the peer may have closed an idle connection: retry on a new one
            if patience.has_passed:
                break
            backoff.sleep(patience)
        url, reason = self.registry.url, reason[:500]
        raise UnavailableError(
            "registry_unavailable",
            f"the schema registry {url} does not answer {path}: {reason}",
            hint="check that it runs, and that `registry.url` in the profile is right",
        )

    def _once(self, method: str, path: str, body: Any, patience: Deadline) -> tuple[int, bytes]:
        headers = {"Accept": _TYPE, "Content-Type": _TYPE, **self.registry.headers}
        headers |= self._login(patience)
        data = None if body is None else json.dumps(body).encode()
        return self._connection.request(method, path, data, headers, patience)

    def _login(self, patience: Deadline) -> dict[str, str]:
        """Return the header of the login. Secrets and tokens are read for each request."""
        given = self.registry
        if given.user is not None and given.password is not None:
            pair = f"{given.user}:{reveal(given.password)}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        if given.token is not None:
            return {"Authorization": f"Bearer {reveal(given.token)}"}
        if given.oauth is not None:
            token = current(given.oauth.tokens("registry.oauth"), patience)
            return {"Authorization": f"Bearer {token.value}"}
        return {}

    def _id(self, found: Any, path: str) -> int:
        number = found.get("id") if isinstance(found, dict) else None
        if not _is_number(number):
            raise self._invalid(path)
        return number

    def _invalid(self, subject: str) -> UsageError:
        url = self.registry.url
        return UsageError(
            "registry_response_invalid",
            f"the schema registry {url} returned unexpected JSON for {subject}",
            hint=_API,
        )

    def _unusable(self, subject: str, error: _UnusableError) -> UsageError:
        return UsageError(
            "registry_schema_unusable",
            f"{subject} in the schema registry can't be used: {error}",
            hint="use a subject whose schemas are of the format in the pipeline file, and whose "
            "references exist (docs/registry.md)",
        )

    def _raise_no_subject(self, subject: str) -> NoReturn:
        url = self.registry.url
        raise UsageError(
            "registry_subject_missing",
            f"the schema registry {url} has no subject {subject!r}",
            hint="check the subject's name; it is usually derived from the topic, such as "
            "`orders-value`",
        )

    def _rejected_error(self, request: str, status: int, reason: str) -> UsageError:
        url = self.registry.url
        text = f"the schema registry {url} rejected {request}: {status} {reason}"
        if status == 401:
            return UsageError(
                "registry_login_rejected",
                text,
                hint="check the login of `registry` in the profile: `user` and `password`, `token` "
                "or `oauth`; a token may have expired, or be of another issuer or audience",
            )
        if status == 403:
            return UsageError(
                "registry_access_denied",
                text,
                hint="grant the permission to the user of `registry` in the profile",
            )
        if status == 409:
            return UsageError(
                "registry_schema_incompatible",
                text,
                hint="the schema is not compatible with the subject's existing versions: change "
                "it, or the subject's compatibility level",
            )
        return UsageError("registry_request_rejected", text, hint=_API)

    def _certificate_error(self, error: ssl.SSLError) -> UsageError:
        url, certificate = self.registry.url, self.registry.certificate
        alert = str(error.reason).partition("ALERT_")[2].replace("_", " ").lower()
        if certificate is None:
            return UsageError(
                "registry_certificate_missing",
                f"the schema registry {url} requires a client certificate: {alert}",
                hint="set `registry.certificate` and `key` in the profile",
            )
        return UsageError(
            "registry_certificate_rejected",
            f"the schema registry {url} rejected the client certificate {certificate}: {alert}",
            hint="it has expired, or the registry does not trust the authority that signed it: "
            f"`openssl x509 -noout -dates -issuer -in {certificate}` shows both",
        )

    def _untrusted_error(self, reason: str) -> UsageError:
        url = self.registry.url
        return UsageError(
            "registry_certificate_untrusted",
            f"the certificate of the schema registry {url} is not trusted: {reason}",
            hint="set `registry.ca` in the profile to the certificate file of the authority that "
            "signed it",
        )


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deep") from error


def _is_of_registry(raw: bytes) -> bool:
    """Return whether the body of a 404 shows that the registry itself reports a missing object.

    A wrong path or a proxy answers 404, too. Treating that as a missing schema would turn good
    records into malformed ones. The registry's own error codes have five digits: 404xx.
    """
    try:
        found = _json(raw)
    except ValueError:
        return False
    code = found.get("error_code") if isinstance(found, dict) else None
    return _is_number(code) and code // 100 == _NOT_THERE


def _message(raw: bytes) -> str:
    """Return the registry's error message; empty if there is none."""
    try:
        found = _json(raw[:4096])
    except ValueError:
        return ""
    return str(found.get("message", ""))[:500] if isinstance(found, dict) else ""


def _is_number(found: Any) -> TypeGuard[int]:
    return isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 31


def _path(subject: str, version: int | None = None) -> str:
    path = f"/subjects/{quote(subject, safe='')}"
    return path if version is None else f"{path}/versions/{version}"

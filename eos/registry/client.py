"""What a schema registry answers: the only place that asks one.

Each question is bounded by a time of its own, and all that are asked together by the deadline that
their asker has: a registry that is slow, and not dead, must not hold a start for an hour. What it
says of an id is for ever: an id means one schema. So who asks may keep the answer
(`read/registered.py`).
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from eos.deadline import Backoff, Deadline
from eos.errors import UnavailableError, UsageError
from eos.registry.references import Registered, Version, standing_alone
from eos.secret import reveal

if TYPE_CHECKING:
    from eos.config.registry import Registry

ANSWER_MS_MAX = 20_000
_REQUEST_MS_MAX = 10_000
_BYTES_MAX = 16 << 20
_PIECE_BYTES = 64 << 10
_VERSIONS_MAX = 200  # of a subject, the newest: an older one is asked for when it is met
_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_THERE = 404

_Known = dict[Version, Registered | None]


class _StaysHere(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the password would go along, to wherever it leads."""

    def redirect_request(self, *_words: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Client:
    registry: Registry

    def schema(self, schema_id: int, deadline: Deadline) -> str | None:
        """The Avro schema that an id means; None if there is no such id."""
        found = self._ask("GET", f"/schemas/ids/{schema_id}", deadline)
        told = f"the schema with id {schema_id}"
        return None if found is None else self._alone(found, told, {}, deadline)

    def versions(self, subject: str, deadline: Deadline) -> dict[int, str]:
        """The subject's schemas by id, the newest version last."""
        numbers = self._ask("GET", f"{_path(subject)}/versions", deadline)
        if not numbers:
            self._no_subject(subject)
        found: dict[int, str] = {}
        referred: _Known = {}
        for number in sorted(numbers)[-_VERSIONS_MAX:]:
            at = Version(subject, number)
            version = self._ask("GET", _path(*at), deadline)
            if version is not None:  # it may be deleted meanwhile
                schema_id = int(version["id"])
                found.pop(schema_id, None)  # one that was deleted and came back is the newest
                found[schema_id] = self._alone(version, str(at), referred, deadline)
        return found or self._no_subject(subject)

    def latest(self, subject: str, deadline: Deadline) -> tuple[int, str]:
        """The id and the schema of the subject's newest version."""
        version = self._ask("GET", f"{_path(subject)}/versions/latest", deadline)
        if version is None:
            self._no_subject(subject)
        what = f"{subject!r}, latest version,"
        return int(version["id"]), self._alone(version, what, {}, deadline)

    def id_of(self, subject: str, schema: str, deadline: Deadline, *, registers: bool) -> int:
        """The id of a schema under a subject; with `registers` it is made if it is not there."""
        path, body = _path(subject), {"schema": schema}
        found = self._ask("POST", f"{path}/versions" if registers else path, deadline, body)
        if found is None:
            raise UsageError(
                f"the schema registry {self.registry.url} does not have the sink's schema under "
                f"the subject {subject!r}",
                hint="register it, or say `register: true` beside `subject`",
            )
        return int(found["id"])

    def _alone(self, found: Any, what: str, known: _Known, deadline: Deadline) -> str:
        """With all that it refers to in it. `known` are versions that were asked for before."""

        def ask(at: Version) -> Registered | None:
            if at not in known:
                version = self._ask("GET", _path(*at), deadline)
                known[at] = None if version is None else _avro(version, str(at))
            return known[at]

        try:
            return standing_alone(_avro(found, what), ask)
        except ValueError as error:
            raise UsageError(
                f"{what} in the schema registry can't be put together: {error}",
                hint="a schema that is registered with those types in it refers to nothing",
            ) from error

    def require_there(self, deadline: Deadline) -> None:
        """It answers, and lets us in."""
        self._ask("GET", "/config", deadline)

    def _ask(self, method: str, path: str, deadline: Deadline, body: Any = None) -> Any:
        """The answer; None where it says that there is no such thing."""
        patience, backoff = Deadline.after_ms(deadline.at_most_ms(ANSWER_MS_MAX)), Backoff(100)
        words = "what was asked before it took all the time there was"
        while not deadline.has_passed:
            try:
                return self._once(method, path, body, patience)
            except urllib.error.HTTPError as error:
                told = _told(error)
                if error.code == _NOT_THERE:
                    return None
                if error.code < 500 and error.code != 429:
                    raise self._refused(f"{method} {path}", error.code, told) from error
                words = f"it answers {error.code} {told}"
            except (OSError, http.client.HTTPException, ValueError) as error:
                words = str(getattr(error, "reason", error))
                if "CERTIFICATE_VERIFY_FAILED" in words:
                    raise self._unknown(words) from error
            if patience.has_passed:
                break
            backoff.sleep(patience)
        raise UnavailableError(
            f"the schema registry {self.registry.url} does not answer {path}: {words}",
            hint="is it running, and is `registry.url` in the profile right?",
        )

    def _once(self, method: str, path: str, body: Any, patience: Deadline) -> Any:
        given = self.registry
        headers = {"Accept": _TYPE, "Content-Type": _TYPE}
        if given.user is not None and given.password is not None:
            pair = f"{given.user}:{reveal(given.password)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        data = None if body is None else json.dumps(body).encode()
        # The address is the profile's, which allows http and https only.
        request = urllib.request.Request(given.url + path, data, headers, method=method)  # noqa: S310 - see above
        secure = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=given.ca))
        opener = urllib.request.build_opener(_StaysHere, secure)
        limit_s = max(1, patience.at_most_ms(_REQUEST_MS_MAX)) / 1000
        raw = bytearray()
        with opener.open(request, timeout=limit_s) as answer:
            while piece := answer.read1(_PIECE_BYTES):
                raw += piece
                if len(raw) > _BYTES_MAX:
                    raise ValueError(f"an answer of more than {_BYTES_MAX} bytes")
                if patience.has_passed:  # the limit is that of each wait for a piece
                    raise TimeoutError(f"{len(raw)} bytes of an answer in all the time there was")
        return json.loads(bytes(raw))

    def _no_subject(self, subject: str) -> NoReturn:
        raise UsageError(
            f"the schema registry {self.registry.url} has no subject {subject!r}",
            hint="is its name right? Registries commonly name it after the topic, such as "
            "`orders-value`",
        )

    def _refused(self, what: str, code: int, told: str) -> UsageError:
        hints = {
            401: "do `user` and `password` of `registry` in the profile belong to it?",
            403: "this user may not do that",
            409: "the schema is not compatible with those that the subject has",
        }
        return UsageError(
            f"the schema registry {self.registry.url} refuses {what}: {code} {told}",
            hint=hints.get(code, "is this a schema registry with the API that Confluent's has?"),
        )

    def _unknown(self, words: str) -> UsageError:
        return UsageError(
            f"the schema registry {self.registry.url} shows a certificate that is not trusted: "
            f"{words}",
            hint="`registry.ca` in the profile names the file of the authority that signed it",
        )


def _told(error: urllib.error.HTTPError) -> str:
    """The registry's own words, if they are any."""
    try:
        return str(json.loads(error.read(4096))["message"])[:500]
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)[:500]


def _avro(found: Any, what: str) -> Registered:
    kind = found.get("schemaType") or "AVRO"
    if kind != "AVRO":
        raise UsageError(
            f"{what} in the schema registry is of type {kind}; expected AVRO",
            hint="name a subject whose schemas are Avro; Protobuf is read by a "
            "descriptor file (docs/pipelines.md)",
        )
    try:
        named = [
            Version(each["subject"], each["version"]) for each in found.get("references") or ()
        ]
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"{what} in the schema registry refers to what has no subject and version",
            hint="is this a schema registry with the API that Confluent's has?",
        ) from error
    return Registered(str(found["schema"]), tuple(named))


def _path(subject: str, version: int | None = None) -> str:
    path = f"/subjects/{quote(subject, safe='')}"
    return path if version is None else f"{path}/versions/{version}"

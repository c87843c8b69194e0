"""Asking the schema registry, once the pipeline is ours: what the ids in the source mean, and which
ids the sinks write."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eos.config import avro
from eos.config.source import columns_once
from eos.deadline import Deadline
from eos.errors import UsageError
from eos.plan.plan import Plan
from eos.read.formats import Format
from eos.read.registered import Writers
from eos.registry.client import Client

if TYPE_CHECKING:
    from eos.config.registry import Registry
    from eos.plan.outputs import Output


START_MS_MAX = 60_000  # for all that a start asks


def with_registry(planned: Plan, registry: Registry | None, *, looks: bool = False) -> Plan:
    """The plan with what the registry says; as it is if it names no subject. With `looks` nothing
    is registered that is not there yet."""
    named = subjects(planned)
    if not named:
        return planned
    client, deadline = _client(registry, named), Deadline.after_ms(START_MS_MAX)
    outputs = planned.outputs
    columns = {
        name: _numbered(each, client, looks, deadline) for name, each in outputs.columns.items()
    }
    return replace(_reading(planned, client, deadline), outputs=replace(outputs, columns=columns))


def with_latest(planned: Plan, registry: Registry | None) -> Plan:
    """For who wants to know the columns, without a run: the plan with what the registry says of the
    source. As it is, and nobody is asked, where the file says it."""
    if not any(each.is_elsewhere for each in (planned.decode.key, planned.decode.value)):
        return planned
    client = _client(registry, subjects(planned))
    return _reading(planned, client, Deadline.after_ms(START_MS_MAX))


def _client(registry: Registry | None, named: list[str]) -> Client:
    if registry is None:
        told = ", ".join(map(repr, named))
        raise UsageError(
            f"the pipeline names subjects of a schema registry ({told}), and the profile has none",
            hint="say `registry: {url: ...}` in the profile",
        )
    return Client(registry)


def _reading(planned: Plan, client: Client, deadline: Deadline) -> Plan:
    decode = planned.decode
    key, value = (_known(each, client, deadline) for each in (decode.key, decode.value))
    try:
        columns_once({"key": key.names, "value": value.names})
    except ValueError as error:
        raise UsageError(f"the source: {error}") from error
    return replace(planned, decode=replace(decode, key=key, value=value))


def subjects(planned: Plan) -> list[str]:
    """All that the plan names, each once."""
    read = [planned.decode.key.subject, planned.decode.value.subject]
    written = [each.subject for each in planned.outputs.columns.values()]
    return [name for name in dict.fromkeys([*read, *written]) if name]


def _known(read: Format, client: Client, deadline: Deadline) -> Format:
    """Where the file has no schema, all records are read by the subject's latest one, also those
    that an older one wrote. It stays that one while the pipeline runs."""
    if not read.subject:
        return read
    found = client.versions(read.subject, deadline)
    known = replace(read, writers=Writers(found, client.schema))
    if not read.is_elsewhere:
        return known
    newest = list(found)[-1]
    try:
        return replace(known, schema=found[newest], columns=avro.field_names(found[newest]))
    except ValueError as error:
        raise UsageError(
            f"the latest schema of {read.subject!r} in the schema registry, id {newest}: {error}",
            hint="`file` beside `subject` names a schema of your own to read by",
        ) from error


def _numbered(each: Output, client: Client, looks: bool, deadline: Deadline) -> Output:
    if not each.subject:
        return each
    if looks and each.registers:
        client.require_there(deadline)
        return each
    number = client.id_of(each.subject, each.texts[0], deadline, registers=each.registers)
    return replace(each, schema_id=number)

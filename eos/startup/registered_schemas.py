"""Request the schemas and schema ids of the source and the sinks from the schema registry.

A run requests them after it has the pipeline's lock, and before it fences.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eos.config import avro
from eos.config.source import columns_once
from eos.deadline import Deadline
from eos.errors import UsageError
from eos.formats.debezium import require_event
from eos.formats.expressions import Format
from eos.formats.registry_client import Kind, RegistryClient
from eos.formats.schema_ids import Writers, schema_id_before
from eos.plan.plan import Plan

if TYPE_CHECKING:
    from eos.config.registry import Registry
    from eos.plan.outputs import Output


START_MS_MAX = 60_000  # limit for all requests of one startup


def with_registry(planned: Plan, registry: Registry | None, *, is_preview: bool = False) -> Plan:
    """Return the plan with the registry's schemas and ids. Sinks with `register` register their
    schemas, unless `is_preview`.

    A plan that names no subject is returned unchanged.
    """
    names = subjects(planned)
    if not names:
        return planned
    client, deadline = _client(registry, names), Deadline.after_ms(START_MS_MAX)
    planned = _writing(_reading(planned, client, deadline), client, deadline)
    columns = {
        name: _with_id(each, client, is_preview, deadline)
        for name, each in planned.outputs.columns.items()
    }
    return replace(planned, outputs=replace(planned.outputs, columns=columns))


def with_latest(planned: Plan, registry: Registry | None) -> Plan:
    """Return the plan with the schemas that no file contains, so that its columns are known without
    a run.

    If files contain all schemas, no request is sent and the plan is returned unchanged.
    """
    is_read = any(each.is_elsewhere for each in (planned.decode.key, planned.decode.value))
    if not is_read and not any(each.is_elsewhere for each in planned.outputs.columns.values()):
        return planned
    client, deadline = _client(registry, subjects(planned)), Deadline.after_ms(START_MS_MAX)
    if is_read:
        planned = _reading(planned, client, deadline)
    return _writing(planned, client, deadline)


def _client(registry: Registry | None, names: list[str]) -> RegistryClient:
    if registry is None:
        subjects = ", ".join(map(repr, names))
        raise UsageError(
            "schema_registry_missing",
            f"the pipeline uses subjects of a schema registry ({subjects}), but the profile has no "
            "registry",
            hint="set `registry: {url: ...}` in the profile",
        )
    return RegistryClient(registry)


def _reading(planned: Plan, client: RegistryClient, deadline: Deadline) -> Plan:
    decode = planned.decode
    key, value = (_with_registered(each, client, deadline) for each in (decode.key, decode.value))
    try:
        columns_once({"key": key.names, "value": value.names})
    except ValueError as error:
        raise UsageError(
            "source_column_duplicate",
            f"the source: {error}",
            hint="rename one of the columns with `as` in the source's `key` or `value`",
        ) from error
    return replace(planned, decode=replace(decode, key=key, value=value))


def subjects(planned: Plan) -> list[str]:
    """Return all subjects that the plan names, without repetitions."""
    read = [planned.decode.key.subject, planned.decode.value.subject]
    written = [each.subject for each in planned.outputs.columns.values()]
    return [name for name in dict.fromkeys([*read, *written]) if name]


def _with_registered(read: Format, client: RegistryClient, deadline: Deadline) -> Format:
    """Return the format with the subject's registered schemas, with which records may have been
    written.

    If the pipeline file has no schema, the subject's latest one is the reader schema of all
    records, also of records with an older schema. A schema that is registered later does not
    replace it during the run.
    """
    if not read.subject:
        return read
    client = _of_kind(client, read.kind)
    found = client.versions(read.subject, deadline)
    known = replace(read, writers=Writers(found, client.schema))
    if not read.is_elsewhere:
        return known
    newest = list(found)[-1]
    try:
        if read.is_event:  # its columns are known without the schema
            require_event(found[newest])
            return replace(known, schema=found[newest])
        return replace(known, schema=found[newest], columns=avro.field_names(found[newest]))
    except ValueError as error:
        raise _unusable(read.subject, newest, error) from error


def _writing(planned: Plan, client: RegistryClient, deadline: Deadline) -> Plan:
    """Return the plan in which each sink without a schema file uses its subject's latest schema and
    id.

    Each subject is requested once, so a key and a value of one subject have the same version.
    Schemas that are registered later are ignored until the run ends.
    """
    found: dict[str, tuple[int, str]] = {}
    columns = dict(planned.outputs.columns)
    for name, each in columns.items():
        if not each.is_elsewhere:
            continue
        if each.subject not in found:
            found[each.subject] = client.latest(each.subject, deadline)
        schema_id, schema = found[each.subject]
        try:
            avro.field_names(schema)
        except ValueError as error:
            raise _unusable(each.subject, schema_id, error) from error
        columns[name] = each.written_by(schema_id, schema)
    return replace(planned, outputs=replace(planned.outputs, columns=columns))


def _unusable(subject: str, schema_id: int, error: ValueError) -> UsageError:
    return UsageError(
        "registry_schema_unsupported",
        f"the latest schema of {subject!r} in the schema registry, id {schema_id}: {error}",
        hint="set `file` next to `subject` to use a schema file of your own",
    )


def _with_id(each: Output, client: RegistryClient, is_preview: bool, deadline: Deadline) -> Output:
    if not each.subject or each.schema_id:
        return each
    if each.kind != "avro":
        return _framed(each, _of_kind(client, each.kind), deadline)
    if is_preview and each.registers:
        client.require_there(deadline)
        return each
    number = client.id_of(each.subject, each.texts[0], deadline, registers=each.registers)
    return each.written_by(number)


def _framed(each: Output, client: RegistryClient, deadline: Deadline) -> Output:
    """Return the output with the id of its subject's latest schema, JSON or Protobuf."""
    schema_id, schema = client.latest(each.subject, deadline)
    if each.message is None:
        return replace(each, schema_id=schema_id, frame=schema_id_before(schema_id))
    from eos.protobuf.frames import frame, path_in

    path = path_in(schema, each.message.name)
    if path is None:
        raise UsageError(
            "registry_message_missing",
            f"{each.place}: the latest schema of {each.subject!r} in the schema registry, id "
            f"{schema_id}, has no message `{each.message.name}`",
            hint="correct `message` or `subject`, or register the .proto file of the message",
        )
    return replace(each, schema_id=schema_id, frame=frame(schema_id, path))


def _of_kind(client: RegistryClient, kind: str) -> RegistryClient:
    """Return the client for the schemas of a format: avro, json or protobuf."""
    kinds: dict[str, Kind] = {"json": "JSON", "protobuf": "PROTOBUF"}
    return replace(client, kind=kinds[kind]) if kind in kinds else client

"""Asking the schema registry, once the pipeline is ours: what the ids in the source mean, and which
ids the sinks write."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

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
    if registry is None:
        told = ", ".join(map(repr, named))
        raise UsageError(
            f"the pipeline names subjects of a schema registry ({told}), and the profile has none",
            hint="say `registry: {url: ...}` in the profile",
        )
    client, deadline = Client(registry), Deadline.after_ms(START_MS_MAX)
    decode, outputs = planned.decode, planned.outputs
    columns = {
        name: _numbered(each, client, looks, deadline) for name, each in outputs.columns.items()
    }
    key, value = (_known(each, client, deadline) for each in (decode.key, decode.value))
    return replace(
        planned,
        decode=replace(decode, key=key, value=value),
        outputs=replace(outputs, columns=columns),
    )


def subjects(planned: Plan) -> list[str]:
    """All that the plan names, each once."""
    read = [planned.decode.key.subject, planned.decode.value.subject]
    written = [each.subject for each in planned.outputs.columns.values()]
    return [name for name in dict.fromkeys([*read, *written]) if name]


def _known(read: Format, client: Client, deadline: Deadline) -> Format:
    if not read.subject:
        return read
    return replace(read, writers=Writers(client.versions(read.subject, deadline), client.schema))


def _numbered(each: Output, client: Client, looks: bool, deadline: Deadline) -> Output:
    if not each.subject:
        return each
    if looks and each.registers:
        client.require_there(deadline)
        return each
    number = client.id_of(each.subject, each.texts[0], deadline, registers=each.registers)
    return replace(each, schema_id=number)

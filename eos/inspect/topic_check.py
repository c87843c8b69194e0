"""Are a pipeline's topics and permissions right, and what would stop its next run?

Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from eos.errors import PRINCIPAL, EosError
from eos.inspect.check import Check, asked, failed, note, ok
from eos.inspect.cluster_check import soon
from eos.inspect.next_start import predict
from eos.inspect.snapshot import look
from eos.kafka.acls import Right
from eos.kafka.client import KafkaClient
from eos.kafka.outcomes import name_of
from eos.plan.plan import BROKERS_CHOICE, Plan
from eos.plan.security import principal
from eos.plural import plural
from eos.startup.topic_lookup import source_topics

_SOURCE = ("READ",)
_TARGET = ("WRITE", "READ", "DESCRIBE_CONFIGS")  # docs/security.md has the reasons
_LEDGER = ("WRITE", "READ", "DESCRIBE_CONFIGS")
_TRANSACTIONAL_ID_REFUSED = 53


def topics(wire: KafkaClient, planned: Plan) -> Iterator[Check]:
    names = planned.names
    yield from asked("source", lambda: _source(wire, planned))
    for topic in planned.sink_topics:
        yield from asked("target", partial(_target, wire, planned, topic))
    wanted: dict[str, tuple[str, ...]] = dict.fromkeys(planned.source_topics, _SOURCE)
    wanted |= dict.fromkeys(planned.sink_topics, _TARGET)
    wanted[names.ledger] = _LEDGER
    who = principal(planned.security) or PRINCIPAL
    yield from asked("rights", lambda: _rights(wire, wanted, who))
    yield from asked("rights", lambda: _transactional_id(wire, planned, who))
    yield from asked("start", lambda: _start(wire, planned))


def _source(wire: KafkaClient, planned: Plan) -> Iterator[Check]:
    own = (planned.names.ledger, *planned.sink_topics)
    found = source_topics(planned.source, wire, soon(), own=own)
    if not found:
        none = f"no topic matches the pattern {planned.source.pattern} yet"
        yield note("source", none, "matching topics are read from their beginning")
    shape = wire.shape(sorted(found), soon())
    for name, info in sorted(found.items()):
        replicas = plural(shape.replicas.get(name, 0), "replica")
        yield ok("source", f"{name}: {plural(info.partitions, 'partition')}, {replicas}")


def _target(wire: KafkaClient, planned: Plan, topic: str) -> Iterator[Check]:
    info = wire.topics([topic], soon())[topic]
    brokers = len(wire.shape((), soon()).brokers)
    new = planned.created_topics.get(topic)
    if info.is_missing and new is None:
        remedy = "create it, or set `create: {partitions: N}` in the sink"
        yield failed("target", f"{topic} does not exist", remedy)
    elif info.is_missing and new is not None:
        if new.replication != BROKERS_CHOICE and new.replication > brokers:
            reason = f"{topic} needs {new.replication} replicas, but there are {brokers} brokers"
            remedy = f"set `create: {{replication: {brokers}}}` in the sink, or add brokers"
            yield failed("target", reason, remedy)
        else:
            partitions = plural(new.partitions, "partition")
            yield ok("target", f"{topic}: the first run creates it, {partitions}")
    elif info.error:
        reason = f"{topic} can't be described: {name_of(info.error)}"
        yield failed("target", reason, "grant this user DESCRIBE on the topic: docs/security.md")
    else:
        yield from _durability(wire, topic, info.partitions, brokers)


def _durability(wire: KafkaClient, topic: str, partitions: int, brokers: int) -> Iterator[Check]:
    """Check how many brokers may fail before records are lost or can't be written."""
    shape = wire.shape([topic], soon())
    replicas, in_sync = shape.replicas[topic], shape.in_sync[topic]
    least = int(wire.topic_config(topic, "min.insync.replicas", soon()))
    state = (
        f"{topic}: {plural(partitions, 'partition')}, {plural(replicas, 'replica')}, "
        f"{in_sync} in sync, "
        f"min.insync.replicas={least}"
    )
    alter = f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config"
    if least > replicas:
        remedy = f"{alter} min.insync.replicas={replicas}, or more replicas"
        yield failed("target", f"{state}: nothing can be written", remedy)
    elif least > in_sync:
        yield failed("target", f"{state}: nothing can be written now", "start the missing brokers")
    elif brokers >= 3 and least < 2:
        remedy = f"use three replicas, and {alter} min.insync.replicas=2"
        yield note("target", f"{state}: one broker's failure may lose records", remedy)
    elif replicas > 1 and least == replicas:
        yield note("target", f"{state}: with one broker down nothing can be written")
    else:
        yield ok("target", state)
    if wire.topic_config(topic, "unclean.leader.election.enable", soon()) == "true":
        yield failed(
            "target",
            f"{topic}: unclean.leader.election.enable=true: committed records may be lost",
            f"{alter} unclean.leader.election.enable=false",
        )


def _rights(wire: KafkaClient, wanted: Mapping[str, tuple[str, ...]], who: str) -> Iterator[Check]:
    """Check permissions on topics, as brokers report them for topics that this user can see."""
    found = wire.operations(sorted(wanted), soon())
    lacking = [
        Right(operation, "Topic", topic)
        for topic, operations in found.items()
        for operation in wanted[topic]
        if operation not in operations
    ]
    for right in lacking:
        missing = f"{right.operation} on topic {right.name} is missing"
        yield failed("rights", missing, right.grant.replace(PRINCIPAL, who))
    if found and not lacking:
        yield ok("rights", f"all that are needed on {', '.join(found)}")


def _transactional_id(wire: KafkaClient, planned: Plan, who: str) -> Iterator[Check]:
    """Check that the transactional id may be described.

    Whether WRITE is granted, too, shows only at the fence.
    """
    name = planned.names.transactional_id
    try:
        wire.transaction_state(name, soon())
    except EosError as error:
        if error.fields.get("error") == _TRANSACTIONAL_ID_REFUSED:
            right = Right("WRITE", "TransactionalId", name)
            missing = f"WRITE on transactional id {name} is missing"
            yield failed("rights", missing, right.grant.replace(PRINCIPAL, who))


def _start(wire: KafkaClient, planned: Plan) -> Iterator[Check]:
    """Check what would stop the startup, by the startup's own functions."""
    found = predict(look(planned, wire))
    for error in found.errors:
        yield _stop(planned, error)
    if not found.errors:
        does = "resumes" if found.view.last is not None else "begins"
        yield ok("start", f"{does}; `eos recover {planned.names.pipeline}` shows where")
    for warning in found.warnings:
        yield note("start", warning)


def _stop(planned: Plan, error: EosError) -> Check:
    """Return the error as a finding; without a hint, the remedy is `eos recover`."""
    return failed("start", error.message, error.hint or f"eos recover {planned.names.pipeline}")

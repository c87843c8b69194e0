"""How does `eos doctor` check a pipeline's topics, its rights, and its next startup?

These checks change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from eos.errors import PRINCIPAL, EosError
from eos.inspect.check import Check, checked, failed, note, ok
from eos.inspect.cluster_check import short_deadline
from eos.inspect.next_start import predict_settled
from eos.inspect.snapshot import take_snapshot
from eos.kafka.acls import Right
from eos.kafka.client import KafkaClient
from eos.kafka.outcomes import name_of
from eos.plan.plan import BROKERS_CHOICE, Plan
from eos.plan.security import principal
from eos.plural import plural
from eos.startup.source_state import source_client
from eos.startup.topic_lookup import source_topics

_SOURCE: tuple[str, ...] = ("READ",)
_WRITTEN: tuple[str, ...] = ("WRITE", "READ", "DESCRIBE_CONFIGS")  # docs/security.md says why
_TRANSACTIONAL_ID_REFUSED = 53


def topics(client: KafkaClient, planned: Plan) -> Iterator[Check]:
    names = planned.names
    yield from checked("source", lambda: _source(client, planned))
    for topic in planned.sink_topics:
        yield from checked("target", partial(_target, client, planned, topic))
    read = dict.fromkeys(planned.source_topics, _SOURCE)
    required = dict.fromkeys((*planned.sink_topics, names.ledger), _WRITTEN)
    principal_name = principal(planned.security) or PRINCIPAL
    if planned.source_cluster is None:
        required = {**read, **required}
    else:
        source = source_client(planned, client)
        reader = principal(planned.source_connection.security) or PRINCIPAL
        yield from checked("rights", lambda: _rights(source, read, reader))
    yield from checked("rights", lambda: _rights(client, required, principal_name))
    yield from checked("rights", lambda: _transactional_id(client, planned, principal_name))
    yield from checked("start", lambda: _start(client, planned))


def _source(client: KafkaClient, planned: Plan) -> Iterator[Check]:
    client = source_client(planned, client)
    own = planned.topics_written_beside_source
    found = source_topics(planned.source, client, short_deadline(), own=own)
    if not found:
        none = f"no topic matches the pattern {planned.source.pattern} yet"
        yield note("source", none, "matching topics are read from their beginning")
    shape = client.shape(sorted(found), short_deadline())
    for name, info in sorted(found.items()):
        replicas = plural(shape.replicas.get(name, 0), "replica")
        yield ok("source", f"{name}: {plural(info.partitions, 'partition')}, {replicas}")


def _target(client: KafkaClient, planned: Plan, topic: str) -> Iterator[Check]:
    info = client.topics([topic], short_deadline())[topic]
    brokers = len(client.shape((), short_deadline()).brokers)
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
        yield from _durability(client, topic, info.partitions, brokers)


def _durability(client: KafkaClient, topic: str, partitions: int, brokers: int) -> Iterator[Check]:
    """Check a target topic's replicas: may a broker's failure lose records or stop writes?"""
    shape = client.shape([topic], short_deadline())
    replicas, in_sync = shape.replicas[topic], shape.in_sync[topic]
    least = int(client.topic_config(topic, "min.insync.replicas", short_deadline()))
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
    if client.topic_config(topic, "unclean.leader.election.enable", short_deadline()) == "true":
        yield failed(
            "target",
            f"{topic}: unclean.leader.election.enable=true: committed records may be lost",
            f"{alter} unclean.leader.election.enable=false",
        )


def _rights(
    client: KafkaClient, required: Mapping[str, tuple[str, ...]], principal_name: str
) -> Iterator[Check]:
    """Check that this user has all required rights on the topics that exist and are visible."""
    found = client.operations(sorted(required), short_deadline())
    lacking = [
        Right(operation, "Topic", topic)
        for topic, operations in found.items()
        for operation in required[topic]
        if operation not in operations
    ]
    for right in lacking:
        missing = f"{right.operation} on topic {right.name} is missing"
        yield failed("rights", missing, right.grant.replace(PRINCIPAL, principal_name))
    if found and not lacking:
        yield ok("rights", f"all that are needed on {', '.join(found)}")


def _transactional_id(client: KafkaClient, planned: Plan, principal_name: str) -> Iterator[Check]:
    """Check the right on the pipeline's transactional id, by describing it.

    The broker allows this with DESCRIBE. Only the fence of a run shows whether WRITE is granted.
    """
    name = planned.names.transactional_id
    try:
        client.transaction_state(name, short_deadline())
    except EosError as error:
        if error.fields.get("error") == _TRANSACTIONAL_ID_REFUSED:
            right = Right("WRITE", "TransactionalId", name)
            missing = f"WRITE on transactional id {name} is missing"
            yield failed("rights", missing, right.grant.replace(PRINCIPAL, principal_name))


def _start(client: KafkaClient, planned: Plan) -> Iterator[Check]:
    """Report what would stop the next startup, from a prediction with its own checks."""
    found = predict_settled(lambda: take_snapshot(planned, client))
    for error in found.errors:
        yield _stop(planned, error)
    if not found.errors:
        action = "resumes" if found.view.last is not None else "begins"
        yield ok("start", f"{action}; `eos recover {planned.names.pipeline}` shows where")
    for warning in found.warnings:
        yield note("start", warning)


def _stop(planned: Plan, error: EosError) -> Check:
    """Return the error as a failed check. If the error has no hint, suggest `eos recover`."""
    return failed("start", error.message, error.hint or f"eos recover {planned.names.pipeline}")

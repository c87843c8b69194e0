"""Which profile a cluster gets: by its transaction version, and by what all of its brokers do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from support.copies.pipeline_copy import Copy
from support.copies.scenes import Scenes, run_to_end
from support.doubles import At
from support.errors import raises
from support.waiting import wait_until

from eos.deadline import Deadline
from eos.errors import UnsupportedBrokerError
from eos.kafka.api import TransactionProfile
from eos.kafka.client import KafkaClient
from eos.local.embedded_kafka import EmbeddedKafka
from eos.observe import events

VERIFICATION = "transaction.partition.verification.enable"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
AGREES = Callable[[], TransactionProfile]


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A cluster that was not told that all its brokers are new, and that these tests may change."""
    root, features = tmp_path_factory.mktemp("profile"), {"transaction.version": 1}
    with EmbeddedKafka(root, config=AUTHORIZER, features=features) as kafka:
        yield kafka


@pytest.fixture
def admin(own_broker: EmbeddedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": own_broker.bootstrap})


@pytest.fixture
def agrees(clients: Callable[..., KafkaClient], own_broker: EmbeddedKafka) -> AGREES:
    """Every start's first question."""
    return lambda: clients(None, own_broker.bootstrap).agree_on_profile(Deadline.after_ms(120_000))


def refusal(agrees: AGREES) -> UnsupportedBrokerError | None:
    try:
        agrees()
    except UnsupportedBrokerError as error:
        return error
    return None


def refuses(agrees: AGREES, words: str) -> Callable[[], bool]:
    """What was changed before may be in force for a moment: refused, but for another reason."""

    def is_told() -> bool:
        error = refusal(agrees)
        return error is not None and words in error.message

    return is_told


def set_config(admin: AdminClient, value: str) -> None:
    entry = ConfigEntry(VERIFICATION, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(180)


@pytest.fixture
def off(admin: AdminClient, agrees: AGREES) -> Iterator[None]:
    set_config(admin, "false")
    yield
    set_config(admin, "true")
    wait_until(lambda: refusal(agrees) is None, "still refused")


def acl(operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(
        ResourceType.BROKER,  # librdkafka's word for Cluster
        "kafka-cluster",
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        operation,
        permission,
    )


@pytest.fixture
def unreadable(admin: AdminClient, agrees: AGREES) -> Iterator[None]:
    rules = [
        acl(AclOperation.ALL, AclPermissionType.ALLOW),
        acl(AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY),
    ]
    for rule in rules:
        admin.create_acls([rule])[rule].result(180)
    yield
    every = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin.delete_acls([every])[every].result(180)
    wait_until(lambda: refusal(agrees) is None, "still refused")


@pytest.mark.long
def test_brokers_that_verify_get_tv1(agrees: AGREES) -> None:
    wait_until(lambda: refusal(agrees) is None, "still refused")
    assert agrees() is TransactionProfile.TV1


@pytest.mark.long
@pytest.mark.usefixtures("off")
def test_a_broker_that_does_not_verify_is_refused_with_the_way_out(agrees: AGREES) -> None:
    wait_until(refuses(agrees, f"{VERIFICATION} is false on broker 1"), "not refused")
    error = refusal(agrees)
    assert error is not None
    assert f"--add-config {VERIFICATION}=true" in error.hint
    assert "--feature transaction.version=2" in error.hint


@pytest.mark.usefixtures("unreadable")
def test_a_setting_that_may_not_be_read_is_not_taken_for_granted(agrees: AGREES) -> None:
    told = "Kafka answered CLUSTER_AUTHORIZATION_FAILED (31) to DescribeConfigs for broker 1"
    wait_until(refuses(agrees, told), "not refused")
    error = refusal(agrees)
    assert error is not None
    assert "DESCRIBE_CONFIGS on Cluster" in error.hint


def test_a_cluster_that_was_lowered_meanwhile_costs_another_start(
    clients: Callable[..., KafkaClient], own_broker: EmbeddedKafka
) -> None:
    before = clients(TransactionProfile.TV2, own_broker.bootstrap)
    with raises("transaction_version_lowered"):
        before.agree_on_profile(Deadline.after_ms(120_000))


@pytest.fixture
def sets_version(own_broker: EmbeddedKafka) -> Callable[[str, int], None]:
    def change(way: str, version: int) -> None:
        command = ("--bootstrap-server", own_broker.bootstrap, way)
        feature = ("--feature", f"transaction.version={version}")
        done = own_broker.tool("org.apache.kafka.tools.FeatureCommand", *command, *feature)
        assert done.returncode == 0, done.stdout + done.stderr

    return change


@pytest.mark.long
def test_a_run_keeps_its_profile_when_the_cluster_changes_and_the_next_one_has_the_new(
    own_broker: EmbeddedKafka,
    tmp_path: Path,
    agrees: AGREES,
    sets_version: Callable[[str, int], None],
) -> None:
    """Changed in the middle of a transaction, once up and once down."""

    def finds(profile: TransactionProfile) -> None:
        wait_until(lambda: agrees() is profile, "the change was not heard of")

    scene = Scenes(own_broker, tmp_path, "profile").new(
        20, profile="TV1", transaction_timeout_ms=600_000
    )
    for way, version, now in (("upgrade", 2, "TV2"), ("downgrade", 1, "TV1")):
        before = scene.job.profile
        changed = At("offsets:before", partial(sets_version, way, version))
        with Copy(scene.job, changed) as copy:
            copy.start()
            copy.drain()
            scene.feed(20)
            copy.drain()
            copy.stop()
            assert copy.client.profile is TransactionProfile[before]
        assert changed.times
        assert copy.told.of(events.AttemptFailed) == []
        scene.check()
        finds(TransactionProfile[now])
        scene = replace(scene, job=replace(scene.job, profile=now), fed=scene.fed)
        scene.feed(20)
    with Copy(scene.job) as last:
        assert run_to_end(last) is None
    scene.check()

"""How does `eos doctor` check that the cluster has the features and settings of a pipeline?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from eos.deadline import Deadline
from eos.errors import EosError
from eos.inspect.check import Check, checked, failed, note, ok
from eos.kafka.client import KafkaClient
from eos.plan.plan import Plan

_TIMEOUT_MS = 20_000


def short_deadline() -> Deadline:
    return Deadline.after_ms(_TIMEOUT_MS)


def cluster(client: KafkaClient, planned: Plan | None) -> Iterator[Check]:
    """Yield the checks of the cluster. If the first one fails, skip the rest.

    `planned` is the pipeline whose transaction timeout is checked; None without a pipeline."""
    first = list(checked("features", lambda: _features(client)))
    yield from first
    if any(each.level == "finding" for each in first):
        return
    yield from checked("brokers", lambda: _brokers(client))
    yield from checked("settings", lambda: _settings(client, planned))


def _features(client: KafkaClient) -> Check:
    profile = client.agree_on_profile(short_deadline())
    version = client.transaction_version(short_deadline())
    result = f"transaction.version {version}: the protocol is {profile.name}"
    if version < 2:
        remedy = "once all brokers are 4.0 or later: kafka-features.sh upgrade"
        return note("features", f"{result}, which verifies partitions", remedy)
    return ok("features", result)


def _brokers(client: KafkaClient) -> Check:
    brokers = client.shape((), short_deadline()).brokers
    if len(brokers) < 3:
        risk = f"{len(brokers)}: if one broker fails, records may be lost or can't be written"
        return note("brokers", risk, "run three brokers if records must not be lost")
    return ok("brokers", f"{len(brokers)}")


def _settings(client: KafkaClient, planned: Plan | None) -> Iterator[Check]:
    def setting(name: str) -> str:
        return client.broker_config(name, short_deadline())

    try:
        longest = int(setting("transaction.max.timeout.ms"))
    except EosError as error:
        reason = f"the brokers' settings can't be read: {error.message}"
        yield note("timeouts", reason, error.hint)
        return
    yield _timeout(longest, planned)
    if setting("unclean.leader.election.enable") == "true":
        yield failed(
            "elections",
            "unclean.leader.election.enable=true: acknowledged records may be lost",
            "kafka-configs.sh --alter --entity-type brokers --entity-default --add-config "
            "unclean.leader.election.enable=false",
        )
    brokers = len(client.shape((), short_deadline()).brokers)
    for topic, name in (
        ("__transaction_state", "transaction.state.log.replication.factor"),
        ("__consumer_offsets", "offsets.topic.replication.factor"),
    ):
        with suppress(EosError):  # some brokers lack this setting
            yield _internal(client, topic, int(setting(name)), brokers)


def _timeout(longest: int, planned: Plan | None) -> Check:
    limit = f"transaction.max.timeout.ms is {longest:,}"
    if planned is None:
        return ok("timeouts", limit)
    required = planned.transaction_timeout_ms
    if required > longest:
        return failed(
            "timeouts",
            f"the pipeline's transaction timeout is {required:,} ms, but {limit}",
            f"set `transaction: {{timeout: {longest // 1000} seconds}}` in the pipeline file, or "
            "raise the brokers' setting",
        )
    return ok("timeouts", f"{required:,} ms for a transaction; {limit}")


def _internal(client: KafkaClient, topic: str, configured: int, brokers: int) -> Check:
    """Check how many replicas an internal topic has; if it is missing, check the setting."""
    replicas = client.shape([topic], short_deadline()).replicas.get(topic, configured)
    if brokers >= 3 > replicas:
        risk = f"{topic} has {replicas} of {brokers} possible replicas: one broker's loss loses it"
        return failed("replicas", risk, "give it three with kafka-reassign-partitions.sh")
    return ok("replicas", f"{topic}: {replicas}")

"""A right that is missing is named: who, what, on what, and the command that grants it."""

from __future__ import annotations

import pytest

from eos.config.security import Security
from eos.errors import AttemptFailedError, KafkaRefusedError, with_principal
from eos.kafka.acls import missing
from eos.kafka.api import Api
from eos.kafka.outcomes import describe
from eos.kafka.refusals import refused
from eos.micro_batch.java_client_errors import source_refusal
from eos.plan.security import naming_principal
from eos.spark.failure import Failure, Link
from eos.startup.topic_lookup import _missing_error


@pytest.mark.parametrize(
    ("error", "lacks", "grant"),
    [
        (
            describe(Api.PRODUCE, 29, where="orders.out-3"),
            "WRITE on Topic 'orders.out'",
            "--operation Write --topic orders.out",
        ),
        (
            describe(Api.TXN_OFFSET_COMMIT, 29, where="a-b-0"),
            "READ on Topic 'a-b'",
            "--operation Read --topic a-b",
        ),
        (
            describe(Api.TXN_OFFSET_COMMIT, 30, where="a-0", resource="eos.p"),
            "READ on Group 'eos.p'",
            "--operation Read --group eos.p",
        ),
        (
            describe(Api.INIT_PRODUCER_ID, 53, where="eos.p", resource="eos.p"),
            "WRITE on TransactionalId 'eos.p'",
            "--operation Write --transactional-id eos.p",
        ),
        (
            refused("DescribeConfigs", 31, "broker 1"),
            "DESCRIBE_CONFIGS on Cluster",
            "--operation DescribeConfigs --cluster",
        ),
        (
            refused("DescribeConfigs", 29, "topic a-1"),
            "DESCRIBE_CONFIGS on Topic 'a-1'",
            "--operation DescribeConfigs --topic a-1",
        ),
        (
            refused("DescribeProducers", 29, "a-1-0"),
            "READ on Topic 'a-1'",
            "--operation Read --topic a-1",
        ),
        (
            refused("Fetch", 29, "a-1 from offset 7"),
            "READ on Topic 'a'",
            "--operation Read --topic a",
        ),
        (
            refused("OffsetCommit", 29, "group g"),
            "READ on Topic",
            "--operation Read --topic NAME",
        ),
        (
            refused("FindCoordinator", 30, "group g h"),
            "READ on Group 'g h'",
            "--operation Read --group g h",
        ),
        (
            refused("FindCoordinator", 53, "eos.p"),
            "WRITE on TransactionalId 'eos.p'",
            "--operation Write --transactional-id eos.p",
        ),
        (
            _missing_error(KafkaRefusedError, "source", "a", 29),
            "READ on Topic 'a'",
            "--operation Read --topic a",
        ),
    ],
)
def test_a_refusal_names_the_right_and_the_command(error, lacks, grant):
    told = with_principal("User:eos", error)
    assert f"User:eos lacks {lacks}." in told.message
    assert f"--add --allow-principal User:eos {grant}" in told.hint
    assert type(told) is type(error)
    assert told.fields == error.fields


def test_a_brokers_own_words_end_once():
    class Result:
        error_message = "Authorization failed."

    assert "failed. The principal lacks" in refused("CreateTopics", 29, "topic a", Result()).message
    told = describe(Api.PRODUCE, 29, "Authorization failed.", where="a-0").message
    assert "failed. The principal lacks" in told


def test_what_is_no_refusal_names_no_right():
    assert missing("Produce", 3) is None
    error = refused("ListOffsets", 42, "a-0")
    assert "lacks" not in error.message
    assert with_principal("User:eos", error) is error


def test_who_it_is_stands_in_the_settings_or_in_the_certificate():
    error = describe(Api.PRODUCE, 29, where="a-0")
    with (
        pytest.raises(KafkaRefusedError, match="User:ANONYMOUS lacks WRITE"),
        naming_principal(None),
    ):
        raise error
    mutual = Security(protocol="SSL", certificate="/a/b.pem")
    with (
        pytest.raises(KafkaRefusedError, match="The principal lacks") as caught,
        naming_principal(mutual),
    ):
        raise error
    assert "openssl x509 -noout -subject -nameopt RFC2253 -in /a/b.pem" in caught.value.hint
    other = AttemptFailedError("example", "anything else")
    with pytest.raises(AttemptFailedError) as same, naming_principal(mutual):
        raise other
    assert same.value is other


def chain(*words: str) -> Failure:
    """Exceptions, outermost first, each as its class and its message."""
    links = []
    for each in "|".join(words).split("|"):
        kind, _, message = each.partition(": ")
        is_kafkas = kind.startswith(("errors.", "config."))
        links.append(Link(f"org.apache.kafka.common.{kind}" if is_kafkas else kind, message))
    return Failure("Job aborted", tuple(links))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "errors.TopicAuthorizationException: Not authorized to access topics: [orders]",
            "The principal lacks READ on Topic 'orders'.",
        ),
        (
            "errors.GroupAuthorizationException: Not authorized to access group: g",
            "The principal lacks READ on Group.",
        ),
        ("errors.SaslAuthenticationException: Authentication failed", "rejected the login"),
        ("errors.SslAuthenticationException: SSL handshake failed", "rejected the login"),
        ("config.ConfigException: no such file", "can't use kafka.security: no such file"),
        (
            "errors.InvalidConfigurationException: bad|java.io.IOException: so",
            "can't use kafka.security: bad (java.io.IOException: so)",
        ),
    ],
)
def test_what_sparks_source_was_refused_is_found_in_its_words(words, told):
    error = source_refusal(chain("org.apache.spark.SparkException: Job aborted.", words))
    assert isinstance(error, KafkaRefusedError)
    assert told in error.message
    assert error.hint


def test_what_passes_is_no_refusal_of_the_source():
    assert source_refusal(chain("errors.TimeoutException: 60000ms passed")) is None
    assert source_refusal(chain("java.io.IOException: disk")) is None
    words = "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized: [a]"
    assert source_refusal(chain(f"java.io.IOException: {words}")) is None

"""Which topics a source has: by name, or by a pattern that a topic's whole name matches."""

from __future__ import annotations

import re
from dataclasses import replace

from support import doubles
from support.errors import raises

from eos.config.source import KafkaSource
from eos.errors import UsageError
from eos.plan.plan import NewTopic
from eos.startup import topic_lookup
from eos.startup.resume_position import with_targets
from eos.startup.topic_lookup import existing_topics, source_topics


def by_pattern(pattern: str) -> KafkaSource:
    return KafkaSource(pattern=pattern)


def test_a_source_has_the_topics_that_it_names(client, topic, within):
    found = source_topics(KafkaSource(topics=(topic,)), client, within(), own=[f"{topic}.out"])
    assert {name: info.partitions for name, info in found.items()} == {topic: 3}


def test_a_named_topic_that_is_not_there_stops(client, topic, within, monkeypatch):
    monkeypatch.setattr(topic_lookup, "_PASSES_WITHIN_MS", 100)
    with raises("source_topic_missing", UsageError) as caught:
        source_topics(KafkaSource(topic=f"{topic}-no"), client, within())
    assert caught.value.fields["topic"] == f"{topic}-no"


def test_a_first_start_without_its_source_topic_creates_none(client, topic, within, monkeypatch):
    monkeypatch.setattr(topic_lookup, "_PASSES_WITHIN_MS", 100)
    out, ledger = f"{topic}.out", f"eos.ledger.{topic}"
    names = replace(doubles.plan().names, ledger=ledger)
    planned = doubles.plan_of(names, ("none:1",), f"{topic}-no", "here")
    planned = replace(planned, created_topics={out: NewTopic(1, 1, {})})
    with raises("source_topic_missing", UsageError):
        with_targets(planned, client, 1, within())
    assert client.topics([out], within())[out].error

    client.create_topic(ledger, 1, 1, {}, within())  # from now on the ledger says what is gone
    with_targets(planned, client, 1, within())
    assert client.topics([out], within())[out].partitions == 1


def test_a_pattern_has_what_it_matches_in_full_now(client, topic, within):
    for name in (f"{topic}.a", f"{topic}.b", f"x{topic}.a", f"{topic}.a.x"):
        client.create_topic(name, 2, 1, {}, within())
    source = by_pattern(rf"{topic}\.[a-c]|never")
    found = source_topics(source, client, within(), own=[f"{topic}.d"])
    assert found.keys() == {f"{topic}.a", f"{topic}.b"}
    assert all(info.partitions == 2 and len(info.topic_id) == 22 for info in found.values())

    client.create_topic(f"{topic}.c", 1, 1, {}, within())
    assert source_topics(source, client, within()).keys() == {*found, f"{topic}.c"}


def test_a_pattern_that_matches_nothing_stops(client, topic, within, monkeypatch):
    monkeypatch.setattr(topic_lookup, "_PASSES_WITHIN_MS", 100)
    client.committed_offsets(topic, within())  # makes sure that __consumer_offsets is there
    for pattern in (topic[:-1], "__consumer_offset.*"):
        with raises("source_pattern_no_match", UsageError) as caught:
            source_topics(by_pattern(pattern), client, within())
        assert f"`{pattern}`" in caught.value.message


def test_a_pattern_that_matches_what_the_pipeline_writes_stops(client, topic, within):
    own = [f"{topic}.out", f"eos.ledger.{topic}"]
    for pattern, name in ((f"{topic}.*", own[0]), (f"(eos.ledger.)?{topic}", own[1])):
        with raises("source_pattern_matches_own_topic", UsageError) as caught:
            source_topics(by_pattern(pattern), client, within(), own=own)
        assert caught.value.fields["topic"] == name
    narrow = by_pattern(f"(?!{re.escape(own[0])}$){topic}.*")
    assert source_topics(narrow, client, within(), own=own).keys() == {topic}


def test_nothing_wanted_is_nothing_and_waits_for_nothing(client, within, monkeypatch):
    monkeypatch.setattr(topic_lookup, "Backoff", None)  # whoever wants to wait fails
    assert (
        existing_topics(client, [], within(), what="x", code="none", missing=UsageError, hint="")
        == {}
    )

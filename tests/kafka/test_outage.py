"""A broker that stops answering, and answers again: what a run reports of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.copies.scenes import ProxiedKafka
from support.doubles import EventLog
from support.errors import in_turn
from support.kafka.proxy_rules import ANY, Do
from support.waiting import wait_until

from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from eos.observe import events
from eos.run import broker_outage as module
from eos.run.broker_outage import BrokerWatch

CLIENT = "watched"
ALWAYS = 1_000_000


@pytest.fixture
def watched(proxied: ProxiedKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventLog]:
    monkeypatch.setattr(module, "_TICK_S", 0.05)
    monkeypatch.setattr(module, "_QUIET_S", 0.2)
    monkeypatch.setattr(module, "_SILENT_S", 0.5)
    told, client = EventLog(), KafkaClient(KafkaSettings((proxied.bootstrap,), client_id=CLIENT))
    watch = BrokerWatch(client, told.emit)
    watch.start()
    yield told
    watch.stop()
    client.close()


@pytest.mark.parametrize(
    "do", in_turn([Do.DROP_REQUEST, Do.CLOSE_BEFORE, Do.DROP_ANSWER], 1, every=3)
)
def test_a_broker_that_answers_nothing_is_reported_and_so_is_its_return(
    proxied: ProxiedKafka, watched: EventLog, do: Do
) -> None:
    rule = proxied.proxy.rule(ANY, do, client=CLIENT, times=ALWAYS)
    wait_until(lambda: watched.of(events.BrokersSilent))
    assert rule.struck
    proxied.proxy.clear_rules()
    wait_until(lambda: watched.of(events.BrokersAnswer))
    silent, back = watched.of(events.BrokersSilent)[-1], watched.of(events.BrokersAnswer)[-1]
    assert f"no broker of {proxied.bootstrap} answers" in silent.reason
    assert back.silent_s >= silent.silent_s >= module._SILENT_S

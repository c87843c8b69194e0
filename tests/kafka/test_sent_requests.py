"""The requests of a run, as they pass a proxy: versions, acknowledgements and identities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.copies.pipeline_copy import Job
from support.copies.scenes import ProxiedKafka, run_copy
from support.kafka import kafka_frames
from support.kafka.proxy_rules import Seen

VERSIONS = {
    "TV1": {
        "InitProducerId": 4,
        "Produce": 9,
        "TxnOffsetCommit": 3,
        "EndTxn": 3,
        "AddPartitionsToTxn": 3,
        "AddOffsetsToTxn": 3,
    },
    "TV2": {"InitProducerId": 5, "Produce": 12, "TxnOffsetCommit": 5, "EndTxn": 5},
}


def decoded(seen: Seen) -> Any:
    return kafka_frames.request(seen.frame, seen.key, seen.version)


@pytest.mark.parametrize("profile", VERSIONS)
def test_each_request_has_its_pinned_version_and_each_attempt_its_own_epoch(
    proxied: ProxiedKafka, job: Callable[..., Job], profile: str
) -> None:
    asked = job(records=10, profile=profile)
    assert run_copy(asked).error is None
    proxied.check(asked)
    mine = [one for one in proxied.proxy.seen if one.client.startswith(asked.name)]
    versions = VERSIONS[profile]
    for api in {"AddPartitionsToTxn", "AddOffsetsToTxn", *versions}:
        sent = {one.version for one in mine if one.api == api}
        assert sent == ({versions[api]} if api in versions else set()), api

    produced = [decoded(one) for one in mine if one.api == "Produce"]
    assert {one.acks for one in produced} == {-1}
    assert {one.transactional_id for one in produced} == {asked.name}

    inits = [decoded(one) for one in mine if one.api == "InitProducerId"]
    blank = [one.producer_id == -1 for one in inits]
    assert blank.count(True) == 1, "only the startup takes over from any owner"
    assert blank[0]

    ends = [decoded(one) for one in mine if one.api == "EndTxn"]
    epochs = [(one.producer_id, one.producer_epoch) for one in ends]
    assert all(one.committed for one in ends)
    assert len(set(epochs)) == len(epochs) >= 5  # start, three micro-batches, stop

"""Names in Kafka and on disk, and other pipelines that would have the same."""

from __future__ import annotations

import pytest

from eos.plan.names import Names


def test_names_of_existing_pipelines_stay_as_they_are():
    for prefix, pipeline in (("eos", "team.orders"), ("eos.team", "orders")):
        names = Names.of(prefix, pipeline, "/srv/eos")
        assert names.transactional_id == names.group == "eos.team.orders"
        assert names.ledger == f"{prefix}.ledger.{pipeline}"
        assert names.checkpoints == "/srv/eos/checkpoints/eos.team.orders"
        assert names.lock == "/srv/eos/locks/eos.team.orders"


@pytest.mark.parametrize(
    ("prefix", "pipeline", "others"),
    [
        ("eos", "orders", []),
        ("eos", "team.orders", [("eos.team", "orders")]),
        ("eos.team", "orders", [("eos", "team.orders")]),
        ("a.b", "c.d", [("a", "b.c.d"), ("a.b.c", "d")]),
        ("EU.West", "orders", []),  # no name begins with a capital
        ("eos.1", "orders", []),
        ("eos", "team..orders", [("eos.team.", "orders")]),
        ("x" * 60, "team.orders", []),  # no prefix is as long as the other one
    ],
)
def test_namesakes_are_what_else_the_same_text_may_mean(prefix, pipeline, others):
    assert [*map(tuple, Names.of(prefix, pipeline, "/s").namesakes)] == others
    for other in others:
        theirs = Names.of(*other, "/s")
        assert theirs.transactional_id == f"{prefix}.{pipeline}"
        assert (prefix, pipeline) in theirs.namesakes

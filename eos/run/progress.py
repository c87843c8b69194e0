"""Compute a running query's lag: how many source offsets it has not read yet.

The figure is for display only. Spark reports it late, so no decision depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from eos.kafka.api import TopicPartition
from eos.ledger.record import Ends


def source_ends(progress: Mapping[str, Any] | None) -> Ends:
    """Return the newest source offsets that Spark asked Kafka for; empty if it did not ask."""
    return {
        TopicPartition(topic, int(partition)): int(end)
        for source in (progress or {}).get("sources", ())
        for topic, ends in (_read(source.get("latestOffset")) or {}).items()
        for partition, end in ends.items()
    }


def lag_of(progress: Mapping[str, Any] | None) -> int | None:
    """Return how many source offsets remained unread after the last micro-batch.

    Offsets of transaction markers count, too. Return None if Spark did not ask Kafka for the newest
    offsets, as for a micro-batch that is run again after a restart.
    """
    known = [
        each for each in (progress or {}).get("sources", ()) if _read(each.get("latestOffset"))
    ]
    if not known:
        return None
    lags = (
        int(end) - _offset(source.get("endOffset"), topic, partition)
        for source in known
        for topic, ends in _read(source["latestOffset"]).items()
        for partition, end in ends.items()
    )
    return sum(lags)


def _offset(ends: Any, topic: str, partition: str) -> int:
    return int((_read(ends) or {}).get(topic, {}).get(partition, 0))


def _read(offsets: Any) -> Any:
    """Return the offsets as a value. PySpark passes them either as JSON text or parsed, and 4.0
    passes missing ones as the text "None"."""
    if offsets == "None":
        return None
    return json.loads(offsets) if isinstance(offsets, str) else offsets

"""The events of a run, as the driver emits them: one of each that has a metric."""

from __future__ import annotations

from typing import Any

from eos.observe import events


def committed(batch_id: int = 1, **more: Any) -> events.MicroBatchCommitted:
    values = {
        "offsets_in": 12,
        "records_in": 10,
        "records_out": 9,
        "bytes_out": 900,
        "run_ms": 200.0,
        "ledger_ms": 3.0,
        "offsets_ms": 5.0,
        "end_ms": 20.0,
        "ledger_end": 7,
        "offsets_in_by_topic": {"in": 12},
        "records_out_by_topic": {"out": 8, "large": 1},
        "bytes_out_by_topic": {"out": 800, "large": 100},
        "records_in_by_topic": {"in": 10},
        "bytes_in_by_topic": {"in": 1_000},
    }
    return events.MicroBatchCommitted(batch_id, 1, **{**values, **more})


STORY: tuple[events.Event, ...] = (
    events.PipelineStarted(
        "orders", "/c", "arrow", transaction_timeout_s=600.0, audit_behind_max=1000
    ),
    events.AttemptStarted(1, 1, 5, 0, {"in": 12}),
    events.RequestRejected("TxnOffsetCommit", "CONCURRENT_TRANSACTIONS"),
    events.AttemptFailed(1, 1, "why", will_redo=True, api="Produce", kafka_error="CORRUPT_MESSAGE"),
    events.AttemptStarted(1, 2, 5, 1, {"in": 12}),
    events.StepsLeftToSpark(1, "a JSON value is malformed", 2),
    events.AttemptRetried(1, 2, "duplicates"),
    events.AttemptStarted(1, 3, 5, 2, {"in": 12}),
    committed(),
    events.RecordsRefused(1, "paid", "dead_letter", 2, "in", 0, 3),
    events.RecordsRefused(1, "malformed", "drop", 1, "in", 0, 4),
    events.RecordsDeduplicated(1, {"duplicate": 4}, {"gap": 1}),
    events.TableFollowed("lake", "written", 6, 4, 1500.0),
    events.TableFollowed("lake", "skipped", 6, 6),
    events.AuditFollowed(3),
    events.SourceLag({"in": 12}, {"in": 20}, {"in": 2.5}),
    events.BrokersSilent(1.0, 9.0, "why", ""),
    events.Warned("look"),
    events.MicroBatchSkipped(2),
    events.AttemptStarted(3, 1, 5, 3, {"in": 1}),
    events.AttemptFailed(3, 1, "asked to", will_redo=False, is_requested=True),
    events.AttemptStarted(4, 1, 5, 4, {"in": 1}),
    events.RequestRejected("EndTxn", ""),
)

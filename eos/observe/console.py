"""The subscriber that prints a line on stderr for each event of a run.

`eos.log_lines` has the form of the lines. Lines are in colour only if stderr is a terminal and
`NO_COLOR` is not set. While a pipeline has no new records, nothing is printed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from eos import log_lines
from eos.observe import events
from eos.observe.log_fields import fields_of, level_of
from eos.plural import plural

_WARNING = "warning: "
_YELLOW, _END = "\x1b[33m", "\x1b[0m"


class Console:
    def __init__(
        self, stream: TextIO | None = None, *, has_colour: bool = False, pipeline: str = ""
    ) -> None:
        """`pipeline` is to be named in each line, because the process runs several."""
        self._stream = sys.stderr if stream is None else stream
        self._named = {"pipeline": pipeline} if pipeline else {}
        self._has_colour = has_colour or (self._stream.isatty() and not os.environ.get("NO_COLOR"))

    def __call__(self, event: events.Event) -> None:
        form, level = log_lines.chosen(), level_of(event)
        text = line(event) if form.has(level) else None
        if text is None:
            return
        if not form.is_console:
            text = text.removeprefix(_WARNING)  # the level says so
        has_colour = self._has_colour and form.is_console and level == "warning"
        colour, end = (_YELLOW, _END) if has_colour else ("", "")
        # Write each line in one call, because other threads and Spark print to the same stream.
        fields = {**self._named, **fields_of(event)}
        self._stream.write(f"{colour}{form.line(level, text, fields)}{end}\n")
        self._stream.flush()


def line(event: events.Event) -> str | None:
    """Return the line for an event, without colour; None for an event that is not printed."""
    match event:
        case events.PipelineStarted() | events.MetricsServed():
            return _started(event)
        case events.MicroBatchCommitted():
            attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
            return (
                f"micro-batch {event.batch_id} committed: "
                f"{read(event.records_in, event.offsets_in)}, "
                f"{event.records_out:,} out, {size(event.bytes_out)} "
                f"in {event.total_ms:,.0f} ms{attempt}"
            )
        case events.MicroBatchSkipped():
            return f"micro-batch {event.batch_id} skipped: it is already committed in the ledger"
        case events.AttemptRetried():
            return f"micro-batch {event.batch_id}, attempt {event.attempt}: {event.reason}"
        case events.AttemptFailed() | events.StepsLeftToSpark():
            return _attempt_line(event)
        case events.RecordsRefused():
            rejected = _rejected_line(event.rule, event.answer, event.records)
            return (
                f"warning: micro-batch {event.batch_id}: {rejected}, the first is "
                f"{event.topic}-{event.partition} at offset {event.offset}"
            )
        case events.RecordsDeduplicated():
            dropped = _counts_text("dropped", event.dropped)
            counts = ", ".join(filter(None, [dropped, _counts_text("accepted", event.accepted)]))
            return f"warning: micro-batch {event.batch_id}: dedup {counts}"
        case events.TableFollowed():
            return _table_line(event)
        case events.BrokersSilent() | events.BrokersAnswer():
            return _brokers(event)
        case events.Stopping() | events.Stopped():
            return _end(event)
        case events.Warned():
            return f"{_WARNING}{event.message}"
        case _:
            return _detail(event)


def _started(event: events.PipelineStarted | events.MetricsServed) -> str:
    if isinstance(event, events.MetricsServed):
        return f"metrics are served at {event.url}"
    place = f", checkpoint {event.checkpoint}" if event.checkpoint else ""
    reader = f", {event.reader} reads the source" if event.reader else ""
    reason = f" ({event.reader_reason})" if event.reader_reason else ""
    return f"pipeline {event.pipeline} started{place}{reader}{reason}"


def _detail(event: events.Event) -> str | None:
    """Return the line of an event that only the level debug has."""
    match event:
        case events.AttemptStarted():
            return (
                f"micro-batch {event.batch_id}, attempt {event.attempt} started: producer id "
                f"{event.producer_id}, epoch {event.epoch}"
            )
        case events.AuditFollowed():
            return f"the audit table lacks {plural(event.lag, 'attempt')}"
        case events.RequestRejected():
            return f"{event.api} was rejected: {event.kafka_error or 'no response'}"
        case events.SourceLag():
            return f"the source has {sum(event.offsets.values()):,} offsets to commit"
    return None


def _attempt_line(event: events.AttemptFailed | events.StepsLeftToSpark) -> str:
    if isinstance(event, events.StepsLeftToSpark):
        more = plural(event.attempts, "more attempt")
        return f"micro-batch {event.batch_id}: {event.reason}; Spark runs this attempt and {more}"
    if event.is_requested:
        return f"micro-batch {event.batch_id} aborted: the run is stopping, the next run retries it"
    then = "it is retried" if event.will_redo else "it is not retried"
    return (
        f"warning: micro-batch {event.batch_id}, attempt {event.attempt} failed: "
        f"{event.reason.rstrip('.')}; {then}"
    )


def _brokers(event: events.BrokersSilent | events.BrokersAnswer) -> str:
    if isinstance(event, events.BrokersAnswer):
        return f"a broker responds again, after {event.silent_s:,.0f} s without a response"
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(event.since))
    hint = f". {event.hint}" if event.hint else ""
    return (
        f"warning: no broker has responded since {since}, for {event.silent_s:,.0f} s: "
        f"{event.reason}; the pipeline waits and retries{hint}"
    )


def _end(event: events.Stopping | events.Stopped) -> str:
    if isinstance(event, events.Stopping):
        return (
            f"stopping: the open micro-batch has {event.finish_s:g} s to commit before it is "
            "aborted; a second signal ends the run at once"
        )
    rejected = "".join(f"; {_rejected_line(*each)}" for each in event.refused)
    return f"pipeline {event.pipeline} stopped: {event.reason}{rejected}"


def _table_line(event: events.TableFollowed) -> str:
    """Return the line about a Delta table, with the ledger records that it had and has now."""
    if event.became == "skipped":
        return (
            f"table {event.table} skipped: it already has ledger record {event.ledger} (it is at "
            f"{event.was})"
        )
    how = "caught up" if event.became == "caught_up" else "written"
    return (
        f"table {event.table} {how}: from ledger record {event.was} to {event.ledger} "
        f"in {event.ms:,.0f} ms"
    )


def _rejected_line(rule: str, answer: str, records: int) -> str:
    outcome = "dropped" if answer == "drop" else "sent to the dead letters"
    if rule == "malformed":
        return f"{plural(records, 'malformed record')} {outcome}"
    return f"{plural(records, 'record')} {outcome} by rule `{rule}`"


def _counts_text(subject: str, records: Mapping[str, int]) -> str:
    named = " and ".join(f"{count:,} {name}" for name, count in sorted(records.items()))
    return f"{subject} {named}" if named else ""


def read(records: int | None, offsets: int) -> str:
    """Return a text with the number of records and offsets that were read.

    Offsets also count transaction markers and aborted records. `records` is None if the records
    were not counted."""
    if records is None:
        return f"{offsets:,} offsets in"
    return f"{records:,} records in" + (f" ({offsets:,} offsets)" if offsets != records else "")


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"

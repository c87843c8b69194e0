"""Decode a ledger record. Reject it unless this pipeline wrote it and each field is in its range.

The next run resumes from the newest record. So a record of another producer, or a field out of its
range, raises an error with the record's offset before anything else happens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

import eos
from eos.errors import PromiseBrokenError
from eos.json_fields import (
    INT32_MAX,
    INT64_MAX,
    TEXT_MAX,
    TIME_MS_MAX,
    FieldError,
    Fields,
    parsed,
    require_topic,
)
from eos.kafka.api import Identity
from eos.kafka.record_reader import StoredRecord
from eos.ledger.receipt import BATCHES_MAX, AppendedBatch
from eos.ledger.record import (
    FORMAT,
    RUN_ID_MAX,
    RUNS_MAX,
    Ends,
    Kind,
    LedgerRecord,
    Position,
    RowCounts,
    TableState,
)

# Names of checkpoint folders, as `startup.checkpoint_dir` makes them. The name is joined to the
# state root, so no other form is accepted.
_CHECKPOINT = re.compile(r"[0-9]{1,18}(-[0-9]{1,19}-[0-9]{1,5})?", re.ASCII)
# The version of dedup's states: Delta version, rules and token of `dedup.state_table.StateVersion`.
# Empty if dedup knows no producer.
_PRODUCERS = re.compile(r"([0-9]{1,18}/[0-9a-f]{1,64}/[0-9]{1,19})?", re.ASCII)
_RELEASE = re.compile(r"[0-9A-Za-z.+-]{1,40}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_VALIDATE_FIRST_MAX = 1_000
_BATCH_TYPES = (int,) * len(AppendedBatch._fields)
_ROW_TYPES = [int] * len(RowCounts._fields)
_GAP_TYPES = (str, int, str, int, int, int, int)
_PRODUCER_TYPES = (str, int, str, str, int, int, int)


def decoded(
    pipeline: str, topic: str, stored: StoredRecord, *, is_trusted: bool = False
) -> LedgerRecord:
    """Return a ledger record that this pipeline wrote. Raise PromiseBrokenError for any other
    record.

    The pipeline writes one ledger record per transaction, with the producer id and epoch in it;
    both facts are checked. `is_trusted` skips these two checks, if an operator confirms that
    replication copied the record.
    """
    why = "" if is_trusted else _strange(stored)
    try:
        if why:
            raise _ForeignError(why)
        fields = parsed(stored.value)
        if fields.text("pipeline") != pipeline:
            raise ValueError(f"pipeline is {fields.text('pipeline')!r}")
        _require_known_format(fields, stored, is_trusted=is_trusted)
        record = _record(fields, stored)
        if not is_trusted:
            _require_own(fields, record)
    except ValueError as error:
        raise _invalid_record_error(pipeline, topic, stored.offset, error) from error
    return record


class _ForeignError(ValueError):
    """A record in the ledger that a producer other than this pipeline wrote."""


class _NewerError(ValueError):
    """A record in a format that only newer releases of this framework can read."""

    def __init__(self, format_: int, release: str) -> None:
        super().__init__(f"{release or 'an unnamed release'} wrote it in format {format_}")
        self.release = release


def _require_known_format(fields: Fields, stored: StoredRecord, *, is_trusted: bool) -> None:
    """Raise unless this release can read the record's format. Other fields may have any form in a
    newer format, so the release is read only if it is a short text.

    Another producer's record is foreign, whatever format it claims to have."""
    format_ = fields.number("format", 1, INT32_MAX)
    if format_ > FORMAT:
        if not is_trusted:
            _require_same(fields.identity(), Identity(stored.producer_id, stored.epoch))
        owner = fields.value.get("owner")
        release = owner.get("version") if isinstance(owner, dict) else None
        is_text = isinstance(release, str) and _RELEASE.fullmatch(release)
        raise _NewerError(format_, str(release) if is_text else "")


def _strange(stored: StoredRecord) -> str:
    """Return why this pipeline can't have sent the record batch; "" if it can have."""
    if not stored.is_transactional or stored.producer_id < 0 or stored.epoch < 0:
        return f"it is not part of a transaction (producer id {stored.producer_id})"
    if stored.sequence != 0 or not stored.is_alone:
        return f"it is not alone in its transaction (sequence {stored.sequence})"
    return ""


def _require_own(fields: Fields, record: LedgerRecord) -> None:
    """Raise unless the producer id and epoch in the record are those of its record batch. Older
    releases have them in records of attempts only."""
    named = fields if "producer_id" in fields.value else None
    for each in (named, fields.object("attempt") if record.attempt is not None else None):
        if each is not None:
            _require_same(each.identity(), record.identity)


def _require_same(claimed: Identity, actual: Identity) -> None:
    if claimed != actual:
        raise _ForeignError(
            f"it names producer {claimed.producer_id}/{claimed.epoch}, but "
            f"{actual.producer_id}/{actual.epoch} wrote it"
        )


def _invalid_record_error(
    pipeline: str, topic: str, offset: int, error: ValueError
) -> PromiseBrokenError:
    where = f"the record at offset {offset} of the ledger {topic!r}"
    if isinstance(error, _ForeignError):
        return PromiseBrokenError(
            "ledger_foreign",
            f"{pipeline}: {where} was written by another producer: {error}",
            hint="revoke WRITE on that topic from every other principal (docs/security.md). "
            f"`eos recover {pipeline}` lists the records before it, from which the pipeline can "
            "resume",
            topic=topic,
            offset=offset,
        )
    if isinstance(error, _NewerError):
        wanted = f"release {error.release}" if error.release else "the release that wrote it"
        return PromiseBrokenError(
            "ledger_newer",
            f"{pipeline}: {where} is from a newer release: {error}. This is release "
            f"{eos.__version__}, which reads formats up to {FORMAT}",
            hint=f"upgrade this installation to {wanted} or later and start again. No command "
            "skips the record, since its transaction's records would be written again "
            "(docs/upgrades.md)",
            topic=topic,
            offset=offset,
        )
    return PromiseBrokenError(
        "ledger_unknown",
        f"{pipeline}: {where} is no valid record of the pipeline {pipeline!r} ({error})",
        hint="does another client write to this topic? Revoke WRITE on it from every other "
        f"principal (docs/security.md). `eos recover {pipeline}` lists the records before it, "
        "from which the pipeline can resume",
        topic=topic,
        offset=offset,
    )


def _record(fields: Fields, stored: StoredRecord) -> LedgerRecord:
    kinds: dict[str, Kind] = {each: each for each in get_args(Kind)}
    kind = kinds.get(fields.text("kind"))
    if kind is None:
        raise ValueError(f"kind is {fields.text('kind')[:60]!r}")
    note = dict(fields.object("note").value) if "note" in fields.value else None
    position = _position(fields)
    attempt = None
    if kind == "attempt":
        attempt = _attempt(fields.object("attempt"), position.ends)
    return LedgerRecord(
        kind=kind,
        position=position,
        owner=_owner(fields.object("owner")),
        at_ms=fields.number("at_ms", 0, TIME_MS_MAX),
        offset=stored.offset,
        identity=Identity(stored.producer_id, stored.epoch),
        attempt=attempt,
        note=note,
        failed=tuple(_failed_attempt(each) for each in fields.objects("failed")),
        foreign_until=_foreign_until(fields, stored.offset) if kind == "recovery" else 0,
        declared=_declared(fields),
    )


def _declared(fields: Fields) -> Mapping[str, str] | None:
    if "declared" not in fields.value:
        return None
    settings = fields.object("declared")
    return {path: settings.text(path) for path in settings.value}


def _position(fields: Fields) -> Position:
    topic_ids = fields.object("topic_ids")
    for name in topic_ids.value:
        require_topic(name)
    tables = fields.object("tables", {})
    return Position(
        ends=fields.offsets("ends"),
        topic_ids={name: topic_ids.text(name) for name in topic_ids.value},
        query_id=fields.text("query_id"),
        batch_id=fields.number("batch_id", -1, INT64_MAX),
        is_reset=fields.flag("is_reset"),
        producers=fields.text("producers", "", pattern=_PRODUCERS),
        accepts_gap=fields.flag("accepts_gap"),
        keeps_state=fields.flag("keeps_state"),
        validate_first=fields.number("validate_first", 0, _VALIDATE_FIRST_MAX, 0),
        checkpoint=fields.text("checkpoint", "", pattern=_CHECKPOINT),
        runs=fields.texts("runs", RUN_ID_MAX, RUNS_MAX),
        tables={name: _table_state(tables.object(name)) for name in tables.value},
    )


def _table_state(fields: Fields) -> TableState:
    version = fields.number("version", 0, INT64_MAX) if "version" in fields.value else None
    sha256 = fields.text("sha256", pattern=_SHA256) if "sha256" in fields.value else None
    at = fields.number("at", -1, INT64_MAX)
    return TableState(fields.text("id"), at, version, _row_counts(fields), sha256)


def _row_counts(fields: Fields) -> RowCounts | None:
    """Return the row counts of a table's last write; None if the field is absent."""
    if "rows" not in fields.value:
        return None
    value = fields.value["rows"]
    is_valid = isinstance(value, list) and [type(each) for each in value] == _ROW_TYPES
    if not is_valid or not all(0 <= each <= INT64_MAX for each in value):
        raise FieldError(f"rows of a table is no list of {len(_ROW_TYPES)} counts")
    return RowCounts(*value)


def _owner(fields: Fields) -> Mapping[str, Any]:
    fields.text("deployment", most=TEXT_MAX)
    fields.text("host")
    fields.number("process", 0, INT64_MAX)
    return dict(fields.value)


def _attempt(fields: Fields, ends: Ends) -> Mapping[str, Any]:
    fields.number("number", 1, INT32_MAX)
    fields.identity()
    for tp, start in fields.offsets("starts").items():
        if start > ends.get(tp, -1):
            raise ValueError(
                f"attempt.starts is after the end: {tp.topic}-{tp.partition} at {start}"
            )
    fields.number("begun_ms", 0, TIME_MS_MAX, 0)
    fields.number("records_read", 0, INT64_MAX, 0)
    fields.number("lag_ms", 0, INT64_MAX, 0)
    fields.numbers("previous_ms", {})
    for receipt in fields.objects("receipts"):
        require_topic(receipt.text("topic"))
        receipt.number("partition", 0, INT32_MAX)
        for name in ("records", "offset_first", "offset_last", "bytes"):
            receipt.number(name, 0, INT64_MAX)
        for name in ("sequence_first", "sequence_last", "digest"):
            receipt.number(name, -INT64_MAX, INT64_MAX)
        _require_batches(receipt)
    refused = fields.object("refused", {})
    for rule in refused.value:
        refused.numbers(rule)
    fields.numbers("reads", {})
    dedup = fields.object("dedup", {})
    for name in ("verdicts", "dead_letters"):
        dedup.numbers(name, {})
    for name in ("expired", "producers_more", "states"):
        dedup.number(name, -1, INT64_MAX, 0)
    dedup.rows("gaps", _GAP_TYPES)
    dedup.rows("producers", _PRODUCER_TYPES)
    if "repeat" in dedup.value:  # of `spark.dedup_run.DedupRun.repeat`; only with Delta tables
        repeat = dedup.object("repeat")
        repeat.text("before", pattern=_PRODUCERS)
        repeat.number("now_ms", 0, TIME_MS_MAX)
        repeat.flag("accepts_gap")
    return fields.value


def _require_batches(receipt: Fields) -> None:
    """Raise FieldError unless the receipt's record batches are within their bounds. Older releases
    have none."""
    receipt.rows("batches", _BATCH_TYPES)
    found = [AppendedBatch(*each) for each in receipt.value.get("batches", ())]
    is_valid = all(
        min(each[:4]) >= 0 and max(each.sequence_first, each.sequence_last) <= INT32_MAX
        for each in found
    )
    if not is_valid or len(found) > BATCHES_MAX:
        raise FieldError(f"attempt.receipts has other record batches than {BATCHES_MAX} at most")


def _failed_attempt(fields: Fields) -> Mapping[str, Any]:
    """Validate the entry of an aborted attempt. Fields with unknown values are absent or null."""
    known = Fields({name: each for name, each in fields.value.items() if each is not None})
    known.identity()
    for name in ("starts", "ends"):
        known.offsets(name, {})
    for name in ("number", "batch_id", "begun_ms", "at_ms"):
        known.number(name, -1, INT32_MAX if name == "number" else TIME_MS_MAX, 0)
    for name in ("kind", "query_id", "error", "reason"):
        known.text(name, "", most=TEXT_MAX)
    return fields.value


def _foreign_until(fields: Fields, offset: int) -> int:
    """Return the offset below which an operator decided that records of other producers are
    skipped. It can't be above the offset of the recovery record itself."""
    return fields.object("note", {}).number("foreign_until", 0, offset, 0)

"""The stages of a plan as text, each with its guarantee.

`eos plan` prints them as a tree, a chart or JSON. The texts are made from the values that a run
uses, without a request to Kafka or Spark. A stage that is added to `Plan` must be added here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from eos.config.source import StartAt
from eos.encode.sink_spec import SinkSpec
from eos.formats.expressions import Format
from eos.plan.delta_sink import Table
from eos.plan.lookup import LookupTable
from eos.plan.plan import BROKERS_CHOICE, NewTopic, Plan
from eos.plan.reader import foreseen
from eos.plural import plural
from eos.read.dedup_by import NO_NULL, Distinct
from eos.transform.functions import Function

if TYPE_CHECKING:
    from eos.transform.functions import Transform

_TEXT_MAX = 100
READERS = "consumers need isolation.level=read_committed; the default is read_uncommitted"
EXACTLY_ONCE = "exactly once"
_NOT_KAFKAS = "(all except Kafka's own)"
AFTERWARDS = "exactly once, after the transaction and before the next one"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a plan as text. A writing stage has a `guarantee`, and a `mechanism` for it."""

    name: str
    does: str
    facts: Sequence[str] = ()
    guarantee: str = ""
    mechanism: str = ""
    in_transaction: bool = field(default=False, kw_only=True)

    def as_json(self) -> dict[str, Any]:
        return {
            "stage": self.name,
            "does": self.does,
            "facts": list(self.facts),
            "guarantee": self.guarantee or None,
            "mechanism": self.mechanism or None,
            "in_transaction": self.in_transaction,
        }


def stages(planned: Plan) -> list[Stage]:
    """Return the plan's stages from the source to the sinks, then the ledger and group offsets."""
    found = [_source(planned)]
    decode = planned.decode
    rules = [rule for rule in decode.rules if rule.name != NO_NULL]
    if rules:
        facts = [f"{rule.name}: {rule.condition}; else {rule.on_error}" for rule in rules]
        found.append(Stage("expect", f"{plural(len(facts), 'rule')} of a record", facts))
    if planned.dedup is not None:
        facts = list(planned.dedup.facts)
        found.append(
            Stage("dedup", "records that an upstream producer sent twice are dropped", facts)
        )
    if decode.distinct is not None:
        found.append(_distinct(decode.distinct))
    found += [_lookup_stage(planned.lookups)] if planned.lookups else []
    found += [_step(number, each) for number, each in enumerate(planned.transforms, 1)]
    found += [_sink(number, each, planned) for number, each in enumerate(planned.sinks, 1)]
    if planned.dead_letters is not None:
        found.append(_dead_letters(planned, planned.dead_letters.topic))
    found += [_table(number, each) for number, each in enumerate(planned.tables, 1)]
    return [*found, *_run_stages(planned)]


def _distinct(by: Distinct) -> Stage:
    facts = [
        f"by {', '.join(by.by)}; within {by.within_ms:,} ms of {by.watermark}",
        "Spark keeps the keys in the checkpoint; records that arrive later are dropped",
    ]
    return Stage("dedup", "the first record of each key is accepted", facts)


def _source(planned: Plan) -> Stage:
    source = planned.source
    if planned.is_dataframe:
        facts = ["read by Spark; only its checkpoint knows the offsets", _trigger(planned)]
        return Stage("source", "a DataFrame of the job", facts)
    topics = ", ".join(planned.source_topics) or f"all topics that match {source.pattern}"
    facts = [f"begins at {_start(source.start)} if the ledger is empty", foreseen(planned)]
    if not planned.is_once:
        facts.append(f"at most {source.max_records:,} records a micro-batch")
    if planned.bytes_max is not None:
        facts.append(
            f"at most {planned.bytes_max:,} bytes of record batches a transaction, by samples of "
            "the log (`max_bytes`)"
        )
    decode = planned.decode
    formats = {"key": decode.key, "value": decode.value}
    read = [f"{name} as {_read(each)}" for name, each in formats.items() if each.kind != "binary"]
    if read:
        facts += [*read, f"malformed records: {decode.on_error}"]
    if planned.output_mode != "append":
        facts.append(f"output mode {planned.output_mode}")
    other = planned.source_cluster
    place = "kafka" if other is None else f"kafka, cluster {other.name}"
    if other is not None:
        facts.append("the group's offsets are mirrored to this cluster after each commit")
    return Stage("source", f"{place}: {topics}", [*facts, _trigger(planned)])


def _trigger(planned: Plan) -> str:
    if planned.is_once:
        return "all existing records in one micro-batch, then the run ends"
    every = planned.trigger_every_ms
    if every is None:
        return "runs until drained"
    if planned.waits_for is None:
        return f"a micro-batch every {every:,} ms"
    records, delay_ms = planned.waits_for
    return (
        f"every {every:,} ms, a micro-batch if {records:,} records have arrived, or if the last "
        f"one began {delay_ms:,} ms ago"
    )


def _start(start: object) -> str:
    if not isinstance(start, StartAt):
        return f"the offsets of {start}" if start == "group" else str(start)
    if start.group is not None:
        return f"the offsets of group {start.group}"
    return "named offsets" if start.offsets is not None else f"time {start.timestamp_ms} ms"


def _read(each: Format) -> str:
    columns = f": {_short(', '.join(each.columns))}" if each.columns else ""
    if each.is_elsewhere:
        columns = f": the latest schema of {each.subject}, read at startup"
    kind = f"Debezium's {each.kind}" if each.is_event else each.kind
    return f"{kind}{columns}{f' (column {each.column})' if each.column else ''}"


def _lookup_stage(tables: Sequence[LookupTable]) -> Stage:
    facts = []
    for each in tables:
        of = "one version for an attempt, in its ledger record" if each.kind == "delta" else ""
        of = of or "as it is when a micro-batch is evaluated"
        facts.append(f"{each.name}: {each.kind} {each.path} ({_short(each.columns)}), {of}")
    return Stage("tables", "lookup tables for the steps, read only", facts)


def _step(number: int, step: Transform) -> Stage:
    found = [f"known to later queries as {step.name}"] if step.name else []
    if isinstance(step, Function):
        written = ", ".join(f"{key}={json.dumps(value)}" for key, value in step.arguments.items())
        return Stage(f"step {number}", f"{step.kind}: {step.python}({_short(written)})", found)
    query = [line for line in step.text.splitlines() if not line.lstrip().startswith("--")]
    return Stage(f"step {number}", f"sql: {_short(' '.join(' '.join(query).split()))}", found)


def _sink(number: int, sink: SinkSpec, planned: Plan) -> Stage:
    topic = sink.topic or f"by column {sink.topic_column}: {', '.join(sink.topics) or 'any target'}"
    facts = []
    if sink.where_column:
        facts.append(f"where {_output(planned, sink.where_column)}")
    facts.append(f"key {_output(planned, sink.key_column)}")
    facts.append(f"value {_output(planned, sink.value_column)}")
    by = f"column {sink.partition_column}, else " if sink.partition_column else ""
    facts.append(f"partition by {by}{sink.partitioner.name.lower()}, {sink.codec.name.lower()}")
    facts += [
        _creation_note(name, planned.created_topics) for name in (sink.topic, *sink.topics) if name
    ]
    return _sink_stage(f"sink {number}", f"kafka: {topic}", [each for each in facts if each])


def _dead_letters(planned: Plan, topic: str) -> Stage:
    rejecting = [each.name for each in planned.decode.causes if each.on_error == "dead_letter"]
    if planned.dedup is not None:
        rejecting += planned.dedup.dead_letter_rules
    facts = [f"rejected by: {', '.join(rejecting)}", _creation_note(topic, planned.created_topics)]
    return _sink_stage("dead letters", f"kafka: {topic}", [each for each in facts if each])


def _table(number: int, table: Table) -> Stage:
    facts = [f"where {_short(table.where)}"] if table.where else []
    facts.append(f"columns {', '.join(table.columns) or _NOT_KAFKAS}")
    if table.keys:
        facts.append(f"merged by {', '.join(table.keys)}: the row of each key's last record")
    if table.delete_when:
        facts.append(f"deleted when {_short(table.delete_when)}")
    if table.partition_by:
        facts.append(f"partitioned by {', '.join(table.partition_by)}")
    if table.evolves:
        facts.append("new columns are added")
    facts.append("its rows are computed again after the transaction, with a short delay")
    mechanism = "the offset of the ledger's record is the version of the write in the table's own "
    mechanism += "log; after a crash, the next run reads missing rows again and writes them"
    does = f"delta: {table.name} ({table.path})"
    return Stage(f"table {number}", does, facts, AFTERWARDS, mechanism)


def _sink_stage(name: str, does: str, facts: Sequence[str]) -> Stage:
    mechanism = "its record batches are in the micro-batch's one transaction; a retry is a new "
    mechanism += "attempt, and at most one attempt commits"
    facts = [*facts, READERS]
    return Stage(name, does, facts, EXACTLY_ONCE, mechanism, in_transaction=True)


def _run_stages(planned: Plan) -> Iterator[Stage]:
    names = planned.names
    facts = [
        f"transactional id {names.transactional_id}, timeout {planned.transaction_timeout_ms:,} ms",
        f"{_deployment(planned)}; checkpoints in {names.checkpoints}",
    ]
    yield Stage(
        "ledger",
        f"kafka: {names.ledger}",
        facts,
        "the pipeline's position, and what is committed",
        "one record in each transaction, with the end of every source partition",
        in_transaction=True,
    )
    yield Stage(
        "group",
        f"offsets of {names.group}",
        (),
        "the true lag, for lag tools",
        "the same offsets, committed in the transaction; never read to resume",
        in_transaction=True,
    )


def _deployment(planned: Plan) -> str:
    if planned.deployment:
        return f"deployment {planned.deployment!r}"
    return f"deployment by the id that the first run creates in {planned.names.state_root}"


def _output(planned: Plan, column: str) -> str:
    """Return a text about what a sink's column contains, as the pipeline file declares it."""
    output = planned.outputs.columns.get(column)
    if output is None:
        return f"`{column}` unchanged" if column in {"key", "value"} else f"`{column}`"
    if output.is_elsewhere:
        return f"avro: the latest schema of {output.subject}, read at startup"
    if output.kind in {"json", "avro"}:
        of = (
            _short(", ".join(output.texts))
            if output.kind == "json" and output.texts
            else "its columns"
        )
        return f"{output.kind} of {of}"
    if output.kind == "protobuf":
        return f"protobuf {output.texts[0]} of its columns"
    return _short(", ".join(output.texts))


def _creation_note(topic: str, created: Mapping[str, NewTopic]) -> str:
    new = created.get(topic)
    if new is None:
        return ""
    text = f"created if absent: {plural(new.partitions, 'partition')}"
    if new.replication == BROKERS_CHOICE:
        return text
    return f"{text}, {plural(new.replication, 'replica')}"


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."


def lines(name: str, found: Sequence[Stage]) -> Iterator[str]:
    """Yield the lines of the stages as a tree in ASCII, which is readable in any CI log."""
    yield name
    for number, stage in enumerate(found):
        is_last = number == len(found) - 1
        yield f"{'`-' if is_last else '|-'} {stage.name:<13}{stage.does}"
        below = "  " if is_last else "| "
        facts = [*stage.facts]
        if stage.guarantee:
            facts += [f"guarantee: {stage.guarantee}", f"by: {stage.mechanism}"]
        yield from (f"{below} {'':<13}- {fact}" for fact in facts)


def mermaid(found: Sequence[Stage]) -> Iterator[str]:
    """Yield the lines of a Mermaid flowchart of the stages.

    All stages whose records are in the Kafka transaction are in one box."""
    yield "flowchart TD"
    after = [stage for stage in found if stage.guarantee and not stage.in_transaction]
    flow = [stage for stage in found if not stage.in_transaction and stage not in after]
    inside = [stage for stage in found if stage.in_transaction]
    for stage in flow:
        yield f"  {_id(stage)}[{_label(stage)}]"
    yield '  subgraph transaction["one Kafka transaction"]'
    for stage in inside:
        yield f"    {_id(stage)}[({_label(stage)})]"
    yield "  end"
    for one, other in pairwise(flow):
        yield f"  {_id(one)} --> {_id(other)}"
    rejecting = next((stage for stage in flow if stage.name == "expect"), flow[0])
    for stage in inside:
        come_from = rejecting if stage.name == "dead letters" else flow[-1]
        arrow = "-->" if stage.guarantee == EXACTLY_ONCE else "-.->"
        yield f"  {_id(come_from)} {arrow} {_id(stage)}"
    for stage in after:
        yield f"  {_id(stage)}[({_label(stage)})]"
        yield f"  {_id(flow[-1])} --> {_id(stage)}"
        yield f"  transaction -. then .-> {_id(stage)}"


def _id(stage: Stage) -> str:
    return stage.name.replace(" ", "_")


def _label(stage: Stage) -> str:
    """Return a stage's label for Mermaid, with Mermaid's special characters escaped."""
    text = f"{stage.name}: {stage.does}"
    for sign, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(sign, entity)
    return f'"{text}"'

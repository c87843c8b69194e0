"""`guarantee:` of a pipeline, and what of its file can't be kept without a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from eos.config.sink import Sink

Guarantee = Literal["exactly_once", "at_least_once"]


def require_possible(given: Mapping[str, Any]) -> None:
    """`given`: the other parts of the file, those that are right. Raises ValueError with all that
    needs the transaction or its ledger, each with the reason: nothing is read and ignored."""
    found = [f"no {what} ({why})" for what, why in _impossible(given)]
    if found:
        raise ValueError(f"expected beside `at_least_once` {'; '.join(found)}")


def _impossible(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if given.get("dedup") is not None:
        yield "`dedup`", "what it drops would come again with a micro-batch that is written again"
    transaction = given.get("transaction")
    if transaction is not None and transaction.model_fields_set:
        yield "`transaction`", "there is none"
    source = given.get("source")
    answers = [source.on_error] if source is not None else []
    answers += [rule.on_error for rule in given.get("expect", ())]
    if "drop" in answers:
        yield "`on_error: drop`", "what is left out is counted by the transaction's own record"
    if "dead_letter" in answers or (given.get("sink") and given["sink"].dead_letter):
        yield "dead letters", "only a transaction holds them and the other records together"
    if given.get("sink") is not None:
        yield from _of_sinks(given["sink"])


def _of_sinks(sink: Sink) -> Iterator[tuple[str, str]]:
    if sink.delta:
        yield "Delta tables", "the ledger says what a table has, and there is no ledger"
    if any(each.timestamp for each in sink.kafka):
        yield "`timestamp` of a sink", "Spark's Kafka sink takes no time for a record"
    if any(each.partitioner != "key" for each in sink.kafka):
        yield "`partitioner` other than key", "Spark's Kafka sink leaves it to Kafka's producer"
    if len({each.compression for each in sink.kafka}) > 1:
        yield "sinks of different `compression`", "Spark's Kafka sink has one producer for all"

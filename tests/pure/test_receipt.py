"""The accounting before a commit: what was encoded was acknowledged once, or the attempt fails."""

import pyarrow as pa
import pytest

from eos.errors import AttemptFailedError
from eos.kafka.target_partitions import Targets
from eos.ledger import receipt
from eos.ledger.receipt import SCHEMA, AppendedBatch, Receipt, check

TARGETS = Targets.of({"a": (2, 1_000), "b": (1, 1_000)})
A0 = Receipt(
    "a",
    0,
    records=3,
    offset_first=10,
    offset_last=12,
    bytes=90,
    digest=0xFFFFFFFF,
    batches=(AppendedBatch(0, 1, 10, 11, 2**40), AppendedBatch(2, 2, 12, 12, -1)),
)
B0 = Receipt("b", 0, records=5, offset_first=0, offset_last=6, bytes=70, digest=1)


def collected(*batches: pa.RecordBatch) -> list[tuple]:
    """As Spark hands them to the driver: rows of all tasks, in any order."""
    return [tuple(row.values()) for batch in reversed(batches) for row in batch.to_pylist()]


def test_receipts_that_match_the_manifests_come_back_in_the_order_of_the_targets():
    rows = collected(receipt.rows({0: A0}, {0: 3, 2: 5}), receipt.rows({2: B0}, {}))
    assert check(rows, TARGETS) == (A0, B0)


def test_manifests_of_several_tasks_add_up():
    rows = collected(receipt.rows({0: A0}, {0: 1}), receipt.rows({}, {0: 2}))
    assert check(rows, TARGETS) == (A0,)


def test_nothing_encoded_and_nothing_written_is_right():
    assert check([], TARGETS) == ()
    assert check(collected(receipt.rows({}, {})), TARGETS) == ()
    assert check(collected(receipt.rows({}, {1: 0})), TARGETS) == ()


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([receipt.rows({}, {1: 4})], "a-1: 4 records were encoded, 0 acknowledged"),
        ([receipt.rows({0: A0}, {})], "a-0: 0 records were encoded, 3 acknowledged"),
        ([receipt.rows({0: A0}, {0: 2})], "a-0: 2 records were encoded, 3 acknowledged"),
        ([receipt.rows({0: A0}, {0: 4})], "a-0: 4 records were encoded, 3 acknowledged"),
        # swapped: the sum is right, the partitions are not
        ([receipt.rows({0: A0, 2: B0}, {0: 5, 2: 3})], "a-0: 5 records were encoded, 3"),
        (
            [receipt.rows({0: A0}, {0: 6}), receipt.rows({0: A0}, {})],
            "two tasks of one attempt wrote to a-0",
        ),
    ],
)
def test_what_does_not_agree_fails_the_attempt(batches, words):
    with pytest.raises(AttemptFailedError, match=words):
        check(collected(*batches), TARGETS)


def test_rows_have_the_schema_that_spark_is_told():
    words = {"boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "binary": pa.binary()}
    told = [each.split() for each in SCHEMA.split(", ")]
    batch = receipt.rows({0: A0}, {0: 3})
    assert batch.schema == pa.schema([(name, words[kind]) for name, kind in told])
    assert receipt.rows({}, {}).schema == batch.schema


def test_a_receipt_says_its_sequences():
    assert A0.as_json() == {
        "topic": "a",
        "partition": 0,
        "records": 3,
        "offset_first": 10,
        "offset_last": 12,
        "bytes": 90,
        "digest": 0xFFFFFFFF,
        "sequence_first": 0,
        "sequence_last": 2,
        "batches": [[0, 1, 10, 11, 2**40], [2, 2, 12, 12, -1]],
    }
    assert "batches" not in B0.as_json(), "as in older releases"
    wrapped = Receipt("a", 0, 2**31 + 2, 0, 2**31 + 1, 1, 1)
    assert wrapped.sequence_last == 1

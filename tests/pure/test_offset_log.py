"""Spark's checkpoint files, as Spark writes them; whatever is not exactly so stops the pipeline."""

import random
import threading

import pytest
from support.errors import raises

from eos.checkpoint.files import LocalFiles
from eos.checkpoint.offset_log import (
    Checkpoint,
    Ranges,
    newest_with_offsets,
    parse_ends,
    parse_query_id,
    parse_starts,
    require_answer,
)
from eos.deadline import Deadline
from eos.errors import PromiseBrokenError, UnavailableError
from eos.kafka.api import TopicPartition

METADATA = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,'
    '"conf":{"spark.sql.shuffle.partitions":"200"}}'
)
OFFSETS = '{"orders":{"1":9,"0":12},"pay-ments.v1":{"0":0}}'
PARSED = {
    TopicPartition("orders", 0): 12,
    TopicPartition("orders", 1): 9,
    TopicPartition("pay-ments.v1", 0): 0,
}


def test_the_ends_of_a_micro_batch():
    assert parse_ends(f"v1\n{METADATA}\n{OFFSETS}", "p/offsets/3") == PARSED


def test_a_source_that_is_read_in_several_branches_stands_there_as_often():
    assert parse_ends(f"v1\n{METADATA}\n{OFFSETS}\n{OFFSETS}\n{OFFSETS}\n", "p") == PARSED


def test_where_the_first_micro_batch_starts_behind_a_zero_byte():
    assert parse_starts(f"\0v1\n{OFFSETS}", "p/sources/0/0") == PARSED


def test_the_query_id():
    assert parse_query_id('{"id":"0b1c-22"}', "p/metadata") == "0b1c-22"


SEEDED = 1_200


def test_damaged_files_are_read_as_offsets_or_refused_with_their_path(tmp_path):
    """Seeded, so that each run has the same inputs. Bytes, words and whole lines change."""
    random_ = random.Random(11)
    files = {"metadata": '{"id":"0b1c-22"}', "sources/0/0": f"\0v1\n{OFFSETS}"}
    files |= {f"offsets/{n}": f"v1\n{METADATA}\n{OFFSETS}" for n in range(2)}
    files |= {f"commits/{n}": 'v1\n{"nextBatchWatermarkMs":0}' for n in range(2)}
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    refused = []
    for _ in range(SEEDED):
        which = random_.choice(list(files))
        for name, text in files.items():
            raw = text.encode()
            (tmp_path / name).write_bytes(damaged(random_, raw) if name == which else raw)
        if random_.random() < 0.5:
            (tmp_path / "commits/1").unlink(missing_ok=True)
        try:
            Checkpoint(LocalFiles(), str(tmp_path)).require_readable()
        except PromiseBrokenError as error:
            refused.append((error.fields["path"], f"{tmp_path}/{which}"))
    assert SEEDED // 20 < len(refused) < SEEDED * 19 // 20
    assert all(path == damaged_path for path, damaged_path in refused)


def damaged(random_, raw: bytes) -> bytes:
    words = [b"null", b"true", b"-1", b"1e999", b"NaN", b"9" * 5_000, b"[" * 5_000, b"{}", b'""']
    words += [b'{"0":5.5}', b'{"-1":5}', b'{"0":true}', b'"9"', b"\xff", b"\0", b"\n", b""]
    for _ in range(random_.randrange(1, 4)):
        low = random_.randrange(len(raw) + 1)
        high = min(len(raw), low + random_.choice([0, 1, 1, 3, 40]))
        raw = raw[:low] + random_.choice(words) + raw[high:]
    return raw


def test_names_that_are_no_numbers_of_a_micro_batch_are_passed_over(tmp_path):
    for name in ("0", "1", "\u00b2", "\u0663", "1.tmp", "9" * 200, "-1"):
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets" / name).touch()
    assert Checkpoint(LocalFiles(), str(tmp_path)).planned() == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1",
        f"v1\n{METADATA}",
        f"v1\n{METADATA}\n",
        f"v1\n{METADATA}\n{OFFSETS[:-5]}",  # cut
        f"v1\n{METADATA}\n-",  # Spark's word for a source that has no offset yet
        f"v1\n{METADATA}\n{OFFSETS}\n{OFFSETS.replace('9', '8')}",  # two sources
        f"v1\n{METADATA}\n{METADATA}\n{METADATA}",
        f"v2\n{METADATA}\n{OFFSETS}",
        f"v10\n{METADATA}\n{OFFSETS}",
        f"{METADATA}\n{OFFSETS}",
        f"v1\n{METADATA}\n[1,2]",
        f"v1\n{METADATA}\n12",
        f'v1\n{METADATA}\n{{"orders":12}}',
        f'v1\n{METADATA}\n{{"orders":{{"0":null}}}}',
        f'v1\n{METADATA}\n{{"orders":{{"zero":1}}}}',
        f'v1\n{METADATA}\n{{"orders":{{"0":-2}}}}',  # a word for a place, not a place
    ],
)
def test_an_unknown_form_of_ends_stops_with_the_path(text):
    with raises("checkpoint_unreadable") as caught:
        parse_ends(text, "p/offsets/3")
    assert "p/offsets/3 has a format" in caught.value.message
    assert caught.value.fields["path"] == "p/offsets/3"
    assert "truncated" in caught.value.hint


@pytest.mark.parametrize("text", ["", "\0", "\0v1", "\0v1\n", f"\0v2\n{OFFSETS}", f"\0{OFFSETS}"])
def test_an_unknown_form_of_starts_stops_with_the_path(text):
    with raises("checkpoint_unreadable") as caught:
        parse_starts(text, "p/sources/0/0")
    assert caught.value.fields["path"] == "p/sources/0/0"


@pytest.mark.parametrize("text", ["", "{}", "[]", '"x"', '{"id":"0b1'])
def test_an_unknown_form_of_metadata_stops_with_the_path(text):
    with raises("checkpoint_unreadable") as caught:
        parse_query_id(text, "p/metadata")
    assert caught.value.fields["path"] == "p/metadata"


def test_a_bound_of_the_records_counts_a_partition_without_a_start_from_zero():
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert Ranges({first: 5}, {first: 12, second: 3}).records_max == 7 + 3


@pytest.mark.parametrize(
    ("name", "text"),
    [("metadata", "{"), ("commits/1", "v1"), ("commits/1", "v1\n{"), ("offsets/1", "v1\n{}")],
)
def test_a_damaged_file_is_told_before_spark_reads_it(tmp_path, name, text):
    whole = {
        "metadata": '{"id": "q"}',
        "offsets/0": 'v1\n{}\n{"t": {"0": 4}}',
        "offsets/1": 'v1\n{}\n{"t": {"0": 9, "1": 2}}',
        "commits/1": 'v1\n{"nextBatchWatermarkMs": 0}',
    }
    for each, content in whole.items():
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text(content)
    checkpoint = Checkpoint(LocalFiles(), str(tmp_path))
    checkpoint.require_readable()
    assert checkpoint.known_partitions() == {TopicPartition("t", 0), TopicPartition("t", 1)}
    (tmp_path / name).write_text(text)
    with raises("checkpoint_unreadable") as caught:
        checkpoint.require_readable()
    assert name in caught.value.message
    (tmp_path / name).write_text(whole[name])
    (tmp_path / "commits/1").unlink()  # planned and not done: what it reads first is new
    assert checkpoint.known_partitions() == {TopicPartition("t", 0)}


class Store(LocalFiles):
    """One whose client waits, or is refused."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.answers = threading.Event()

    def names(self, path: str) -> list[str]:
        if self.error is not None:
            raise self.error
        self.answers.wait()
        return super().names(path)


def test_a_store_that_does_not_answer_is_given_up(tmp_path):
    store = Store()
    with raises("checkpoint_store_unavailable", UnavailableError) as caught:
        require_answer(store, str(tmp_path), Deadline.after_ms(50))
    assert f"{tmp_path} can't be listed (no response" in caught.value.message
    assert "docs/checkpoints.md" in caught.value.hint
    store.answers.set()
    require_answer(store, str(tmp_path), Deadline.after_ms(60_000))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PermissionError("403"), "checkpoint_access_denied"),
        (OSError("refused"), "checkpoint_store_unavailable"),
    ],
)
def test_a_store_that_refuses_is_not_an_empty_one(tmp_path, error, code):
    store, checkpoint = Store(error), Checkpoint(Store(error), str(tmp_path))
    for ask in (
        lambda: require_answer(store, str(tmp_path), Deadline.after_ms(60_000)),
        lambda: newest_with_offsets(store, str(tmp_path)),
        checkpoint.planned,
        checkpoint.committed,
        checkpoint.has_state,
    ):
        with raises(code, UnavailableError) as caught:
            ask()
        assert f"{error}" in caught.value.message

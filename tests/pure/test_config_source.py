"""What a pipeline reads and where it begins: every form, and what is wrong with others."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from textwrap import dedent

import pytest

from eos.config.literals import instant_ms
from eos.config.load import load_pipeline
from eos.config.model import PipelineFile
from eos.config.source import KafkaSource, StartAt
from eos.errors import UsageError
from eos.plan.plan import decode

PIPELINE = """\
version: 1
name: orders
source:
  kafka:
    topics: [orders, pay]
    start: {start}
sink:
  kafka: {{topic: orders.out}}
"""


def source(tmp_path: Path, start: str, text: str = PIPELINE) -> KafkaSource:
    path = tmp_path / "pipeline.yaml"
    path.write_text(dedent(text).format(start=start))
    return load_pipeline(path, {"GROUP": "theirs"}).source.kafka


def problem(tmp_path: Path, start: str, text: str = PIPELINE) -> tuple[int, int, str]:
    with pytest.raises(UsageError) as caught:
        source(tmp_path, start, text)
    ((_, line, column, message, _),) = caught.value.fields["problems"]
    return line, column, message


@pytest.mark.parametrize("word", ["earliest", "latest", "group"])
def test_a_start_is_a_word(tmp_path, word):
    assert source(tmp_path, word).start == word


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("{group: orders-v1}", StartAt(group="orders-v1")),
        ("{group: '${GROUP}'}", StartAt(group="theirs")),
        ("{timestamp: 2026-11-21T10:00:00Z}", StartAt.model_construct(timestamp_ms=1795255200000)),
        (
            "{offsets: {orders: {0: 5, 1: 7}, pay: {0: 0}}}",
            StartAt(offsets={"orders": {0: 5, 1: 7}, "pay": {0: 0}}),
        ),
    ],
)
def test_a_start_is_one_of_three_mappings(tmp_path, written, start):
    assert source(tmp_path, written).start == start


@pytest.mark.parametrize(
    ("written", "column", "message"),
    [
        ("earlist", 12, "expected earliest, latest or group, got `earlist`; did you mean `earli"),
        ("7", 12, "expected earliest, latest, group, or a mapping with one of the keys group, ti"),
        ("[group]", 12, "expected earliest, latest, group, or a mapping with one of the keys"),
        ("{}", 12, "expected one of `group`, `timestamp` and `offsets`"),
        ("{group: a, timestamp: 2026-11-21T10:00:00Z}", 12, "expected one of `group`, `timest"),
        ("{offset: {orders: {0: 5}}}", 13, "unknown key `offset`; did you mean `offsets`?"),
        ("{timestamp_ms: 1}", 13, "unknown key `timestamp_ms`; did you mean `timestamp`?"),
        ("{group: ''}", 20, "expected a text that is not empty"),
        ("{group: 7}", 20, "expected a text, got `7`; put quotes around it if it is a text"),
        ("{timestamp: 2026-11-21T10:00:00}", 24, "expected a time with its zone, such as `2026-"),
        ("{timestamp: 2026-11-21}", 24, "expected a time such as `2026-11-21T10:00:00Z`"),
        ("{timestamp: 1795255200000}", 24, "expected a time such as `2026-11-21T10:00:00Z`"),
        ("{timestamp: 2026-13-21T10:00Z}", 24, "expected a valid time: month must be in"),
        ("{timestamp: 1969-12-31T23:59Z}", 24, "expected a time since 1970"),
        ("{offsets: {}}", 22, "expected at least one entry"),
        ("{offsets: {orders: {}, pay: {0: 1}}}", 31, "expected at least one entry"),
        ("{offsets: {orders: 5, pay: {0: 1}}}", 31, "expected a mapping of names to values, go"),
        ("{offsets: {orders: {x: 5}, pay: {0: 1}}}", 32, "expected the number of a partition as"),
        ("{offsets: {orders: {-1: 5}, pay: {0: 1}}}", 32, "as key, got `-1`"),
        ("{offsets: {orders: {0: -2}, pay: {0: 1}}}", 35, "a number of at least 0, got `-2`"),
        ("{offsets: {orders: {0: 1.5}, pay: {0: 1}}}", 35, "expected a whole number, got `1.5`"),
        ("{offsets: {orders: {0: 1}}}", 5, "offsets of each source topic: `pay` has none"),
        ("{offsets: {orders: {0: 1}, pays: {0: 1}}}", 5, "of source topics: `pays` is not one"),
    ],
)
def test_what_is_no_start_is_told_at_its_place(tmp_path, written, column, message):
    line, found, told = problem(tmp_path, written)
    assert message in told
    assert (line, found) == ((5 if column == 5 else 6), column)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("min_records: 5", "expected both `min_records` and `max_delay`"),
        ("max_delay: 1 minute", "expected both `min_records` and `max_delay`"),
        (
            "max_records: 4, min_records: 5, max_delay: 1 minute",
            "expected `min_records` of at most `max_records` (4), got 5",
        ),
    ],
)
def test_a_micro_batch_waits_for_records_only_with_a_longest_time(tmp_path, written, message):
    text = PIPELINE.replace(
        "\n    start: {start}", f"\n    {written.replace(', ', chr(10) + 4 * ' ')}"
    )
    assert problem(tmp_path, "", text)[2].startswith(message)
    whole = PIPELINE.replace("{start}", "earliest\n    min_records: 5\n    max_delay: 2 minutes")
    found = source(tmp_path, "", whole)
    assert (found.min_records, found.max_delay_ms) == (5, 120_000)
    for trigger in ("available_now", "once"):
        ends = f"{whole}trigger: {{{{{trigger}: true}}}}\n"
        assert problem(tmp_path, "", ends)[2].startswith("expected no `min_records` in the source")


@pytest.mark.parametrize(
    ("written", "size"),
    [("64 MiB", 64 << 20), ("1.5GiB", 3 << 29), ("10 KiB", 10_240), ("1000", 1000)],
)
def test_a_limit_in_bytes_is_a_size_or_a_number(tmp_path, written, size):
    text = PIPELINE.replace("{start}", f"earliest\n    max_bytes: {written}")
    assert source(tmp_path, "", text).max_bytes == size
    once = problem(tmp_path, "", text + "trigger: {{once: true}}\n")[2]
    assert once.startswith("expected no `max_bytes` in the source with `once: true`")


@pytest.mark.parametrize(
    "written", ["64 MB", "64", "0", "-1", "0.1 KiB KiB", "9" * 310 + " GiB", "many", "true"]
)
def test_any_other_limit_in_bytes_is_refused(tmp_path, written):
    quoted = f"'{written}'" if written == "64" else written
    text = PIPELINE.replace("{start}", f"earliest\n    max_bytes: {quoted}")
    assert "expected a size" in problem(tmp_path, "", text)[2]


def test_offsets_under_a_pattern_name_topics_that_match(tmp_path):
    text = PIPELINE.replace("topics: [orders, pay]", "pattern: 'orders|pay'")
    assert source(tmp_path, "{offsets: {pay: {0: 1}}}", text).pattern == "orders|pay"
    assert "`pays` is not one" in problem(tmp_path, "{offsets: {pays: {0: 1}}}", text)[2]


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("2026-11-21T10:00:00Z", "2026-11-21T10:00:00+00:00"),
        ("2026-11-21 10:00Z", "2026-11-21T10:00:00+00:00"),
        ("2026-11-21t10:00:00.5z", "2026-11-21T10:00:00.500+00:00"),
        ("2026-11-21T10:00:00.007+0130", "2026-11-21T10:00:00.007+01:30"),
        ("2026-11-21T10:00:00 -05:00", "2026-11-21T10:00:00-05:00"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00+00:00"),
    ],
)
def test_a_time_is_milliseconds_since_1970(written, same):
    assert instant_ms(written) == round(datetime.fromisoformat(same).timestamp() * 1000)


def test_the_schema_shows_every_form():
    schema = PipelineFile.model_json_schema()
    kafka = schema["$defs"]["KafkaSource"]["properties"]
    word, mapping = kafka["start"]["oneOf"]
    assert word["enum"] == ["earliest", "latest", "group"]
    assert mapping == {"$ref": "#/$defs/StartAt"}
    forms = schema["$defs"]["StartAt"]["properties"]
    assert forms.keys() == {"group", "timestamp", "offsets"}
    assert forms["timestamp"]["anyOf"][0]["format"] == "date-time"
    (partitions,) = forms["offsets"]["anyOf"][0]["patternProperties"].values()
    assert partitions["additionalProperties"]["type"] == "integer"
    assert {"topic", "topics", "pattern"} <= kafka.keys()
    assert not re.search(r"\(a (word|mapping)\)", json.dumps(schema))


AVRO = '{{"type": "record", "name": "A", "fields": [{{"name": "Offset", "type": "long"}}]}}'
FORMATS = PIPELINE.replace("{start}", "latest").replace("sink:", "  {read}\nsink:")


@pytest.mark.parametrize(
    ("read", "key", "value"),
    [
        ("value: string", ("binary", ()), ("string", ())),
        (
            "key: {{json: 'id INT NOT NULL'}}\n  value: {{json: 'a INT, b INT', as: order}}",
            ("json", ("id",)),
            ("json", ("a", "b")),
        ),
    ],
)
def test_keys_and_values_are_bytes_text_or_json(tmp_path, read, key, value):
    source(tmp_path, "", FORMATS.replace("{read}", read))
    found = decode(load_pipeline(tmp_path / "pipeline.yaml", {}).source)
    assert (found.key.kind, found.key.columns) == key
    assert (found.value.kind, found.value.columns) == value
    assert found.value.column == ("order" if value[0] == "json" else "")
    assert found.key.required == key[1]
    assert found.on_error == "fail"
    assert not found.is_plain


@pytest.mark.parametrize(
    ("read", "column", "message"),
    [
        ("value: strin", 10, "expected binary or string, got `strin`; did you mean `string`?"),
        (
            "value: 7",
            10,
            "expected binary, string, or a mapping with the key json, avro, protobuf or debezium",
        ),
        (
            "value: {{json: a INT, az: b}}",
            24,
            "unknown key `az`; known here: json, avro, protobuf, debezium, subject, as",
        ),
        ("value: {{json: a BIGNT}}", 17, "got `BIGNT`; did you mean `BIGINT`?"),
        ("value: {{as: a}}", 10, "expected one of `json`, `avro`, `protobuf` and `debezium`"),
        ("value: {{avro: a b}}", 17, "expected an Avro schema as JSON"),
        ("value: {{avro: '[1]'}}", 17, "expected the Avro schema of a record"),
        (
            f"value: {{{{avro: '{AVRO.replace('Offset', 'a b')}'}}}}",
            17,
            "expected a `name` and a `type` of each Avro field",
        ),
        ("value: {{avro: {{fil: a, file: b}}}}", 18, "unknown key `fil`; did you mean `file`?"),
        (f"value: {{{{avro: '{AVRO}'}}}}", 3, "got `Offset` (Kafka's own column)"),
        ("value: {{protobuf: {{file: a}}}}", 21, "expected key `message`, which is missing"),
        ("value: {{protobuf: {{file: a, message: a..b}}}}", 40, "`a..b`"),
        ("value: {{json: a INT, as: a b}}", 28, "expected a name of letters, digits and `_`"),
        ("on_error: dorp", 13, "expected fail, dead_letter or drop, got `dorp`; did you mean"),
        (
            "value: {{json: 'a INT, Topic INT, value INT'}}",
            3,
            "got `Topic` (Kafka's own column), `v",
        ),
        ("value: {{json: a INT, as: offset}}", 3, "`offset` (Kafka's own column)"),
        (
            "value: {{json: 'a INT'}}\n  key: {{json: 'b INT, A INT'}}",
            3,
            "got `a` (a column of the key); `as: NAME` next to the schema",
        ),
    ],
)
def test_what_is_no_way_to_read_is_told_at_its_place(tmp_path, read, column, message):
    line, found, told = problem(tmp_path, "", FORMATS.replace("{read}", read))
    assert message in told
    assert (line, found) == ((4 if column == 3 else 7), column)

"""A file is read as it was meant, or all that is wrong with it is told with line and column."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from support.errors import raises

from eos.config.load import load_pipeline
from eos.errors import UsageError

SMALLEST = """\
version: 1
name: orders
source:
  kafka: {topic: orders}
sink:
  kafka: {topic: orders.out}
"""
LOOP = "expected target topics that the source does not read"


def pipeline(tmp_path: Path, text: str, **environ: str):
    path = tmp_path / "pipeline.yaml"
    path.write_text(dedent(text))
    return load_pipeline(path, environ)


def problems(tmp_path: Path, text: str, **environ: str) -> list[tuple[int, int, str]]:
    with raises("config_invalid", UsageError) as caught:
        pipeline(tmp_path, text, **environ)
    found = caught.value.fields["problems"]
    for problem in found:
        assert str(problem) in str(caught.value)
    return [(line, column, message) for _, line, column, message, _ in found]


def test_the_smallest_pipeline_has_defaults(tmp_path):
    found = pipeline(tmp_path, SMALLEST)
    assert found.source.kafka.topic_names == ("orders",)
    assert found.source.kafka.start == "earliest"
    assert found.source.kafka.max_records == 500_000
    assert found.source.kafka.min_partitions is None
    assert [sink.topic for sink in found.sink.kafka] == ["orders.out"]
    assert found.sink.kafka[0].compression == "lz4"
    assert found.sink.kafka[0].partitioner == "key"
    assert found.transform == ()
    assert found.trigger.every_ms == 1000
    assert found.trigger.available_now is None
    assert found.transaction.timeout_ms == 600_000


def test_everything_that_may_be_said_is_kept(tmp_path):
    found = pipeline(
        tmp_path,
        """\
        version: 1
        name: a_b-c.d1
        source:
          kafka: {topics: [a, b], start: latest, max_records: 7, min_partitions: 3}
        transform:
          - python: pipelines.a.transform:enrich
            with: {rate: 1.19, names: [x, y], deep: {a: null, b: true}, day: 2024-01-01}
        sink:
          kafka:
            - topic: out
              create: {partitions: 4, replication: 3, config: {retention.ms: -1, x: false, y: 1.10}}
              compression: zstd
              partitioner: round_robin
              partition: p
              timestamp: t
            - {topic: more}
        trigger: {available_now: true}
        transaction: {timeout: 90 seconds}
        """,
    )
    assert found.source.kafka.topic_names == ("a", "b")
    assert found.source.kafka.max_records == 7
    assert found.source.kafka.min_partitions == 3
    step = found.transform[0]
    assert step.python == "pipelines.a.transform:enrich"
    assert step.arguments == {
        "rate": 1.19,
        "names": ["x", "y"],
        "deep": {"a": None, "b": True},
        "day": "2024-01-01",
    }
    sink, more = found.sink.kafka
    assert sink.create.partitions == 4
    assert sink.create.replication == 3
    assert sink.create.config == {"retention.ms": "-1", "x": "false", "y": "1.10"}
    assert (sink.compression, sink.partitioner) == ("zstd", "round_robin")
    assert (sink.partition, sink.timestamp) == ("p", "t")
    assert more.create is None
    assert found.trigger.available_now is True
    assert found.trigger.every_ms is None
    assert found.transaction.timeout_ms == 90_000


def test_once_has_no_bound_of_records_in_the_file_and_as_a_flag_overrides_it(tmp_path):
    assert pipeline(tmp_path, SMALLEST + "trigger: {once: true}\n").trigger.once is True
    bounded = SMALLEST.replace("topic: orders}", "topic: orders, max_records: 5}")
    (found,) = problems(tmp_path, bounded + "trigger: {once: true}\n")
    assert found[:2] == (7, 10)
    assert found[2].startswith("expected no `max_records` in the source with `once: true`")
    path = tmp_path / "pipeline.yaml"
    path.write_text(bounded)
    overridden = load_pipeline(path, ends="once")
    assert (overridden.trigger.once, overridden.source.kafka.max_records) == (True, 5)
    drained = load_pipeline(path, ends="available_now")
    assert (drained.trigger.every_ms, drained.trigger.available_now) == (None, True)
    assert drained.places.written(("name",)) == "`orders`"  # it is found where the file's is
    path.write_text(SMALLEST)
    assert load_pipeline(path, ends="once").trigger.once is True


def test_a_pattern_reads_whole_names_only(tmp_path):
    text = SMALLEST.replace("topic: orders}", r"pattern: 'orders|pay\.[a-z]+'}")
    found = pipeline(tmp_path, text).source.kafka
    assert found.topic_names == ()
    names = ("orders", "pay.in", "orders.out", "my-orders", "pay.", "xpay.in", "pay.IN")
    assert [name for name in names if found.reads(name)] == ["orders", "pay.in"]
    by_name = pipeline(tmp_path, SMALLEST).source.kafka
    assert [name for name in names if by_name.reads(name)] == ["orders"]


def test_all_problems_are_told_at_once_in_the_files_order(tmp_path):
    found = problems(
        tmp_path,
        """\
        version: 2
        name: Orders
        source:
          kafka: {topik: orders, start: earlist, max_records: 0}
        transform:
          - python: nothing
            wiht: {a: 1}
        sink:
          kafka: {topic: 12, compression: lz5, create: {partitions: many}}
        trigger: {every: 1}
        transaction: {timeout: 10 parsecs}
        """,
    )
    assert [(line, column) for line, column, _ in found] == [
        (1, 10),
        (2, 7),
        (4, 11),
        (4, 33),
        (4, 55),
        (6, 13),
        (7, 5),
        (9, 18),
        (9, 35),
        (9, 61),
        (10, 18),
        (11, 24),
    ]
    told = [message for _, _, message in found]
    assert told[0] == "expected 1, got `2`"
    assert "begins with a letter, got `Orders`" in told[1]
    assert told[2] == "unknown key `topik`; did you mean `topic`?"
    assert told[3].endswith("latest or group, got `earlist`; did you mean `earliest`?")
    assert told[4] == "expected a number of at least 1, got `0`"
    assert told[5] == "expected a function as `package.module:function`, got `nothing`"
    assert told[6] == "unknown key `wiht`; did you mean `with`?"
    assert told[7].startswith("expected a topic name, or a mapping with the keys column and topics")
    assert told[7].endswith(", got `12`; put quotes around it if it is a text")
    assert told[8].endswith("lz4 or zstd, got `lz5`; did you mean `lz4`?")
    assert told[9] == "expected a whole number, got `many`"
    assert "expected a duration such as `10 minutes`" in told[10]
    assert "unknown unit `parsecs`" in told[11]


def test_an_unknown_key_close_to_none_lists_all_that_are_known(tmp_path):
    found = problems(tmp_path, SMALLEST + "zzz: 1\n")
    known = (
        "version, name, source, dedup, tables, expect, transform, sink, trigger, output_mode, "
        "transaction, tests, guarantee"
    )
    assert found == [(7, 1, f"unknown key `zzz`; known here: {known}")]


def test_a_python_name_is_no_key_of_a_file(tmp_path):
    (found,) = problems(tmp_path, SMALLEST + "transaction: {timeout_ms: 5 s}\n")
    assert found == (7, 15, "unknown key `timeout_ms`; did you mean `timeout`?")


def test_a_missing_key_is_told_where_it_belongs(tmp_path):
    found = problems(tmp_path, "version: 1\nname: a\nsink: {kafka: {topic: b}}\nsource:\n  {}\n")
    assert found == [(5, 3, "expected `kafka`, the topics to read")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("source: {kafka: {topic: a, topics: [b]}}", "expected one of `topic`, `topics`"),
        ("source: {kafka: {topic: a, pattern: b}}", "expected one of `topic`, `topics`"),
        ("source: {kafka: {start: latest}}", "`topics` (at least one) and `pattern`"),
        ("source: {kafka: {topics: []}}", "`topics` (at least one) and `pattern`"),
        ("source: {kafka: {topics: [a, a]}}", "expected unique names in `topics`"),
        ("source: {kafka: {topic: a b}}", "expected a topic name"),
        ("source: {kafka: orders}", "expected a mapping with the keys topic, topics"),
        ("source: {kafka: {pattern: ''}}", "expected a text that is not empty"),
        ("source: {kafka: {pattern: 'a('}}", "expected a regular expression: missing ), unterm"),
        ("source: {kafka: {pattern: '(?P<x>a)'}}", "expected a pattern without named groups"),
        ("source: {kafka: {pattern: '[a-z&&[^b]]'}}", "in Java and Python: possible"),
        ("source: {kafka: {pattern: '[[a]b]'}}", "in Java and Python: possible nested"),
        ("source: {kafka: {pattern: 'b.*|x'}}", "`b` matches the pattern `b.*|x`"),
        ("sink: {kafka: []}", "expected at least one entry"),
        ("sink: {kafka: [{topic: x}, {topic: x}]}", "`x` appears twice"),
        ("sink: {kafka: {topic: orders}}", "`orders` is a source topic"),
        ("trigger: {every: 1 second, available_now: true}", "expected one of `every: 1 second`"),
        ("trigger: {every: 1 second, once: true}", "expected one of `every: 1 second`"),
        ("trigger: {available_now: true, once: true}", "`available_now: true` and `once: true`"),
        ("trigger: {}", "expected one of `every: 1 second`"),
        ("trigger: {available_now: false}", "expected true, got `false`"),
        ("trigger: {once: false}", "expected true, got `false`"),
        ("output_mode: complete", "`complete` would write the whole result again in each"),
        ("output_mode: upsert", "expected append or update, got `upsert`"),
        ("name: " + "a" * 101, "expected at most 100 characters"),
    ],
)
def test_a_contradiction_is_refused(tmp_path, line, message):
    key = line.split(":")[0]
    texts = {"version": "version: 1", "name": "name: orders"}
    texts |= {"source": "source: {kafka: {topic: orders}}", "sink": "sink: {kafka: {topic: b}}"}
    texts[key] = line
    (found,) = problems(tmp_path, "\n".join(texts.values()))
    assert message in found[2]
    assert found[0] == list(texts).index("sink" if found[2].startswith(LOOP) else key) + 1


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", (1, 1), "expected keys, got an empty file"),
        ("a: [", (1, 5), "expected YAML"),
        ("a: 1\n\tb: 2", (2, 1), "expected YAML"),
        ("a: 1\n---\nb: 2", (2, 1), "expected YAML"),
        ("- a\n- b", (1, 1), "expected a mapping with the keys version"),
        ("[" * 3000, (1, 1), "expected YAML"),
    ],
)
def test_what_is_no_pipeline_at_all_is_told_with_a_position(tmp_path, text, position, message):
    found = problems(tmp_path, text)[0]
    assert found[:2] == position
    assert message in found[2]


def test_a_key_written_twice_is_refused_and_names_the_first(tmp_path):
    found = problems(tmp_path, SMALLEST + "name: again\n")
    assert found == [(7, 1, "expected unique keys: `name` is also in line 2")]


def test_a_file_that_expands_without_end_is_refused(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert any("smaller file" in message for _, _, message in problems(tmp_path, "\n".join(lines)))
    assert "smaller file" in problems(tmp_path, "name: &a [*a]")[-1][2]


def test_tags_that_build_objects_are_refused(tmp_path):
    found = problems(tmp_path, SMALLEST + "trigger: !!python/name:os.system ''\n")
    assert "expected a plain value, got a tag; put quotes" in found[0][2]
    assert len(found) == 1


def test_a_merge_key_is_refused_as_such(tmp_path):
    found = problems(tmp_path, SMALLEST + "transaction: {<<: {timeout: 1 s}}\n")
    assert "merging with `<<` is not supported" in found[0][2]


def test_variables_are_filled_in_and_stay_texts(tmp_path):
    text = SMALLEST.replace("orders.out", "'${TOPIC}'").replace(
        "topic: orders}", "topic: '${IN:-in}', max_records: '${N}'}"
    )
    step = "transform: [{python: 'a:b', with: {price: $5, both: '$${X}', word: '${WORD}'}}]\n"
    found = pipeline(tmp_path, text + step, TOPIC="out-7", N="12", WORD="yes: {no}")
    assert found.sink.kafka[0].topic == "out-7"
    assert found.source.kafka.topic == "in"
    assert found.source.kafka.max_records == 12
    assert found.transform[0].arguments == {"price": "$5", "both": "${X}", "word": "yes: {no}"}


def test_a_variable_that_is_set_but_empty_is_empty_unless_it_has_a_default(tmp_path):
    step = "transform: [{python: 'a:b', with: {a: '${X}', b: '${X:-y}', c: '${Z:-}'}}]\n"
    found = pipeline(tmp_path, SMALLEST + step, X="")
    assert found.transform[0].arguments == {"a": "", "b": "y", "c": ""}


def test_an_unset_variable_is_a_problem_at_its_place(tmp_path):
    found = problems(tmp_path, SMALLEST.replace("orders.out", "'${TOPIC}'"))
    assert found[0][:2] == (6, 18)
    assert "`TOPIC`, which is not set; set it, or write `${TOPIC:-default}`" in found[0][2]
    assert len(found) == 1
    broken = problems(tmp_path, SMALLEST.replace("orders.out", "'${TO PIC}'"))
    assert "expected `${VAR}` or `${VAR:-default}`" in broken[0][2]


def test_a_variable_without_quotes_in_braces_is_told_what_it_needs(tmp_path):
    (found,) = problems(tmp_path, SMALLEST.replace("orders.out", "${TOPIC}"), TOPIC="x")
    assert "inside `{ }` and `[ ]` a `${VAR}` needs quotes around it" in found[2]


def test_a_wrong_value_from_a_variable_does_not_print(tmp_path):
    text = SMALLEST.replace("name: orders", "name: ${NAME}")
    (found,) = problems(tmp_path, text, NAME="Hunter2")
    assert "Hunter2" not in found[2]
    assert "got `${NAME}`" in found[2]


def test_a_pipeline_knows_its_folder_and_its_project(tmp_path):
    folder = tmp_path / "pipelines" / "a"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(SMALLEST)
    for path in (folder, folder / "pipeline.yaml"):
        found = load_pipeline(path)
        assert found.path == folder / "pipeline.yaml"
        assert found.folder == folder
        assert found.project_root == tmp_path


def test_a_file_that_can_not_be_read_is_named(tmp_path):
    with raises("config_file_unreadable") as caught:
        load_pipeline(tmp_path / "nothing.yaml")
    assert "nothing.yaml can't be read: No such file" in caught.value.message
    (tmp_path / "p.yaml").write_bytes(b"name: \xff")
    with raises("config_file_not_utf8"):
        load_pipeline(tmp_path / "p.yaml")
    (tmp_path / "p.yaml").write_bytes(b"#" * 2_000_000)
    with raises("config_file_too_large"):
        load_pipeline(tmp_path / "p.yaml")


def test_loading_imports_neither_spark_nor_kafka():
    code = (
        "import sys, eos.config.load;"
        "print([m for m in ('pyspark', 'kafka', 'pyarrow', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

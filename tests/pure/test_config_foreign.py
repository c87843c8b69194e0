"""Whatever stands in a pipeline file or a profile, the loader's own error is all that it raises."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.docs import blocks

from eos.config.load import load_parts, load_pipeline, load_profile, name_of
from eos.config.variables import variables_of
from eos.errors import EosError, UsageError

ROOT = Path(__file__).parents[2]
EXAMPLES = [file.read_text() for file in sorted(ROOT.glob("pipelines/*/pipeline.yaml"))]
EXAMPLES.append("""
version: 1
name: rich
guarantee: exactly_once
output_mode: append
source:
  kafka:
    pattern: orders-[a-z]+
    start: 2026-11-21T10:00:00Z
    max_records: 1000
    max_bytes: 1000000
  key: text
  value:
    json: id BIGINT, at TIMESTAMP, tags ARRAY<STRING>
  on_error: dead_letter
expect:
  - name: positive
    condition: amount > 0
    on_error: drop
dead_letter:
  topic: rich.dead
  compression: lz4
  create: {partitions: 3, replication: 1, config: {retention.ms: 1000}}
dedup:
  producer: header(producer)
  epoch: value(meta.epoch)
  sequence: key
  wraps_at: 65536
  window: 10 minutes
  forget_after: 7 days
static:
  customers:
    delta: /data/customers
    columns: id BIGINT, name STRING
transform:
  - sql: SELECT * FROM input
    name: first
  - python: "pipelines.x:f"
    with: {a: 1, b: 2.5}
    returns: "*, score DOUBLE"
  - pandas: "pipelines.x:g"
    returns: id BIGINT
sink:
  - kafka: {topic: a, topics: [a, b], partition: 3}
    key: id
    value: {json: [id, name]}
    headers: {x: name}
    where: id > 1
    compression: zstd
  - delta: {path: /data/t, keys: [id], partition_by: [day], evolve: true, columns: [id]}
trigger:
  every: 10 seconds
transaction:
  timeout: 5 minutes
tests:
  - name: one
    input: [{key: a, value: {id: 1}}]
    output: [{topic: a, value: {id: 1}}]
""")
# Parts of files are in the pages: they have keys that no example needs.
PARTS = [text for _, text in blocks("yaml") if text.strip()]
PIPELINES = EXAMPLES * 8 + PARTS
RICH_PROFILE = """
kafka:
  bootstrap: [a:9092, b:9092]
  max_request_bytes: 1000000
  security:
    protocol: SASL_SSL
    mechanism: SCRAM-SHA-512
    username: eos
    password: ${A}
    ca: /etc/ca.pem
registry:
  url: https://registry:8081
  username: u
  password: ${A}
state:
  root: /var/lib/eos
  group: data
audit:
  table: /data/audit
spark:
  master: local[2]
  conf: {spark.driver.memory: 1g}
"""
PROFILES = (
    [RICH_PROFILE] * 8 + [file.read_text() for file in sorted(ROOT.glob("conf/*.yaml"))] * 8 + PARTS
)
# What YAML, Python's numbers, dates, regular expressions, paths and Spark's DDL have of their own.
ODD = [
    *("!!int x", "!!int ''", "!!int '-'", "!!float ''", "!!float .", "!!float 1e", "!!bool x"),
    *("!!null x", "!!timestamp x", "!!binary x", "!!set {a}", "!!omap [a: 1]", "!!python/x y"),
    *("0b", "0x_", "0o8", "1:99:99", "-.inf", ".nan", "1e999", "9" * 5_000, "0x" + "f" * 5_000),
    *(
        "2026-13-45",
        "2026-02-30T10:00:00Z",
        "9999-12-31T23:59:59-14:00",
        "0001-01-01T00:00:00+14:00",
    ),
    *("&a [*a]", "*a", "<<: {a: 1}", "? [a]\n: b", "---", "...", "%TAG ! x", "[" * 60, "{a: " * 60),
    *('"\\ud800"', '"\\U0001F600"', '"\\0"', "'\u2028'", "\x85", "\ufeff", "\u00b2", "\u0663"),
    *(
        "${",
        "${}",
        "${A",
        "${A:-",
        "${A:-x}",
        "${file:/}",
        "${file:/\u2028}",
        "$$$",
        "${file:/etc}",
    ),
    *('"${file:/\\0}"', f"${{file:/{'x' * 5_000}}}", "${" * 40, '"${\\ud800}"'),
    *(
        "(" * 5_000,
        "(" * 120,
        "(?P<a>",
        "a{99999999999}",
        "(?i",
        "[[a]]",
        "\\",
        "(?<=a*)",
        "*",
        "a" * 70_000,
    ),
    *("99999999999999999999 hours", "1e9 s", "0 ms", "\u0661 s", "-1", "1.5", "true", "~", "''"),
    *(
        "a STRUCT<",
        "a ARRAY<" * 90,
        "a DECIMAL(99,99)",
        "a:b:c",
        "a.b:c:d",
        "[::1]:9",
        "h:99999999",
    ),
    *(
        "http://[",
        "http://[::1",
        "http://a:99999",
        "https://\u2100",
        "file:x",
        "s3a://",
        "/dev/null",
    ),
    *(
        "- " * 50,
        "{}",
        "[]",
        "[[]]",
        "{a: {}}",
        "null",
        "{? {a: b} : c}",
        "{1: 2, 1.0: 3, true: 4}",
    ),
]


def mutated(chance: random.Random, text: str) -> str:
    """The text with a few places changed, most of them a whole value."""
    lines = text.splitlines()
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(lines))
        kind = chance.randrange(6)
        key, colon, _ = lines[at].partition(": ")
        if kind <= 2 and colon:
            lines[at] = f"{key}: {chance.choice(ODD)}"
        elif kind == 3:
            lines[at] = chance.choice(lines)
        elif kind == 4:
            cut = chance.randrange(len(lines[at]) + 1)
            lines[at] = (
                lines[at][:cut] + chance.choice(ODD) + lines[at][cut + chance.randrange(3) :]
            )
        else:
            del lines[at : at + chance.randrange(1, 3)]
            lines = lines or [chance.choice(ODD)]
    return "\n".join(lines)


def foreign(call: Callable[[], object]) -> str:
    """What it raises beside the project's own errors."""
    try:
        call()
    except EosError as error:
        str(error).encode("utf-8", "backslashreplace")
    except Exception as error:  # noqa: BLE001 - which it is, is what is looked for
        return f"{type(error).__name__}: {error}"[:300]
    return ""


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_no_file_raises_what_is_no_error_of_ours(tmp_path: Path, count: int) -> None:
    chance = random.Random(27)
    pipeline, profile = tmp_path / "pipeline.yaml", tmp_path / "x.yaml"
    for number in range(count):
        environ = {"A": chance.choice(ODD)} if chance.randrange(2) else {}
        is_profile = number % 3 == 0
        text = mutated(chance, chance.choice(PROFILES if is_profile else PIPELINES))
        path = profile if is_profile else pipeline
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        calls: list[Callable[[], object]] = [partial(name_of, pipeline)]
        if is_profile:
            calls = [partial(load_profile, str(profile), tmp_path, environ)]
        elif number % 2:
            calls = [
                partial(each, pipeline, environ, text=text) for each in (load_pipeline, load_parts)
            ]
        for call in calls:
            found = foreign(call)
            assert not found, f"{call}: {found}"


def replaced(text: str, at: int, value: str) -> str:
    """The text with another value of the key in that line."""
    lines = text.splitlines()
    lines[at] = f"{lines[at].partition(': ')[0]}: {value}"
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("old", "odd", "told"),
    [
        ("pattern: orders-[a-z]+", "(" * 900, "expected a regular expression"),
        ("pattern: orders-[a-z]+", "a{99999999999}", "expected a regular expression"),
        ("pattern: orders-[a-z]+", "a" * 1_001, "expected a pattern of at most 1000 characters"),
        ("producer: header(producer)", '"\\ud800"', "expected valid Unicode"),
        ("    name: first", "0x" + "f" * 5_000, "expected a whole number of at most 64 bits"),
        ("version: 1", "!!int ''", "expected a value of type int"),
    ],
)
def test_what_python_refuses_is_a_problem_with_a_place(old: str, odd: str, told: str) -> None:
    text = EXAMPLES[-1].strip()
    at = text.splitlines().index(next(line for line in text.splitlines() if old in line))
    with pytest.raises(UsageError) as caught:
        load_pipeline("p", {}, text=replaced(text, at, odd))
    found = [each for each in caught.value.fields["problems"] if each.line == at + 1]
    assert any(each.message.startswith(told) for each in found), found


@pytest.mark.long
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_value_of_any_key_is_no_foreign_error(tmp_path: Path, odd: str) -> None:
    profile = tmp_path / "x.yaml"
    for base in (EXAMPLES[-1], RICH_PROFILE):
        for at in (number for number, line in enumerate(base.splitlines()) if ": " in line):
            text = replaced(base, at, odd)
            profile.write_text(text, encoding="utf-8", errors="surrogatepass")
            calls = [partial(load_parts, profile, {"A": odd}, text=text)]
            if base is RICH_PROFILE:
                calls = [partial(load_profile, str(profile), tmp_path, {"A": odd})]
            assert not foreign(calls[0]), text


def cpu_s(call: Callable[[], object]) -> float:
    """The least CPU time of three calls."""
    found = []
    for _ in range(3):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return min(found)


@pytest.mark.parametrize("part", ["${a:-", "${file:/", "${a", "${", "$", "}${a:-"])
def test_variables_are_found_in_linear_time(part: str) -> None:
    """Four times the text takes about four times as long. It took sixteen times as long."""

    def search(count: int) -> float:
        return cpu_s(lambda: list(variables_of(part * count)))

    assert search(80_000) < 10 * search(20_000) + 0.01


@pytest.mark.long
def test_unknown_keys_are_listed_in_linear_time() -> None:
    def refuse(count: int) -> float:
        keys = "\n".join(f"key{number}: {number}" for number in range(count))
        return cpu_s(lambda: foreign(lambda: load_pipeline("p", {}, text=f"version: 1\n{keys}")))

    assert refuse(24_000) < 4 * refuse(12_000)


def test_a_message_is_bounded_and_the_problems_are_all_there() -> None:
    text = "version: 1\n" + "\n".join(f"{'k' * 900}{number}: 1" for number in range(150))
    with pytest.raises(UsageError) as caught:
        load_pipeline("p", {}, text=text)
    assert len(str(caught.value)) < 50_000
    assert "and 53 more" in str(caught.value)
    assert len(caught.value.fields["problems"]) == 153

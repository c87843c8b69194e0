"""The keys of Debezium's change events: which files are refused, and which columns they have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.errors import raises
from support.kafka.schemas import registry

from eos.config.load import load_pipeline, load_profile
from eos.config.registry import Registry
from eos.errors import UsageError
from eos.formats.debezium import require_event
from eos.plan.plan import decode, plan
from eos.read.decode import Decode
from eos.startup.registered_schemas import with_registry

FILE = """
version: 1
name: orders
source:
  kafka: {topic: shop.orders}
  %s
sink: {kafka: {topic: out}}
"""


def envelope(*fields: str, source: str = "ts_ms") -> str:
    """Return the Avro schema of an event with these fields."""
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    of_source = {"name": source, "type": "long"}
    types: dict[str, object] = {
        "before": ["null", row],
        "after": ["null", "Value"],
        "op": "string",
        "source": {"type": "record", "name": "Source", "fields": [of_source]},
    }
    found = [{"name": name, "type": types[name]} for name in fields]
    return json.dumps({"type": "record", "name": "Envelope", "fields": found})


WHOLE = ("before", "after", "op", "source")


def loaded(folder: Path, read: str) -> Decode:
    path = folder / "pipeline.yaml"
    path.write_text(FILE % read)
    return decode(load_pipeline(path).source, (), folder)


def test_an_event_has_four_columns_in_json_and_avro(tmp_path):
    row = "id BIGINT NOT NULL, state STRING"
    value = loaded(tmp_path, f'value: {{debezium: {{json: "{row}"}}}}').value
    assert value.names == ("before", "after", "op", "source_ts")
    assert (value.kind, value.required, value.is_event) == ("json", ("id",), True)
    registered = loaded(tmp_path, f'value: {{debezium: {{json: "{row}"}}, subject: v}}').value
    assert (registered.subject, registered.is_event) == ("v", True)
    (tmp_path / "e.avsc").write_text(envelope(*WHOLE))
    value = loaded(tmp_path, "value: {debezium: {avro: {file: e.avsc, subject: v}}, as: c}").value
    assert (value.names, value.kind, value.subject) == (("c",), "avro", "v")
    assert value.is_event
    latest = loaded(tmp_path, "value: {debezium: {avro: {subject: v}}}").value
    assert latest.is_elsewhere
    assert latest.names == ("before", "after", "op", "source_ts")


@pytest.mark.parametrize(
    ("read", "message"),
    [
        ('key: {debezium: {json: "id INT"}}', "expected no `debezium` in the key"),
        ("value: {debezium: {}}", "expected either `json` or `avro`"),
        ('value: {debezium: {json: "id INT"}, json: "a INT"}', "expected one of `json`, `avro`"),
        ('value: {debezium: {json: "id DECIML"}}', "did you mean `DECIMAL`?"),
        ("value: {debezium: {avro: {file: a, subject: b, register: true}}}", "no `register`"),
        ("value: {avro: {subject: a}, subject: b}", "expected `subject` inside `avro` or `proto"),
        ("value: {debezium: {avro: {subject: a}}, subject: b}", "expected `subject` inside"),
        ('key: {json: "op INT"}\n  value: {debezium: {json: "id INT"}}', "got `op`"),
    ],
)
def test_what_is_no_event_is_refused_in_the_file(tmp_path, read, message):
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, read)
    assert message in str(caught.value.fields["problems"])


@pytest.mark.parametrize("lacking", WHOLE)
def test_an_avro_schema_needs_the_fields_of_an_event(tmp_path, lacking):
    require_event(envelope(*WHOLE))
    # `before` declares the type that `after` names, so it is replaced and not left out.
    odd = envelope(*WHOLE).replace(f'"name": "{lacking}"', '"name": "other"')
    (tmp_path / "e.avsc").write_text(odd)
    with raises("debezium_schema_invalid") as caught:
        loaded(tmp_path, "value: {debezium: {avro: {file: e.avsc}}}")
    assert f"`{lacking}` is missing" in caught.value.message
    with pytest.raises(ValueError, match="`ts_ms`"):
        require_event(envelope(*WHOLE, source="at"))


def test_the_latest_schema_of_a_subject_must_be_an_event(tmp_path):
    loaded(tmp_path, "value: {debezium: {avro: {subject: v}}}")
    pipeline = load_pipeline(tmp_path / "pipeline.yaml")
    before = plan(pipeline, load_profile(None, tmp_path, {}), ("a:1",), ())
    with registry() as asked:
        number = asked.add("v", envelope(*WHOLE))
        value = with_registry(before, Registry(url=asked.url)).decode.value
        assert json.loads(value.schema) == json.loads(envelope(*WHOLE))
        assert value.columns == ("before", "after", "op", "source_ts")
        assert list(value.written_by) == [number]
        asked.add("v", envelope("before", "op"))
        with raises("registry_schema_unsupported") as caught:
            with_registry(before, Registry(url=asked.url))
    assert "`after` is missing" in caught.value.message

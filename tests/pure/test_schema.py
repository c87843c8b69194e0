"""The JSON Schema that editors read is the one of the code, and the examples fit their own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from eos.cli.lint import find
from eos.config.reference import reference
from eos.config.registry import Registry
from eos.config.rejected_records import Rule
from eos.config.schema import KINDS, schema_of
from eos.config.sink import KafkaSink

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "pipelines").glob("*/pipeline.yaml"))


@pytest.mark.parametrize("of", KINDS)
def test_the_file_in_conf_is_not_stale(of: str) -> None:
    written = (ROOT / "conf" / f"{of}.schema.json").read_text()
    assert written == schema_of(of), f"run: eos schema {of} > conf/{of}.schema.json"


def test_the_reference_is_not_stale() -> None:
    written = (ROOT / "docs" / "reference.md").read_text()
    assert written == reference(), "run: eos schema --markdown > docs/reference.md"


def test_the_reference_has_every_key_where_it_says_it_is() -> None:
    """Each mapping that a key names is a heading, once, with that mapping's keys below it."""
    page = reference()
    sections = re.findall(r"^### `(.*?)`$(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE)
    headings = [heading for heading, _ in sections]
    assert set(re.findall(r"a mapping: `(.*?)`", page)) == set(headings)
    below = {
        heading: re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) for heading, text in sections
    }
    for model, place in ((KafkaSink, "sink.kafka"), (Rule, "expect"), (Registry, "registry")):
        keys = [field.alias or name for name, field in model.model_fields.items()]
        assert below[place] == keys


def test_every_key_of_the_examples_is_in_the_schema() -> None:
    schema = json.loads(schema_of("pipeline"))
    for path in EXAMPLES:
        for key in yaml.safe_load(path.read_text()):
            assert key in schema["properties"], f"{path}: {key}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_examples_have_no_problems(path: Path) -> None:
    assert list(find(path)) == []

"""Durations in words."""

import pytest

from eos.config.literals import duration_ms
from eos.config.model import PipelineFile, ProfileFile


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("10 minutes", 600_000),
        ("1 second", 1_000),
        ("500 ms", 500),
        ("500ms", 500),
        ("1.5 s", 1_500),
        ("2 Hours", 7_200_000),
        ("  1 day ", 86_400_000),
        ("3 milliseconds", 3),
        ("2 min", 120_000),
    ],
)
def test_a_duration_is_read(words, expected):
    assert duration_ms(words) == expected


@pytest.mark.parametrize("words", ["", "5", 5, True, None, "-1 s", "1 year", "one second", "1 s 2"])
def test_what_is_no_duration_says_what_is(words):
    with pytest.raises(ValueError, match="expected a duration such as `10 minutes`"):
        duration_ms(words)


@pytest.mark.parametrize("words", ["0 s", "0.1 ms", "60 days"])
def test_a_duration_has_bounds(words):
    with pytest.raises(ValueError, match="from 1 ms to 24 days"):
        duration_ms(words)


def test_the_schema_describes_files_not_python_names():
    schema = PipelineFile.model_json_schema()
    definitions = schema["$defs"]
    assert set(definitions["Trigger"]["properties"]) == {"every", "available_now", "once"}
    assert set(definitions["Step"]["properties"]) == {
        "arrow",
        "name",
        "pandas",
        "python",
        "returns",
        "sql",
        "tables",
        "with",
    }
    one, many = definitions["Sink"]["properties"]["kafka"]["anyOf"]
    assert one == many["items"]
    assert many["minItems"] == 1
    assert all(part["additionalProperties"] is False for part in definitions.values())
    assert "bootstrap" in ProfileFile.model_json_schema()["$defs"]["KafkaProfile"]["properties"]

"""What `eos doctor` says of a real broker, with and without a pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.copies.recovery import Pipeline
from support.verbs import doctor


def told(capsys: Any, code: int, *words: str) -> dict[str, dict[str, str]]:
    assert doctor([*words, "--json"]) == code
    return {each["what"]: each for each in json.loads(capsys.readouterr().out)["checks"]}


def test_a_broker_that_fits_and_a_pipeline_that_wants_more_time(pipeline: Pipeline, capsys) -> None:
    place, *profile = pipeline.words
    found = told(capsys, 0, *profile)
    assert "transaction.version 2: the protocol is TV2" in found["features"]["says"]
    assert (found["brokers"]["level"], found["brokers"]["says"][:2]) == ("note", "1:")
    assert found["timeouts"]["says"].startswith("transaction.max.timeout.ms is 900,000")

    file = Path(place) / "pipeline.yaml"
    file.write_text(file.read_text() + "transaction: {timeout: 1 hour}\n")
    found = told(capsys, 1, place, *profile)
    assert found["timeouts"]["level"] == "finding"
    assert "timeout is 3,600,000 ms" in found["timeouts"]["says"]
    assert "transaction: {timeout: 900 seconds}" in found["timeouts"]["remedy"]

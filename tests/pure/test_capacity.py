"""The model of a run's CPU time, and what it says of many cores."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from bench import capacity
from bench.capacity import Model, Need, Shape, fit, simulated_s

TRUE = Model(run_s=1.5, micro_batch_s=0.1, source_s=0.002, target_s=0.001, record_s=1e-6)
SHAPES = [
    Shape(1_000, 10, 4),
    Shape(100_000, 50, 4),
    Shape(1_000_000, 2, 200),
    Shape(1_000_000, 10, 4, 1_000),
    Shape(4_000_000, 8, 50),
    Shape(4_000_000, 1, 4),
]


def runs_of(model: Model) -> list[dict[str, Any]]:
    return [{**asdict(shape), "cpu_seconds": model.cpu_s(shape)} for shape in SHAPES]


def test_costs_that_made_the_runs_are_found_again() -> None:
    found = fit(runs_of(TRUE), "cpu_seconds")
    assert found.error(runs_of(TRUE), "cpu_seconds") == pytest.approx(0, abs=1e-9)
    assert found.cpu_s(Shape(10_000_000, 10, 12)) == pytest.approx(12.7)


def test_no_cost_is_negative() -> None:
    runs = runs_of(Model(0.5, 0.0, 0.0, 0.0, 1e-6))
    for run in runs:
        run["cpu_seconds"] -= run["targets"] * run["micro_batches"] * 1e-5
    found = fit(runs, "cpu_seconds")
    assert found.target_s == 0
    assert min(found.run_s, found.micro_batch_s, found.record_s) >= 0


def test_many_cores_are_limited_by_the_driver_and_the_slowest_task() -> None:
    backfill = Shape(100_000_000, 100, 100)
    one, ten, thousand = (simulated_s(TRUE, backfill, cores) for cores in (1, 10, 500))
    assert one == pytest.approx(TRUE.cpu_s(backfill), rel=0.05)
    assert one / 10 < ten < one / 4
    assert thousand > TRUE.micro_batch_s * backfill.micro_batches
    larger = Shape(backfill.records, 10, 100)
    assert simulated_s(TRUE, larger, 500) < thousand / 3


def test_a_longer_interval_needs_less() -> None:
    short, long = (Need.of(TRUE, TRUE, 1e9, seconds) for seconds in (1, 10))
    assert short.targets == long.targets == 50
    assert short.driver_share == pytest.approx(0.1)
    assert long.driver_share == pytest.approx(0.01)
    assert short.cores > long.cores > 1e9 / capacity.RECORD_BYTES * TRUE.record_s


def test_the_page_keeps_its_other_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(capacity, "RAW", tmp_path / "raw.json")
    capacity.PAGE.write_text(f"Before\n{capacity.BEGIN}\nold\n{capacity.END}\nAfter\n")
    runs = [{**run, "broker_cpu_seconds": run["cpu_seconds"] / 2} for run in runs_of(TRUE)]
    capacity.write({"machine": "2 cores", "runs": runs})
    text = capacity.PAGE.read_text()
    assert text.startswith("Before\n")
    assert text.endswith("After\n")
    assert "old" not in text
    assert "| eos | 1.50 s | 100 ms | 2.00 ms | 1.00 ms | 1.00 s |" in text
    assert "| 10 GB/s | 10 s | 500 |" in text
    assert capacity.newest([]) == {"machine": "2 cores", "runs": runs}


def test_the_model_describes_the_measurements_and_the_page_shows_it() -> None:
    measured = capacity.newest([])
    for figure in ("cpu_seconds", "broker_cpu_seconds"):
        assert fit(measured["runs"], figure).error(measured["runs"], figure) < 0.25
    assert capacity.text(measured) in capacity.PAGE.read_text(encoding="utf-8")

"""The charts of the docs out of what the benchmarks kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from bench.arms import CHECKOUT
from bench.contents import rows_of
from bench.curves import DRAWINGS, draw, kept
from bench.plot import Chart, Line, Point

SVG = "{http://www.w3.org/2000/svg}"


def turn(arm: str, number: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {"arm": arm, "round": number, "seconds": seconds, **more}


def svg(path: Path) -> ET.Element:
    return ET.fromstring(path.read_text(encoding="utf-8"))


def words(drawn: ET.Element) -> list[str]:
    return [each.text or "" for each in drawn.iter(f"{SVG}text")]


def test_a_small_micro_batch_is_the_median_of_all_without_the_first_of_a_turn(
    tmp_path: Path,
) -> None:
    arms = {"eos": (3, 5), "spark": (2, 2), "spark_files": (1, 1)}
    found = {
        f"small_{size}": [
            turn(arm, number, 0, trigger_ms=[900, 900, 900, ms * size, ms * size, ms * size])
            for arm, each in arms.items()
            for number, ms in enumerate(each, 1)
        ]
        for size in (10, 1_000)
    }
    said = "\n".join(draw({**found, "small_micro_batches": []}, tmp_path))
    assert "| 10 | 40 (30 to 50) | 20 (20 to 20) | 10 (10 to 10) |" in said
    assert "| 1,000 | 4,000 (3,000 to 5,000) |" in said


def test_an_axis_of_decades_spreads_them_evenly(tmp_path: Path) -> None:
    ms = {10_000: 30.0, 1_000_000: 300.0, 100_000_000: 3000.0}
    known = [{"known": at, "active": 100, "ms": [each] * 5} for at, each in ms.items()]
    draw({"dedup_known": known}, tmp_path)
    drawn = svg(tmp_path / "dedup.svg")
    dots = [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in drawn.iter(f"{SVG}circle")]
    (x0, y0), (x1, y1), (x2, y2) = dots
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert x1 > x0
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y1 < y0


def test_it_is_legible_in_the_dark_and_words_stay_words() -> None:
    lines = [Line("a < b & c", [Point(1, 1, 2, 3)]), Line("</svg>", [Point(1, 1, 1, 1)])]
    drawn = Chart("<title>", "x & y", '"y"', lines).svg()
    read = ET.fromstring(drawn)
    assert {"a < b & c", "</svg>", "<title>", "x & y", '"y"'} <= set(words(read))
    assert "prefers-color-scheme: dark" in drawn
    spread = [each.get("d", "") for each in read.iter(f"{SVG}path")]
    assert any("V" in step for step in spread)


def test_the_newest_of_each_measurement_counts(tmp_path: Path) -> None:
    for name, content in {
        "b/20260102-000000": {"small": 2},
        "a/20260101-000000": {"small": 1, "large": 1},
        "a/20260103-000000": {"other": 3},
    }.items():
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"measurements": content}))
    assert kept([tmp_path / "b", tmp_path / "a"]) == {"small": 2, "large": 1, "other": 3}


def test_nothing_kept_says_what_to_run(tmp_path: Path) -> None:
    said = draw({}, tmp_path)
    assert len(said) == len(DRAWINGS)
    assert not list(tmp_path.iterdir())
    assert "small: nothing is kept, run ./tests/run bench -k steady_stream" in said


@pytest.mark.parametrize("size", [100, 180, 1_000, 10_000])
def test_records_of_each_size_compress_alike(size: int) -> None:
    _, values = rows_of(100_000, size)
    sample = b"".join(values[: 300_000 // size])
    times = len(sample) / len(pa.compress(sample, codec="lz4", asbytes=True))
    assert 2.5 < times < 4
    assert {len(value) for value in values} == {size}


@pytest.mark.parametrize("name", DRAWINGS)
def test_what_is_to_be_run_is_there(name: str) -> None:
    tests = (CHECKOUT / "tests" / "bench").glob("test_*.py")
    assert any(DRAWINGS[name].words in path.read_text(encoding="utf-8") for path in tests)

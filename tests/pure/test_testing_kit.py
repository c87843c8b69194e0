"""The public test kit, without a broker; tests/pipeline/test_init.py runs it as a user does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from support.errors import raises

from eos import faults
from eos.cli.init import files
from eos.config.delta_sink import DeltaSink
from eos.plan.delta_sink import TEST_TABLES, tables
from eos.testing import (
    CRASH_POINTS,
    crash,
    crash_at,
    difference,
    outside,
    require_each_once,
    require_same_rows,
)
from eos.testing.outside import _LOST, NOT_LED, answered
from eos.testing.runs import PipelineRun, _record

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "testing-your-pipeline.md").read_text()


def test_the_oracle_tells_what_is_lost_and_what_is_there_too_often() -> None:
    require_each_once([1, 2, 2], [2, 1, 2])
    with pytest.raises(AssertionError) as told:
        require_each_once(range(10), [0, 0, 0, 11])
    assert str(told.value) == (
        "10 expected, 4 found; 9 lost (1, 2, 3, 4, 5, ...); 3 too many (0, 11)"
    )
    found = difference("aab", "abb")
    assert (found.is_none, found.lost, found.extra) == (False, {"a": 1}, {"b": 1})


def test_without_chispa_the_error_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chispa", None)
    with raises("test_chispa_missing") as missing:
        require_same_rows(object(), object())
    assert "spark-eos[testing]" in missing.value.hint


def test_a_topic_that_does_not_exist_is_not_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a misspelled name would pass a test that nothing was written."""
    monkeypatch.setattr(outside, "topics", lambda _: {"orders"})
    monkeypatch.setattr(outside, "read", lambda *_: [])
    kafka = outside.Kafka("broker:9092")
    assert kafka.read("orders") == []
    with pytest.raises(LookupError, match="'ordres' does not exist"):
        kafka.read("ordres")
    sink = SimpleNamespace(topic_names=("large", "orders"))
    file: Any = SimpleNamespace(sink=sink, name="p")
    run = PipelineRun(file, kafka, Path("unused"))
    assert run.read("large") == []  # the pipeline has not created it yet
    with pytest.raises(LookupError):
        run.read("ordres")


def test_a_tests_run_writes_no_real_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = [DeltaSink(path="s3a://lake/orders"), DeltaSink(path="lake/orders", name="copy")]
    file: Any = SimpleNamespace(
        sink=SimpleNamespace(delta=sinks), name="p", path=tmp_path, project_root=tmp_path
    )
    run = PipelineRun(file, outside.Kafka("broker:9092"), tmp_path)
    started: dict[str, str] = {}

    def note(_name: str, _words: object, environment: dict[str, str], *_: object, **__: object):
        started.update(environment)

    monkeypatch.setattr("eos.testing.runs.ended", note)
    run.run()
    monkeypatch.setenv(TEST_TABLES, started[TEST_TABLES])
    places = {each.name: each.path for each in tables(sinks, tmp_path)}
    assert places == {name: str(run.table(name)) for name in ("orders", "copy")}
    assert all(Path(each).is_relative_to(tmp_path / "tables") for each in places.values())
    with raises("test_topic_ambiguous"):
        run.table()
    with pytest.raises(LookupError):
        run.table("ordres")


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_what_crash_at_says_is_understood(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOS_CRASH_AT", crash_at(point, "before", "python"))
    assert faults.CrashPlan.from_environment().point == f"{point}:before"


def test_a_crash_point_that_is_none_is_refused_with_those_that_are() -> None:
    for wrong in (("nowhere",), ("begin", "soon"), ("begin", "after", "me")):
        with raises("crash_point_invalid") as refused:
            crash_at(*wrong)
        assert "one of " in (refused.value.hint or "")


def test_all_crash_points_are_told_in_the_guide_and_beside_the_code() -> None:
    told = re.findall(r"`(\w+)`", re.search(r"\| point \|.*?\n\n", GUIDE, re.DOTALL)[0])
    assert tuple(told) == faults.POINTS
    assert all(f"\n{point} " in crash.__doc__ for point in faults.POINTS)


def test_the_guides_example_is_what_init_writes() -> None:
    """Which is run, in tests/pipeline/test_init.py."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    _, _, written = files("shop")["tests/test_shop.py"].partition("\n\n")
    assert block == written


@pytest.mark.parametrize(
    ("value", "key", "wanted"),
    [
        ({"id": 7}, "id", {"value": b'{"id": 7}', "key": b"7"}),
        ([1], None, {"value": b"[1]"}),
        ("text", None, {"value": "text"}),
        (None, None, {"value": None}),
    ],
)
def test_what_is_fed(value: object, key: str | None, wanted: dict[str, object]) -> None:
    assert _record(value, key) == wanted


def test_records_are_fed_with_headers_of_their_own_or_with_those_of_all() -> None:
    def numbered(value: dict[str, int]) -> dict[str, str]:
        return {"seq": str(value["id"])}

    assert _record({"id": 7}, None, numbered)["headers"] == [("seq", "7")]
    assert _record("x", None, {"till": b"3", "empty": None})["headers"] == [
        ("till", b"3"),
        ("empty", None),
    ]
    assert _record("x", None, [("a", "1"), ("a", "2")])["headers"] == [("a", "1"), ("a", "2")]


def test_the_plugin_costs_a_session_that_does_not_use_it_nothing() -> None:
    """pytest loads it in every session of an environment that has it."""
    heavy = ("pyspark", "pyarrow", "numpy", "confluent_kafka", "pydantic", "yaml")
    program = (
        "import sys, eos.testing.plugin, eos.testing\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


LOST = frozenset(_LOST)  # what is asked again by default


@pytest.mark.parametrize(
    ("code", "again", "is_asked_again"),
    [
        (KafkaError._DESTROY_BROKER, LOST, True),
        (KafkaError._DESTROY_BROKER, NOT_LED, True),
        (KafkaError.TOPIC_ALREADY_EXISTS, LOST, False),
        # The client knows an older or a newer leader than the broker does.
        (KafkaError.FENCED_LEADER_EPOCH, NOT_LED, True),
        (KafkaError.UNKNOWN_LEADER_EPOCH, NOT_LED, True),
        (KafkaError.FENCED_LEADER_EPOCH, LOST, False),
        (KafkaError.TOPIC_ALREADY_EXISTS, NOT_LED, False),
    ],
)
def test_a_client_that_lost_its_broker_is_asked_again(
    code: int, again: frozenset[int], is_asked_again: bool
) -> None:
    answers = iter([KafkaException(KafkaError(code)), "here"])

    def ask() -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    if is_asked_again:
        assert answered(ask, again) == "here"
    else:
        with pytest.raises(KafkaException):
            answered(ask, again)

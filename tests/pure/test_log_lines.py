"""The log's lines: the same events and errors for a console, as text with fields, and as JSON."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.errors import raises

from eos import log_lines
from eos.errors import FencedError, KafkaRefusedError, UsageError, report, reword
from eos.launch.options import parse
from eos.observe import events
from eos.observe.console import Console

COMMITTED = events.MicroBatchCommitted(
    batch_id=7,
    attempt=2,
    offsets_in=12,
    records_in=10,
    records_out=9,
    bytes_out=900,
    run_ms=200.12345,
    ledger_ms=3.0,
    offsets_ms=5.0,
    end_ms=20.0,
    producer_id=1000,
    epoch=3,
    ledger_end=8,
    offsets_in_by_topic={"orders": 12},
    records_out_by_topic={"out": 9},
    bytes_out_by_topic={"out": 900},
    records_in_by_topic={"orders": 10},
    bytes_in_by_topic={"orders": 1500},
)
REFUSED = events.RecordsRefused(7, "paid", "drop", 2, "orders", 0, 41)
FAILED = events.AttemptFailed(
    7, 1, 'a "task" died\nhere', will_redo=True, code="task_failed", producer_id=1000, epoch=2
)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture(autouse=True)
def own_form() -> Iterator[None]:
    """The form is one of the process, and the next test's is the default."""
    yield
    log_lines.choose()


def logged(*told: events.Event, log_format: str = "json", level: str = "info") -> list[str]:
    log_lines.choose(log_format, level)
    log_lines.name_pipeline("orders")
    stream = io.StringIO()
    console = Console(stream)
    for event in told:
        console(event)
    return stream.getvalue().splitlines()


def test_json_is_one_object_a_line_with_the_attempts_identity() -> None:
    committed, refused, failed = map(json.loads, logged(COMMITTED, REFUSED, FAILED))
    assert TIME.fullmatch(committed.pop("time"))
    assert committed == {
        "level": "info",
        "message": "micro-batch 7 committed: 10 records in (12 offsets), 9 out, 900 B in 228 ms, "
        "attempt 2",
        "pipeline": "orders",
        "event": "MicroBatchCommitted",
        "batch_id": 7,
        "attempt": 2,
        "offsets_in": 12,
        "records_in": 10,
        "records_out": 9,
        "bytes_out": 900,
        "run_ms": 200.123,
        "ledger_ms": 3.0,
        "offsets_ms": 5.0,
        "end_ms": 20.0,
        "producer_id": 1000,
        "epoch": 3,
        "ledger_end": 8,
        "offsets_in_by_topic": {"orders": 12},
        "records_out_by_topic": {"out": 9},
        "bytes_out_by_topic": {"out": 900},
        "records_in_by_topic": {"orders": 10},
        "bytes_in_by_topic": {"orders": 1500},
    }
    assert (refused["level"], refused["topic"], refused["offset"]) == ("warning", "orders", 41)
    assert not refused["message"].startswith("warning")
    assert (failed["code"], failed["epoch"], failed["attempt"]) == ("task_failed", 2, 1)


def test_text_has_the_same_fields_as_json() -> None:
    told = (COMMITTED, REFUSED, FAILED, events.Warned("look"), events.Stopped("orders", "drained"))
    for text, line in zip(logged(*told, log_format="text"), logged(*told), strict=True):
        expected = json.loads(line)
        message = expected.pop("message").replace("\n", "\\n")
        time, level, rest = text.split(" ", 2)
        assert TIME.fullmatch(time)
        assert level == expected.pop("level")
        assert rest.startswith(f"{message} pipeline=orders event=")
        del expected["time"]
        pairs = re.findall(r" (\w+)=(\"(?:[^\"\\]|\\.)*\"|\S.*?)(?= \w+=|$)", rest[len(message) :])
        assert [name for name, _ in pairs] == list(expected)
        for name, value in pairs:
            plain = value if isinstance(expected[name], str) and value[0] != '"' else None
            assert (plain or json.loads(value)) == expected[name]


def test_the_console_is_the_default_and_has_no_fields() -> None:
    log_lines.choose()
    stream = io.StringIO()
    Console(stream)(COMMITTED)
    assert stream.getvalue() == (
        "eos: micro-batch 7 committed: 10 records in (12 offsets), 9 out, 900 B in 228 ms, "
        "attempt 2\n"
    )


@pytest.mark.parametrize("log_format", log_lines.FORMATS)
def test_each_line_of_several_pipelines_names_its_own(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_lines.choose(log_format, "debug")
    stream = io.StringIO()
    Console(stream, pipeline="orders")(FAILED)
    log_lines.write("asked to stop", stream=stream, pipeline="payments")
    report(reword(FencedError("fenced", "refunds: another instance took over"), pipeline="refunds"))
    lines = [*stream.getvalue().splitlines(), *capsys.readouterr().err.splitlines()]
    pattern = {
        "console": r"eos: (?:\[fenced\] )?(\w+): ",
        "text": r"\S+Z \w+ .* pipeline=(\w+)",
        "json": r'.*"pipeline": "(\w+)"',
    }[log_format]
    named = [re.match(pattern, line) for line in lines]
    assert [found and found[1] for found in named] == ["orders", "payments", "refunds"]


DETAILS = (
    events.AttemptStarted(7, 1, 1000, 2, {"orders": 12}),
    events.AuditFollowed(1),
    events.RequestRejected("EndTxn", "CONCURRENT_TRANSACTIONS"),
    events.SourceLag({"orders": 1}, {"orders": 3}, {"orders": 2.0}),
)


@pytest.mark.parametrize("log_format", log_lines.FORMATS)
def test_each_level_has_the_lines_of_the_higher_ones(log_format: str) -> None:
    told = (*DETAILS, COMMITTED, FAILED)
    counts = {
        level: len(logged(*told, log_format=log_format, level=level)) for level in log_lines.LEVELS
    }
    assert counts == {"debug": 6, "info": 2, "warning": 1, "error": 0}


def test_details_are_lines_too() -> None:
    assert logged(*DETAILS, log_format="console", level="debug") == [
        "eos: micro-batch 7, attempt 1 started: producer id 1000, epoch 2",
        "eos: the audit table lacks 1 attempt",
        "eos: EndTxn was rejected: CONCURRENT_TRANSACTIONS",
        "eos: the source has 2 offsets to commit",
    ]


def test_an_error_that_ends_a_run_has_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.choose("json", "error")
    log_lines.name_pipeline("orders")
    error = FencedError("fenced", "orders: another instance\ntook over", hint="look")
    assert report(error) == 3
    refused = KafkaRefusedError("kafka_x", "no", hint="allow it", topic="out", kafka_error=29)
    assert report(refused) == KafkaRefusedError.recovery.value
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert TIME.fullmatch(first.pop("time"))
    assert first == {
        "level": "error",
        "message": "orders: another instance\ntook over",
        "pipeline": "orders",
        "code": "fenced",
        "kind": "fenced",
        "hint": "look",
        "exit_code": 3,
    }
    assert second["topic"] == "out"


def test_an_event_can_not_break_a_line_or_forge_another_one() -> None:
    told = events.Warned('x\n{"level": "error"}\x1b[2J')
    (line,) = logged(told)
    assert json.loads(line)["message"] == told.message
    (text,) = logged(told, log_format="text")
    assert "\x1b" not in text


def test_lines_of_the_launcher_have_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.write("starting it again")
    assert capsys.readouterr().err == "eos: starting it again\n"
    log_lines.choose("json", "info")
    log_lines.write("starting it again")
    log_lines.write("not shown", "debug")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "starting it again"


# --- the options


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.touch()
    return path


def test_the_form_of_the_log_is_an_option(pipeline: Path) -> None:
    found = parse([str(pipeline)])
    assert (found.log_format, found.log_level) == ("console", "info")
    found = parse([str(pipeline), "--log-format", "json", "--log-level=warning", "--once"])
    assert (found.log_format, found.log_level, found.spark) == ("json", "warning", ())


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--log-format", "jsno"], "option_value_invalid", "did you mean `json`?"),
        (["--log-level=loud"], "option_value_invalid", "--log-level can't be `loud`"),
        (["--log-level"], "option_value_missing", "--log-level has no value"),
    ],
)
def test_an_unknown_form_is_a_usage_error(
    pipeline: Path, words: list[str], code: str, text: str
) -> None:
    with raises(code, UsageError) as caught:
        parse([str(pipeline), *words])
    assert text in caught.value.message

"""Several pipelines in one process: exit codes, restarts, and what can't run together."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.errors import raises

from eos.config.load import load_pipeline
from eos.config.several import require_compatible
from eos.errors import (
    AttemptFailedError,
    EosError,
    FencedError,
    PromiseBrokenError,
    UnavailableError,
    UsageError,
    exit_code,
    unexpected,
)
from eos.launch.options import parse
from eos.observe import events
from eos.observe.exposition import Endpoint
from eos.observe.joined_metrics import JoinedMetrics
from eos.observe.metrics import RunMetrics
from eos.run import several, shutdown
from eos.run.host import Host
from eos.run.prepared import RunOptions
from eos.run.several import PAUSE_S_MAX, Progress, pause_s, run_with_restarts, worst
from eos.run.shutdown import Stopping

STARTED = events.PipelineStarted("orders")
COMMITTED = events.MicroBatchCommitted(
    batch_id=1,
    attempt=1,
    offsets_in=1,
    records_in=1,
    records_out=1,
    bytes_out=1,
    run_ms=1.0,
    ledger_ms=1.0,
    offsets_ms=1.0,
    end_ms=1.0,
)


# --- one run after the other ---------------------------------------------------------------------


def test_a_restart_takes_nothing_over_once_a_run_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[tuple[bool, bool]] = []
    locks: list[bool] = []

    @contextmanager
    def locked(_plan: Any, _stopping: Any, *, is_forced: bool) -> Iterator[object]:
        locks.append(is_forced)
        yield object()

    def run_once(_prepared: Any, options: RunOptions, host: Host) -> None:
        runs.append((options.take_over, options.accepts_state_loss))
        if len(runs) == 2:
            assert host.shared is not None
            host.shared.note(STARTED)
        if len(runs) < 4:
            raise AWAY

    plan = SimpleNamespace(names=SimpleNamespace(pipeline="orders"), trigger_every_ms=1)
    prepared: Any = SimpleNamespace(name="orders", planned=plan, naming_errors=nullcontext)
    monkeypatch.setattr(several, "locked", locked)
    monkeypatch.setattr(several, "run_once", run_once)
    monkeypatch.setattr(several, "has_ended", lambda _spark: False)
    monkeypatch.setattr(several, "pause_s", lambda _failures: 0.0)
    stopping = Stopping(lambda: None)
    spark: Any = None
    options = RunOptions(take_over=True, accepts_state_loss=True)
    one = several._Supervised(prepared, options, spark, stopping, None)
    one.thread.start()
    one.thread.join(60)
    assert (one.code, one.has_ended) == (0, True)
    assert runs == [(True, True), (True, True), (False, False), (False, False)]
    assert locks == [True]  # it is kept from one run to the next


def test_a_query_whose_stop_hangs_is_waited_for_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()
    query: Any = SimpleNamespace(isActive=True, stop=released.wait)
    monkeypatch.setattr(shutdown, "STOP_S_MAX", 0.05)
    shutdown.end_query(query)
    assert not released.is_set()
    released.set()


# --- exit codes -----------------------------------------------------------------------------------


def test_the_worst_exit_code_is_the_one_that_a_restart_helps_least() -> None:
    order = [4, 3, 2, 5, 0]
    for size in range(1, len(order) + 1):
        for codes in itertools.permutations(order, size):
            assert worst(codes) == min(codes, key=order.index)
    assert worst([]) == 0


# --- restarts -------------------------------------------------------------------------------------


def test_pauses_double_up_to_a_minute() -> None:
    assert [pause_s(failures) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pause_s(10_000) == PAUSE_S_MAX


class Restarted:
    """A pipeline whose runs end as in a story: each run emits events, then raises, or returns."""

    def __init__(
        self, *story: tuple[Sequence[events.Event], BaseException | None], restarts_max: int = 99
    ) -> None:
        self._story = iter(story)
        self._restarts_max = restarts_max
        self.progress = Progress()
        self.pauses: list[float] = []
        self.reported: list[str] = []
        self.is_stopped_in_pause = False

    def run(self) -> int:
        return run_with_restarts(
            self._attempt,
            self.progress,
            report=self._report,
            may_restart=lambda: len(self.pauses) < self._restarts_max,
            pause=self._pause,
        )

    def left(self) -> int:
        return len(list(self._story))

    def _attempt(self) -> None:
        emitted, error = next(self._story)
        for each in emitted:
            self.progress(each)
        if error is not None:
            raise error

    def _report(self, error: BaseException) -> int:
        known = error if isinstance(error, EosError) else unexpected(error)
        self.reported.append(known.code)
        return exit_code(known)

    def _pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return self.is_stopped_in_pause


AWAY = UnavailableError("example", "no broker answers")


def test_a_failed_environment_is_met_with_restarts_until_the_run_ends_well() -> None:
    pipeline = Restarted(([], AWAY), ([STARTED], AWAY), ([STARTED], AWAY), ([STARTED], None))
    assert pipeline.run() == 0
    assert pipeline.pauses == [1, 2, 4]
    assert pipeline.reported == ["example"] * 3


def test_the_pauses_begin_again_after_a_commit() -> None:
    commits = [STARTED, COMMITTED]
    pipeline = Restarted(([], AWAY), ([], AWAY), (commits, AWAY), ([], AWAY), ([], None))
    assert pipeline.run() == 0
    assert pipeline.pauses == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("example", "wrong"), 2),
        (FencedError("example", "another instance took over"), 3),
        (PromiseBrokenError("example", "the ledger lacks records"), 4),
    ],
    ids=["usage", "fenced", "stop"],
)
def test_what_a_restart_does_not_help_is_not_started_again(error: EosError, code: int) -> None:
    pipeline = Restarted(([STARTED, COMMITTED], error), ([], None))
    assert pipeline.run() == code
    assert (pipeline.pauses, pipeline.left()) == ([], 1)


@pytest.mark.parametrize(
    "error",
    [AttemptFailedError("example", "each attempt failed"), OSError("no"), SystemExit(3)],
    ids=["attempts", "unexpected", "exit of user code"],
)
def test_other_failures_are_those_of_the_environment(error: BaseException) -> None:
    pipeline = Restarted(([], error), ([], None))
    assert (pipeline.run(), pipeline.pauses) == (0, [1])


def test_without_a_restart_its_exit_code_is_that_of_the_failure() -> None:
    pipeline = Restarted(([], AWAY), ([], AWAY), ([], None), restarts_max=1)
    assert (pipeline.run(), pipeline.left()) == (5, 1)


def test_a_stop_during_the_pause_is_a_clean_end() -> None:
    pipeline = Restarted(([], AWAY), ([], None))
    pipeline.is_stopped_in_pause = True
    assert (pipeline.run(), pipeline.left()) == (0, 1)


# --- what can run together ------------------------------------------------------------------------

PIPELINE = """\
version: 1
name: {name}
source: {{kafka: {{topic: a}}}}
sink: {{kafka: {{topic: b}}}}
"""


@pytest.fixture
def declare(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(project: str, name: str, folder: str = "") -> Path:
        path = tmp_path / project / "pipelines" / (folder or name) / "pipeline.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(PIPELINE.format(name=name))
        return path

    return write


def test_several_pipelines_precede_all_options(declare: Callable[..., Path]) -> None:
    one, other = declare("shop", "a"), declare("shop", "b")
    words = [str(one), str(other.parent), "--once", "--master", "local[2]"]
    found = parse(words)
    assert (found.pipelines, found.are_several) == ((one, other), True)
    assert (found.ends, found.spark) == ("once", ("--master", "local[2]"))
    assert not parse(words[:1]).are_several
    with raises("argument_unexpected"):
        parse([str(one), "--once", str(other)])
    with raises("pipeline_not_found"):
        parse([str(one), "nowhere.yaml"])


@pytest.mark.parametrize("flag", ["--json", "--demo-crash"])
def test_a_demo_runs_alone(declare: Callable[..., Path], flag: str) -> None:
    path = str(declare("shop", "a"))
    with raises("option_of_one_pipeline", UsageError) as refused:
        parse([path, path, flag])
    assert flag in refused.value.message


def test_pipelines_of_one_project_run_together(declare: Callable[..., Path]) -> None:
    require_compatible([load_pipeline(declare("shop", name)) for name in ("a", "b", "c")])


def test_a_name_can_be_used_once(declare: Callable[..., Path]) -> None:
    one, other = declare("shop", "a"), declare("shop", "a", "copy")
    with raises("pipeline_repeated", UsageError) as refused:
        require_compatible([load_pipeline(one), load_pipeline(other)])
    assert f"{one} and {other}" in refused.value.message
    with raises("pipeline_repeated", UsageError):
        require_compatible([load_pipeline(one), load_pipeline(one)])


def test_pipelines_of_two_projects_need_two_processes(declare: Callable[..., Path]) -> None:
    with raises("projects_differ", UsageError) as refused:
        require_compatible(
            [load_pipeline(declare("shop", "a")), load_pipeline(declare("bank", "b"))]
        )
    assert "/shop, and 'b' of" in refused.value.message


# --- one endpoint ---------------------------------------------------------------------------------


def samples(url: str) -> dict[tuple[str, str, str], float]:
    """The samples of counters and gauges by name, pipeline and outcome."""
    with urlopen(url, timeout=240) as response:
        text = response.read().decode()
    families = list(text_string_to_metric_families(text))
    names = [each.name for each in families]
    assert len(names) == len(set(names)), "a name may occur once"
    return {
        (each.name, each.labels["pipeline"], each.labels.get("outcome", "")): each.value
        for family in families
        for each in family.samples
    }


def test_one_endpoint_serves_all_pipelines_and_keeps_those_that_have_ended() -> None:
    joined = JoinedMetrics()
    runs = [RunMetrics(name, {"version": "1"}) for name in ("orders", "payments")]
    with closing(Endpoint(joined.collected, "127.0.0.1", 0)) as endpoint:
        assert samples(endpoint.url) == {}
        for run, name in zip(runs, ("orders", "payments"), strict=True):
            joined.replace(name, run.registry.collected)
        runs[0](COMMITTED)
        runs[1](events.RunFailed("payments", "example", "stop", "no", "", 4))
        for _ in range(2):  # collecting changes no value
            found = samples(endpoint.url)
            assert found["eos_attempts_total", "orders", "committed"] == 1
            assert found["eos_attempts_total", "payments", "committed"] == 0
            assert found["eos_run_exit_code", "payments", ""] == 4
            assert ("eos_run_exit_code", "orders", "") not in found
        again = RunMetrics("payments", {"version": "1"})
        joined.replace("payments", again.registry.collected)
        found = samples(endpoint.url)
        assert ("eos_run_exit_code", "payments", "") not in found
        assert found["eos_attempts_total", "orders", "committed"] == 1

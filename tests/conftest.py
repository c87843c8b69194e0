"""What every test may use. A test that needs a broker takes `broker`; the quick ones never do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("support")  # before its first import: what fails there shows values

from support import selection  # noqa: E402 - see above
from support.kafka.brokers import LOOKS_OFTEN, Elsewhere, Kafka, abandon  # noqa: E402 - see above

from eos.local.embedded_kafka import EmbeddedKafka  # noqa: E402
from eos.local.jars import BROKER_VERSIONS  # noqa: E402
from eos.native import library  # noqa: E402

# The same examples in every run, so that a change is judged by itself and not by luck. Others are
# looked for with `--hypothesis-profile search`. A machine that pauses while one is made is no
# fault.
_PATIENT = [HealthCheck.too_slow]
settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, suppress_health_check=_PATIENT
)
settings.register_profile(
    "search", derandomize=False, deadline=None, suppress_health_check=_PATIENT
)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kafka",
        default="embedded",
        metavar="HOST:PORT",
        help="the broker of the tests with Spark: embedded (default), container, one of "
        f"{', '.join(BROKER_VERSIONS)} (embedded), or a cluster's address",
    )


# Begun last, they would run on when all others are over. Without its cache mypy takes a minute.
LONGEST = ("test_crashes.py", "test_delta.py", "test_checks.py")


def in_turns(items: list[pytest.Item]) -> None:
    """Sort the longest files first, then the tests with Spark, which use the CPU, and those with a
    broker alone, which mostly wait, in turns; the others last."""
    folders = (("pipeline", "spark"), ("kafka",))
    files: dict[tuple[str, ...], dict[Path, None]] = {names: {} for names in folders}
    for item in items:
        for names in folders:
            if item.path.parent.name in names:
                files[names][item.path] = None
    place = {
        path: number / len(of_kind)
        for of_kind in files.values()
        for number, path in enumerate(of_kind)
    }
    items.sort(key=lambda item: -1 if item.path.name in LONGEST else place.get(item.path, 1))


os.environ.setdefault("EOS_OFFLINE", "0")  # as in tests/run: what is missing is downloaded


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Against another Kafka, what does not ask for it would only be the same again. The quick run
    has no slow tests."""
    in_turns(items)
    if os.environ.get("EOS_TESTS") == "quick":
        slow = selection.slow_names()
        keep(config, items, lambda item: selection.without_parameters(item.nodeid) not in slow)
    if config.getoption("kafka") != "embedded":
        keep(config, items, lambda item: "broker" in getattr(item, "fixturenames", ()))


def keep(
    config: pytest.Config, items: list[pytest.Item], wanted: Callable[[pytest.Item], bool]
) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = filter(wanted, items)


@pytest.fixture(scope="session")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kafka]:
    """One real broker of the newest version for the whole session. Use your own topics."""
    chosen = request.config.getoption("kafka")
    folder = tmp_path_factory.mktemp("broker")
    if chosen in {"embedded", *BROKER_VERSIONS}:
        version = None if chosen == "embedded" else chosen
        with EmbeddedKafka(folder, version=version) as kafka:
            yield kafka
            abandon(kafka)
    elif chosen == "container":
        from support.kafka.container import kafka_in_container

        with kafka_in_container(folder) as contained:
            yield contained
    else:
        yield Elsewhere(chosen, EmbeddedKafka(folder).tool)  # it is never started


@pytest.fixture(scope="session")
def older_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One that knows no transaction version 2. It looks for timed-out transactions often."""
    root = tmp_path_factory.mktemp("older-broker")
    with EmbeddedKafka(root, config=LOOKS_OFTEN, version="3.9") as kafka:
        yield kafka
        abandon(kafka)


@pytest.fixture(params=["native", "python"], scope="module")
def each_library(request) -> Iterator[None]:
    """Once with the native library and once without it, as on a machine that could not build it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(library, "load", lambda: None)
        yield

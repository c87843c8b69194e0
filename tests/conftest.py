"""What every test may use. A test that needs a broker takes `broker`; the quick ones never do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("support")  # before its first import: what fails there shows values

from support.brokers import LOOKS_OFTEN  # noqa: E402 - see above

from eos.launch.embedded import EmbeddedKafka  # noqa: E402


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One real broker of the newest version for the whole session. Use your own topics."""
    with EmbeddedKafka(tmp_path_factory.mktemp("broker")) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def older_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One that knows no transaction version 2. It looks for timed-out transactions often."""
    root = tmp_path_factory.mktemp("older-broker")
    with EmbeddedKafka(root, config=LOOKS_OFTEN, version="3.9") as kafka:
        yield kafka

"""What every test may use. A test that needs a broker takes `broker`; the quick ones never do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eos.launch.embedded import EmbeddedKafka


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One real broker of the pinned version for the whole session. Use your own topics."""
    with EmbeddedKafka(tmp_path_factory.mktemp("broker")) as kafka:
        yield kafka

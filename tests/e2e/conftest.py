"""A project folder for each test, on the session's broker."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from support.project import PROFILE, Project

from eos.launch.embedded import EmbeddedKafka


@pytest.fixture
def project(tmp_path: Path, broker: EmbeddedKafka) -> Project:
    made = Project(tmp_path, broker, f"p{uuid.uuid4().hex[:8]}")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "test.yaml").write_text(
        PROFILE.format(bootstrap=broker.bootstrap, root=tmp_path / "state")
    )
    return made

"""The bootstrap with a real environment: it takes ten seconds, the rest is among the unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from eos.launch import bootstrap


@pytest.mark.nightly
def test_an_unfinished_environment_is_made_anew(tmp_path: Path) -> None:
    """As a kill in the middle of `python -m venv` leaves it: a Python without pip."""
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    (venv / "bin" / "python").chmod(0o755)
    bootstrap._make(venv)
    assert bootstrap._works([venv / "bin" / "python", "-c", "import pip"])

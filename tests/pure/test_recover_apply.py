"""`eos recover`: a change that fails before the fence disturbs no running instance."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.doubles import plan
from support.errors import raises

from eos.errors import UnavailableError
from eos.ledger.record import Position
from eos.recover import apply
from eos.recover.change import LedgerChange


def test_a_rename_that_fails_is_reported_without_a_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an empty ledger the rename is the whole change."""
    change = LedgerChange("--set-checkpoint-aside", Position({}, {}), renames=[("a", "b")])

    def rename(_old: str, _new: str) -> None:
        raise PermissionError(13, "Permission denied")

    def no_fence(*_: Any, **__: Any) -> Any:
        pytest.fail("it acquired the pipeline")

    monkeypatch.setattr(apply, "propose", lambda *_, **__: change)
    monkeypatch.setattr(apply, "readable", lambda _: SimpleNamespace(rename=rename))
    monkeypatch.setattr(apply, "require_no_members", lambda *_: None)
    monkeypatch.setattr(apply, "acquire", no_fence)
    client: Any = SimpleNamespace(agree_on_profile=lambda _: None)
    with raises("checkpoint_rename_failed", UnavailableError):
        apply.act(
            plan(tmp_path / "lock"),
            client,
            lambda _: change,
            reason="",
            take_over=False,
        )

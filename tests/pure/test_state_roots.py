"""docs/state-roots.md: each cell of its table is what the code does with such a state root."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.docs import ROOT
from support.doubles import EventLog
from support.doubles import plan as a_plan
from support.machines.stores import S3, Hdfs

from eos.audit.updater import audit_of, location_of
from eos.checkpoint.files import files_for
from eos.cli import status, stop
from eos.errors import EosError
from eos.location import scheme_of
from eos.observe import events
from eos.plan.names import Names
from eos.plan.plan import Plan
from eos.spark.dedup_run import state_versions
from eos.startup import deployment, stop_marker
from eos.startup.ownership import RunLock
from eos.startup.stateful_pipeline import require_allowed
from eos.transform.plan_check import PlanState

PAGE = (ROOT / "docs" / "state-roots.md").read_text()
NFS = "/mnt/nfs/eos"
ROOTS = {
    "local disk": ("/var/lib/eos",),
    "NFS": (NFS,),
    "`s3a://`": ("s3a://bucket/eos",),
    "`hdfs://`": ("hdfs://node:8020/eos",),
    "`abfss://`, `gs://`": ("abfss://box@account/eos", "gs://bucket/eos"),
}
_LOCK = "lock against a second copy on this machine"
_ID = "id of the deployment"


def planned(root: str, given: str = "here") -> Plan:
    return replace(a_plan(deployment=given), names=Names.of("eos", "orders", root))


def profile(root: str) -> Any:
    """As much of a profile as the tables need."""
    state, conf = SimpleNamespace(root=root), SimpleNamespace(conf={})
    audit = SimpleNamespace(transactions=True)
    names = SimpleNamespace(prefix="eos")
    return SimpleNamespace(name="p", state=state, spark=conf, audit=audit, names=names)


def refused(code: str, call: Callable[..., object], *arguments: Any, **more: Any) -> bool:
    """Whether it raises this error. Another error is none of the root's."""
    try:
        call(*arguments, **more)
    except EosError as error:
        if error.code != code:
            raise
        return True
    return False


def checkpoints(root: str) -> str:
    """Any file system of Hadoop's is tried. These have servers in the tests."""
    bucket = object.__new__(S3)  # without a server
    bucket.bucket = "b"
    tested = {"", scheme_of(bucket.root), scheme_of(Hdfs("node:1", "").root)}
    return "yes" if scheme_of(root) in tested else "untested"


def audit_table(root: str) -> str:
    if location_of(profile(root)) is not None:
        return "yes"
    told = EventLog()
    audit_of(profile(root), planned(root), cast("Any", None), cast("Any", told))
    (warned,) = told.of(events.Warned)
    assert "there is no audit table" in warned.message
    return "no: each startup warns"


def dedup(root: str) -> str:
    rules: Any = SimpleNamespace(policy=None, reading=None)
    is_refused = refused("dedup_state_remote", state_versions, planned(root), rules)
    return "no: refused" if is_refused else "yes"


def keeps_state(root: str) -> str:
    def is_refused(operator: str) -> bool:
        return refused(
            "stateful_root_remote", require_allowed, planned(root), PlanState((operator,))
        )

    if is_refused("Aggregate"):
        return "no: refused"
    return "yes, without `transformWithState`" if is_refused("TransformWithState") else "yes"


def read_without_spark(root: str) -> str:
    is_refused = refused("checkpoint_not_local", files_for, root, conf={})
    return "no: by the ledger" if is_refused else "yes"


def resume_point(root: str) -> str:
    return "no: from the start" if location_of(profile(root)) is None else "yes"


def stops(root: str) -> str:
    names = Names.of("eos", "orders", root)
    if names.lock:
        return "yes"
    if stop_marker.markers(names, {}) is not None:
        return "yes, by the ledger"
    given: Any = SimpleNamespace(name="orders")
    words = (given, profile(root), names, 0.0, cast("Any", None))
    assert refused("state_root_remote", stop._stop_by_ledger, *words)
    return "no"


def listed(root: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(status, "load_profile", lambda *_: profile(root))
    monkeypatch.setattr(status, "list_pipelines", lambda *_: [])
    return "no" if refused("state_root_remote", status._list, "p") else "yes"


def lock(root: str) -> str:
    return "yes" if RunLock(planned(root))._lock else "no: ledger and fence decide"


def deployment_id(root: str, monkeypatch: pytest.MonkeyPatch) -> str:
    nfs = "nfs4" if root == NFS else ""
    monkeypatch.setattr(deployment, "shared_type", lambda _: nfs)
    is_refused = refused("deployment_required", deployment.require_name, planned(root, ""))
    return "`deployment:` in the profile" if is_refused else "kept there"


def test_each_cell_is_what_the_code_does(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: dict[str, Callable[[str], str]] = {
        "checkpoints": checkpoints,
        "audit table": audit_table,
        "`dedup` by producer": dedup,
        "pipelines that keep state": keeps_state,
        "checkpoint in `eos verify` and `eos recover`": read_without_spark,
        "resume point of `eos verify`": resume_point,
        "`eos stop`": stops,
        "list of `eos status`": lambda root: listed(root, monkeypatch),
        _LOCK: lock,
        _ID: lambda root: deployment_id(root, monkeypatch),
    }
    head, _, *shown = [line.strip("| ").split(" | ") for line in _first_table()]
    assert head == ["feature", *ROOTS]
    assert [feature for feature, *_ in shown] == list(rows)
    for feature, *cells in shown:
        for cell, (kind, roots) in zip(_repeated(cells), ROOTS.items(), strict=True):
            assert {rows[feature](root) for root in roots} == {cell}, f"{feature}, {kind}"


def _first_table() -> list[str]:
    table = re.search(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
    assert table is not None
    return table[0].splitlines()


def _repeated(cells: list[str]) -> list[str]:
    """With each `the same` replaced by the cell before it."""
    found: list[str] = []
    for cell in cells:
        found.append(found[-1] if cell == "the same" else cell)
    return found


def test_the_tests_that_the_page_names_use_the_server_that_it_names() -> None:
    tested = PAGE.partition("## What was tested")[2]
    names = re.findall(r"`(tests/kafka/)?(test_\w+\.py|tests/pipeline/\w+\.py)`", tested)
    assert len(names) >= 5
    for _, name in names:
        path = ROOT / (name if name.startswith("tests/") else f"tests/kafka/{name}")
        assert "with versity(" in path.read_text(), name

"""The audit table beside a pipeline without Spark, and a process that brings it up to the ledger.

As a process it commits one ledger record at a time and says so, so that a test can kill it anywhere
in between; with a POINT it kills itself there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eos.audit import projection as projections
from eos.audit.projection import Projection
from eos.audit.table import TransactionsTable
from eos.audit.updater import location_of
from eos.config.load import load_profile
from eos.deadline import Backoff, Deadline
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from support.recovered import Pipeline
from support.scenes import Scene

_TIMEOUT_MS = 300_000
_ORDER = "ledger_offset, epoch, target_partition"


def projection(scene: Scene, wire: KafkaClient, location: Path) -> Projection:
    return Projection(TransactionsTable(location), wire, scene.job.name, scene.job.ledger)


def projection_of(pipeline: Pipeline) -> Projection:
    """Into the table where its runs would have it."""
    names = pipeline.planned().names
    location = location_of(load_profile(pipeline.words[2], pipeline.folder))
    assert location is not None
    return Projection(TransactionsTable(location), pipeline.asks, names.pipeline, names.ledger)


def settled(made: Projection) -> None:
    """Brought up to the ledger, whose last marker may be on its way."""
    deadline, backoff = soon(), Backoff()
    while not made.catch_up(deadline).is_settled:
        assert not deadline.has_passed
        backoff.sleep(deadline)


def soon() -> Deadline:
    return Deadline.after_ms(_TIMEOUT_MS)


def rows(location: Path, pipeline: str) -> Sequence[Mapping[str, Any]]:
    return TransactionsTable(location).query(
        f"SELECT * FROM transactions WHERE pipeline = '{pipeline}' ORDER BY {_ORDER}"
    )


def check(scene: Scene, location: Path) -> Sequence[Mapping[str, Any]]:
    """Each committed record of the ledger, as a stranger reads it, is there once, with all of its
    receipts, and nothing else is. Returns the rows of aborted attempts."""
    found = rows(location, scene.job.name)
    committed = [row for row in found if row["outcome"] == "CompleteCommit"]
    expected = []
    for offset, body in scene.ledger_with_offsets():
        receipts = (body.get("attempt") or {}).get("receipts") or [None]
        for receipt in receipts:
            values = receipt or {}
            told = (values.get("partition"), values.get("records"), values.get("offset_last"))
            expected.append((offset, body["kind"], body["batch_id"], *told))
    assert expected == [
        (
            row["ledger_offset"],
            row["kind"],
            row["batch_id"],
            row["target_partition"],
            row["records"],
            row["offset_last"],
        )
        for row in committed
    ]
    return [row for row in found if row["outcome"] == "CompleteAbort"]


def spawn(scene: Scene, location: Path, point: str = "") -> subprocess.Popen[str]:
    words = (scene.job.bootstrap, scene.job.name, scene.job.ledger, str(location), point)
    return subprocess.Popen(
        [sys.executable, "-m", "support.audited", *words],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
    )


def main(bootstrap: str, pipeline: str, ledger: str, location: str, point: str) -> None:
    projections.RECORDS_MAX = 1
    made = Projection(
        TransactionsTable(Path(location)),
        KafkaClient(KafkaSettings((bootstrap,))),
        pipeline,
        ledger,
    )

    def reached(where: str) -> None:
        if where == point:
            os.kill(os.getpid(), signal.SIGKILL)
        print(json.dumps({"reached": where}), flush=True)

    made.reached = reached
    made.catch_up(soon())


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A checkpoint that lost its newest micro-batch can not plan it anew, where only it knows it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support import doubles
from support.errors import raises

from eos.checkpoint.files import LocalFiles
from eos.checkpoint.offset_log import Checkpoint
from eos.errors import PromiseBrokenError
from eos.kafka.api import TopicPartition
from eos.ledger.record import Position
from eos.startup.checkpoint_age import require_level

TP = TopicPartition("in", 0)


def checkpoint(folder: Path, planned: int, committed: int, *, is_opaque: bool) -> Checkpoint:
    """Each micro-batch has ten offsets, and from number 2 on none."""
    (folder / "metadata").write_text(json.dumps({"id": "q"}))
    for name, last in (("offsets", planned), ("commits", committed)):
        (folder / name).mkdir()
        for number in range(last + 1):
            end = min(number + 1, 2) * 10
            source = json.dumps({"file": number} if is_opaque else {TP.topic: {"0": end}})
            text = f"v1\n{{}}\n{source}" if name == "offsets" else "v1\n{}"
            (folder / name / str(number)).write_text(text)
    return Checkpoint(LocalFiles(), str(folder), is_opaque=is_opaque)


@pytest.mark.parametrize("is_opaque", [False, True], ids=["state", "a DataFrame"])
@pytest.mark.parametrize(
    ("planned", "committed", "in_ledger", "is_refused"),
    [
        (2, 2, 2, False),
        (3, 2, 2, False),  # the ledger's next one is planned
        (3, 2, 3, False),  # Spark will skip it
        (2, 2, 3, True),  # 3 has no new records, as a state's last results
        (2, 2, 4, True),
    ],
)
def test_a_committed_micro_batch_is_not_planned_anew(
    tmp_path: Path, is_opaque: bool, planned: int, committed: int, in_ledger: int, is_refused: bool
) -> None:
    plan = replace(doubles.plan(), is_stateful=not is_opaque)
    position = Position({} if is_opaque else {TP: 20}, {}, "q", in_ledger)
    found = checkpoint(tmp_path, planned, committed, is_opaque=is_opaque)
    code = "batch_out_of_order" if is_opaque and in_ledger > planned + 1 else "checkpoint_behind"
    if is_refused:
        with raises(code, PromiseBrokenError):
            require_level(plan, found, position)
    else:
        require_level(plan, found, position)

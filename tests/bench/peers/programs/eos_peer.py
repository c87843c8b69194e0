"""eos: pipelines in one Spark application. Arguments: port, Kafka's address, folder."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from bench.peers.programs.turns import Turn, serve

from eos.local.processes import die_with_parent
from eos.run import pipeline
from eos.run.prepared import RunOptions
from eos.spark.session import open_session

PIPELINE = """\
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {batch}}}
{steps}
sink:
  kafka:
{sinks}{tables}
trigger: {trigger}
"""
ORDER = """\
  value: {json: "order_id BIGINT, customer STRING, amount DOUBLE, status STRING"}
transform:
  - sql: >-
      SELECT key, order_id, customer, amount, amount * 1.19 AS gross FROM input
      WHERE status <> 'open'
"""
STEPS = {
    "copy": "",
    "fan_out": "",
    "json": ORDER,
    "delta": ORDER,
    "pandas": 'transform: [{pandas: "unchanged:unchanged", returns: "key BINARY, value BINARY"}]',
    "dedup": "dedup: {producer: {id: header(p), epoch: header(e), sequence: header(s)}}",
}
UNCHANGED = "def unchanged(rows):\n    return rows\n"
FASTEST = "{every: 1 millisecond}"  # a micro-batch whenever there are records


def written(turn: Turn, folder: Path) -> Path:
    """Write the turn's pipeline into a project's folder, and return its file."""
    value = ", value: json" if turn.kind in {"json", "delta"} else ""
    path = folder / "lake" / turn.target
    table = f"\n  delta: [{{path: {path}, columns: [order_id, customer, amount, gross]}}]"
    text = PIPELINE.format(
        name=turn.target.replace(".", "-"),
        source=turn.source,
        batch=turn.batch,
        steps=STEPS[turn.kind],
        sinks="\n".join(f"    - {{topic: {topic}{value}}}" for topic in turn.targets),
        tables=table if turn.kind == "delta" else "",
        trigger=FASTEST if turn.is_endless else "{available_now: true}",
    )
    place = folder / "pipelines" / turn.target / "pipeline.yaml"
    place.parent.mkdir(parents=True)
    place.write_text(text)
    (place.parent / "unchanged.py").write_text(UNCHANGED)
    return place


class Peer:
    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.folder = bootstrap, folder
        self.profile = folder / "conf" / "peers.yaml"
        self.profile.parent.mkdir()
        self.profile.write_text(f"state: {{root: {folder / 'state'}}}\n")

    def run(self, turn: Turn) -> None:
        if turn.is_endless:
            threading.Thread(target=self.stop_after, args=(turn,), daemon=True).start()
        pipeline.run(written(turn, self.folder), RunOptions(str(self.profile), self.bootstrap))

    @staticmethod
    def stop_after(turn: Turn) -> None:
        """End the run as a supervisor does."""
        turn.wait_for_end()
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    die_with_parent()
    spark = open_session("peer")
    serve(int(sys.argv[1]), Peer(sys.argv[2], Path(sys.argv[3])).run)
    spark.stop()

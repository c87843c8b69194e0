"""eos beside other systems: the same records, broker and codec, in turns.

`./tests/run bench -k peers` runs all workloads, for hours. `-k "peers and pass_through"` runs one.
EOS_BENCH_RECORDS and EOS_BENCH_ROUNDS make it smaller.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.conftest import Figures
from bench.peers.compare import Comparison
from bench.peers.summary import tell
from bench.peers.workloads import ROUNDS, WORKLOADS, Workload

from eos.local.embedded_kafka import EmbeddedKafka


@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_peers(workload: Workload, broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    scaled = workload.scaled()
    comparison = Comparison(scaled, broker, tmp_path)
    runs = comparison.runs(ROUNDS)
    figures.keep(
        f"peers_{workload.name}",
        {"runs": runs, "left_out": comparison.left_out, "records": scaled.records},
    )
    tell(figures, scaled, runs, comparison.left_out)

"""From a producer's time stamp to a `read_committed` consumer, at a steady rate.

`-k "peers and latency"`. EOS_BENCH_LATENCY_S sets how long each turn lasts.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.conftest import Figures
from bench.peers.latency import LatencyComparison
from bench.peers.summary import tell_latency
from bench.peers.workloads import ROUNDS

from eos.local.embedded_kafka import EmbeddedKafka

SECONDS = int(os.environ.get("EOS_BENCH_LATENCY_S", "40"))


@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("rate", [1_000, 50_000])
def test_peers_latency(rate: int, broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    comparison = LatencyComparison(rate, SECONDS, broker, tmp_path)
    runs = comparison.runs(ROUNDS)
    kept = {"runs": runs, "left_out": comparison.left_out, "seconds": SECONDS}
    figures.keep(f"peers_latency_{rate}", kept)
    tell_latency(figures, rate, runs, comparison.left_out)

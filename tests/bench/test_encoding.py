"""Encoding on one core, against kafka-python's own builder."""

from __future__ import annotations

import pytest
from bench.conftest import Figures
from bench.encoding import figures as measured


@pytest.mark.timeout(300)
def test_encoding(figures: Figures) -> None:
    found = measured()
    figures.keep("encoding", found)
    figures.add(
        "encode, times kafka-python's builder",
        f"{found['encode_ratio']:.0f} x ({found['encode_ratio_least']:.0f} to "
        f"{found['encode_ratio_most']:.0f})",
        "20 x",
    )
    figures.add("encode, records a CPU second", f"{found['encode_records_per_s']:,.0f}")
    figures.add(
        "the same with partitioning and splitting, records a CPU second",
        f"{found['stage_records_per_s']:,.0f}",
    )

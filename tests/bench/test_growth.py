"""What a run holds after many micro-batches of one record, and how long they take by then."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench.conftest import Figures
from support.kafka import kafka_io
from support.spark.processes import WHAT, WHO, Sample, growth, held_between, sample_run
from support.spark.project import PROFILE, Project, WarmDriver

from eos.config.load import load_profile
from eos.local.embedded_kafka import EmbeddedKafka

MICRO_BATCHES = int(os.environ.get("EOS_GROWTH_MICRO_BATCHES", "600"))


@pytest.mark.timeout(1200 + 2 * MICRO_BATCHES)
def test_growth(broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    place = tmp_path / "warm"
    place.mkdir()
    profile = place / "profile.yaml"
    profile.write_text(PROFILE.format(bootstrap="none:1", root=place / "state"))
    warm = WarmDriver(place, load_profile(str(profile), place))
    folder = tmp_path / "project"
    folder.mkdir()
    project = Project.made(folder, broker, warm)
    project.declare(1, partitions=1)
    kafka_io.create_topics(broker.bootstrap, 1, project.source)
    kafka_io.fill(broker.bootstrap, project.source, range(MICRO_BATCHES))
    try:
        run = project.start_warm()
        samples = sample_run(run)
        assert run.wait(900 + MICRO_BATCHES) == 0, run.said()
    finally:
        warm.close()
    count = samples[-1].micro_batch + 1
    assert count > MICRO_BATCHES * 0.9
    grown = growth(samples)
    before = held_between(samples, count / 3, count * 2 / 3)
    for who in WHO:
        held = (f"{before[who, what]} ({grown[f'{who} {what}']:+}) {what}" for what in WHAT)
        title = f"{who}, second third of {count:,} micro-batches (and its last third)"
        figures.add(title, ", ".join(held))
    figures.add(
        "a micro-batch, second and last third",
        " and ".join(
            f"{_ms(samples, count * third / 3, count * (third + 1) / 3):.0f} ms" for third in (1, 2)
        ),
    )


def _ms(samples: Sequence[Sample], first: float, last: float) -> float:
    chosen = [each for each in samples if first <= each.micro_batch < last]
    took = chosen[-1].seconds - chosen[0].seconds
    return took * 1000 / max(1, chosen[-1].micro_batch - chosen[0].micro_batch)

"""Starts `arms_job.py` as a user starts a job, and reads what it measured."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eos.launch import spark
from eos.local.class_archive import Archive
from eos.local.embedded_kafka import EmbeddedKafka
from eos.local.java import find_java

CHECKOUT = Path(__file__).parents[2]
MASTER = "local[2]"
NOTHING: Mapping[str, str] = {}
CONF = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.stage.maxConsecutiveAttempts": "1",
    **spark.LOCAL,
}


def run_arms(
    broker: EmbeddedKafka,
    folder: Path,
    source: str,
    arms: Sequence[str],
    records_a_micro_batch: int,
    rounds: int,
    timeout_s: float,
    *,
    partitions: int = 4,
    script: str = "arms_job.py",
    conf: Mapping[str, str] = NOTHING,
    without: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Run the arms in turns, and return what each took in each round. Round 0 only warms up, and is
    left out if there are more.

    `partitions` is the number of the target's partitions. spark-submit runs `script`, with `conf`
    added to the usual settings. `without` is for that script.
    """
    results = folder / "results"
    settings = {
        "bootstrap": broker.bootstrap,
        "broker_pids": [node.pids()["broker_pid"] for node in broker.nodes],
        "source": source,
        "partitions": partitions,
        "records_a_micro_batch": records_a_micro_batch,
        "rounds": rounds,
        "arms": list(arms),
        "root": str(folder),
        "results": str(results),
        "without": list(without),
        "submitted_at": time.time(),
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    words = [*command(conf), str(CHECKOUT / "tests" / "bench" / script)]
    java, archive, classes = find_java(), archive_of(words), folder / "classes"
    around = spark.environment(spark.find_spark(), java.home, MASTER, folder, CHECKOUT)
    with (folder / "job.log").open("wb") as log:
        done = subprocess.run(
            [*words, str(folder / "settings.json")],
            env=spark.with_java_options(around, *(archive.options(classes) if archive else ())),
            stdout=log,
            stderr=log,
            start_new_session=True,  # its CPU time is that of its session
            timeout=timeout_s,
            check=False,
        )
    assert done.returncode == 0, (folder / "job.log").read_text()[-3000:]
    if archive:
        made = spark.with_java_options(around, *archive.dump_options)
        archive.make_later(classes, spark.dump_command(words), made)
    runs = [json.loads(line) for line in results.read_text().splitlines()]
    return [run for run in runs if run["round"] or not rounds]


def command(conf: Mapping[str, str] = NOTHING, *, with_delta: bool = False) -> list[str]:
    """What a pipeline is submitted with, but for the job."""
    given, here = {**CONF, **conf}, CHECKOUT
    submit = spark.find_spark()
    return spark.command(submit, [], MASTER, given, [], here, here, with_delta=with_delta)[:-1]


def archive_of(words: Sequence[str]) -> Archive | None:
    return spark.archive(spark.find_spark(), find_java(), MASTER, words)

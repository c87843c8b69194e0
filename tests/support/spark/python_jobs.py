"""Programs of users that start a Python job in a session of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from eos.launch.spark import with_java_options
from eos.spark.local_session import SHORT_LIFE
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.kafka.kafka_io import create_topics, fill, wait_closed

RECORDS = 400
# What the jobs write of the numbers 0 to 399.
EXPECTED = [10 * n for n in range(RECORDS) if n % 3 < 2]
RUN_S_MAX = 900
SESSION = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}
_LOCAL = {"SPARK_LOCAL_IP": "127.0.0.1"}
# The start of a program. Its arguments are those of `begun`.
OPENED = """
import json, sys
import eos
from pyspark.sql import SparkSession

bootstrap, topic, state = sys.argv[1:4]
conf = {**eos.spark_conf("local[2]"), **json.loads(sys.argv[4])}
spark = SparkSession.builder.config(map=conf).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
"""


def begun(program: Path, broker: Kafka, topic: str, **environment: str) -> subprocess.Popen[str]:
    words = [sys.executable, str(program), broker.bootstrap, topic, str(program.parent / "state")]
    return subprocess.Popen(
        [*words, json.dumps(SESSION)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=program.parent,
        env=with_java_options({**os.environ, **_LOCAL, **environment}, *SHORT_LIFE),
    )


def run(program: Path, broker: Kafka, topic: str, **environment: str) -> tuple[int, str, str]:
    process = begun(program, broker, topic, **environment)
    out, err = process.communicate(timeout=RUN_S_MAX)
    return process.returncode, out, err


def eos(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder."""
    command = [sys.executable, "-m", "eos", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def profile_of(broker: Kafka, folder: Path) -> Path:
    """A profile with the cluster and the state root of the folder's programs."""
    path = folder / "profile.yaml"
    path.write_text(
        f'kafka: {{bootstrap: "{broker.bootstrap}"}}\nstate: {{root: {folder / "state"}}}\n'
    )
    return path


def found_by_commands(folder: Path, name: str, profile: Path) -> str:
    """Each command finds the job, and nothing wrong with it. Return the plan."""
    for verb in ("status", "audit", "verify", "recover", "plan"):
        done = eos(folder, verb, name, "--profile", str(profile))
        assert done.returncode == 0, (verb, done.stdout, done.stderr)
    return done.stdout


def filled(broker: Kafka, topic: str) -> None:
    create_topics(broker.bootstrap, 2, topic)
    fill(broker.bootstrap, topic, range(RECORDS))


def numbers(broker: Kafka, topic: str) -> list[int]:
    wait_closed(broker.bootstrap, topic)
    rows = kafka_io.read(broker.bootstrap, topic)
    return sorted(json.loads(row.value or b"")["number"] for row in rows)


def answer(path: Path, broker: Kafka, topic: str) -> Any:
    """Run the program, and return the last line that it prints."""
    code, out, err = run(path, broker, topic)
    assert code == 0, err
    return json.loads(out.splitlines()[-1])

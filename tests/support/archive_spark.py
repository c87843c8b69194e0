"""Leaves the class-data archive of Spark behind, where there is none: `python -m` does it.

Only a run that ends well makes one, in the background and at the lowest priority: beside other
tests it would take minutes, and each JVM that starts meanwhile does without. Its folder stays until
then: the JVM that makes the archive is in it, and could not start in one that is gone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from eos.deadline import Deadline
from eos.local.embedded_kafka import EmbeddedKafka
from support import outside
from support.archived import archive, words_of_a_run
from support.project import Project

RECORDS = 100
MAKE_MS_MAX = 120_000


def main() -> int:
    words = words_of_a_run("local[2]")
    wanted = archive("local[2]", words)
    if wanted is None or not wanted.options(Path("to be made")) or wanted.options():
        return 0  # no use, or in vain less than a day ago, or there
    with tempfile.TemporaryDirectory(prefix="eos-") as name:
        folder = Path(name) / "project"
        folder.mkdir()
        with EmbeddedKafka(Path(name) / "broker") as kafka:
            project = Project.made(folder, kafka)
            project.declare(RECORDS)
            outside.create_topics(kafka.bootstrap, 2, project.source)
            outside.fill(kafka.bootstrap, project.source, range(RECORDS))
            done = project.run()
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return done.returncode
        enough = Deadline.after_ms(MAKE_MS_MAX)
        while not wanted.options() and not enough.has_passed:
            time.sleep(0.2)
    return 0


if __name__ == "__main__":
    sys.exit(main())

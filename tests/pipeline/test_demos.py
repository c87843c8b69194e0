"""The pipelines that bring a demo, as README.md and docs/quickstart.md tell of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support.spark.project import RUN_S_MAX, Project
from support.verbs import audit

from eos.launch.demo import Demo, LoadedRecords

ROOT = Path(__file__).parents[2]
ORDERS = 3000
OWN = shutil.ignore_patterns("__pycache__")  # others write there at the same time


def declare(project: Project, example: str, instead: dict[str, str]) -> Demo:
    """The example's folder under the project's name, with other words for some of its own."""
    place = project.folder / "pipelines" / project.name
    shutil.copytree(ROOT / "pipelines" / example, place, ignore=OWN)
    for path in place.iterdir():
        text = path.read_text()
        for word, other in instead.items():
            text = re.sub(word, other, text)
        path.write_text(text)
    return Demo(place / "demo.py", project.broker.bootstrap)


def reported(demo: Demo, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capfd.readouterr()
    assert demo.report(1.5, 0, as_json=True) == 0
    return json.loads(capfd.readouterr().out)


@pytest.mark.long
def test_each_order_of_the_quickstart_comes_out_once_by_the_profile_of_a_container(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    """With fewer orders than a user's; the broker is the one that `KAFKA_BOOTSTRAP` names."""
    shutil.copy(ROOT / "conf" / "container.yaml", project.profile)
    fewer = {"quickstart": project.name, "ORDERS = 100_000": f"ORDERS = {ORDERS}", "20000": "1000"}
    demo = declare(project, "quickstart", fewer)
    assert demo.load() == LoadedRecords(ORDERS, ORDERS)
    done = project.run_warm(KAFKA_BOOTSTRAP=project.broker.bootstrap)
    assert done.returncode == 0, done.stderr
    assert (project.folder / ".eos" / "container" / "checkpoints").is_dir()
    found = reported(demo, capfd)
    assert found.pop("transactions") >= ORDERS / 1000
    wanted = {"records_in": ORDERS, "records_out": ORDERS, "duplicates": 0, "lost": 0}
    assert found == {**wanted, "seconds": 1.5}


@pytest.mark.long
def test_what_a_till_sent_again_and_what_came_too_late_is_dropped(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    own = {"payments_deduped": project.name, r'(?<=[" ])payments(?=[".,])': project.source}
    demo = declare(project, "payments_deduped", own)
    assert demo.load() == LoadedRecords(2250, 2250)
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert "dedup dropped 500 duplicate and 250 fenced" in done.stderr
    assert reported(demo, capfd) == {
        "records_in": 2250,
        "payments": 1500,
        "records_out": 1500,
        "dropped": {"duplicate": 500, "fenced": 250},
        "twice": 0,
        "lost": 0,
        "seconds": 1.5,
    }
    assert demo.load() == LoadedRecords(0, 2250)
    done = project.run_warm()  # writes into the table what the first had no time for
    assert done.returncode == 0, done.stderr
    assert audit(project.words()) == 0
    said = capfd.readouterr().out
    assert all(line in said for line in shown("of each producer", project))


def shown(before: str, project: Project) -> list[str]:
    """The lines of the quickstart's block behind these words, with this project's names."""
    guide = (ROOT / "docs" / "quickstart.md").read_text()
    block = guide.partition(before)[2].split("```\n")[1]
    return block.replace("payments", project.source).splitlines()


@pytest.mark.nightly
def test_no_order_of_the_quickstart_is_lost_or_twice_although_the_driver_is_killed(
    tmp_path: Path,
) -> None:
    """The command of the README, by the launcher, with an embedded broker of its own."""
    project = Project.without_broker(tmp_path)
    (tmp_path / "pipelines").mkdir()
    place = tmp_path / "pipelines" / "quickstart"
    shutil.copytree(ROOT / "pipelines" / "quickstart", place, ignore=OWN)
    words = ["pipelines/quickstart/pipeline.yaml", "--profile", str(project.profile)]
    done = subprocess.run(
        [sys.executable, "-m", "eos.launch.submit", *words, "--demo-crash", "--json"],
        env=project.environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the driver was killed by SIGKILL in the middle of a transaction" in done.stderr
    found = json.loads(done.stdout)
    assert (found["records_in"], found["records_out"]) == (100_000, 100_000)
    assert (found["duplicates"], found["lost"]) == (0, 0)
    rows = DeltaTable(str(tmp_path / "state" / "audit" / "transactions")).to_pyarrow_table()
    attempts = {
        (row["producer_id"], row["epoch"]): row["outcome"]
        for row in rows.to_pylist()
        if row["kind"] == "attempt"
    }
    # The one that was open when it died, ended by the start behind it; all others committed.
    assert Counter(attempts.values()) == {
        "CompleteCommit": found["transactions"],
        "CompleteAbort": 1,
    }

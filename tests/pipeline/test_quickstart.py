"""docs/quickstart.md, from `eos init` to a dead letter that was put back: its own blocks."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import yaml
from support.docs import blocks
from support.spark.project import Project
from support.verbs import init, replay, verify

from eos.launch.demo import Demo, LoadedRecords
from eos.testing.outside import read


def block(project: Project, language: str, mark: str) -> str:
    """The one of the guide's that has this in it, about a project of another name and place."""
    found = [text for name, text in blocks(language) if name.startswith("quickstart.md")]
    (text,) = [text for text in found if mark in text]
    text = re.sub(r"\bshop\b", project.name, text)
    return text.replace("127.0.0.1:9092", project.broker.bootstrap)


def made(project: Project) -> Path:
    """What `eos init` writes, where this project is; its folder."""
    written = project.folder / "written" / project.name
    written.parent.mkdir()
    assert init([str(written)]) == 0
    shutil.copytree(written, project.folder, dirs_exist_ok=True)
    return project.folder / "pipelines" / project.name


def ran(project: Project) -> str:
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    return done.stderr


def came_out(project: Project) -> dict[int, Any]:
    records = read(project.broker.bootstrap, f"{project.name}.out")
    orders = {record.json["order_id"]: record.json for record in records}
    assert len(orders) == len(records), "an order came out twice"
    return orders


def test_from_init_to_a_dead_letter_that_was_put_back(project: Project, capfd) -> None:
    folder = made(project)
    demo = Demo(folder / "demo.py", project.broker.bootstrap)
    assert demo.load() == LoadedRecords(1000, 1000)
    assert "1,000 records in, 999 out" in ran(project)
    capfd.readouterr()
    assert demo.report(1.0, 0, as_json=False) == 0
    last = capfd.readouterr().out.splitlines()[-1]
    assert last == block(project, "", "999 expected").splitlines()[-1]
    exec(block(project, "python", ".read("), {})
    shown = capfd.readouterr().out.splitlines()
    assert len(shown) == 3
    assert all("'gross'" in line for line in shown)

    (folder / "demo.py").unlink()
    declared = yaml.safe_load((folder / "pipeline.yaml").read_text())
    changed = declared | yaml.safe_load(block(project, "yaml", "known_customer"))
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(changed))
    exec(block(project, "python", ".write("), {})
    told = ran(project)
    assert "1 malformed record sent to the dead letters" in told
    assert "1 record sent to the dead letters by rule `known_customer`" in told
    assert came_out(project).keys() == {*range(1, 1000), 2002}

    words = [str(folder), "--profile", str(project.profile)]
    capfd.readouterr()
    assert replay([*words, "--dry-run"]) == 0
    assert capfd.readouterr().out == block(project, "", "1 waited, 0 put back")
    (rule,) = re.findall(r'`"(customer RLIKE [^`]+)"`', guide())
    changed["expect"][0]["rule"] = rule
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(changed))
    for _ in range(2):
        assert replay([*words, "--rule", "known_customer"]) == 0
        ran(project)
    assert came_out(project).keys() == {*range(1, 1000), 2001, 2002}
    capfd.readouterr()
    assert verify([*words, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["findings"] == []


def guide() -> str:
    return (Path(__file__).parents[2] / "docs" / "quickstart.md").read_text()

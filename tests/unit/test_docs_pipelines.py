"""Every YAML block of the guide and README has no problems, with what it leaves out filled in."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from eos.cli.lint import find

ROOT = Path(__file__).parents[2]
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
README = [b for b in YAML.findall((ROOT / "README.md").read_text()) if b.startswith("version:")]
GUIDES = [(ROOT / "docs" / name).read_text() for name in ("pipelines.md", "delta.md")]
BLOCKS = [*(block for text in GUIDES for block in YAML.findall(text)), *README]
LEFT_OUT = {
    "version": "1",
    "name": "from_the_guide",
    "source": "{kafka: {topic: orders}}",
    "sink": "{kafka: {topic: orders.out}}",
}


def test_there_are_blocks() -> None:
    assert len(BLOCKS) == 10


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_has_no_problems(number: int, tmp_path: Path) -> None:
    folder = tmp_path / "pipelines" / "orders_enriched"
    shutil.copytree(ROOT / "pipelines" / "orders_enriched", folder)
    (folder / "scoring.py").write_text("def scored(rows, weight: float): ...")
    (folder / "rated.py").write_text("def rated(frame, rates): ...")
    block = BLOCKS[number]
    said = yaml.safe_load(block)
    rest = "".join(f"{key}: {text}\n" for key, text in LEFT_OUT.items() if key not in said)
    (folder / "pipeline.yaml").write_text(block + rest)
    assert list(find(folder / "pipeline.yaml")) == []

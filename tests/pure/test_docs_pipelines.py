"""Every block of code in the documents is checked, with what a pipeline's leaves out filled in."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.docs import ROOT, blocks
from support.kafka.schemas import descriptor_file, shop

from eos.cli.lint import find
from eos.config.load import load_profile
from eos.config.model import PipelineFile, ProfileFile

LEFT_OUT = {
    "version": "1",
    "name": "from_the_guide",
    "source": "{kafka: {topic: orders}}",
    "sink": "{kafka: {topic: orders.out}}",
}
# What stands above the blocks of a document that show a part of a file.
ABOVE = {
    "README.md": {
        "DataFrame": "from pyspark.sql import DataFrame",
        "f": "from pyspark.sql import functions as f",
    },
    "dedup.md": {
        "Stamp": "from eos.stamp import Stamp",
        "outbox": "from mine import outbox",
        "producer": "from mine import producer",
    },
    "pipelines.md": {"spark": "from mine import spark"},
    "python.md": {
        "eos": "import eos",
        "enriched": "from mine import enriched",
        "kafka": "from mine import kafka",
        "spark": "from mine import spark",
    },
    "two-clusters.md": {"eos": "import eos", "spark": "from mine import spark"},
    "stateful.md": {"f": "from pyspark.sql import functions as f"},
}


def whole(name: str, text: str) -> str:
    """A block with what it needs of that."""
    nodes = list(ast.walk(ast.parse(text)))
    names = [each for each in nodes if isinstance(each, ast.Name)]
    made = {each.id for each in names if isinstance(each.ctx, ast.Store)}
    made |= {each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.alias)}
    used = {each.id for each in names} - made
    above = ABOVE.get(name.rpartition("-")[0], {})
    return "\n".join([*(line for word, line in above.items() if word in used), text])


def modules() -> dict[str, str]:
    """What the pipelines of blocks call, beside the example that they stand in for: a document's
    own function where it shows one."""
    (by_hour,) = [(name, text) for name, text in blocks("python") if "def by_hour(" in text]
    return {
        "scoring.py": "def scored(rows, weight: float): ...",
        "rated.py": "def rated(frame, rates): ...",
        "../orders_by_hour/transform.py": whole(*by_hour),
    }


def given(language: str) -> pytest.MarkDecorator:
    found = list(blocks(language))
    assert found
    return pytest.mark.parametrize("block", [b for _, b in found], ids=[name for name, _ in found])


@given("yaml")
def test_a_pipeline_or_profile_has_no_problems(block: str, tmp_path: Path) -> None:
    folder = tmp_path / "pipelines" / "orders_enriched"
    own = shutil.ignore_patterns("__pycache__")  # others write there at the same time
    shutil.copytree(ROOT / "pipelines" / "orders_enriched", folder, ignore=own)
    (folder.parent / "orders_by_hour").mkdir()
    for name, text in modules().items():
        (folder / name).write_text(text)
    (folder / "shop.desc").write_bytes(descriptor_file(shop()))
    said = set(yaml.safe_load(block))
    if said <= set(ProfileFile.model_fields):
        secret = tmp_path / "secret"
        secret.write_text("secret")
        text = re.sub(r"\$\{file:[^}]+\}", f"${{file:{secret}}}", block)
        (tmp_path / "profile.yaml").write_text(text)
        variables = dict.fromkeys(("POD_NAME", "S3_KEY", "S3_SECRET", "SHOP_PASSWORD"), "orders-0")
        load_profile(str(tmp_path / "profile.yaml"), tmp_path, variables)
        return
    rest = "".join(f"{key}: {text}\n" for key, text in LEFT_OUT.items() if key not in said)
    assert said <= set(PipelineFile.model_fields)
    (folder / "pipeline.yaml").write_text(block + rest)
    assert list(find(folder / "pipeline.yaml")) == []


def test_python_is_python_and_knows_its_names(tmp_path: Path) -> None:
    """Pyflakes: no name that nobody defined, and nothing imported that is not used."""
    found = list(blocks("python"))
    assert found
    for name, text in found:
        (tmp_path / f"{name}.py").write_text(whole(name, text))
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F"]
    done = subprocess.run([*ruff, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readmes_function_is_the_one_that_its_pipeline_names() -> None:
    """Its own tests, in the pipeline's file, are run with all others of the examples."""
    (block,) = [text for name, text in blocks("python") if name.startswith("README")]
    assert block in (ROOT / "pipelines" / "orders_enriched" / "transform.py").read_text()

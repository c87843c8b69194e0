"""Every block of code in the documents is checked, with what a pipeline's leaves out filled in."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.messages import descriptor_file, shop

from eos.cli.lint import find
from eos.cli.main import app
from eos.config.load import load_profile
from eos.config.model import PipelineFile, ProfileFile

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LANGUAGES = {"", "yaml", "python", "bash", "mermaid"}
VERBS = {each.name or each.callback.__name__ for each in app.registered_commands}
LEFT_OUT = {
    "version": "1",
    "name": "from_the_guide",
    "source": "{kafka: {topic: orders}}",
    "sink": "{kafka: {topic: orders.out}}",
}
# What the blocks call, beside the pipeline that they stand in for.
MODULES = {
    "scoring.py": "def scored(rows, weight: float): ...",
    "rated.py": "def rated(frame, rates): ...",
    "../orders_by_hour/transform.py": "def by_hour(orders): ...",
}


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for path in DOCUMENTS:
        found = re.finditer(r"^```(\w*)\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
        for number, block in enumerate(found, 1):
            assert block[1] in LANGUAGES, f"{path}: nobody checks {block[1]}"
            if block[1] == language:
                yield f"{path.name}-{number}", block[2]


def given(language: str) -> pytest.MarkDecorator:
    found = list(blocks(language))
    assert found
    return pytest.mark.parametrize("block", [b for _, b in found], ids=[name for name, _ in found])


@given("yaml")
def test_a_pipeline_or_profile_has_no_problems(block: str, tmp_path: Path) -> None:
    folder = tmp_path / "pipelines" / "orders_enriched"
    shutil.copytree(ROOT / "pipelines" / "orders_enriched", folder)
    (folder.parent / "orders_by_hour").mkdir()
    for name, text in MODULES.items():
        (folder / name).write_text(text)
    (folder / "shop.desc").write_bytes(descriptor_file(shop()))
    said = set(yaml.safe_load(block))
    if said <= set(ProfileFile.model_fields):
        secret = tmp_path / "secret"
        secret.write_text("secret")
        text = re.sub(r"\$\{file:[^}]+\}", f"${{file:{secret}}}", block)
        (tmp_path / "profile.yaml").write_text(text)
        load_profile(str(tmp_path / "profile.yaml"), tmp_path, {})
        return
    rest = "".join(f"{key}: {text}\n" for key, text in LEFT_OUT.items() if key not in said)
    assert said <= set(PipelineFile.model_fields)
    (folder / "pipeline.yaml").write_text(block + rest)
    assert list(find(folder / "pipeline.yaml")) == []


@given("python")
def test_python_is_python(block: str) -> None:
    ast.parse(block)


def test_the_readmes_function_is_the_one_that_its_pipeline_names() -> None:
    """Its own tests, in the pipeline's file, are run with all others of the examples."""
    (block,) = [text for name, text in blocks("python") if name.startswith("README")]
    assert block in (ROOT / "pipelines" / "orders_enriched" / "transform.py").read_text()


@pytest.mark.parametrize("language", ["", "bash"])
def test_commands_name_verbs_pipelines_and_programs_that_are_there(language: str) -> None:
    """Also those inside sentences: `eos VERB`."""
    texts = [text for _, text in blocks(language)]
    said = "\n".join([*texts, *re.findall(r"`[^`\n]+`", "\n".join(map(Path.read_text, DOCUMENTS)))])
    verbs = set(re.findall(r"(?m)(?:^\$ |^|`)eos ([a-z]+)\b", said))
    assert {"run", "lint", "plan"} <= verbs <= VERBS
    for named in re.findall(r"\bpipelines/\w+/pipeline\.yaml", said):
        assert (ROOT / named).is_file() or named.split("/")[1] in {"orders", "shop", "NAME"}, named
    for named in re.findall(r"(?m)^\./(\S+)", said):
        assert (ROOT / named).is_file(), named

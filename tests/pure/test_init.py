"""What `eos init` writes, and what it refuses. It runs in tests/pipeline/test_init.py."""

from __future__ import annotations

import ast
import fnmatch
import json
import re
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from support.docs import blocks, closure, project_requirements
from support.errors import raises
from support.verbs import init

from eos.cli import init as verb
from eos.cli.init import files
from eos.cli.lint import find
from eos.config.schema import schema_of
from eos.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib as toml
else:
    import tomli as toml

ROOT = Path(__file__).parents[2]


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_it_writes_has_no_problems_and_the_schema_of_this_release(at: Path) -> None:
    assert init(["shop"]) == 0
    assert list(find(at / "shop" / "pipelines" / "shop")) == []
    assert (at / "shop" / "conf" / "pipeline.schema.json").read_text() == schema_of("pipeline")
    assert len((at / "shop" / "README.md").read_text().splitlines()) <= 10


def test_every_key_of_its_pipeline_is_one_of_the_models() -> None:
    """The file that people begin with shows what the models have, and nothing that they lost."""
    written = yaml.safe_load(files("shop")["pipelines/shop/pipeline.yaml"])
    schema = json.loads(schema_of("pipeline"))
    assert set(schema["required"]) <= set(written) <= set(schema["properties"])
    assert {"transform", "tests", "trigger"} <= set(written)


def test_the_name_is_everywhere(at: Path) -> None:
    assert "my_pipeline" not in json.dumps(dict(files("shop")))
    assert init([str(at / "deep" / "shop_2")]) == 0
    assert (at / "deep" / "shop_2" / "tests" / "test_shop_2.py").is_file()


def test_an_empty_folder_will_do(at: Path) -> None:
    (at / "shop").mkdir()
    assert init(["shop"]) == 0


def test_a_folder_that_holds_something_is_left_as_it_is(at: Path) -> None:
    (at / "shop").mkdir()
    (at / "shop" / "mine").write_text("x")
    with raises("project_folder_in_use", UsageError) as caught:
        init(["shop"])
    assert "shop is not empty" in caught.value.message
    assert [path.name for path in (at / "shop").iterdir()] == ["mine"]
    with raises("project_folder_in_use", UsageError) as caught:
        init(["shop/mine"])
    assert "mine is a file" in caught.value.message


def test_a_place_that_can_t_be_written_is_told(at: Path) -> None:
    (at / "file").write_text("x")
    with raises("project_not_writable", UsageError) as caught:
        init(["file/shop"])
    assert "Not a directory" in caught.value.message


@pytest.mark.parametrize(
    ("name", "close"),
    [("My-Shop", "my_shop"), ("1st", "orders"), ("class", "orders"), ("a.b", "a_b")],
)
def test_a_name_that_python_can_t_import_is_refused(at: Path, name: str, close: str) -> None:
    with raises("pipeline_name_invalid", UsageError) as caught:
        init([name])
    assert f"`eos init {close}`" in caught.value.hint
    assert not (at / name).exists()


class Noted:
    def __init__(self, text: str | None) -> None:
        self.read_text = lambda _name: text


@pytest.mark.parametrize(
    ("noted", "wanted"),
    [
        (None, "spark-eos[testing]==0.1.0"),
        ('{"url": "file:///a", "dir_info": {"editable": true}}', "spark-eos[testing] @ file:///a"),
        (
            '{"url": "https://a/b.git", "vcs_info": {"vcs": "git", "commit_id": "c0"}}',
            "spark-eos[testing] @ git+https://a/b.git@c0",
        ),
    ],
)
def test_the_project_gets_eos_from_where_this_one_came(
    monkeypatch: pytest.MonkeyPatch, noted: str | None, wanted: str
) -> None:
    monkeypatch.setattr(verb.metadata, "distribution", lambda _name: Noted(noted))
    assert verb.requirement() == wanted


@pytest.mark.parametrize(
    ("wanted", "is_told"),
    [
        ("spark-eos[testing]==0.1.0", False),
        ("spark-eos[testing] @ git+https://a/b.git@c0", False),
        ("spark-eos[testing] @ file:///a", True),
        ("spark-eos[testing] @ git+file:///a@c0", True),
    ],
)
def test_an_address_that_only_this_machine_has_is_told_with_the_way_out(
    at: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wanted: str,
    is_told: bool,
) -> None:
    monkeypatch.setattr(verb, "requirement", lambda: wanted)
    assert init(["shop"]) == 0
    assert (at / "shop" / "requirements.txt").read_text() == f"{wanted}\n"
    told = capsys.readouterr().err
    assert ("which only this machine has" in told) is is_told
    if is_told:
        address = wanted.removeprefix("spark-eos[testing] @ ")
        assert f"requirements.txt names {address}, which" in told
        assert "`pip wheel --no-deps -w wheels file:///a`, commit `wheels/`" in told
        assert "and write `./wheels/spark_eos-0.1.0-py3-none-any.whl[testing]`" in told


def test_an_eos_that_was_never_installed_is_named_by_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise verb.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(verb.metadata, "distribution", missing)
    assert verb.requirement() == "spark-eos[testing]==0.1.0"


def test_all_that_eos_reads_of_itself_is_installed_with_it() -> None:
    """Somebody who installs it without the checkout has the package alone: no file beside it, and
    of what is no module only what pyproject.toml names."""
    project = toml.loads((ROOT / "pyproject.toml").read_text())
    packed = project["tool"]["setuptools"]["package-data"]["eos"]
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "eos"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "eos/errors.py" in listed
    data = [name.removeprefix("eos/") for name in listed if not name.endswith(".py")]
    assert [name for name in data if not any(fnmatch.fnmatch(name, p) for p in packed)] == []
    for name in [each for each in listed if each.endswith(".py")]:
        text = (ROOT / name).read_text()
        assert not re.search(r'CHECKOUT / "(?!eos")', text), f"{name} reads what is not installed"


# The fixtures of `spark-eos[testing]`, and programs that only this project's developers run.
FOR_TESTS = {
    "eos/testing/plugin.py",
    "eos/testing/frames.py",
    "eos/local/relock.py",
    "eos/launch/relock_python.py",
}
# What a run imports only if the profile has a key of the extra's name.
OF_EXTRAS = {
    "eos/observe/telemetry.py": "opentelemetry",
    "eos/observe/traces.py": "opentelemetry",
    "eos/observe/otlp_metrics.py": "opentelemetry",
    "eos/observe/lineage.py": "openlineage",
    "eos/login/msk_signer.py": "msk",
}


def test_what_users_run_imports_nothing_that_an_installation_lacks() -> None:
    """Every module of the package, the demos, and what `eos init` writes except its test."""
    written = {place: text for place, text in files("shop").items() if place.endswith(".py")}
    (own_test,) = (place for place in written if place.startswith("tests/"))
    del written[own_test]
    paths = [*ROOT.glob("eos/**/*.py"), *ROOT.glob("pipelines/**/*.py")]
    written |= {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    there = {
        extra: {each.lower() for each in closure(project_requirements(extra))}
        for extra in ("", *OF_EXTRAS.values())
    }
    lacking = {
        (place, name)
        for place, text in written.items()
        if place not in FOR_TESTS
        for name in libraries(text)
        if not there[OF_EXTRAS.get(place, "")] & distributions_of(name)
    }
    assert lacking == set()


def test_the_environment_of_the_quickstart_runs_the_test_that_init_writes() -> None:
    """`./spark-submit.sh` makes that environment, and the guide's commands end with the test."""
    (extra,) = re.findall(r'eos_bootstrap "\$here" (\w+)', (ROOT / "spark-submit.sh").read_text())
    there = {each.lower() for each in closure(project_requirements(extra))}
    for name in [*libraries(files("shop")["tests/test_shop.py"]), "pytest"]:
        assert there & distributions_of(name), name
    (commands,) = (text for name, text in blocks("bash") if "eos init ../shop" in text)
    assert commands.splitlines()[-1] == "pytest"


def libraries(text: str) -> set[str]:
    """Top-level modules that a program imports, without Python's own and ours."""
    named = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            named |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            named.add(node.module)
    return {name.partition(".")[0] for name in named} - {
        *sys.stdlib_module_names,
        "eos",
        "pipelines",
    }


@cache
def _packages() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())


def distributions_of(module: str) -> set[str]:
    found = _packages().get(module, ())
    return {each.lower() for each in found}

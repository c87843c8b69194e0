"""`eos init`: create a project folder with a pipeline whose tests pass and that runs unchanged."""

from __future__ import annotations

import argparse
import json
import keyword
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import eos
from eos.config.load import load_pipeline, load_profile
from eos.config.schema import schema_of
from eos.errors import UsageError

_TEMPLATE = Path(__file__).parent / "template"
_PLACEHOLDER = "my_pipeline"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")
# The target path of each file of the template.
_FILES = {
    "readme.txt": "README.md",
    "ignore.txt": ".gitignore",
    "ci.yml": ".github/workflows/tests.yml",
    "pytest.ini": "pytest.ini",
    "local.yaml": "conf/local.yaml",
    "pipeline.yaml": f"pipelines/{_PLACEHOLDER}/pipeline.yaml",
    "transform.txt": f"pipelines/{_PLACEHOLDER}/transform.py",
    "demo.txt": f"pipelines/{_PLACEHOLDER}/demo.py",
    "test.txt": f"tests/test_{_PLACEHOLDER}.py",
}
# Those of a Python job, with --python.
_JOB_FILES = {
    "job-readme.txt": "README.md",
    "ignore.txt": ".gitignore",
    "job-ci.yml": ".github/workflows/tests.yml",
    "pytest.ini": "pytest.ini",
    "job.txt": "job.py",
    "job-test.txt": "tests/test_job.py",
}


def run(options: argparse.Namespace) -> int:
    folder = Path(options.name)
    name = _name_of(folder)
    _require_free(folder)
    _write(folder, job_files(name) if options.python else files(name))
    if not options.python:
        # Load the written files with this release's models. Only then report success.
        load_pipeline(folder / "pipelines" / name)
        load_profile("local", folder)
    print(folder)
    print(f"eos: created {folder}; its README.md lists the commands", file=sys.stderr)
    _warn_if_local(requirement())
    return 0


def _warn_if_local(chosen: str) -> None:
    """Warn if requirements.txt names a checkout on this machine, which a CI machine lacks."""
    _, _, address = chosen.partition(" @ ")
    if "file:" not in address:
        return
    folder = address.removeprefix("git+").partition("@")[0]
    wheel = f"./wheels/spark_eos-{eos.__version__}-py3-none-any.whl[testing]"
    print(
        f"eos: warning: requirements.txt names {address}, which only this machine has: the "
        "CI file's `pip install` fails on other machines\n"
        "  hint: replace it by `spark-eos[testing] @ git+https://HOST/PATH@COMMIT`; or run "
        f"`pip wheel --no-deps -w wheels {folder}`, commit `wheels/`, and write `{wheel}`",
        file=sys.stderr,
    )


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for place, text in texts.items():
        path = folder / place
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(
                "project_not_writable",
                f"{path} can't be written: {reason}",
                hint="give this user write access, or free some disk space; then delete the "
                "unfinished project folder and run `eos init` again",
            ) from error


def files(name: str) -> Mapping[str, str]:
    """Return the text of each file of a new project, by path. `name` is the pipeline's name."""
    found = _filled(_FILES, name)
    found["conf/pipeline.schema.json"] = schema_of("pipeline")
    found["requirements.txt"] = f"{requirement()}\n"
    found[f"pipelines/{name}/__init__.py"] = found["pipelines/__init__.py"] = ""
    return found


def job_files(name: str) -> Mapping[str, str]:
    """Return the text of each file of a new project with a Python job, by path."""
    return {**_filled(_JOB_FILES, name), "requirements.txt": f"{requirement()}\n"}


def _filled(places: Mapping[str, str], name: str) -> dict[str, str]:
    return {
        place.replace(_PLACEHOLDER, name): (
            (_TEMPLATE / source).read_text(encoding="utf-8").replace(_PLACEHOLDER, name)
        )
        for source, place in places.items()
    }


def requirement() -> str:
    """Return the line of requirements.txt that installs this `eos` from the same origin.

    pip has recorded the origin (PEP 610): a checkout or an address. Without a record, the line has
    only the version.
    """
    try:
        noted = metadata.distribution("spark-eos").read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # found on Python's path, but not installed by pip
        noted = None
    if not noted:
        return f"spark-eos[testing]=={eos.__version__}"
    origin = json.loads(noted)
    how = origin.get("vcs_info")
    address = f"{how['vcs']}+{origin['url']}@{how['commit_id']}" if how else origin["url"]
    return f"spark-eos[testing] @ {address}"


def _name_of(folder: Path) -> str:
    name = folder.resolve().name
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        close = re.sub(r"\W+", "_", name.lower()).strip("_")
        usable = _NAME.fullmatch(close) and not keyword.iskeyword(close)
        example = close if usable else "orders"
        raise UsageError(
            "pipeline_name_invalid",
            f"`eos init` can't create a pipeline {name!r}: its folder is a Python package, with a "
            "name of at most 50 lower-case letters, digits and _, which begins with a letter and "
            "is no keyword of Python",
            hint=f"choose such a name, for example `eos init {example}`",
        )
    return name


def _require_free(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        state = "is not empty" if folder.is_dir() else "is a file"
        raise UsageError(
            "project_folder_in_use",
            f"the project folder {folder} {state}; nothing was written",
            hint="choose a folder that does not exist, or an empty one",
        )

"""What an installation of the project brings, by pyproject.toml, without a network."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterable
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib as toml
else:
    import tomli as toml

ROOT = Path(__file__).parents[2]


def project_requirements(extra: str = "") -> list[str]:
    """The requirements of `spark-eos` or `spark-eos[extra]`."""
    project = toml.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *(project["optional-dependencies"][extra] if extra else ())]


def closure(requirements: Iterable[str]) -> dict[str, importlib.metadata.Distribution]:
    """The distributions that pip would install for these, as this environment has them."""
    found, wanted = dict[str, importlib.metadata.Distribution](), list(requirements)
    while wanted:
        match = re.match(r"[A-Za-z0-9._-]+", wanted.pop())
        assert match
        try:
            distribution = importlib.metadata.distribution(match.group())
        except importlib.metadata.PackageNotFoundError:
            continue  # its marker excludes this Python or platform
        if distribution.name not in found:
            found[distribution.name] = distribution
            wanted += [each for each in distribution.requires or () if "extra ==" not in each]
    return found


def link(requirements: Iterable[str], place: Path) -> None:
    """Make a site-packages folder that has these requirements and nothing else."""
    for distribution in closure(requirements).values():
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            target = place / top
            if not target.exists():
                target.symlink_to(Path(str(distribution.locate_file(top))))

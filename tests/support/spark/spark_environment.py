"""A Python environment with another release of Spark: `./tests/run all --spark 4.0`.

`python -m support.spark.spark_environment 4.0`, with `tests` in PYTHONPATH, prints its Python's
path. It has all packages of the environment that runs this, but another pyspark, which is in front.
That one is installed from its lock, by checksum, into the user's cache, once for all checkouts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

from packaging.requirements import Requirement

from eos.cache import cache_root
from eos.deadline import Deadline
from eos.local.file_locks import exclusive

ROOT = Path(__file__).parents[3]
LOCKS = {
    path.stem.removeprefix("spark-"): path for path in sorted((ROOT / "tests").glob("spark-*.lock"))
}
INSTALL_MS_MAX = 20 * 60_000
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
CHECKED = ["--require-hashes", "--no-deps", "--no-build-isolation"]


def pinned(minor: str) -> str:
    """The version of the lock's one release."""
    lines = LOCKS[minor].read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("pyspark"))
    (each,) = Requirement(line.removesuffix("\\").strip()).specifier
    return each.version


def package(minor: str) -> Path:
    """Return the folder in the user's cache that has this pyspark. Install it first if need be."""
    folder = cache_root() / "pyspark" / pinned(minor)
    with exclusive(folder.with_name(f"{folder.name}.lock"), Deadline.after_ms(INSTALL_MS_MAX)):
        if folder.exists():
            return folder
        folder.parent.mkdir(exist_ok=True)
        # Installed next to it and renamed: a folder of that name is complete.
        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            target = Path(unfinished) / "packages"
            command = [*PIP, *CHECKED, "--target", str(target), "--requirement", str(LOCKS[minor])]
            subprocess.run(command, stdout=sys.stderr, check=True)
            target.rename(folder)
    return folder


def environment(minor: str) -> Path:
    """Return the Python of the environment, which is made anew: it has no files of its own."""
    home = ROOT / ".eos" / f"spark-{minor}"
    venv.create(home, clear=True, symlinks=True, with_pip=False)
    base = sysconfig.get_path("purelib")
    (site,) = home.glob("lib/python*/site-packages")
    # A path is searched before those that are added later, and `addsitedir` also runs the files
    # by which this project's own package is found.
    lines = f"{package(minor)}\nimport site; site.addsitedir({base!r})\n"
    (site / "spark.pth").write_text(lines, encoding="utf-8")
    return home / "bin" / "python"


def main() -> None:
    parser = argparse.ArgumentParser(prog="./tests/run ... --spark")
    parser.add_argument("version", choices=LOCKS)
    print(environment(parser.parse_args().version))


if __name__ == "__main__":
    main()

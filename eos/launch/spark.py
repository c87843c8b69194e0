"""The command line of spark-submit: which Spark, which jars, what is shipped."""

from __future__ import annotations

import importlib.util
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eos.errors import UsageError
from eos.launch.archive import Archive, archive_of
from eos.launch.jars import SPARK, ensure
from eos.launch.java import Java

CHECKOUT = Path(__file__).parents[2]
# Lists that the user and the launcher both fill: spark-submit takes the last one only.
_JOINED = ("--jars", "--py-files")


@dataclass(frozen=True, slots=True)
class Spark:
    """`home` is the user's SPARK_HOME, or pyspark's own folder."""

    home: Path
    is_installed: bool  # by the user, with a Python path of its own

    @property
    def submit(self) -> Path:
        return self.home / "bin" / "spark-submit"


def find_spark() -> Spark:
    given = os.environ.get("SPARK_HOME")
    if given:
        found = Spark(Path(given), is_installed=True)
        if not found.submit.exists():
            raise UsageError(
                f"SPARK_HOME is `{given}`, but there is no bin/spark-submit in it",
                hint="correct it, or unset it to use the Spark of this environment",
            )
        return found
    spec = importlib.util.find_spec("pyspark")  # finds, does not import
    if spec is None or spec.origin is None:
        raise UsageError("pyspark is not installed", hint="install `spark-eos` with its packages")
    return Spark(Path(spec.origin).parent, is_installed=False)


def command(
    spark: Spark,
    job: Sequence[str],
    master: str,
    conf: Mapping[str, str],
    options: Sequence[str],
    ship_folder: Path,
    project: Path,
) -> list[str]:
    """`job` is what follows jobs/run.py; `options` are the user's and win over the profile's."""
    joined = {"--jars": [str(path) for path in ensure(SPARK)[SPARK]], "--py-files": []}
    rest = _take_out(options, joined)
    chosen = master_of(options) or master
    if spark.is_installed or not chosen.startswith("local"):
        joined["--py-files"].append(str(ship(ship_folder, project)))
    words = [str(spark.submit)]
    if master_of(options) is None:
        words += ["--master", master]
    for key, value in conf.items():
        words += ["--conf", f"{key}={value}"]
    for key, values in joined.items():
        if values:
            words += [key, ",".join(values)]
    return [*words, *rest, str(CHECKOUT / "jobs" / "run.py"), *job]


def environment(
    spark: Spark, java_home: Path, master: str, logs: Path, project: Path
) -> dict[str, str]:
    """What the JVM, the driver and local workers get beside the caller's own environment."""
    changed = dict(os.environ)
    changed["JAVA_HOME"] = str(java_home)
    changed["SPARK_HOME"] = str(spark.home)
    paths = [str(CHECKOUT), str(project), os.environ.get("PYTHONPATH", "")]
    changed["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    changed["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        changed["PYSPARK_PYTHON"] = sys.executable
    # It only prints the command line of the JVM that follows.
    changed.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    settings = f"-Dlog4j2.configurationFile=file:{_log_settings(project)}"
    return with_java_options(changed, f"-Deos.log.folder={logs}", settings)


def with_java_options(environment: Mapping[str, str], *options: str) -> dict[str, str]:
    """For the JVM of spark-submit. What is there already comes later, and so wins."""
    quoted = (f'"{option}"' if " " in option else option for option in options)
    given = environment.get("SPARK_SUBMIT_OPTS", "")
    return {**environment, "SPARK_SUBMIT_OPTS": " ".join([*quoted, given]).strip()}


def archive(spark: Spark, java: Java, master: str) -> Archive | None:
    """Only where the driver's JVM is ours to choose options for: the Spark of this environment.

    Spark's class path names one jar twice. A Java 21 makes an archive of that, but refuses it.
    """
    if spark.is_installed or not master.startswith("local") or java.version > 17:
        return None
    return archive_of("spark", java, sorted((spark.home / "jars").glob("*.jar")))


def dump_command(words: Sequence[str]) -> list[str]:
    """Any command that has the JVM of spark-submit with its class path; it never runs."""
    return [words[0], "--version"]


def master_of(options: Sequence[str]) -> str | None:
    """The master that the user named, in either way that spark-submit knows."""
    found = None
    for word, following in zip(options, [*options, ""][1:], strict=True):
        if word == "--master":
            found = following
        elif word.startswith("--master="):
            found = word.removeprefix("--master=")
        elif word in {"--conf", "-c"} and following.startswith("spark.master="):
            found = following.removeprefix("spark.master=")
    return found


def ship(folder: Path, project: Path) -> Path:
    """`eos`, and the project's pipelines with it, as one zip for machines that have neither."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "eos.zip"
    unfinished = folder / f"eos.zip.{os.getpid()}"
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for base, name in ((CHECKOUT, "eos"), (project, "pipelines")):
            for path in sorted((base / name).rglob("*.py")):
                archive.write(path, path.relative_to(base))
    unfinished.replace(target)
    return target


def _log_settings(project: Path) -> Path:
    own = project / "conf" / "log4j2.properties"
    return own if own.exists() else CHECKOUT / "conf" / "log4j2.properties"


def _take_out(options: Sequence[str], joined: dict[str, list[str]]) -> list[str]:
    """Move the values of the joined lists out of the user's words; returns the other words."""
    rest, words = [], iter(options)
    for word in words:
        key, equals, value = word.partition("=")
        if key in _JOINED:
            joined[key] += (value if equals else next(words, "")).split(",")
        else:
            rest.append(word)
    return rest

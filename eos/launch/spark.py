"""The command line of spark-submit: which Spark, which jars, what is shipped."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eos import private_files
from eos.errors import UsageError
from eos.launch import shipping
from eos.launch.scratch import fits_sockets
from eos.launch.shipping import CHECKOUT, PACKAGES
from eos.local.class_archive import Archive, archive_of
from eos.local.jars import DELTA, SPARK, ensure, read_lock
from eos.local.java import AVRO_LIMITS, Java

LOOPBACK = "127.0.0.1"
# Beside us in every installation, where a checkout's other folders are not.
_JOB = Path(__file__).parents[1] / "job" / "run.py"
_LOG_SETTINGS = Path(__file__).with_name("spark-log4j2.properties")

# Lists that the user and the launcher both fill. spark-submit takes the last one only, and an
# option instead of the setting.
_JOINED = {
    "--jars": "spark.jars",
    "--py-files": "spark.submit.pyFiles",
    "--archives": "spark.archives",
}
_CLASS_PATH = "spark.driver.extraClassPath"
_OWN_FIRST = ("spark.driver.userClassPathFirst", "spark.executor.userClassPathFirst")
# Delta is no part of Spark: its classes are found by these settings, where a pipeline has tables.
_EXTENSIONS, _CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_PYTHON_PATH = "spark.executorEnv.PYTHONPATH"
_PYTHON, _DRIVER_PYTHON = "spark.pyspark.python", "spark.pyspark.driver.python"
# Settings for tasks that run on this machine. The first is the process that forks Python workers:
# an executor that has only Spark could not import ours so early. The second is how rows get to the
# workers: over TCP the last piece of a task's rows waits for an acknowledgement that Linux delays
# for 40 ms. A cluster's executors may have folders whose paths are too long for a socket.
_SOCKETS = "spark.python.unix.domain.socket"
LOCAL = {"spark.python.daemon.module": "eos.spark.worker_daemon", f"{_SOCKETS}.enabled": "true"}
_LOCAL_DIR = "spark.local.dir"


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
        _require_version(found.home)
        return found
    spec = importlib.util.find_spec("pyspark")  # finds, does not import
    if spec is None or spec.origin is None:
        raise UsageError("pyspark is not installed", hint="install `spark-eos` with its packages")
    return Spark(Path(spec.origin).parent, is_installed=False)


def _require_version(home: Path) -> None:
    """The jars that come with the job are for one version of Spark."""
    jars = (jar.coordinate.split(":") for jar in read_lock() if jar.purpose == SPARK)
    ours = next(version for group, _, version in jars if group == "org.apache.spark")
    for core in (home / "jars").glob("spark-core_*.jar"):
        found = re.fullmatch(r"spark-core_([\d.]+)-(\d+\.\d+)\..*\.jar", core.name)
        if found and found.groups() != ("2.13", ours.rpartition(".")[0]):
            raise UsageError(
                f"SPARK_HOME is `{home}`, a Spark {found[2]} for Scala {found[1]}; this release "
                f"needs {ours} for Scala 2.13",
                hint="point SPARK_HOME to that version, on the workers, too",
            )


def command(
    spark: Spark,
    job: Sequence[str],
    master: str,
    conf: Mapping[str, str],
    options: Sequence[str],
    ship_folder: Path,
    project: Path,
    *,
    with_delta: bool = False,
    sockets: Path | None = None,
) -> list[str]:
    """Return the words that run the job.

    `job` is what follows eos/job/run.py; `options` are the user's and win over the profile's.
    `sockets` is a private folder for those of Python workers; without one, they use TCP.
    """
    given, rest = _settings(conf, options)
    _refuse_cluster_mode(given, rest)
    joined = {option: given.pop(key, "").split(",") for option, key in _JOINED.items()}
    chosen = master_of(options) or master
    sets = (SPARK, DELTA) if with_delta else (SPARK,)
    jars = [str(jar) for paths in ensure(*sets).values() for jar in paths]
    # Not both: the archive of classes has those of the class path only, and Spark would copy the
    # jars of the list for tasks that run in this JVM.
    if not put_on_class_path(spark, chosen, jars, given, rest):
        joined["--jars"] = [*jars, *joined["--jars"]]
    if with_delta:
        given |= delta_conf(given)
    is_remote = not chosen.startswith("local")
    if spark.is_installed or is_remote:
        joined["--py-files"].insert(0, str(shipping.eos_zip(ship_folder, project)))
    if not is_remote:
        given |= {**LOCAL, **_of_sockets(given, sockets), **given}
    if is_remote and not _brings_its_own(given):
        joined["--archives"].insert(0, f"{shipping.packages_zip()}#{PACKAGES}")
        given[_PYTHON_PATH] = os.pathsep.join(filter(None, [PACKAGES, given.get(_PYTHON_PATH)]))
    if _PYTHON in given:  # Spark would take it for the driver, too
        given.setdefault(_DRIVER_PYTHON, sys.executable)
    words = [str(spark.submit)]
    if master_of(options) is None:
        words += ["--master", master]
    for key, value in given.items():
        words += ["--conf", f"{key}={value}"]
    for option, values in joined.items():
        if any(values):
            words += [option, ",".join(filter(None, values))]
    return [*words, *rest, str(_JOB), *job]


def put_on_class_path(
    spark: Spark, master: str, jars: Sequence[str], given: dict[str, str], rest: Sequence[str] = ()
) -> bool:
    """In the settings that are `given`, behind what stands there. False: they must not stand there.
    `rest`: what else the user says."""
    if not _has_one_jvm(spark, master) or not _may_stand(jars, given, rest):
        return False
    given[_CLASS_PATH] = os.pathsep.join(filter(None, [given.get(_CLASS_PATH), *jars]))
    return True


def delta_conf(given: Mapping[str, str]) -> dict[str, str]:
    """What Delta needs beside its jars, with what is set already."""
    others = [each for each in given.get(_EXTENSIONS, "").split(",") if each]
    extensions = ",".join(dict.fromkeys([*others, _DELTA_EXTENSION]))
    return {_EXTENSIONS: extensions, _CATALOG: given.get(_CATALOG, _DELTA_CATALOG)}


def _settings(conf: Mapping[str, str], options: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """All settings that were given, the user's over the profile's; and the user's other words.

    What both may add to (jars, Python files, archives) is joined.
    """
    given, rest, words = dict(conf), list[str](), iter(options)

    def take(key: str, value: str) -> None:
        before = given.get(key) if key in _JOINED.values() else None
        given[key] = f"{before},{value}" if before else value

    for word in words:
        option, equals, value = word.partition("=")
        if option in _JOINED:
            take(_JOINED[option], value if equals else next(words, ""))
        elif option == "--driver-class-path":
            take(_CLASS_PATH, value if equals else next(words, ""))
        elif option in {"--conf", "-c"}:
            setting = value if equals else next(words, "")
            key, equals, value = setting.partition("=")
            if equals and key != "spark.master":
                take(key.strip(), value)
            else:  # spark-submit knows what to say of it
                rest += [option, setting]
        else:
            rest.append(word)
    return given, rest


def _refuse_cluster_mode(given: Mapping[str, str], rest: Sequence[str]) -> None:
    following = zip(rest, [*rest, ""][1:], strict=True)
    asked = [value for word, value in following if word == "--deploy-mode"]
    asked += [word.partition("=")[2] for word in rest if word.startswith("--deploy-mode=")]
    asked.append(given.get("spark.submit.deployMode", ""))
    if "cluster" in asked:
        raise UsageError(
            "--deploy-mode is cluster: the driver would run on a machine that has neither the "
            "pipeline's file nor its state",
            hint="leave it out: the driver runs here (client mode), the executors in the cluster",
        )


def _may_stand(jars: Sequence[str], given: Mapping[str, str], rest: Sequence[str]) -> bool:
    """On the class path. Not where the user's jars come first: ours stay in one loader with them,
    or a class that both have would be two. Nor where a file that Spark reads may have a class path
    of the user's, which a setting of ours would replace."""
    is_own_first = any(given.get(key, "").lower() == "true" for key in _OWN_FIRST)
    has_file = any(word.partition("=")[0] == "--properties-file" for word in rest)
    has_file |= bool(os.environ.get("SPARK_CONF_DIR"))
    return not (is_own_first or has_file or any(os.pathsep in jar for jar in jars))


def _of_sockets(given: Mapping[str, str], ours: Path | None) -> dict[str, str]:
    """In the user's folder, else in the private one; TCP if sockets don't fit there."""
    folder = given.get(f"{_SOCKETS}.dir") or ours
    if folder is None or not fits_sockets(folder):
        return {f"{_SOCKETS}.enabled": "false"}
    return {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": str(folder)}


def local_dir(conf: Mapping[str, str], options: Sequence[str]) -> str | None:
    """The folders that the user named for the blocks that Spark keeps on disk."""
    return _settings(conf, options)[0].get(_LOCAL_DIR)


def _brings_its_own(given: Mapping[str, str]) -> bool:
    """Is the executors' Python in an archive of the user's, as Spark's guide to packages says?"""
    python = given.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or ""
    return "/" in python and not python.startswith("/")


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
        # Spark's UI, RPC and blocks listen here: by default all interfaces could reach them.
        changed.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    else:  # the packages that travel are for this one, and `python3` may be another
        changed.setdefault("PYSPARK_PYTHON", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    # It only prints the command line of the JVM that follows.
    changed.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    settings = f"-Dlog4j2.configurationFile=file:{_log_settings(project)}"
    mode = "rw-rw----" if private_files.is_shared(logs) else "rw-------"
    log = (f"-Deos.log.folder={logs}", f"-Deos.log.permissions={mode}")
    return with_java_options(changed, *log, settings, *AVRO_LIMITS)


def with_java_options(environment: Mapping[str, str], *options: str) -> dict[str, str]:
    """For the JVM of spark-submit. What is there already comes later, and so wins."""
    quoted = (f'"{option}"' if " " in option else option for option in options)
    given = environment.get("SPARK_SUBMIT_OPTS", "")
    return {**environment, "SPARK_SUBMIT_OPTS": " ".join([*quoted, given]).strip()}


def archive(spark: Spark, java: Java, master: str, words: Sequence[str]) -> Archive | None:
    """Only where the driver's JVM is ours to choose options for: the Spark of this environment. A
    pipeline with tables has another class path, and so another archive.

    Spark's class path names one jar twice. A Java 21 makes an archive of that, but refuses it.
    """
    if spark.is_installed or not master.startswith("local") or java.version > 17:
        return None
    program = "delta" if f"{_CATALOG}={_DELTA_CATALOG}" in words else "spark"
    first = [Path(each) for each in _class_path(words).split(os.pathsep) if each]
    return archive_of(program, java, [*first, *sorted((spark.home / "jars").glob("*.jar"))])


def dump_command(words: Sequence[str]) -> list[str]:
    """Any command that has the JVM of spark-submit with its class path; it never runs."""
    return [words[0], "--conf", f"{_CLASS_PATH}={_class_path(words)}", "--version"]


def _class_path(words: Sequence[str]) -> str:
    """What stands before Spark's own."""
    found = (word.partition("=") for word in words)
    return next((value for key, _, value in found if key == _CLASS_PATH), "")


def _has_one_jvm(spark: Spark, master: str) -> bool:
    """Driver and tasks in one, and of the Spark of this environment."""
    return not spark.is_installed and (master == "local" or master.startswith("local["))


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


def _log_settings(project: Path) -> Path:
    own = project / "conf" / "log4j2.properties"
    return own if own.exists() else _LOG_SETTINGS

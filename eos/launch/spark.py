"""The command line and environment of spark-submit: Spark, jars, settings and shipped files."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eos import log_lines, private_files
from eos.errors import UsageError
from eos.launch import shipping
from eos.launch.cluster_mode import ClusterMode, workers_python
from eos.launch.scratch import fits_sockets, quoted
from eos.launch.shipping import CHECKOUT, PACKAGES
from eos.launch.spark_options import CLASS_PATH, DEPLOY_MODE, JOINED, MASTER, settings_of
from eos.launch.spark_version import minor_of, supported_version
from eos.local.class_archive import Archive, archive_of
from eos.local.jars import of_delta, of_spark, paths_of
from eos.local.java import AVRO_LIMITS, Java, is_one_jvm
from eos.native import library

LOOPBACK = "127.0.0.1"
# The script that spark-submit runs. A checkout also has a link to it in `jobs`, an installation
# does not.
_JOB = Path(__file__).parents[1] / "job" / "run.py"
_SUBMIT = Path("bin", "spark-submit")
_LOG_SETTINGS = Path(__file__).with_name("spark-log4j2.properties")
_JSON_LOG_SETTINGS = _LOG_SETTINGS.with_name("spark-log4j2-json.properties")
_STATUS_LOG_SETTINGS = _LOG_SETTINGS.with_name("spark-log4j2-status.properties")
# Log4j's names of the levels of `--log-level`. Spark's own debug lines are too many.
_LOG_LEVELS = {"debug": "info", "info": "info", "warning": "warn", "error": "error"}

_OWN_FIRST = ("spark.driver.userClassPathFirst", "spark.executor.userClassPathFirst")
# The settings by which Spark loads Delta, which is not part of Spark.
_EXTENSIONS, _CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_PYTHON_PATH = "spark.executorEnv.PYTHONPATH"
_PYTHON, _DRIVER_PYTHON = "spark.pyspark.python", "spark.pyspark.driver.python"
# Settings for tasks on this machine:
# - daemon.module: the project's own process that forks Python workers. Not on a cluster, where an
#   executor unpacks `eos` too late to import it.
# - unix.domain.socket: rows are sent to Python workers over Unix sockets. Over TCP, the last packet
#   of a task's rows waits for an acknowledgement, which Linux delays for 40 ms. Not on a cluster,
#   where folder paths may be too long for a socket.
_SOCKETS = "spark.python.unix.domain.socket"
LOCAL = {"spark.python.daemon.module": "eos.spark.worker_daemon", f"{_SOCKETS}.enabled": "true"}
_LOCAL_DIR = "spark.local.dir"


@dataclass(frozen=True, slots=True)
class Spark:
    """The Spark that submits. `home` is the user's SPARK_HOME, or the folder of pyspark."""

    home: Path
    is_installed: bool  # true: the user's SPARK_HOME; false: the pyspark of this environment
    version: str

    @property
    def submit(self) -> Path:
        return self.home / _SUBMIT

    def jar_sets(self, *, with_delta: bool = False) -> tuple[str, ...]:
        """Return the names of the jar sets that a run needs on this Spark."""
        needed = of_spark(minor_of(self.version))
        return (*needed, *self.delta_jar_sets()) if with_delta else needed

    def delta_jar_sets(self) -> tuple[str, ...]:
        return of_delta(minor_of(self.version))


def find_spark() -> Spark:
    configured = os.environ.get("SPARK_HOME")
    if configured:
        home = Path(configured)
        if not (home / _SUBMIT).exists():
            raise UsageError(
                "spark_home_invalid",
                f"SPARK_HOME is `{configured}`, but that folder has no bin/spark-submit",
                hint="correct SPARK_HOME, or run `unset SPARK_HOME` to use the Spark of this "
                "environment",
            )
        return Spark(home, True, supported_version(home, is_installed=True))
    spec = importlib.util.find_spec("pyspark")  # finds it without importing it
    if spec is None or spec.origin is None:
        raise UsageError(
            "pyspark_missing",
            "pyspark is not installed",
            hint="install `spark-eos` with its dependencies, as `./spark-submit.sh` does",
        )
    home = Path(spec.origin).parent
    return Spark(home, False, supported_version(home, is_installed=False))


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
    mode: ClusterMode | None = None,
) -> list[str]:
    """Return the spark-submit command line that runs a pipeline.

    `job` has the arguments of eos/job/run.py. The user's `options` for spark-submit override the
    profile's settings in `conf`. Python workers use sockets in the folder `sockets`, or else TCP.
    With `mode`, the driver is in the cluster.
    """
    settings, rest = settings_of(conf, options)
    joined = {option: settings.pop(key, "").split(",") for option, key in JOINED.items()}
    chosen, deploy_mode = settings.pop(MASTER, master), settings.pop(DEPLOY_MODE, None)
    is_remote, sends_all = not chosen.startswith("local"), shipping.are_packages_sent()
    sets = () if is_remote and not sends_all else spark.jar_sets(with_delta=with_delta)
    jars = [str(jar) for jar in paths_of(*sets)]
    # Prefer the class path to --jars: its classes can be in the class-data archive, which makes
    # starts faster. Jars in --jars would also be copied for the tasks that run in this JVM.
    if not put_on_class_path(spark, chosen, jars, settings, rest):
        joined["--jars"] = [*jars, *joined["--jars"]]
    if with_delta:
        settings |= delta_conf(settings)
    if spark.is_installed or is_remote:
        joined["--py-files"].insert(0, str(shipping.eos_zip(ship_folder, project)))
    if not is_remote:
        settings |= {**LOCAL, **_of_sockets(settings, sockets), **settings}
    else:
        settings = {**_environment_of_executors(), **settings}
    sends_packages = is_remote and sends_all and not _brings_its_own(settings)
    if sends_packages:
        known = filter(None, [PACKAGES, settings.get(_PYTHON_PATH)])
        settings[_PYTHON_PATH] = os.pathsep.join(known)
    if mode is not None:
        joined["--archives"][:0] = mode.archives(with_packages=sends_packages)
        settings = mode.settings(settings, with_packages=sends_packages)
    elif sends_packages:
        joined["--archives"].insert(0, f"{shipping.packages_zip()}#{PACKAGES}")
    if mode is None and _PYTHON in settings:  # else Spark would use it for the driver as well
        settings.setdefault(_DRIVER_PYTHON, sys.executable)
    own = ["--master", chosen, *(["--deploy-mode", deploy_mode] if deploy_mode else [])]
    return [str(spark.submit), *own, *_words(settings, joined), *rest, str(_JOB), *job]


def _words(settings: Mapping[str, str], joined: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield spark-submit's words for the settings, and for the lists of each option in `joined`."""
    for key, value in settings.items():
        yield from ("--conf", f"{key}={value}")
    for option, values in joined.items():
        if any(values):
            yield from (option, ",".join(filter(None, values)))


def _environment_of_executors() -> dict[str, str]:
    """Return the setting that disables the native library on executors if it is disabled here.

    Otherwise return no setting."""
    disabled = os.environ.get(library.DISABLED)
    return {} if disabled is None else {f"spark.executorEnv.{library.DISABLED}": disabled}


def put_on_class_path(
    spark: Spark,
    master: str,
    jars: Sequence[str],
    settings: dict[str, str],
    rest: Sequence[str] = (),
) -> bool:
    """Add the jars to the driver's class path in `settings`, after existing entries.

    Return False and change nothing if the jars must not be on the class path. `rest` has the user's
    options of spark-submit that are not in `settings`."""
    is_ours = not spark.is_installed and is_one_jvm(master)
    if not is_ours or not _fit_class_path(jars, settings, rest):
        return False
    settings[CLASS_PATH] = os.pathsep.join(filter(None, [settings.get(CLASS_PATH), *jars]))
    return True


def delta_conf(settings: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for extensions and catalog, with Delta's added to the user's."""
    others = [each for each in settings.get(_EXTENSIONS, "").split(",") if each]
    extensions = ",".join(dict.fromkeys([*others, _DELTA_EXTENSION]))
    return {_EXTENSIONS: extensions, _CATALOG: settings.get(_CATALOG, _DELTA_CATALOG)}


def _fit_class_path(jars: Sequence[str], settings: Mapping[str, str], rest: Sequence[str]) -> bool:
    """Return whether the launcher's jars may be on the driver's class path.

    There are two reasons against it:
    - The user's jars take precedence (`userClassPathFirst`). Then all jars must be in one class
      loader, or a class that is in two jars would exist twice.
    - Spark reads a settings file. It may contain a class path of the user, which the launcher's
      setting would replace."""
    is_own_first = any(settings.get(key, "").lower() == "true" for key in _OWN_FIRST)
    has_file = any(argument.partition("=")[0] == "--properties-file" for argument in rest)
    has_file |= bool(os.environ.get("SPARK_CONF_DIR"))
    return not (is_own_first or has_file or any(os.pathsep in jar for jar in jars))


def _of_sockets(settings: Mapping[str, str], ours: Path | None) -> dict[str, str]:
    """Return Spark's settings for Unix sockets: in the user's folder, else in the folder `ours`.

    If the folder does not suit sockets, the settings make Spark use TCP."""
    folder = settings.get(f"{_SOCKETS}.dir") or ours
    if folder is None or not fits_sockets(folder):
        return {f"{_SOCKETS}.enabled": "false"}
    return {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": str(folder)}


def local_dir(conf: Mapping[str, str], options: Sequence[str]) -> str | None:
    """Return the user's `spark.local.dir`, the folders for blocks on disk; None if not set."""
    return settings_of(conf, options)[0].get(_LOCAL_DIR)


def _brings_its_own(settings: Mapping[str, str]) -> bool:
    """Return whether the executors' Python is in an archive that the user sends (`--archives`).

    Its path is then relative, as in Spark's guide to Python packages: `./mine/bin/python`."""
    python = settings.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or ""
    return "/" in python and not python.startswith("/")


def environment(
    spark: Spark,
    java_home: Path,
    master: str,
    logs: Path,
    project: Path,
    *,
    is_elsewhere: bool = False,
) -> dict[str, str]:
    """Return the environment variables of spark-submit's JVM, the driver and local workers.

    Variables of the launcher's own environment are kept, except those that are set here. With
    `is_elsewhere`, the driver is in the cluster, and the JVM only submits."""
    changed = dict(os.environ)
    changed["JAVA_HOME"] = str(java_home)
    changed["SPARK_HOME"] = str(spark.home)
    if is_elsewhere:  # Spark would pass this machine's paths on to the driver
        changed.pop("PYTHONPATH", None)
        changed.pop("PYSPARK_DRIVER_PYTHON", None)
    else:
        paths = [str(CHECKOUT), str(project), os.environ.get("PYTHONPATH", "")]
        changed["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
        changed["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        changed["PYSPARK_PYTHON"] = sys.executable
        # Spark's UI, RPC and block service must not be reachable from other machines. By default
        # they listen on all interfaces.
        changed.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    else:  # executors need this Python version, for which the shipped packages are built
        changed.setdefault("PYSPARK_PYTHON", workers_python())
    # spark-submit starts two JVMs. The first one only prints the second one's command line, so it
    # needs no optimizing compiler.
    changed.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    log_options = _log_options(logs, project, with_status=is_elsewhere)
    return with_java_options(changed, *log_options, *AVRO_LIMITS)


def _log_options(logs: Path, project: Path, *, with_status: bool) -> Sequence[str]:
    """Return the Java options for Spark's log, in the form of this process's own lines.

    `with_status` adds the application's status in the cluster on stderr."""
    form = log_lines.chosen()
    own = project / "conf" / "log4j2.properties"
    files = [own if own.exists() else _LOG_SETTINGS]
    if form.format == "json" and not own.exists():
        files.append(_JSON_LOG_SETTINGS)
    if with_status:
        files.append(_STATUS_LOG_SETTINGS)
    return (
        f"-Deos.log.folder={logs}",
        f"-Deos.log.permissions={'rw-rw----' if private_files.is_shared(logs) else 'rw-------'}",
        f"-Deos.log.level={_LOG_LEVELS[form.level]}",
        f"-Deos.log.pipeline={form.pipeline}",
        f"-Dlog4j2.configurationFile={','.join(f'file:{each}' for each in files)}",
    )


def with_java_options(environment: Mapping[str, str], *options: str) -> dict[str, str]:
    """Return the environment with Java options added for spark-submit's JVM.

    They precede existing options, which override them."""
    current = environment.get("SPARK_SUBMIT_OPTS", "")
    added = " ".join([*map(quoted, options), current]).strip()
    return {**environment, "SPARK_SUBMIT_OPTS": added}


def archive(spark: Spark, java: Java, master: str, arguments: Sequence[str]) -> Archive | None:
    """Return the class-data archive for the driver's JVM, or None if the JVM can't use one.

    It needs a local master and the Spark of this environment, because the archive fits one class
    path only. A pipeline with Delta tables has another class path, and so another archive.

    Java 21 can't use one: Spark's class path contains one jar twice, and Java 21 does not load an
    archive of such a class path.
    """
    if spark.is_installed or not master.startswith("local") or java.version > 17:
        return None
    program = "delta" if f"{_CATALOG}={_DELTA_CATALOG}" in arguments else "spark"
    first = [Path(each) for each in _class_path(arguments).split(os.pathsep) if each]
    return archive_of(program, java, [*first, *sorted((spark.home / "jars").glob("*.jar"))])


def dump_command(arguments: Sequence[str]) -> list[str]:
    """Return the command that makes the class-data archive, which shortens the JVM's startup.

    It is `spark-submit --version` with the class path of `arguments`, the run's spark-submit
    command, because an archive fits one class path only. The caller adds the Java options
    `Archive.dump_options`, with which the JVM writes the archive instead of the version."""
    return [arguments[0], "--conf", f"{CLASS_PATH}={_class_path(arguments)}", "--version"]


def _class_path(arguments: Sequence[str]) -> str:
    """Return the `spark.driver.extraClassPath` in spark-submit's arguments; "" without one."""
    found = (argument.partition("=") for argument in arguments)
    return next((value for key, _, value in found if key == CLASS_PATH), "")

"""Which command line runs spark-submit: which Spark, which jars, which shipped files?"""

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
from eos.native import library

LOOPBACK = "127.0.0.1"
# Every installation has this file. Only a checkout has the folder `jobs`.
_JOB = Path(__file__).parents[1] / "job" / "run.py"
_LOG_SETTINGS = Path(__file__).with_name("spark-log4j2.properties")

# Lists with entries of both the user and the launcher. spark-submit uses only the last occurrence,
# and the option instead of the setting.
_JOINED = {
    "--jars": "spark.jars",
    "--py-files": "spark.submit.pyFiles",
    "--archives": "spark.archives",
}
_CLASS_PATH = "spark.driver.extraClassPath"
_OWN_FIRST = ("spark.driver.userClassPathFirst", "spark.executor.userClassPathFirst")
# Delta is not part of Spark. If a pipeline has tables, Spark finds Delta by these settings.
_EXTENSIONS, _CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_PYTHON_PATH = "spark.executorEnv.PYTHONPATH"
_PYTHON, _DRIVER_PYTHON = "spark.pyspark.python", "spark.pyspark.driver.python"
# Settings for tasks on this machine. The first is our own process that forks Python workers. On a
# cluster, an executor with only Spark could not import it early enough. The second sends rows to
# workers over Unix sockets. Over TCP, the last piece of a task's rows waits for an acknowledgement
# that Linux delays for 40 ms. On a cluster, folder paths may be too long for a socket.
_SOCKETS = "spark.python.unix.domain.socket"
LOCAL = {"spark.python.daemon.module": "eos.spark.worker_daemon", f"{_SOCKETS}.enabled": "true"}
_LOCAL_DIR = "spark.local.dir"


@dataclass(frozen=True, slots=True)
class Spark:
    """The Spark to use. `home` is the user's SPARK_HOME, or the folder of pyspark."""

    home: Path
    is_installed: bool  # SPARK_HOME is set; such a Spark has its own Python path

    @property
    def submit(self) -> Path:
        return self.home / "bin" / "spark-submit"


def find_spark() -> Spark:
    configured = os.environ.get("SPARK_HOME")
    if configured:
        found = Spark(Path(configured), is_installed=True)
        if not found.submit.exists():
            raise UsageError(
                "spark_home_invalid",
                f"SPARK_HOME is `{configured}`, but that folder has no bin/spark-submit",
                hint="correct SPARK_HOME, or run `unset SPARK_HOME` to use the Spark of this "
                "environment",
            )
        _require_version(found.home)
        return found
    spec = importlib.util.find_spec("pyspark")  # finds it without importing it
    if spec is None or spec.origin is None:
        raise UsageError(
            "pyspark_missing",
            "pyspark is not installed",
            hint="install `spark-eos` with its dependencies, as `./spark-submit.sh` does",
        )
    return Spark(Path(spec.origin).parent, is_installed=False)


def _require_version(home: Path) -> None:
    """Raise UsageError if SPARK_HOME is another version than the job's jars are made for."""
    jars = (jar.coordinate.split(":") for jar in read_lock() if jar.purpose == SPARK)
    ours = next(version for group, _, version in jars if group == "org.apache.spark")
    for core in (home / "jars").glob("spark-core_*.jar"):
        found = re.fullmatch(r"spark-core_([\d.]+)-(\d+\.\d+)\..*\.jar", core.name)
        if found and found.groups() != ("2.13", ours.rpartition(".")[0]):
            scala, version = found.groups()
            raise UsageError(
                "spark_home_version",
                f"SPARK_HOME is `{home}`, which is Spark {version} for Scala {scala}, but this "
                f"release needs {ours} for Scala 2.13",
                hint="set SPARK_HOME to a Spark of that version, on the workers as well",
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
    """Return the command line that runs the job.

    `job` has the arguments of eos/job/run.py. `options` are the user's and override the profile.
    `sockets` is a private folder for the sockets of Python workers; without it, they use TCP.
    """
    settings, rest = _settings(conf, options)
    _refuse_cluster_mode(settings, rest)
    joined = {option: settings.pop(key, "").split(",") for option, key in _JOINED.items()}
    chosen = master_of(options) or master
    sets = (SPARK, DELTA) if with_delta else (SPARK,)
    jars = [str(jar) for paths in ensure(*sets).values() for jar in paths]
    # Put jars either on the class path or into the list. The class-data archive has only classes of
    # the class path. Jars in the list would be copied for the tasks that run in this JVM.
    if not put_on_class_path(spark, chosen, jars, settings, rest):
        joined["--jars"] = [*jars, *joined["--jars"]]
    if with_delta:
        settings |= delta_conf(settings)
    is_remote = not chosen.startswith("local")
    if spark.is_installed or is_remote:
        joined["--py-files"].insert(0, str(shipping.eos_zip(ship_folder, project)))
    if not is_remote:
        settings |= {**LOCAL, **_of_sockets(settings, sockets), **settings}
    else:
        settings = {**_environment_of_executors(), **settings}
    if is_remote and not _brings_its_own(settings):
        joined["--archives"].insert(0, f"{shipping.packages_zip()}#{PACKAGES}")
        known = filter(None, [PACKAGES, settings.get(_PYTHON_PATH)])
        settings[_PYTHON_PATH] = os.pathsep.join(known)
    if _PYTHON in settings:  # otherwise Spark would use it for the driver as well
        settings.setdefault(_DRIVER_PYTHON, sys.executable)
    own = [] if master_of(options) else ["--master", master]
    arguments = [str(spark.submit), *own]
    for key, value in settings.items():
        arguments += ["--conf", f"{key}={value}"]
    for option, values in joined.items():
        if any(values):
            arguments += [option, ",".join(filter(None, values))]
    return [*arguments, *rest, str(_JOB), *job]


def _environment_of_executors() -> dict[str, str]:
    """Return the settings for executors on other machines to do without the native library, too."""
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

    Return False, without a change, if they must not be on the class path. `rest` are the user's
    other words."""
    if not _has_one_jvm(spark, master) or not _fit_class_path(jars, settings, rest):
        return False
    settings[_CLASS_PATH] = os.pathsep.join(filter(None, [settings.get(_CLASS_PATH), *jars]))
    return True


def delta_conf(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that Delta needs, merged with the given ones."""
    others = [each for each in settings.get(_EXTENSIONS, "").split(",") if each]
    extensions = ",".join(dict.fromkeys([*others, _DELTA_EXTENSION]))
    return {_EXTENSIONS: extensions, _CATALOG: settings.get(_CATALOG, _DELTA_CATALOG)}


def _settings(conf: Mapping[str, str], options: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return all settings and the user's other words. The user's settings override the profile's.

    Lists that both may extend (jars, Python files, archives) are joined.
    """
    settings, rest, arguments = dict(conf), list[str](), iter(options)

    def add_setting(key: str, value: str) -> None:
        before = settings.get(key) if key in _JOINED.values() else None
        settings[key] = f"{before},{value}" if before else value

    for argument in arguments:
        option, equals, value = argument.partition("=")
        if option in _JOINED:
            add_setting(_JOINED[option], value if equals else next(arguments, ""))
        elif option == "--driver-class-path":
            add_setting(_CLASS_PATH, value if equals else next(arguments, ""))
        elif option in {"--conf", "-c"}:
            setting = value if equals else next(arguments, "")
            key, equals, value = setting.partition("=")
            if equals and key != "spark.master":
                add_setting(key.strip(), value)
            else:  # spark-submit reports the error, or handles spark.master
                rest += [option, setting]
        else:
            rest.append(argument)
    return settings, rest


def _refuse_cluster_mode(settings: Mapping[str, str], rest: Sequence[str]) -> None:
    following = zip(rest, [*rest, ""][1:], strict=True)
    modes = [value for argument, value in following if argument == "--deploy-mode"]
    modes += [
        argument.partition("=")[2] for argument in rest if argument.startswith("--deploy-mode=")
    ]
    modes.append(settings.get("spark.submit.deployMode", ""))
    if "cluster" in modes:
        raise UsageError(
            "deploy_mode_cluster",
            "--deploy-mode cluster is not supported: the driver would run on a machine that has "
            "neither the pipeline file nor its state",
            hint="remove `--deploy-mode` (or `spark.submit.deployMode`): in client mode the driver "
            "runs here, and the executors run in the cluster",
        )


def _fit_class_path(jars: Sequence[str], settings: Mapping[str, str], rest: Sequence[str]) -> bool:
    """Return whether our jars may be on the class path.

    They may not if the user's jars take precedence. Then both must be in one class loader, or a
    class in both would exist twice. They also may not if Spark reads a settings file. It may
    contain a class path of the user, which our setting would replace."""
    is_own_first = any(settings.get(key, "").lower() == "true" for key in _OWN_FIRST)
    has_file = any(argument.partition("=")[0] == "--properties-file" for argument in rest)
    has_file |= bool(os.environ.get("SPARK_CONF_DIR"))
    return not (is_own_first or has_file or any(os.pathsep in jar for jar in jars))


def _of_sockets(settings: Mapping[str, str], ours: Path | None) -> dict[str, str]:
    """Return the settings for sockets in the user's folder, else in the private one.

    If socket paths don't fit there, Spark uses TCP."""
    folder = settings.get(f"{_SOCKETS}.dir") or ours
    if folder is None or not fits_sockets(folder):
        return {f"{_SOCKETS}.enabled": "false"}
    return {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": str(folder)}


def local_dir(conf: Mapping[str, str], options: Sequence[str]) -> str | None:
    """Return the user's folders for blocks that Spark keeps on disk, or None."""
    return _settings(conf, options)[0].get(_LOCAL_DIR)


def _brings_its_own(settings: Mapping[str, str]) -> bool:
    """Return whether the executors' Python is in an archive of the user.

    Spark's guide to Python packages recommends this form: a relative path."""
    python = settings.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or ""
    return "/" in python and not python.startswith("/")


def environment(
    spark: Spark, java_home: Path, master: str, logs: Path, project: Path
) -> dict[str, str]:
    """Return the environment of the JVM, the driver and local workers.

    It extends the caller's environment."""
    changed = dict(os.environ)
    changed["JAVA_HOME"] = str(java_home)
    changed["SPARK_HOME"] = str(spark.home)
    paths = [str(CHECKOUT), str(project), os.environ.get("PYTHONPATH", "")]
    changed["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    changed["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        changed["PYSPARK_PYTHON"] = sys.executable
        # Spark's UI, RPC and block service listen here. By default they listen on all interfaces.
        changed.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    else:  # shipped packages are for this Python version, and `python3` may be another
        changed.setdefault("PYSPARK_PYTHON", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    # This first JVM only prints the command line of the second one, so it must start fast.
    changed.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    settings = f"-Dlog4j2.configurationFile=file:{_log_settings(project)}"
    mode = "rw-rw----" if private_files.is_shared(logs) else "rw-------"
    log = (f"-Deos.log.folder={logs}", f"-Deos.log.permissions={mode}")
    return with_java_options(changed, *log, settings, *AVRO_LIMITS)


def with_java_options(environment: Mapping[str, str], *options: str) -> dict[str, str]:
    """Return the environment with options for the JVM of spark-submit. Existing options win."""
    quoted = (f'"{option}"' if " " in option else option for option in options)
    current = environment.get("SPARK_SUBMIT_OPTS", "")
    return {**environment, "SPARK_SUBMIT_OPTS": " ".join([*quoted, current]).strip()}


def archive(spark: Spark, java: Java, master: str, arguments: Sequence[str]) -> Archive | None:
    """Return the class-data archive for the driver's JVM, or None if the JVM can't use one.

    The JVM can use one only if the launcher chooses its options: with a local master and the Spark
    of this environment. A pipeline with Delta tables has another class path, and so another
    archive.

    Java after 17 gets none: Spark's class path contains one jar twice, and Java 21 makes an archive
    of such a class path, but does not load it.
    """
    if spark.is_installed or not master.startswith("local") or java.version > 17:
        return None
    program = "delta" if f"{_CATALOG}={_DELTA_CATALOG}" in arguments else "spark"
    first = [Path(each) for each in _class_path(arguments).split(os.pathsep) if each]
    return archive_of(program, java, [*first, *sorted((spark.home / "jars").glob("*.jar"))])


def dump_command(arguments: Sequence[str]) -> list[str]:
    """Return the command that makes the class-data archive, which shortens the JVM's startup.

    `arguments` are the words of the run's spark-submit command. The archive fits only one class
    path, so the returned command has the same one. With the options for making an archive, its JVM
    writes the archive and does not run `--version`."""
    return [arguments[0], "--conf", f"{_CLASS_PATH}={_class_path(arguments)}", "--version"]


def _class_path(arguments: Sequence[str]) -> str:
    """Return the class path entries that spark-submit's arguments add before Spark's own ones."""
    found = (argument.partition("=") for argument in arguments)
    return next((value for key, _, value in found if key == _CLASS_PATH), "")


def _has_one_jvm(spark: Spark, master: str) -> bool:
    """Return whether driver and tasks share one JVM, of the Spark of this environment."""
    return not spark.is_installed and (master == "local" or master.startswith("local["))


def master_of(options: Sequence[str]) -> str | None:
    """Return the master that the user named, as an option or as a setting."""
    found = None
    for argument, following in zip(options, [*options, ""][1:], strict=True):
        if argument == "--master":
            found = following
        elif argument.startswith("--master="):
            found = argument.removeprefix("--master=")
        elif argument in {"--conf", "-c"} and following.startswith("spark.master="):
            found = following.removeprefix("spark.master=")
    return found


def _log_settings(project: Path) -> Path:
    own = project / "conf" / "log4j2.properties"
    return own if own.exists() else _LOG_SETTINGS

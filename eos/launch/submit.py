"""The launcher: what `./spark-submit.sh` and `eos run` do after the environment is installed.

It provides what a pipeline needs (Java, native library, jars, broker, folders), and then runs the
pipeline's driver with spark-submit.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eos import log_lines, private_files
from eos.errors import EosError, UsageError, of_command, report
from eos.launch import application, driver, java_compiler, spark, startup_signals
from eos.launch.cluster_mode import ClusterMode, cluster_mode
from eos.launch.java_wheel import ensure_java
from eos.launch.native_library import ensure_native
from eos.launch.options import ENDINGS, HELP, Options, parse
from eos.launch.run_broker import LocalKafka
from eos.launch.scratch import Scratch, scratch
from eos.launch.spark_options import is_cluster_mode, master_of, settings_of
from eos.local.broker_probe import report_silent
from eos.local.class_archive import Archive
from eos.local.embedded_kafka import EmbeddedKafka
from eos.local.jars import of_broker, paths_of
from eos.local.java import Java

if TYPE_CHECKING:
    from eos.config.model import PipelineFile, ProfileFile

    Validator = Callable[[Path], None]

TERMINAL = "EOS_TERMINAL"  # as in eos.observe.live, which this package may not import
# Where --demo-crash kills: the broker has the first record batches, and nothing is committed.
CRASH_POINT = "first_produce:after:both"


# Several pipelines share the executors' slots evenly. By default the jobs of one that works off a
# backlog would use all slots first.
SHARED_SPARK = {"spark.scheduler.mode": "FAIR"}


@dataclass(frozen=True, slots=True)
class Application:
    """The spark-submit command of a run. Each call of `run` starts a driver and waits."""

    words: tuple[str, ...]
    environment: dict[str, str]
    logs: Path
    archive: Archive | None
    local: LocalKafka | None = None  # the embedded broker; None if the profile names a cluster
    bootstrap: tuple[str, ...] = ()
    is_elsewhere: bool = False  # the driver is in the cluster

    def run(self, **extra: str) -> int:
        environment = {**self.environment, **extra}
        if self.is_elsewhere:
            return self._follow(environment)
        if self.archive is None:
            return self._run(environment)
        with tempfile.TemporaryDirectory(prefix="eos-") as folder:
            classes = Path(folder) / "classes"
            options = self.archive.options(classes)
            code = self._run(spark.with_java_options(environment, *options))
            if code == 0:  # after a failed run, the list of loaded classes is incomplete
                environment = spark.with_java_options(environment, *self.archive.dump_options)
                self.archive.make_later(classes, spark.dump_command(self.words), environment)
        return code

    def _follow(self, environment: Mapping[str, str]) -> int:
        log = self.logs / "jvm.log"
        code, submitted = application.follow(self.words, environment, log)
        if code and not submitted.name:
            driver.raise_cause(log)
        return code

    def _run(self, environment: Mapping[str, str]) -> int:
        code = driver.run(self.words, environment, self.logs / "jvm.log", self.meanwhile)
        if TERMINAL in environment:  # clear the progress line that a killed driver has left
            sys.stderr.write("\r\x1b[K")
        return code

    def meanwhile(self) -> None:
        """While the JVM starts: start the embedded broker, or check whether the profile's brokers
        accept connections."""
        if self.local is not None:
            self.local.serve()
        else:
            report_silent(self.bootstrap, log_lines.write)


def main(arguments: Sequence[str], validate: Validator | None = None) -> int:
    """Run a pipeline, or several, and return the exit code.

    `validate` checks a pipeline file and its steps, and raises UsageError. It is an argument,
    because this package must not import the modules that can check steps."""
    if not {"-h", "--help"}.isdisjoint(arguments):
        print(HELP, end="")
        return 0
    try:
        options = parse(arguments)
        log_lines.choose(options.log_format, options.log_level)
        return _submit(options, validate)
    except EosError as error:
        return report(error)
    except startup_signals.UnstartedError:
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if os.environ.get("EOS_TRACE"):
            raise
        return report(of_command(error))


def _submit(options: Options, validate: Validator | None) -> int:
    pipelines, profile = _read(options, validate)
    if not options.are_several:
        log_lines.name_pipeline(pipelines[0].name)
    mode = _cluster_mode(options, pipelines, profile)
    logs = _logs(options, profile)
    found = spark.find_spark()
    java = ensure_java()
    ensure_native()
    with contextlib.ExitStack() as stack:
        local = None
        if profile.kafka.bootstrap is None:
            # One call, so that all jars are downloaded in parallel.
            paths_of(*found.jar_sets(), *of_broker())
            local = stack.enter_context(_local(options, profile))
        folder = spark.local_dir(profile.spark.conf, options.spark)
        run = stack.enter_context(scratch(folder))
        app = _application(options, profile, pipelines, found, java, local, logs, run, mode)
        started = time.monotonic()
        code = _run_with_crash(app) if options.demo_crash else app.run()
        seconds = time.monotonic() - started
        if code == 0 and local and local.demo and local.loaded:
            return local.demo.report(seconds, local.loaded.already, options.as_json)
        if code and mode is None:
            log_lines.write(
                f"the driver ended with exit code {code}; Spark's logs are in {app.logs}"
            )
        return code


def _read(
    options: Options, validate: Validator | None
) -> tuple[Sequence[PipelineFile], ProfileFile]:
    """Load and validate pipeline files and profile.

    Call this first, so that an invalid file is rejected before Java, jars or a broker are needed.
    """
    from eos.config.load import load_pipeline, load_profile
    from eos.config.secrets import require_hidden
    from eos.config.several import require_compatible

    if validate is not None:
        for path in options.pipelines:
            validate(path)
    pipelines = [load_pipeline(path, ends=options.ends) for path in options.pipelines]
    require_compatible(pipelines)
    profile = load_profile(options.profile, pipelines[0].project_root)
    for each in pipelines:
        require_hidden(each, profile)
    return pipelines, profile


def _cluster_mode(
    options: Options, pipelines: Sequence[PipelineFile], profile: ProfileFile
) -> ClusterMode | None:
    """Return the run in the cluster; None in client mode."""
    conf = profile.spark.conf
    if not is_cluster_mode(conf, options.spark):
        return None
    master = master_of(options.spark) or profile.spark.master
    settings, _ = settings_of(conf, options.spark)
    return cluster_mode(master, settings, options, pipelines, profile)


def _logs(options: Options, profile: ProfileFile) -> Path:
    """Create and return the run's log folder, and before it the state root.

    The logs of several pipelines are in the folder of the first one, whose lock their process
    holds. Raise UsageError if the state root can't be created or written."""
    logs = profile.local_root / "logs" / options.pipelines[0].parent.name
    try:
        private_files.prepare_root(profile.local_root, profile.state.group)
        private_files.own(logs)
    except OSError as error:
        root, reason, path = profile.local_root, error.strerror, error.filename
        raise UsageError(
            "state_root_unusable",
            f"the state root {root} can't be created or written: {reason} ({path})",
            hint=f"set another folder in `state: {{root: ...}}` of profile {profile.name!r}, or "
            "give this user write access to that path; `eos doctor` checks it as well",
        ) from error
    return logs


@contextlib.contextmanager
def _local(options: Options, profile: ProfileFile) -> Iterator[LocalKafka]:
    kafka = EmbeddedKafka(profile.local_root / "broker")
    log_lines.write(f"embedded Kafka broker, data in {kafka.root}")
    with tempfile.TemporaryDirectory(prefix="eos-") as folder:
        try:
            demo_of = None if options.are_several else options.pipelines[0]
            yield LocalKafka(kafka, demo_of, Path(folder) / "address")
        finally:
            kafka.stop()


def _application(
    options: Options,
    profile: ProfileFile,
    pipelines: Sequence[PipelineFile],
    found: spark.Spark,
    java: Java,
    local: LocalKafka | None,
    logs: Path,
    run: Scratch,
    mode: ClusterMode | None,
) -> Application:
    job = [str(path) for path in options.pipelines] if mode is None else mode.job()
    project = pipelines[0].project_root
    if options.profile and mode is None:
        job += ["--profile", options.profile]
    if local:
        job += ["--bootstrap-from", str(local.address)]
    job += [flag for flag, argument in ENDINGS.items() if argument == options.ends]
    if options.until:
        job += ["--until", options.until]
    if options.take_over:
        job.append("--take-over")
    if options.accept_state_loss:
        job.append("--accept-state-loss")
    job += ["--log-format", options.log_format, "--log-level", options.log_level]
    arguments = spark.command(
        found,
        job,
        profile.spark.master,
        {**(SHARED_SPARK if options.are_several else {}), **profile.spark.conf},
        options.spark,
        profile.local_root / "ship",
        project,
        with_delta=any(each.has_delta for each in pipelines),
        sockets=run.folder,
        mode=mode,
    )
    master = master_of(options.spark) or profile.spark.master
    is_elsewhere = mode is not None
    environment = spark.environment(
        found, java.home, master, logs, project, is_elsewhere=is_elsewhere
    )
    environment = run.environment(environment)
    if not is_elsewhere:
        environment = java_compiler.chosen(environment, pipelines, logs, master)
    if options.log_format == log_lines.CONSOLE and not options.are_several:
        environment |= terminal()
    archive = spark.archive(found, java, master, arguments)
    bootstrap = tuple(profile.kafka.bootstrap or ())
    return Application(tuple(arguments), environment, logs, archive, local, bootstrap, is_elsewhere)


def terminal() -> dict[str, str]:
    """Return the environment variable with the terminal's width and device, for the driver.

    The driver itself writes to a pipe, so it can't detect the terminal. Return no variable if
    stderr is no terminal, or if NO_COLOR or TERM ask for plain output."""
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "dumb") == "dumb"
    if is_plain or not sys.stderr.isatty():
        return {}
    number = sys.stderr.fileno()
    try:
        return {TERMINAL: f"{os.get_terminal_size(number).columns}:{os.ttyname(number)}"}
    except OSError:  # a terminal of another container has no name here
        return {}


def _run_with_crash(app: Application) -> int:
    log = app.logs / "crash.log"
    log.unlink(missing_ok=True)
    code = app.run(EOS_CRASH_AT=CRASH_POINT, EOS_CRASH_LOG=str(log))
    if not log.exists():
        if code == 0:
            log_lines.write("no new records, so there was no transaction to crash in")
        return code
    log_lines.write(
        f"the driver was killed by SIGKILL in the middle of a transaction (exit code {code})"
    )
    log_lines.write("starting it again")
    return app.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

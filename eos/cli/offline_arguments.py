"""The arguments of the commands for files, for this machine, and for a run.

`eos --help`, the `--help` of each command and shell completion load all declarations, so this
module imports nothing that takes time.
"""

from __future__ import annotations

from eos.cli.parser import Parser, number
from eos.config.schema import KINDS
from eos.launch.options import FLAGS, VALUES
from eos.launch.spark_options import WITH_VALUE
from eos.local.jars import BROKER_VERSION, BROKER_VERSIONS, SPARK_VERSIONS

SHELLS = ("bash", "zsh", "fish")
_FETCH = """\
Download and build what runs need: a Java if the machine has none, the jars of Spark, Delta and the
embedded broker, and the native library. All of it is kept in ~/.cache/spark-eos, except Java, which
is installed into this environment. Only this command downloads: a run that lacks something ends
with exit code 2. With EOS_OFFLINE=0, runs download what they lack.

  eos fetch
  eos fetch --broker none       for images and hosts that use a Kafka cluster of their own
  eos fetch --spark 4.1         for a SPARK_HOME of another machine
"""
_FETCH_CODES = """\
Exit codes: 0 everything is there; 1 the native library can't be built, so runs are slower; 2 usage
error; 5 a download failed.
"""
_INIT = """\
Create a project folder with one pipeline, its tests, a profile and a CI file. The project passes
`eos lint`, `eos test` and pytest unchanged, and runs on an embedded broker. NAME is the folder; its
last part becomes the pipeline's name.

  eos init shop
  eos init ../projects/shop
  eos init --python shop      a Python job instead of a pipeline file
"""
_INIT_CODES = "Exit codes: 0 created; 2 usage error, such as a folder that is not empty."
_LINT = """\
Check pipeline files offline; reports line and column.

  eos lint pipelines/*/pipeline.yaml
"""
_LINT_CODES = "Exit codes: 0 no errors, but there may be warnings; 1 errors; 2 usage error."
_TEST = """\
Run the tests in pipeline files, with Spark and without Kafka.

  eos test pipelines/orders_enriched
"""
_TEST_CODES = "Exit codes: 0 all passed; 1 a test or a file failed; 2 usage error."
_SCHEMA = """\
Print the JSON Schema of a file, for editors.

  eos schema pipeline > conf/pipeline.schema.json
"""
_PLAN = """\
Print the stages that a run executes, and for each output its guarantee and the mechanism that
provides it. No server is queried. With --check, also check the cluster (topics, permissions,
features, timeouts, replicas, and what the next run would stop at), the audit table, the schema
registry and, on a local Spark, the steps, the joined tables and the Delta tables.

  eos plan orders
  eos plan orders --mermaid > orders.mmd
  eos plan orders --check --profile prod
  eos plan orders --against-running --profile prod

--against-running compares the file with the running or last run, and reports for each change
whether a restart accepts it. It reads the ledger, the source's offsets and the state root.
"""
_PLAN_CODES = """\
Exit codes: 0 no findings; 1 findings; 2 usage error; 4 a transform that can't be loaded; 5 no
response. With --against-running: 0 a restart accepts the file; else the exit code that the restart
would have, such as 4.
"""
_DOCTOR = """\
Check what runs need: versions, packages, Java, Spark, jars, folders and their free space, names,
ports, and the cluster's features and settings. Each finding has a fix. Nothing is started or
changed.

  eos doctor                    for the profile `local`, or $EOS_PROFILE
  eos doctor --profile prod
  eos doctor orders --json      also check what this pipeline needs
"""
_DOCTOR_CODES = "Exit codes: 0 no findings; 1 findings; 2 usage error."
_BROKER = """\
Start, stop and inspect the embedded Kafka broker.

  eos broker start --nodes 3 --port 9092
"""
_START = """\
Start the broker and keep it running. Pipelines of this profile then use it.

With --nodes 3, topics have three replicas, and two must have a record to acknowledge it.
"""
_BROKER_STOP = (
    "Stop the broker and keep its data. If pipelines use it, it stops after the last one."
)
_BROKER_STATUS = "Show the broker's addresses. Exit code 1: it is stopped, or a node is down."
_STOP = """\
End the run of a pipeline as SIGTERM does, and wait for its end. The run may be on another machine
that has the same state root. The cluster is not queried.

  eos stop orders
  eos stop orders --wait 300 --profile prod
"""
_STOP_CODES = """\
Exit codes: 0 the run has ended; 1 no run holds the pipeline's lock; 2 usage error; 5 the run did
not end in time, or another process holds the lock.
"""
_COMPLETION = """\
Print a script that completes commands, options, and the names of pipelines and profiles in a shell.
Load it in the shell's start-up file:

  eos completion bash     ~/.bashrc: source <(eos completion bash)
  eos completion zsh      ~/.zshrc, after compinit: source <(eos completion zsh)
  eos completion fish     ~/.config/fish/config.fish: eos completion fish | source
"""


def declare(eos: Parser) -> None:
    _run(eos)
    _stop(eos)
    summary = "Create a project with a pipeline that runs."
    init = eos.add_verb("init", summary, _INIT, _INIT_CODES)
    init.add_argument(
        "name", metavar="NAME", help="folder to create; if it exists, it must be empty"
    )
    init.add_flag("--python", "write a job in the Python API, and no pipeline file")
    _fetch(eos)
    _files(eos)
    summary = "Print what a run executes; --check also checks the cluster."
    plan = eos.add_verb("plan", summary, _PLAN, _PLAN_CODES)
    plan.add_pipeline()
    shown = plan.add_mutually_exclusive_group()
    shown.add_argument("--mermaid", action="store_true", help="print a Mermaid flowchart")
    shown.add_argument(
        "--check", action="store_true", help="also check cluster, audit table and Spark"
    )
    shown.add_argument(
        "--against-running",
        action="store_true",
        help="print what changed since the last run, and whether a restart accepts it",
    )
    summary = "Check this machine and the cluster; each finding has a fix."
    eos.add_verb("doctor", summary, _DOCTOR, _DOCTOR_CODES).add_pipeline(is_needed=False)
    _broker(eos)
    completion = eos.add_verb(
        "completion", "Print a script that completes commands in a shell.", _COMPLETION
    )
    completion.add_argument("shell", choices=SHELLS, help="shell that runs the script")


def _fetch(eos: Parser) -> None:
    summary = "Download and build what runs need."
    fetch = eos.add_verb("fetch", summary, _FETCH, _FETCH_CODES)
    fetch.add_argument(
        "--broker",
        action="append",
        choices=(*BROKER_VERSIONS, "none"),
        help=f"version of the embedded broker, or none; repeatable (default: {BROKER_VERSION})",
    )
    fetch.add_argument(
        "--spark",
        action="append",
        choices=SPARK_VERSIONS,
        help="minor version of Spark; repeatable (default: that of SPARK_HOME, or of this "
        "environment's pyspark)",
    )
    fetch.add_json()


def _files(eos: Parser) -> None:
    files = "files, folders or names of pipelines"
    summary = "Check pipeline files offline; reports line and column."
    lint = eos.add_verb("lint", summary, _LINT, _LINT_CODES)
    lint.add_argument(
        "pipelines", metavar="PIPELINE", nargs="+", help=f"{files}, or Markdown files with them"
    )
    lint.add_json()
    summary = "Run the tests in pipeline files, with Spark and without Kafka."
    test = eos.add_verb("test", summary, _TEST, _TEST_CODES)
    test.add_argument("pipelines", metavar="PIPELINE", nargs="+", help=files)
    test.add_profile("profile with the Spark settings: conf/NAME.yaml, or a path")
    test.add_json()
    schema = eos.add_verb("schema", "Print the JSON Schema of a file, for editors.", _SCHEMA)
    schema.add_argument(
        "of", nargs="?", choices=KINDS, default=KINDS[0], help="type of file (default: pipeline)"
    )
    schema.add_flag("--markdown", "print a page with all keys of both file types")


def _run(eos: Parser) -> None:
    """Declare the arguments of `eos run` for shell completion only.

    The launcher parses the arguments of a run itself, because some of them are passed on to
    spark-submit.
    """
    run = eos.add_verb("run", "Run pipelines; takes the arguments of ./spark-submit.sh.")
    run.add_argument("pipelines", nargs="+")
    for option, valid in VALUES.items():
        run.add_argument(option, choices=valid or None)
    for flag in sorted(FLAGS):
        run.add_argument(flag, action="store_true")
    for option in sorted(WITH_VALUE):
        run.add_argument(option, action="append")


def _stop(eos: Parser) -> None:
    summary = "End the run of a pipeline, and wait for its end."
    stop = eos.add_verb("stop", summary, _STOP, _STOP_CODES)
    stop.add_pipeline()
    stop.add_argument(
        "--wait",
        metavar="SECONDS",
        type=number(1, 86_400),
        default=60,
        help="how long to wait for the run's end, 1 to 86400 (default: 60)",
    )


def _broker(eos: Parser) -> None:
    summary = "Start, stop and inspect the embedded Kafka broker."
    broker = eos.add_verb("broker", summary, _BROKER, is_group=True)
    start = broker.add_verb("start", "Start the broker and keep it running.", _START)
    stop = broker.add_verb("stop", "Stop the broker and keep its data.", _BROKER_STOP)
    status = broker.add_verb("status", "Show the broker's addresses.", _BROKER_STATUS)
    for verb in (start, stop, status):
        verb.set_defaults(broker_verb=verb.prog.rpartition(" ")[2])
        verb.add_profile("profile whose state root has the broker's data")
        verb.add_json()
    start.add_argument("--port", metavar="PORT", type=number(1, 65535), help="port to listen on")
    kept = f"{' or '.join(BROKER_VERSIONS)}; existing data keeps its version"
    start.add_argument("--version", metavar="VERSION", help=kept)
    start.add_argument(
        "--nodes",
        metavar="N",
        type=number(1, 9),
        help="number of nodes, 1 to 9; existing data keeps its number",
    )

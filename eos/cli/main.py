"""`eos`: which verbs does the command line have? Data goes to stdout, all else to stderr.

Heavy modules are imported only once the verb is known, so `eos --help` responds at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import eos
from eos.config.schema import File, schema_of
from eos.errors import EosError
from eos.errors import report as report_error

# Verbs that pass on their arguments and parse them themselves.
_HANDED_ON = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}

_PLAIN: dict[str, Any] = {
    "add_completion": False,
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # plain text; rich is not imported
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

app = typer.Typer(
    **_PLAIN,
    help="One Kafka transaction for each Spark micro-batch, across the whole cluster.",
    epilog="Exit codes: 0 success, 1 findings, 2 usage error, 3 fenced (do not restart), 4 "
    "exactly-once can't be guaranteed (needs an operator), 5 transient failure (restart).",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"eos {eos.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _show: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options before the verb."""


@app.command(context_settings=_HANDED_ON, add_help_option=False)
def run(context: typer.Context) -> None:
    """Run a pipeline; takes the arguments of ./spark-submit.sh."""
    from eos.cli.run import run as become

    words = context.args
    if words and not words[0].startswith("-") and not Path(words[0]).exists():
        from eos.cli.pipeline_argument import file_of

        words = [str(file_of(words[0])), *words[1:]]
    become(words)


@app.command(context_settings=_HANDED_ON, add_help_option=False)
def init(context: typer.Context) -> None:
    """Create a project with a pipeline that runs."""
    from eos.cli.init import init as verb

    raise typer.Exit(verb(context.args))


@app.command(epilog="Example: eos lint pipelines/*/pipeline.yaml")
def lint(
    pipelines: Annotated[
        list[str],
        typer.Argument(
            help="Files, folders or names of pipelines, or Markdown files with pipelines."
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout.")
    ] = False,
) -> None:
    """Check pipeline files offline; reports line and column."""
    from eos.cli.lint import lint as check
    from eos.cli.pipeline_argument import file_of

    raise typer.Exit(check([file_of(word) for word in pipelines], as_json=as_json))


@app.command("test", epilog="Example: eos test pipelines/orders_enriched")
def run_tests(
    pipelines: Annotated[list[str], typer.Argument(help="Files, folders or names of pipelines.")],
    profile: Annotated[
        str | None, typer.Option(help="Name or path of the profile with the Spark settings.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout.")
    ] = False,
) -> None:
    """Run the tests in pipeline files, with Spark and without Kafka."""
    from eos.cli.pipeline_argument import file_of
    from eos.cli.test import run_cases

    paths = [file_of(word) for word in pipelines]
    raise typer.Exit(run_cases(paths, profile, as_json=as_json))


@app.command(epilog="Example: eos schema pipeline > conf/pipeline.schema.json")
def schema(
    of: Annotated[File, typer.Argument(help="The file type.")] = File.pipeline,
    as_page: Annotated[
        bool, typer.Option("--markdown", help="Print a page with all keys of both file types.")
    ] = False,
) -> None:
    """Print the JSON Schema of a file, for editors."""
    if as_page:
        from eos.config.reference import reference

        print(reference(), end="")
    else:
        print(schema_of(of), end="")


@app.command(context_settings=_HANDED_ON, add_help_option=False)
def recover(context: typer.Context) -> None:
    """Explain why a pipeline stopped, and fix it."""
    from eos.cli.recover import recover as verb

    raise typer.Exit(verb(context.args))


@app.command(context_settings=_HANDED_ON, add_help_option=False)
def plan(context: typer.Context) -> None:
    """Print what a run executes; --check also checks the cluster."""
    from eos.cli.plan import plan_verb as verb

    raise typer.Exit(verb(context.args))


@app.command(context_settings=_HANDED_ON, add_help_option=False)
def status(context: typer.Context) -> None:
    """Show whether a pipeline runs, its owner, position and lag."""
    from eos.cli.status import status as verb

    raise typer.Exit(verb(context.args))


@app.command(context_settings=_HANDED_ON, add_help_option=False)
def audit(context: typer.Context) -> None:
    """Show the outcomes of a pipeline's transactions."""
    from eos.cli.audit import audit as verb

    raise typer.Exit(verb(context.args))


@app.command(context_settings=_HANDED_ON, add_help_option=False)
def verify(context: typer.Context) -> None:
    """Prove from outside that each record was written exactly once."""
    from eos.cli.verify import verify as verb

    raise typer.Exit(verb(context.args))


@app.command(context_settings=_HANDED_ON, add_help_option=False)
def replay(context: typer.Context) -> None:
    """Put dead letters back into their source topics, each once."""
    from eos.cli.replay import replay as verb

    raise typer.Exit(verb(context.args))


@app.command("report", context_settings=_HANDED_ON, add_help_option=False)
def make_report(context: typer.Context) -> None:
    """Write an HTML page about a pipeline's transactions."""
    from eos.cli.report import report as verb

    raise typer.Exit(verb(context.args))


@app.command(context_settings=_HANDED_ON, add_help_option=False)
def doctor(context: typer.Context) -> None:
    """Check this machine and the cluster; each finding has a fix."""
    from eos.cli.doctor import doctor as verb

    raise typer.Exit(verb(context.args))


@app.command(context_settings=_HANDED_ON, add_help_option=False)
def broker(context: typer.Context) -> None:
    """Start, stop and inspect the embedded Kafka broker."""
    from eos.cli.broker import app as broker_app

    plain = typer.Typer(**_PLAIN)
    plain.add_typer(broker_app, name="broker")
    plain(["broker", *context.args], prog_name="eos")


def main() -> None:
    """Run the console script. A project error prints two lines and sets the exit code.

    It never prints a stack trace.
    """
    try:
        app(prog_name="eos")
    except EosError as error:
        sys.exit(report_error(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

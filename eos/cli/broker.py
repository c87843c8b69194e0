"""`eos broker`: how is the embedded Kafka broker kept running beyond a pipeline's run?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from eos import private_files
from eos.config.load import load_profile
from eos.config.model import ProfileFile
from eos.errors import UsageError
from eos.local.embedded_kafka import ClusterStatus, EmbeddedKafka, status_of
from eos.local.jars import BROKER_VERSION, BROKER_VERSIONS

app = typer.Typer(
    help="Start, stop and inspect the embedded Kafka broker.",
    epilog="Example: eos broker start --nodes 3 --port 9092",
    no_args_is_help=True,
)

_Profile = Annotated[
    str | None, typer.Option("--profile", help="Profile whose state root has the broker's data.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


@app.command()
def start(
    profile: _Profile = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on.")] = None,
    version: Annotated[
        str | None,
        typer.Option(help=f"{' or '.join(BROKER_VERSIONS)}; existing data keeps its version."),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, max=9, help="Number of nodes; existing data keeps its number."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Start the broker and keep it running. Pipelines of this profile then use it.

    With --nodes 3, topics have three replicas, and two must have a record to acknowledge it.
    """
    found = _profile(profile)
    private_files.prepare_root(found.local_root, found.state.group)
    kafka = EmbeddedKafka(_root(found), nodes=nodes, port=port, version=version)
    kafka.start()
    kafka.keep()
    kafka.stop()  # releases it only: after keep() it continues to run
    _print(status_of(kafka.root), as_json)


@app.command()
def stop(profile: _Profile = None, as_json: _Json = False) -> None:
    """Stop the broker and keep its data. If pipelines use it, it stops after the last one."""
    root = _root(_profile(profile))
    EmbeddedKafka(root).end()
    _print(status_of(root), as_json)


@app.command()
def status(profile: _Profile = None, as_json: _Json = False) -> None:
    """Show the broker's addresses. Exit code 1: it is stopped, or a node is down."""
    found = status_of(_root(_profile(profile)))
    _print(found, as_json)
    if not found.is_running:
        raise typer.Exit(1)


def _profile(name: str | None) -> ProfileFile:
    found = load_profile(name, Path.cwd())
    name = found.name
    if found.kafka.bootstrap is not None:
        raise UsageError(
            "profile_has_cluster",
            f"profile {name!r} uses a Kafka cluster and not the embedded broker",
            hint="choose a profile without `kafka.bootstrap`, such as `eos broker status --profile "
            "local`",
        )
    return found


def _root(profile: ProfileFile) -> Path:
    return profile.local_root / "broker"


def _print(found: ClusterStatus, as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                {
                    "running": found.is_running,
                    "nodes": found.nodes,
                    "down": list(found.down),
                    "bootstrap": found.bootstrap,
                    "kept": found.is_kept,
                    "version": found.version,
                    "folder": str(found.root),
                }
            )
        )
    elif found.bootstrap:
        why = "until it is stopped" if found.is_kept else "until the last pipeline ends"
        version = "" if found.version == BROKER_VERSION else f" (Kafka {found.version})"
        print(f"running at {found.bootstrap}{version}, {why}; data in {found.root}")
        if found.down:
            down = ", ".join(map(str, found.down))
            print(f"down: node {down} of {found.nodes}; `eos broker start` starts it again")
    else:
        print(f"stopped; data in {found.root}")

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
    help="The embedded Kafka broker: start it to stay, stop it, or see whether it runs.",
    epilog="Example: eos broker start --nodes 3 --port 9092",
    no_args_is_help=True,
)

_Profile = Annotated[
    str | None, typer.Option("--profile", help="Whose state root holds the broker's data.")
]
_Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@app.command()
def start(
    profile: _Profile = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The port to listen on.")
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(help=f"{' or '.join(BROKER_VERSIONS)}; data keeps the one it was made by."),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, max=9, help="How many; data keeps the number it was made by."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Start it, or keep the one that runs; pipelines of this profile then use it.

    With --nodes 3 topics have three replicas, of which two must have a record before it counts.
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
    """Stop it; its data stays. If a pipeline uses it, it stops when that has ended."""
    root = _root(_profile(profile))
    EmbeddedKafka(root).end()
    _print(status_of(root), as_json)


@app.command()
def status(profile: _Profile = None, as_json: _Json = False) -> None:
    """Where it listens, or that it is stopped, or not all of it runs (exit code 1)."""
    found = status_of(_root(_profile(profile)))
    _print(found, as_json)
    if not found.is_running:
        raise typer.Exit(1)


def _profile(name: str | None) -> ProfileFile:
    found = load_profile(name, Path.cwd())
    if found.kafka.bootstrap is not None:
        raise UsageError(
            "profile_has_cluster",
            f"profile {found.name!r} names a Kafka cluster of its own",
            hint="`eos broker` is for profiles without kafka.bootstrap, like `local`",
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
        why = "to stay" if found.is_kept else "for a pipeline, and stops with it"
        version = "" if found.version == BROKER_VERSION else f" (Kafka {found.version})"
        print(f"running at {found.bootstrap}{version}, {why}; data in {found.root}")
        if found.down:
            down = ", ".join(map(str, found.down))
            print(f"down: node {down} of {found.nodes}; `eos broker start` starts what is down")
    else:
        print(f"stopped; data in {found.root}")

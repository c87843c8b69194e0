"""`eos broker`: start, stop and inspect an embedded Kafka broker that outlives a pipeline's run."""

from __future__ import annotations

import argparse
import json

from eos import private_files
from eos.cli.pipeline_argument import project_of_cwd
from eos.config.load import load_profile
from eos.config.model import ProfileFile
from eos.errors import UsageError
from eos.local.cluster_status import ClusterStatus, status_of
from eos.local.embedded_kafka import EmbeddedKafka
from eos.local.jars import BROKER_VERSION


def run(options: argparse.Namespace) -> int:
    profile = _profile(options.profile)
    root = profile.local_root / "broker"
    if options.broker_verb == "start":
        private_files.prepare_root(profile.local_root, profile.state.group)
        kafka = EmbeddedKafka(root, nodes=options.nodes, port=options.port, version=options.version)
        kafka.start()
        kafka.keep()
        kafka.stop()  # after keep(), the broker continues to run: only this process's lock ends
    elif options.broker_verb == "stop":
        EmbeddedKafka(root).end()
    found = status_of(root)
    _print(found, options.json)
    return 1 if options.broker_verb == "status" and not found.is_running else 0


def _profile(name: str | None) -> ProfileFile:
    found = load_profile(name, project_of_cwd())
    name = found.name
    if found.kafka.bootstrap is not None:
        raise UsageError(
            "profile_has_cluster",
            f"profile {name!r} uses a Kafka cluster and not the embedded broker",
            hint="choose a profile without `kafka.bootstrap`, such as `eos broker status --profile "
            "local`",
        )
    return found


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
        reason = "until it is stopped" if found.is_kept else "until the last pipeline ends"
        version = "" if found.version == BROKER_VERSION else f" (Kafka {found.version})"
        print(f"running at {found.bootstrap}{version}, {reason}; data in {found.root}")
        if found.down:
            down = ", ".join(map(str, found.down))
            print(f"down: node {down} of {found.nodes}; `eos broker start` starts it again")
    else:
        print(f"stopped; data in {found.root}")

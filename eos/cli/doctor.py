"""`eos doctor`: check what this machine and the cluster lack for a run, with a fix for each."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import closing

from eos.cli.pipeline_argument import find_pipeline, project_of_cwd
from eos.config.load import load_profile
from eos.config.model import PipelineFile, Profile
from eos.inspect.check import Check, lines
from eos.inspect.machine_check import machine
from eos.local.cluster_status import status_of
from eos.plan.plan import Plan, plan
from eos.plan.security import kafka_settings, naming_principal
from eos.printable import escaped


def run(options: argparse.Namespace) -> int:
    pipeline = find_pipeline(options.pipeline, options.profile) if options.pipeline else None
    root = pipeline.project_root if pipeline else project_of_cwd()
    profile = load_profile(options.profile, root)
    checks: list[Check] = []
    for each in _checks(profile, pipeline, checks):
        checks.append(each)
        if not options.json:  # print each at once: a broker that does not answer takes time
            print(escaped("\n".join(lines([each]))), flush=True)
    is_fine = not any(each.level == "finding" for each in checks)
    if options.json:
        listed = [each.as_json() for each in checks]
        print(json.dumps({"profile": profile.name, "checks": listed, "fine": is_fine}))
    elif is_fine:
        print("no findings")
    return 0 if is_fine else 1


def _checks(
    profile: Profile, pipeline: PipelineFile | None, before: Sequence[Check]
) -> Iterator[Check]:
    yield from machine(profile, pipeline)
    addresses = reachable(profile, before)
    if addresses:
        planned = plan(pipeline, profile, addresses, ()) if pipeline else None
        yield from _cluster(profile, addresses, planned)


def reachable(profile: Profile, checks: Sequence[Check]) -> tuple[str, ...]:
    """Return the addresses of the profile's brokers if they can be queried.

    Return none if the check of ports found no address that accepts connections, or if the embedded
    broker is stopped.
    """
    if profile.kafka.bootstrap is None:
        running = status_of(profile.local_root / "broker").bootstrap
        return tuple(running.split(",")) if running else ()
    dead = any(each.subject == "ports" and each.level == "finding" for each in checks)
    return () if dead else tuple(profile.kafka.bootstrap)


def _cluster(profile: Profile, addresses: tuple[str, ...], planned: Plan | None) -> Iterator[Check]:
    from eos.inspect.cluster_check import cluster
    from eos.kafka.client import KafkaClient

    security = profile.kafka.security
    settings = kafka_settings(addresses, security, profile.kafka.client)
    with (
        closing(KafkaClient(settings)) as client,
        naming_principal(security),
    ):
        yield from cluster(client, planned)

"""Kafka connections of the `eos` commands."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from eos.cli.pipeline_argument import repeated
from eos.config.model import PipelineFile, Profile
from eos.errors import UnavailableError
from eos.kafka.client import KafkaClient
from eos.launch.profile_cluster import addresses
from eos.local.broker_probe import silent
from eos.plan.plan import Plan, plan
from eos.plan.security import naming_principal


@contextmanager
def connected(pipeline: PipelineFile, profile: Profile) -> Iterator[tuple[Plan, KafkaClient]]:
    """Yield the pipeline's plan and a client. Start the embedded broker if the profile uses it.

    The plan has no transforms, so that a pipeline with broken code can be inspected and recovered.
    """
    with addresses(profile) as bootstrap:
        planned = plan(pipeline, profile, bootstrap, ())
        with client_of(planned) as client:
            yield planned, client


@contextmanager
def client_of(planned: Plan) -> Iterator[KafkaClient]:
    """Yield a client for the plan's brokers.

    Within the context, errors about missing rights name the profile's Kafka user.
    """
    with closing(KafkaClient(planned.kafka)) as client, naming_principal(*planned.logins):
        yield client


def nobody_listens(
    options: Namespace, pipeline: PipelineFile, profile: Profile, bootstrap: Sequence[str]
) -> UnavailableError | None:
    """Return the error to report if no broker of the profile accepts connections, else None.

    This takes seconds, where a Kafka client would retry each request until its deadline."""
    dead = silent(bootstrap)
    if len(dead) < len(bootstrap):
        return None
    reasons = "; ".join(f"{address}: {reason}" for address, reason in dead.items())
    chosen, arguments = profile.name, repeated(options)
    return UnavailableError(
        "brokers_unreachable",
        f"{pipeline.name}: no broker of profile {chosen!r} accepts connections ({reasons})",
        hint="start the cluster, or correct `kafka.bootstrap` in the profile; `eos doctor "
        f"{arguments}` checks all that a run needs",
    )

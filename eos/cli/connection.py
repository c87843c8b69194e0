"""Kafka connections of the `eos` commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from eos.config.model import PipelineFile, Profile
from eos.kafka.client import KafkaClient
from eos.launch.profile_cluster import addresses
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

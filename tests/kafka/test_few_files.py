"""A process that may open no more files: its connections break, and it can make no others."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from support.copies.owners import Forked
from support.copies.scenes import ProxiedKafka
from support.kafka.proxy_rules import ALWAYS, Do

pytestmark = pytest.mark.long

RECORDS = 17


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_a_process_without_file_descriptors_ends_and_the_next_goes_on(
    proxied: ProxiedKafka, job
) -> None:
    small = job(
        records=RECORDS,
        request_timeout_ms=300,
        transaction_timeout_ms=3_000,
        start_timeout_ms=20_000,
    )
    rule = proxied.proxy.rule(
        "Produce", Do.HOLD_REQUEST, client=f"{small.name}.writer", nth=4
    )  # in the second micro-batch
    with Forked(small) as process:
        rule.wait_struck()
        limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        assert open_files(process.pid) > 3
        proxied.proxy.rule("Produce", Do.CLOSE_BEFORE, client=f"{small.name}.writer", times=ALWAYS)
        rule.release()
        code = process.wait()
        assert code == 5, process.said()
        ended = process.told("ended")[-1]
        assert ended["hint"]
    proxied.proxy.clear_rules()
    with Forked(small) as process:
        assert process.wait() == 0, process.said()
    proxied.check(small)

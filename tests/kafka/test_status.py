"""`eos status` beside a real broker: what it says while a pipeline runs, and after its ends."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from support.copies.recovery import Pipeline, soon
from support.copies.scenes import ProxiedKafka
from support.doubles import Work
from support.kafka import kafka_io
from support.kafka.proxy_rules import ANY, Do
from support.verbs import status

from eos.errors import PromiseBrokenError
from eos.ledger.record import stamped
from eos.startup import lock_holder


def said(pipeline: Pipeline, *words: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = status([*pipeline.words, *words])
    return code, out.getvalue()


def told(pipeline: Pipeline, code: int = 0) -> dict[str, Any]:
    found, text = said(pipeline, "--json")
    assert found == code, text
    return json.loads(text)


def lags(found: dict[str, Any]) -> Sequence[int]:
    return [each["lag"] for each in found["partitions"]]


def test_status_and_recover_agree_after_a_kill(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The killed process, or another one that has its number by now, still answers a signal."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"]) as child:
        monkeypatch.setattr(lock_holder, "os", SimpleNamespace(getpid=lambda: child.pid))
        with pipeline.running():
            assert told(pipeline)["process"] == child.pid
            assert pipeline.explained().json["runs_as"] == child.pid
            assert f"the pipeline runs now as process {child.pid}" in pipeline.recover().out
        assert child.poll() is None
        assert told(pipeline, 1)["runs"] == "died"
        assert pipeline.explained().json["runs_as"] is None
        assert "the pipeline runs now" not in pipeline.recover().out
        child.kill()


def test_from_before_its_first_run_to_a_clean_end(pipeline: Pipeline) -> None:
    pipeline.fill(3)
    found = told(pipeline)
    assert (found["runs"], found["owner"], found["last_attempt"]) == ("no", None, None)
    assert (lags(found), found["lag"]) == ([3, 3], 6)
    assert "never ran" in said(pipeline)[1]

    with pipeline.running() as run:
        run.step()
        pipeline.fill(2, "", 1)
        found = told(pipeline)
        assert (found["runs"], found["process"]) == ("yes", os.getpid())
        assert found["last_attempt"]["batch_id"] == 0
        assert found["transaction"]["phase"] == "CompleteCommit"
        assert lags(found) == [0, 2]
        assert "2 offsets can be read" in found["waits_for"]
        run.step()
        assert told(pipeline)["waits_for"] == "new records"
        run.stop()
    found = told(pipeline)
    assert (found["runs"], found["fine"], found["waits_for"]) == ("no", True, "a run")
    code, text = said(pipeline)
    assert code == 0
    for words in (f"{pipeline.name}: does not run", "last wrote a clean end", "micro-batch 1, "):
        assert words in text, text
    assert pipeline.last().kind == "stop", "it only looks"


def test_the_lag_before_the_first_run_begins_at_its_start(pipeline: Pipeline) -> None:
    pipeline.fill(3)
    pipeline.declare(start="latest")
    found = told(pipeline)
    assert (lags(found), found["waits_for"]) == ([0, 0], "a run")


def test_an_end_that_was_not_clean_is_a_finding_and_names_the_next_command(
    pipeline: Pipeline,
) -> None:
    with pipeline.running() as run:
        pipeline.fill(2)
        run.step()
        pipeline.fill(1)
    code, text = said(pipeline)
    assert code == 1, text
    assert "did not end cleanly" in text
    assert f"next         eos recover {' '.join(pipeline.words)}\n" in text
    assert "lag          2 offsets: " in text
    found = told(pipeline.elsewhere())
    assert found["runs"] == "unknown", "another deployment's: its lock is not here"


def test_what_is_open_is_told_with_its_owner(pipeline: Pipeline, name: str) -> None:
    with pipeline.running() as run:
        pipeline.fill(2)
        run.step()
        other = Producer(
            {"bootstrap.servers": pipeline.bootstrap, "transactional.id": f"{name}-other"}
        )
        other.init_transactions(300)
        other.begin_transaction()
        other.produce(pipeline.source, b"not yet", partition=1)
        assert other.flush(300) == 0
        found = told(pipeline)
        blocked = f"1 offsets are not committed, the first is 2 in {pipeline.source}-1"
        assert found["waits_for"].endswith(blocked)
        assert [each["owner"] for each in found["open"]] == [f"{name}-other"]
        other.abort_transaction(300)
        kafka_io.wait_closed(pipeline.bootstrap, pipeline.source)

        pipeline.fill(1, "", 0)
        seen: list[dict[str, Any]] = []

        def in_the_middle(identity: Any, _floors: Any) -> Any:
            record = stamped(run.batches.ledger.record("start", run.batches.position), identity)
            run.batches.coordinator.produce({run.batches.ledger.partition: record}, soon())
            seen.append(told(pipeline))
            raise PromiseBrokenError("example", "seen enough")

        with pytest.raises(PromiseBrokenError, match="seen enough"):
            run.batches.run(run.plan(), Work(in_the_middle))
        (found,) = seen
        assert found["transaction"]["phase"] == "Ongoing"
        assert found["waits_for"] == "its tasks: a transaction is open"
        own = (pipeline.planned().names.ledger, pipeline.planned().names.transactional_id)
        assert (found["open"][0]["topic"], found["open"][0]["owner"]) == own


def test_a_watch_continues_after_a_broker_was_silent(
    proxied: ProxiedKafka, tmp_path: Path, name: str
) -> None:
    with contextlib.ExitStack() as stack:
        pipeline = stack.enter_context(
            contextlib.closing(Pipeline(tmp_path, proxied.bootstrap, name))
        )
        command = [sys.executable, "-m", "eos", "status", *pipeline.words, "--watch", "1", "--json"]
        watch = stack.enter_context(subprocess.Popen(command, stdout=PIPE))
        stack.callback(watch.kill)
        assert watch.stdout is not None
        looks = map(json.loads, watch.stdout)
        assert next(looks)["lag"] == 0
        client_id = pipeline.planned().kafka.client_id
        rule = proxied.proxy.rule(ANY, Do.DROP_REQUEST, client=client_id, times=1_000_000)
        rule.wait_struck()
        error = next(look["error"] for look in looks if "error" in look)
        assert error["code"] == "still_waiting"
        proxied.proxy.clear_rules()
        pipeline.fill(1)
        assert next(look["lag"] for look in looks if look.get("lag")) == 2
        watch.send_signal(signal.SIGINT)
        assert watch.wait() == 130

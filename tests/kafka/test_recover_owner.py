"""`eos recover` disturbs nobody: who runs is left alone, and who dies in it leaves nothing half."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.copies.recovery import Pipeline
from support.kafka.kafka_io import consuming

from eos.errors import FencedError
from eos.inspect import snapshot
from eos.local.broker_probe import live_brokers

pytestmark = pytest.mark.long

CHECKOUT = Path(__file__).parents[2]
CHANGES = ["--rewind-to", "2"]


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PATIENCE_MS", 500)


def command(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("EOS_")}
    return subprocess.run(
        [sys.executable, "-m", "eos", "recover", *words],
        cwd=cwd,
        env={**inherited, "PYTHONPATH": str(CHECKOUT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_pipeline_that_runs_here_is_left_alone(pipeline: Pipeline) -> None:
    pipeline.ran(5, 3)
    with pipeline.running() as run:
        left = pipeline.recover(*CHANGES, "--yes")
        assert (left.code, "already runs on this machine" in left.err) == (5, True)
        pipeline.fill(1)
        run.step()  # it was not fenced
        would = pipeline.recover(*CHANGES)
        assert (would.code, "would do" in would.out) == (1, True)
        run.step()
        taken = pipeline.recover(*CHANGES, "--yes", "--take-over")
        assert taken.code == 0, taken
        pipeline.fill(1)
        with pytest.raises(FencedError):
            run.step()
    assert pipeline.ends() == {pipeline.source: {"0": 5, "1": 5}}


def test_another_deployment_that_may_run_is_left_alone(pipeline: Pipeline) -> None:
    pipeline.ran(5, 3)
    other = pipeline.elsewhere()
    with pipeline.running() as run:
        for yes in ([], ["--yes"]):
            left = other.recover(*CHANGES, *yes)
            assert (left.code, "belongs to deployment" in left.err) == (4, True)
            assert "--take-over" in left.err
        assert other.explained().cases == ["another_deployment"]
        pipeline.fill(1)
        run.step()
        would = other.recover("--restore-group", "--take-over")
        assert would.code == 0, "nothing to do"
        pipeline.move_group({0: 5})
        taken = other.recover("--restore-group", "--take-over", "--yes")
        assert taken.code == 0, taken
        pipeline.fill(1)
        with pytest.raises(FencedError):
            run.step()
    # Whoever took it has no checkpoint that goes with the ledger.
    assert other.last().position.is_reset
    assert other.last().owner["deployment"] == other.planned().deployment


def test_after_a_clean_stop_another_deployment_may_put_it_right(pipeline: Pipeline) -> None:
    other = pipeline.ran(5, 3).elsewhere()
    assert other.recover(*CHANGES, "--yes").code == 0
    assert "another_deployment" not in pipeline.explained().cases  # nobody has started since


def test_a_refusal_fences_nobody(pipeline: Pipeline) -> None:
    """The same deployment on another machine can't be told from one that died."""
    pipeline.ran(5)
    with pipeline.running() as run:
        Path(pipeline.planned().names.lock).unlink()  # as on another machine
        for refused in (["--forget-topic", "no"], ["--rewind-to", "99"], ["--from-group"]):
            assert pipeline.recover(*refused, "--yes").code in {0, 2}
        pipeline.fill(1)
        run.step()


def test_a_group_with_members_takes_no_offsets_and_is_told_before_the_fence(
    pipeline: Pipeline,
) -> None:
    pipeline.ran(5, 3)
    group, words = pipeline.planned().names.group, "[group_has_members]"
    with pipeline.running() as run, consuming(pipeline.bootstrap, group, pipeline.source):
        Path(pipeline.planned().names.lock).unlink()  # as on another machine
        left = pipeline.recover(*CHANGES, "--yes")
        assert (left.code, words in left.err) == (4, True)
        assert pipeline.explained().cases == ["group_has_members"]
        run.batches.require_owner()  # or it would raise


@pytest.mark.parametrize("point", ["offsets:after", "end_txn_sent:before"])
def test_who_dies_before_the_end_has_changed_nothing(pipeline: Pipeline, point: str) -> None:
    pipeline.ran(5, 3)
    before = pipeline.last()
    _dies(pipeline, CHANGES, point)
    assert pipeline.last().offset == before.offset
    would = pipeline.recover(*CHANGES)  # it does not wait for what its fence will end
    assert "hidden by an open transaction; it gets the ledger's ends" in would.out
    assert pipeline.recover(*CHANGES, "--yes").code == 0
    assert pipeline.group() == {0: 5, 1: 5}
    assert pipeline.explained().code == 0


@pytest.mark.parametrize("point", ["end_txn_sent:after", "end_txn_answered:after"])
def test_who_dies_after_it_has_done_it(pipeline: Pipeline, point: str) -> None:
    pipeline.ran(5, 3)
    _dies(pipeline, CHANGES, point)
    again = pipeline.recover(*CHANGES, "--yes")
    assert (again.code, again.out.splitlines()[0]) == (0, "nothing to do")
    assert pipeline.group() == {0: 5, 1: 5}


def test_who_dies_before_the_rename_has_set_it_aside_all_the_same(pipeline: Pipeline) -> None:
    pipeline.ran(5, 3)
    _dies(pipeline, ["--set-checkpoint-aside"], "end_txn_answered:after")
    assert [path.name for path in pipeline.checkpoints.iterdir()] == ["0001"]
    with pipeline.running() as run:
        assert run.location.endswith("/0002")


def _dies(pipeline: Pipeline, verb: list[str], point: str) -> None:
    crash = {"EOS_CRASH_AT": f"recovery.{point}:python", "EOS_CRASH_LOG": "crash.log"}
    done = command(*pipeline.words, *verb, "--yes", cwd=pipeline.folder, **crash)
    assert done.returncode == -9, done
    assert (pipeline.folder / "crash.log").exists()


@pytest.mark.nightly
def test_a_command_of_a_hint_is_copied_as_it_is(pipeline: Pipeline) -> None:
    """It knows the pipeline's name only: which is looked up where it is called."""
    pipeline.ran(5, 3)
    pipeline.fill(3)
    pipeline.truncate(0, 10)
    (pipeline.folder / "conf" / "state.yaml").rename(pipeline.folder / "conf" / "local.yaml")
    done = command(pipeline.name, cwd=pipeline.folder)
    assert done.returncode == 1, done
    (hint,) = (line for line in done.stdout.splitlines() if line.startswith("  $ "))
    assert hint == f"  $ eos recover {pipeline.name} --accept-start"
    done = command(*hint.split()[3:], "--yes", cwd=pipeline.folder / "pipelines" / "its-folder")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "did" in done.stdout
    assert command(pipeline.name, cwd=pipeline.folder).returncode == 0


def test_without_a_cluster_the_embedded_broker_is_started_and_stopped(tmp_path: Path) -> None:
    place = tmp_path / "pipelines" / "small"
    place.mkdir(parents=True)
    (place / "pipeline.yaml").write_text(
        "version: 1\nname: small\nsource: {kafka: {topic: a}}\n"
        "sink: {kafka: {topic: b, create: {partitions: 1}}}\n"
    )
    done = command("small", "--json", cwd=tmp_path)
    assert done.returncode == 1, done
    (finding,) = json.loads(done.stdout)["findings"]
    assert "the source topic 'a' does not exist" in finding["messages"][0]
    (ports,) = json.loads((tmp_path / ".eos" / "broker" / "cluster.json").read_text())["ports"]
    assert live_brokers(ports[0]) == frozenset()

"""A second deployment takes a pipeline over while the first one runs, and gives it back."""

from __future__ import annotations

from dataclasses import replace

from support.copies.recovery import Pipeline
from support.errors import raises

from eos.errors import FencedError, PromiseBrokenError, exit_code


def test_green_takes_over_at_the_ledgers_ends_and_blue_gets_it_back(pipeline: Pipeline) -> None:
    pipeline.fill(5)
    green = pipeline.elsewhere()
    with pipeline.running() as blue:
        blue.step()
        with raises("another_deployment", PromiseBrokenError):
            green.running().__enter__()
        pipeline.fill(2)
        blue.step()  # it was not disturbed
        assert pipeline.ends() == {pipeline.source: {"0": 7, "1": 7}}

        pipeline.fill(3)
        with green.running(take_over=True) as run:
            ends = pipeline.ends()
            with raises("newer_instance_running", FencedError) as caught:
                blue.step()
            assert exit_code(caught.value) == 3
            assert pipeline.ends() == ends, "it committed after all"
            run.step()
            assert set(run.read[0].starts.values()) == {7}
            run.stop()
    pipeline.fill(1)
    with pipeline.running() as back:  # green ended cleanly, so no --take-over is needed
        assert back.location.endswith("/0002")  # its own checkpoint is older than the ledger
        back.step()
        assert set(back.read[0].starts.values()) == {10}


def test_green_with_a_state_root_of_its_own_takes_over_no_state(pipeline: Pipeline) -> None:
    """And does not fence blue, which has it."""
    pipeline.fill(5)
    with pipeline.running() as blue:
        kept = replace(blue.batches.position, keeps_state=True)
        blue.batches.note("start", kept)
        blue.batches.position = kept
        blue.step()
        with raises("state_lost", PromiseBrokenError):
            pipeline.elsewhere().running(take_over=True).__enter__()
        pipeline.fill(1)
        blue.step()

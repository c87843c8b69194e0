"""A start that another copy overtakes before any one of its requests.

What it compares after its fence (ledger, group, checkpoint) agrees as long as nobody moves it. Who
was overtaken in between sees a group ahead of its ledger, but was replaced: exit 3, and no word of
a broken promise, for whose remedy a person would take the pipeline from the newer one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from support.copies.pipeline_copy import Copy
from support.copies.scenes import AT_A_TIME, Scene, Scenes, run_to_end
from support.doubles import WatchedClient

from eos.errors import EosError, FencedError

RECORDS = 20  # one micro-batch
FENCE = "init_producer_id"


def begun(scenes: Scenes, *, has_history: bool) -> Scene:
    scene = scenes.new(RECORDS)
    if has_history:
        with Copy(scene.job) as before:
            assert run_to_end(before) is None
        scene.feed(RECORDS)
    return scene


def start(scene: Scene, before: Callable[[str], None]) -> EosError | None:
    """Runs a copy to its end; `before` is told of each request of its start."""
    is_starting = True

    def look(request: str) -> None:
        if is_starting:
            before(request)

    with Copy(scene.job) as copy:
        copy.client = WatchedClient(copy.client, look)
        try:
            copy.start()
            is_starting = False
            copy.drain()
            copy.stop()
        except EosError as error:
            return error
    return None


def overtaken(scenes: Scenes, number: int, *, has_history: bool) -> bool:
    """Another copy does all that there is to do, before the request of this number, from 0 on.
    False: there was none. A start that waits for a marker asks once more than another."""
    scene = begun(scenes, has_history=has_history)
    asked: list[str] = []

    def overtake(request: str) -> None:
        asked.append(request)
        if len(asked) == number + 1:
            with Copy(scene.job) as newer:
                assert run_to_end(newer) is None

    error = start(scene, overtake)
    if len(asked) <= number:
        assert error is None, asked
        return False
    where = f"overtaken before the last of {asked[: number + 1]}: {error!r}"
    if asked[number] == FENCE or FENCE not in asked[:number]:
        assert error is None, where  # it is the newer one
    else:
        assert type(error) is FencedError, where
    scene.check()
    return True


@pytest.mark.long
@pytest.mark.parametrize("has_history", [False, True])
def test_a_start_that_is_overtaken_is_fenced(scenes, has_history):
    start(begun(scenes, has_history=has_history), lambda _request: None)  # coordinators are loaded
    requests: list[str] = []
    assert start(begun(scenes, has_history=has_history), requests.append) is None
    play = partial(overtaken, scenes, has_history=has_history)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        assert sum(pool.map(play, range(len(requests)))) > 10

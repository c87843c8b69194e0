"""What happens to a copy that stood still while another one took its pipeline over.

The older ones are processes that are stopped by SIGSTOP and continued by SIGCONT; the newer ones
run in the test's process.
"""

from __future__ import annotations

from itertools import cycle

from eos.errors import Recovery
from eos.faults import MOMENTS, POINTS
from eos.observe import events
from support.copy import Copy
from support.forked import Forked
from support.played import At
from support.scenes import Scene, Scenes

STEPS = [f"{point}:{moment}" for point in POINTS for moment in MOMENTS]
STEPS_OF_NOTES = [
    f"{kind}.{point}:{moment}"
    for kind in ("start", "refresh", "stop")
    for point in ("ledger_record", "offsets", "end_txn_sent", "end_txn_answered")
    for moment in MOMENTS
]
OF_EACH_KIND = ["start.offsets:after", "refresh.ledger_record:before", "stop.end_txn_sent:before"]
# Its clean end was committed before it was overtaken: it has nothing more to ask.
HAD_ENDED = {
    "stop.end_txn_sent:after",
    "stop.end_txn_answered:before",
    "stop.end_txn_answered:after",
}
# Where the newer one is when the older one wakes: its transaction is open.
INSIDE = ("first_produce:after", "all_acked:before", "ledger_record:after", "offsets:after")
RECORDS, MORE = 40, 8  # two micro-batches, and one more
WOKEN_INSIDE = [
    f"{at} inside {at_the_newer}"
    for at, at_the_newer in zip([*STEPS, *OF_EACH_KIND], cycle(INSIDE))
]


def paused(scene: Scene, point: str) -> Forked:
    waits = ["--go-on"] if point.startswith("refresh.") else []
    older = Forked(scene.job, *waits, EOS_CRASH_AT=f"{point}:python", EOS_CRASH_SIGNAL="STOP")
    older.wait_paused()
    return older


def check_ended(older: Forked, point: str) -> None:
    code = older.wait()
    last = older.said()[-1]
    ended = (code, last.get("error") or None)
    if point in HAD_ENDED:
        assert ended == (0, None), last
        assert last["message"] == "drained"
    else:
        assert ended == (Recovery.FENCED.value, "fenced"), last
        assert "took over" in last["message"]


def overtaken(scenes: Scenes, point: str) -> None:
    """Woken when the newer one has done all that there was to do, on the same checkpoint."""
    scene = scenes.new(RECORDS, idle_ms=50)
    with paused(scene, point) as older, Copy(scene.job) as newer:
        newer.start()
        newer.drain()
        older.wake()
        check_ended(older, point)
        scene.feed(MORE)
        newer.drain()
        newer.stop()
    assert not newer.told.of(events.AttemptFailed)
    assert not newer.told.of(events.Warned)
    scene.check()


def disturbed(scenes: Scenes, points: str) -> None:
    """Woken while the newer one's transaction is open."""
    point, inside = points.split(" inside ")
    scene = scenes.new(RECORDS, idle_ms=50)

    def wake() -> None:
        older.wake()
        check_ended(older, point)

    with paused(scene, point) as older, Copy(scene.job, At(inside, wake)) as newer:
        scene.feed(MORE)
        newer.start()
        newer.drain()
        newer.stop()
    assert newer.crash.times
    failed = newer.told.of(events.AttemptFailed)
    assert [event.will_redo for event in failed] == [True]
    scene.check()

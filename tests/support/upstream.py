"""What producers send that restart, resend, are replaced and go around."""

from __future__ import annotations

from hypothesis import strategies as st

from support.deduped import Sent

CIRCLE = 2**16
ACTIONS = (
    "next",
    "next",
    "next",
    "again",
    "batch again",
    "restart",
    "zombie",
    "skip",
    "below",
    "any",
)


@st.composite
def stories(draw, circle):
    """What an upstream sends, as (partition, producer, epoch, sequence)."""
    found: list[Sent] = []
    heads: dict[tuple[int, bytes], tuple[int, int]] = {}
    for _ in range(draw(st.integers(1, 30))):
        key = draw(st.integers(0, 1)), b"p%d" % draw(st.integers(0, 2))
        begins = st.sampled_from([0, 0, 7, CIRCLE - 3])
        epoch, number = heads.get(key) or (draw(st.integers(0, 2)), draw(begins))
        action = draw(st.sampled_from(ACTIONS))
        own = [each for each in found if each[:2] == key]
        if action == "again" and own:
            found.append(draw(st.sampled_from(own)))
            continue
        if action == "batch again":  # as one that did not hear the answer
            found += own[-5:]
            continue
        if action == "zombie" and own and epoch:
            found.append(Sent(*key, epoch - 1, draw(st.integers(0, 5))))
            continue
        if action == "below" and own:
            found.append(Sent(*key, epoch, (number - draw(st.integers(1, 9))) % min(circle, 2**62)))
            continue
        if action == "restart":
            epoch, number = epoch + 1, 0
        if action == "skip":
            number = (number + draw(st.integers(1, 3))) % circle
        if action == "any":
            stamp = draw(st.sampled_from([(None, 0, 0), (key[1], None, 0), (key[1], 0, -1)]))
            found.append(Sent(key[0], *(None if part == -1 else part for part in stamp)))
            continue
        found.append(Sent(*key, epoch, number))
        heads[key] = epoch, (number + 1) % circle
    return found

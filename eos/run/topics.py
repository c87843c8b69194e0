"""Topics that must exist: looked up again while a broker may just not know them yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from eos.deadline import Backoff, Deadline
from eos.errors import EosError
from eos.transaction.outcomes import name_of
from eos.transaction.wire import TopicInfo, Wire

# UNKNOWN_TOPIC_OR_PARTITION and LEADER_NOT_AVAILABLE: a broker that starts, or that has not heard
# of a new topic yet, says so of topics that are there.
_MAY_PASS = {3, 5}
_PASSES_WITHIN_MS = 5_000


def existing_topics(
    wire: Wire,
    names: Iterable[str],
    deadline: Deadline,
    *,
    what: str,
    missing: type[EosError],
    hint: str | Callable[[str], str],
    **fields: str,
) -> Mapping[str, TopicInfo]:
    """All of them, or an error of the class `missing` that names the first which is not there."""
    wanted = frozenset(names)
    patience = Deadline.after_ms(deadline.at_most_ms(_PASSES_WITHIN_MS))
    backoff = Backoff(first_ms=50)
    found = wire.topics(wanted, deadline)
    while any(found[name].error in _MAY_PASS for name in wanted) and not patience.has_passed:
        backoff.sleep(patience)
        found = wire.topics(wanted, deadline)
    for name in sorted(wanted):
        code = found[name].error
        if code in _MAY_PASS:
            words = hint if isinstance(hint, str) else hint(name)
            whose = f"{fields['pipeline']}: " if "pipeline" in fields else ""
            message = f"{whose}the {what} topic {name!r} does not exist"
            raise missing(message, hint=words, topic=name, **fields)
        if code:
            raise missing(
                f"the {what} topic {name!r} can't be looked up: {name_of(code)}",
                hint="may this user describe the topic?",
                topic=name,
            )
    return found

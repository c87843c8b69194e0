"""The options of Spark's spark-submit, as far as a run may pass them on.

The launcher rejects all other options before anything starts. Spark's JVM would report an unknown
option only in its log, after the embedded broker was started for the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eos.errors import UsageError
from eos.suggestion import suggestion

_SWITCHES = "--help -h --load-spark-defaults --supervise --usage-error --verbose -v --version"
_WITH_VALUE = """\
    --archives --class --conf -c --deploy-mode --driver-class-path --driver-cores
    --driver-default-class-path --driver-java-options --driver-library-path --driver-memory
    --exclude-packages --executor-cores --executor-memory --extra-properties-file --files --jars
    --keytab --kill --master --name --num-executors --packages --principal --properties-file
    --proxy-user --py-files --queue --remote --repositories --status --total-executor-cores
"""
SWITCHES, WITH_VALUE = frozenset(_SWITCHES.split()), frozenset(_WITH_VALUE.split())


def require_known(arguments: Sequence[str], ours: Iterable[str]) -> None:
    """Raise UsageError if `arguments` contain an option that spark-submit does not have, or an
    option without its value.

    `ours` has the launcher's own options, which the error may suggest for a misspelt one."""
    rest = iter(arguments)
    for argument in rest:
        option, equals, _ = argument.partition("=")
        if option in WITH_VALUE:
            if not equals and next(rest, None) is None:
                raise UsageError(
                    "option_value_missing",
                    f"{argument} has no value",
                    hint=f"write `{argument} VALUE`, or remove {argument}",
                )
        elif option not in SWITCHES:
            raise _unknown(option, sorted({*ours, *SWITCHES, *WITH_VALUE}))


def _unknown(option: str, known: Sequence[str]) -> UsageError:
    if not option.startswith("-"):
        return UsageError(
            "argument_unexpected",
            f"unexpected argument `{option}`: the pipelines of a run precede all options",
            hint="put quotes around a value that contains spaces",
        )
    return UsageError(
        "option_unknown",
        f"unknown option `{option}`{suggestion(option, known, or_all=False)}",
        hint="`eos run --help` lists the options, and spark-submit's options work as well; write a "
        "Spark setting as `--conf KEY=VALUE`",
    )

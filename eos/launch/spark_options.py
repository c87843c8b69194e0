"""The options of Spark's spark-submit, as far as a run may pass them on, and Spark's settings.

The launcher rejects all other options before anything starts. Spark's JVM would report an unknown
option only in its log, after the embedded broker was started for the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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

# Options of spark-submit, with the settings of the same meaning, whose lists have entries of both
# user and launcher. They must be joined into one option: spark-submit uses only the last one, and
# ignores the setting if the option is there.
JOINED = {
    "--jars": "spark.jars",
    "--py-files": "spark.submit.pyFiles",
    "--archives": "spark.archives",
}
CLASS_PATH = "spark.driver.extraClassPath"
MASTER, DEPLOY_MODE = "spark.master", "spark.submit.deployMode"
# Options with the settings of the same meaning, which the launcher reads or adds to.
_SAME = {
    "--master": MASTER,
    "--deploy-mode": DEPLOY_MODE,
    "--driver-class-path": CLASS_PATH,
    "--driver-java-options": "spark.driver.extraJavaOptions",
}


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


def settings_of(
    conf: Mapping[str, str], options: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """Return the settings of the profile (`conf`) and of the user's options, and the other options.

    The user's settings override the profile's. Lists of jars, Python files and archives are joined.
    """
    settings, rest, arguments = dict(conf), list[str](), iter(options)

    def add_setting(key: str, value: str) -> None:
        before = settings.get(key) if key in JOINED.values() else None
        settings[key] = f"{before},{value}" if before else value

    for argument in arguments:
        option, equals, value = argument.partition("=")
        if option in JOINED:
            add_setting(JOINED[option], value if equals else next(arguments, ""))
        elif option in _SAME:
            add_setting(_SAME[option], value if equals else next(arguments, ""))
        elif option in {"--conf", "-c"}:
            setting = value if equals else next(arguments, "")
            key, equals, value = setting.partition("=")
            if equals:
                add_setting(key.strip(), value)
            else:  # pass it on: spark-submit reports that it is malformed
                rest += [option, setting]
        else:
            rest.append(argument)
    return settings, rest


def is_cluster_mode(conf: Mapping[str, str], options: Sequence[str]) -> bool:
    """Return whether the driver is to run in the cluster. The command line overrides the profile's
    settings in `conf`."""
    return settings_of(conf, options)[0].get(DEPLOY_MODE) == "cluster"


def master_of(options: Sequence[str]) -> str | None:
    """Return the master in the user's options (`--master`, `spark.master`); None without one."""
    return settings_of({}, options)[0].get(MASTER)

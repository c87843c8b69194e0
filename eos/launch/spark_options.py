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
# Options with the settings of the same meaning, which the launcher adds to.
_SAME = {
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

    The user's settings override the profile's. Lists of jars, Python files, archives and class path
    entries are joined.
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
            if equals and key != "spark.master":
                add_setting(key.strip(), value)
            else:  # pass it on: it is spark.master, or malformed, which spark-submit reports
                rest += [option, setting]
        else:
            rest.append(argument)
    return settings, rest


def is_cluster_mode(conf: Mapping[str, str], options: Sequence[str]) -> bool:
    """Return whether the driver is to run in the cluster. The command line overrides the profile's
    settings in `conf`."""
    settings, rest = settings_of(conf, options)
    following = zip(rest, [*rest, ""][1:], strict=True)
    modes = [settings.get("spark.submit.deployMode", "")]
    for argument, value in following:
        if argument == "--deploy-mode":
            modes.append(value)
        elif argument.startswith("--deploy-mode="):
            modes.append(argument.partition("=")[2])
    return modes[-1] == "cluster"


def master_of(options: Sequence[str]) -> str | None:
    """Return the master in the user's options (`--master`, `spark.master`); None without one."""
    found = None
    for argument, following in zip(options, [*options, ""][1:], strict=True):
        if argument == "--master":
            found = following
        elif argument.startswith("--master="):
            found = argument.removeprefix("--master=")
        elif argument in {"--conf", "-c"} and following.startswith("spark.master="):
            found = following.removeprefix("spark.master=")
    return found

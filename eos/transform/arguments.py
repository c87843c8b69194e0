"""Check that the arguments in a step's `with:` fit its function's signature and annotations."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from eos.errors import TransformError
from eos.suggestion import did_you_mean_note

_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)


def fit_arguments(
    reference: str,
    call: Callable[..., Any],
    arguments: Mapping[str, Any],
    tables: Sequence[str] = (),
    *,
    converts: bool = True,
) -> dict[str, Any]:
    """Return the arguments, converted to the annotated types: a list becomes a tuple, for instance.

    Raise TransformError with all that don't fit. Annotations that no YAML value can have are
    ignored. `tables` are passed at the call. Unless `converts`, only the names are checked.
    """
    parameters = _parameters(call)
    if not parameters or parameters[0].kind not in _BY_POSITION:
        raise TransformError(
            "transform_signature_invalid",
            f"transform `{reference}` has no parameter for the DataFrame",
            hint="define it as `def function(frame: DataFrame, ...) -> DataFrame`",
        )
    named = [each for each in parameters[1:] if each.kind is not each.VAR_POSITIONAL]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in named)
    named = [each for each in named if each.kind is not each.VAR_KEYWORD]
    known = [each.name for each in named]
    every = [*arguments, *tables]
    unknown = [] if takes_any else [key for key in every if key not in known]
    if parameters[0].name in every and parameters[0].name not in unknown:
        unknown.append(parameters[0].name)
    missing = [each.name for each in named if each.default is each.empty and each.name not in every]
    problems = [
        f"gets `{key}` twice, from `with` and from `tables`" for key in tables if key in arguments
    ]
    problems += [f"has no argument `{key}`{did_you_mean_note(key, known)}" for key in unknown]
    problems += [f"needs the argument `{name}`" for name in missing]
    found = dict(arguments)
    hints = _hints(call) if converts else {}
    for name in [each for each in known if each in arguments and each in hints]:
        try:
            found[name] = _convert(arguments[name], hints[name])
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]["msg"].lower().removeprefix("input ")
            problems.append(f"does not accept {arguments[name]!r:.60} as `{name}`: {reason}")
    if problems:
        signature = reference.partition(":")[2] + str(inspect.signature(call))
        raise TransformError(
            "transform_arguments_invalid",
            f"transform `{reference}` {' and '.join(problems)}",
            hint=f"correct `with:`, which passes arguments by name to `{signature}`",
        )
    return found


def _parameters(call: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):  # some built-in functions and classes have no signature
        return []


def _hints(call: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(call)
    except Exception:  # noqa: BLE001 - names that only a type checker imports, or anything else
        return {}


def _convert(value: Any, annotation: Any) -> Any:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    except (PydanticUserError, SchemaError, TypeError):  # a type that no YAML value can have
        return value
    # Validated as JSON: a list is accepted as a tuple and a text as a date, but not as a number.
    return adapter.validate_json(json.dumps(value, default=str), strict=True)

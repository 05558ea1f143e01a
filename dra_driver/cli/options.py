"""Command line options made of the settings, which are declared elsewhere and once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import typer

from dra_driver.settings import DOWNWARD_API, Settings, flag_of, variable_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Command = Callable[..., int]
T = TypeVar("T", bound="DataclassInstance")


def with_settings(names: Iterable[str]) -> Callable[[Command], Command]:
    """Give a command an option for each of these settings.

    The command's first parameter, `flags`, gets the texts of those that were given, by field name;
    its other parameters stay as they are.
    """
    fields = tuple(names)

    def decorate(command: Command) -> Command:
        def run(**given: Any) -> int:
            texts = {name: given.pop(name) for name in fields}
            flags = {name: text for name, text in texts.items() if text is not None}
            return command(flags, **given)

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        options = [_option(name) for name in fields]
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own + options]
        run.__name__ = command.__name__
        run.__doc__ = command.__doc__
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        vars(run)["__signature__"] = inspect.Signature(parameters)
        return run

    return decorate


def with_options(kind: type[T]) -> Callable[[Callable[[Mapping[str, str], T], int]], Command]:
    """Give a command an option for each field of a dataclass, those of its bases last.

    The command gets `flags` of `with_settings`, which comes around this, and an instance.
    """
    hints = get_type_hints(kind, include_extras=True)
    defaults = {each.name: each.default for each in fields(kind)}
    names = dict.fromkeys(name for each in kind.__mro__ for name in vars(each).get("__slots__", ()))

    def decorate(command: Callable[[Mapping[str, str], T], int]) -> Command:
        def run(flags: Mapping[str, str], **given: Any) -> int:
            return command(flags, kind(**given))

        own = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if defaults[name] is MISSING else defaults[name],
                annotation=hints[name],
            )
            for name in names
        ]
        first = next(iter(inspect.signature(run).parameters.values()))
        run.__name__ = command.__name__
        run.__doc__ = command.__doc__
        vars(run)["__signature__"] = inspect.Signature([first, *own])
        return run

    return decorate


def _option(name: str) -> inspect.Parameter:
    option = typer.Option(
        None, flag_of(name), metavar=metavar(name), help=help_text(name), show_default=False
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=str | None
    )


def metavar(name: str) -> str:
    extra = Settings.model_fields[name].json_schema_extra
    return str(extra["metavar"]) if isinstance(extra, dict) else "TEXT"


def help_text(name: str) -> str:
    """Description, default and environment variables."""
    default = default_text(name)
    parts = [
        str(Settings.model_fields[name].description),
        f"Default: {default}." if default else "",
        f"Environment: {', '.join(variables(name))}.",
    ]
    return " ".join(filter(None, parts))


def default_text(name: str) -> str:
    """The default as it would be given; empty where nothing is the default."""
    default = Settings.model_fields[name].default
    match default:
        case None | () | "":
            return ""
        case bool():
            return str(default).lower()
        case float():
            return f"{default:g}"
        case _:
            return str(default)


def variables(name: str) -> tuple[str, ...]:
    """Environment variables that give the setting, the strongest first."""
    return (variable_of(name), *filter(None, [DOWNWARD_API.get(name)]))

"""Where settings come from, and what to say about those that are wrong."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from dra_driver.errors import SettingsError
from dra_driver.settings.model import ENV_PREFIX, Settings

DOWNWARD_API: Mapping[str, str] = {"node_name": "NODE_NAME", "pod_uid": "POD_UID"}
"""Settings that a variable without the prefix may give too, as charts name them."""

_NOT_SETTINGS = frozenset(
    {"GPUSLICE_CACHE_DIR", "GPUSLICE_COMPUTE_PERCENT", "GPUSLICE_GPU_UUID", "GPUSLICE_MEMORY_MIB"}
)
"""Variables of development scripts and of containers that hold a share."""

_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)\w*)?)$")
"""What the kubelet adds to every container for a Service whose name starts with "gpuslice"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What has to hold beyond the form of single settings.

    Attributes:
        settings: names of the fields that it is about; where one is malformed it is left out.
        run: raises SettingsError where it does not hold.
    """

    settings: tuple[str, ...]
    run: Callable[[Settings], object]


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    return ENV_PREFIX + name.upper()


def load(
    flags: Mapping[str, str], *, required: Collection[str] = (), checks: Collection[Check] = ()
) -> Settings:
    """Merge flags, `os.environ`, the file of `config` and the defaults.

    Args:
        flags: by field name; only those that were given.
        required: fields that have to come from somewhere.
        checks: what has to hold beyond.

    Raises:
        SettingsError: one line for each problem: the setting, its value and the way out.
    """
    path = flags.get("config") or os.environ.get(variable_of("config"), "")
    content, problems = _read_file(Path(path), flags) if path else ({}, [])
    problems = _unknown_variables() + problems
    given = {*flags, *content, *(name for name in Settings.model_fields if _variables(name))}
    problems += [_missing(name) for name in required if name not in given]
    malformed: set[str] = set()
    try:
        settings = _layered(content)(**cast("dict[str, Any]", flags))
    except ValidationError as error:
        problems += [_sentence(each, flags, path) for each in error.errors()]
        malformed = {str(each["loc"][0]) for each in error.errors()}
        rest = {name: text for name, text in flags.items() if name not in malformed}
        settings = _layered(content, without=malformed)(**cast("dict[str, Any]", rest))
    # What a file would have said that cannot be read is not known.
    if content or not path or not problems:
        problems += _failures(checks, settings, malformed)
    if problems:
        raise SettingsError("\n".join(problems))
    return settings


def _failures(
    checks: Collection[Check], settings: Settings, malformed: Collection[str]
) -> Iterator[str]:
    for check in checks:
        if not set(check.settings).intersection(malformed):
            try:
                check.run(settings)
            except SettingsError as error:
                yield str(error)


def _layered(content: Mapping[str, Any], *, without: Collection[str] = ()) -> type[Settings]:
    def rest(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in without}

    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings
            downward = {
                name: os.environ[variable]
                for name, variable in DOWNWARD_API.items()
                if variable in os.environ
            }
            return (
                init_settings,
                InitSettingsSource(settings_cls, init_kwargs=rest(env_settings())),
                InitSettingsSource(settings_cls, init_kwargs=rest(downward)),
                InitSettingsSource(settings_cls, init_kwargs=rest(content)),
            )

    return Layered


def _read_file(path: Path, flags: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Values by field name (null is not given), and problems."""
    where = f"{_origin('config', flags, '')} {path}"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        return {}, [f"{where} cannot be read: {error}; give a readable YAML file"]
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError) as error:
        # The last three are PyYAML's for values that do not fit their tag, as a date of month 99.
        return {}, [f"{where} is not YAML: {' '.join(str(error).split())}"]
    if content is None:
        return {}, []
    if not isinstance(content, dict):
        return {}, [f"{where} holds no settings: write lines such as 'node-name: node-a'"]
    fields = {flag_of(name)[2:]: name for name in Settings.model_fields if name != "config"}
    problems = [
        f"{path}: unknown key '{key}'{_suggestion(str(key), fields)}; keys are the names of flags "
        "without their leading dashes, see gpuslice plugin --help"
        for key in content
        if key not in fields
    ]
    known = {fields[key]: value for key, value in content.items() if key in fields}
    return {name: value for name, value in known.items() if value is not None}, problems


def _unknown_variables() -> list[str]:
    known = {variable_of(name) for name in Settings.model_fields}
    given = {name for name in os.environ if name.startswith(ENV_PREFIX)}
    return [
        f"unknown variable {name}{_suggestion(name, known)}; unset it, the variables are listed by "
        "gpuslice plugin --help"
        for name in sorted(given - known - _NOT_SETTINGS)
        if not _SERVICE_LINK.search(name)
    ]


def _suggestion(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return f" (did you mean {close[0]}?)" if close else ""


def _sentence(error: ErrorDetails, flags: Mapping[str, str], path: str) -> str:
    name = str(error["loc"][0])
    cause = error.get("ctx", {}).get("error")
    return f"{_origin(name, flags, path)} is {error['input']!r}: {cause or error['msg']}"


def _origin(name: str, flags: Mapping[str, str], path: str) -> str:
    """The setting, spelled as in the source that it came from."""
    if name in flags:
        return flag_of(name)
    if variables := _variables(name):
        return variables[0]
    return f"{path}: {flag_of(name)[2:]}"


def _variables(name: str) -> list[str]:
    """The variables that are set and give this setting, the strongest first."""
    names = [variable_of(name), *filter(None, [DOWNWARD_API.get(name)])]
    return [variable for variable in names if variable in os.environ]


def _missing(name: str) -> str:
    variables = [variable_of(name), *filter(None, [DOWNWARD_API.get(name)])]
    return (
        f"{flag_of(name)} is not set: give the flag, {' or '.join(variables)}, or "
        f"{flag_of(name)[2:]} in the file of --config"
    )

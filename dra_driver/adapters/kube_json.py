"""JSON objects of an API server, as they are: users wrote parts of them."""

from __future__ import annotations

import json
from typing import Any

from dra_driver.adapters.kube_errors import status_object
from dra_driver.errors import AdapterError
from dra_driver.ports import Json


def parse(data: bytes, *, what: str, kind: str = "") -> Json:
    """The JSON object that an answer is.

    Args:
        data: content of the answer.
        what: the request, for people.
        kind: that it must have; empty: any.

    Raises:
        AdapterError: it is none; permanent where only its author can change that.
    """
    answer = _loaded(data, what=what)
    if not isinstance(answer, dict):
        raise AdapterError(f"{what}: the answer is no JSON object")
    if kind and answer.get("kind") not in {kind, None}:
        message = status_object(data).get("message", "")
        raise AdapterError(
            f"{what}: the answer is a {answer.get('kind')} instead of a {kind}: {message}"
        )
    return answer


def _loaded(data: bytes, *, what: str) -> Any:
    try:
        # The hook takes longer than all else here. What the server writes itself has each field
        # once; only parameters it keeps as they came.
        hook = _each_once if b'"parameters"' in data else None
        return json.loads(data, object_pairs_hook=hook)
    except _TwiceError as error:
        # Nobody can tell what a field that stands there twice is meant to be.
        raise AdapterError(
            f"{what}: field {error} stands twice in one object: write it once, such as in a "
            "claim's opaque parameters",
            permanent=True,
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise AdapterError(
            f"{what}: the answer is no JSON: {data[:80]!r}; check that the address is an API "
            "server's and what stands in between"
        ) from error
    except (ValueError, RecursionError) as error:
        # Parameters of a claim are its user's, and the server keeps whatever is JSON.
        raise AdapterError(
            f"{what}: the answer has numbers too long or lists too deep to be read ({error}); "
            "take them out of the object, such as out of a claim's opaque parameters",
            permanent=True,
        ) from error


class _TwiceError(Exception):
    """A JSON object has a name twice; the text is the name."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return found

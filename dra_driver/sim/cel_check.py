"""What an expression may use, looked at before it is evaluated.

The API server compiles an expression with types and refuses one that names what is not there.
cel-python finds that out where it gets to, which `true || nonsense` never does; and it takes any
error within `has` for an absence.
"""

from __future__ import annotations

from collections.abc import Iterator

from lark import Token, Tree

from dra_driver.sim.cel_values import FUNCTIONS, METHODS

Node = Tree[Token]

_ROOT = "device"
_MAPS = frozenset({"attributes", "capacity"})
_FIELDS = _MAPS | {"driver", "allowMultipleAllocations"}
_FUNCTIONS = frozenset(FUNCTIONS) | {"has", "size", "int", "double", "string", "bool", "dyn"}
_MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
_METHODS = frozenset(METHODS) | {"contains", "startsWith", "endsWith", "matches", "size"}


def problem(tree: Node) -> str:
    """The first thing that makes an expression one that cannot be evaluated here; or ""."""
    return next(_problems(tree, frozenset()), "")


def _problems(tree: Node, bound: frozenset[str]) -> Iterator[str]:
    if tree.data == "member_dot_arg" and str(tree.children[1]) in _MACROS:
        bound = bound | {_variable(tree.children[2])}
    yield from _own_problems(tree, bound)
    for child in tree.children:
        if isinstance(child, Tree):
            yield from _problems(child, bound)


def _own_problems(tree: Node, bound: frozenset[str]) -> Iterator[str]:
    children = tree.children
    match str(tree.data):
        case "ident":
            yield from _known("name", str(children[0]), bound | {_ROOT})
        case "ident_arg":
            yield from _known("function", str(children[0]), _FUNCTIONS)
            if str(children[0]) == "has" and not _is_lookup(children[1]):
                yield 'has() is known of device.attributes["…"].x and device.capacity["…"].x only'
        case "member_dot_arg":
            yield from _known("function", str(children[1]), _METHODS | _MACROS)
        case "member_dot" if _is_root(children[0]):
            yield from _known("field of device", str(children[1]), _FIELDS)
        case "member_index" if _is_root(children[0]):
            yield "device is no map"
        case "dot_ident" | "dot_ident_arg" | "member_object":
            yield f"{tree.data} is not evaluated here"
        case _:
            pass


def _known(what: str, name: str, names: frozenset[str]) -> Iterator[str]:
    if name not in names:
        yield f"there is no {what} {name!r}"


def _is_root(node: object) -> bool:
    leaf = _only(node)
    return isinstance(leaf, Tree) and leaf.data == "ident" and leaf.children == [_ROOT]


def _is_lookup(arguments: object) -> bool:
    """Whether it is one field of one domain of one of the device's maps."""
    field = _only(arguments)
    if not isinstance(field, Tree) or field.data != "member_dot":
        return False
    domain = _only(field.children[0])
    if not isinstance(domain, Tree) or domain.data != "member_index":
        return False
    of_device = _only(domain.children[0])
    return (
        isinstance(of_device, Tree)
        and of_device.data == "member_dot"
        and _is_root(of_device.children[0])
        and str(of_device.children[1]) in _MAPS
    )


def _variable(arguments: object) -> str:
    first = arguments.children[0] if isinstance(arguments, Tree) else None
    leaf = _only(first)
    return str(leaf.children[0]) if isinstance(leaf, Tree) and leaf.data == "ident" else ""


def _only(node: object) -> object:
    """Go down where there is one way: cel-python's tree has a node for each level of precedence."""
    passing = {"ident", "member_dot", "member_index"}
    while isinstance(node, Tree) and len(node.children) == 1 and str(node.data) not in passing:
        node = node.children[0]
    return node

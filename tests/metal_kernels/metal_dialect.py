"""What Metal's compiler would refuse, found by clang's library on any machine (PyPI: libclang).

Metal is C++14 with address spaces and without much of C++. clang knows address spaces as parts of types, so a pointer
into device memory handed to a function that takes one into threadgroup memory is an error here as it is there. The
rest is looked up in the syntax tree: double precision, recursion, pointers without an address space, variables at file
scope outside the constant space, and whatever needs a run-time library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HEADER = Path(__file__).parent / "metal_spaces.h"
# C++14, as Metal 3.1 (macOS 14) is; what MLX writes as attributes is not C++'s.
FLAGS = ["-x", "c++", "-std=c++14", "-pedantic-errors", "-nostdinc", "-fno-exceptions", "-fno-rtti", "-fno-builtin",
         "-Wall", "-Wvla", "-Wno-unknown-attributes", "-Wno-unused", "-Wno-gnu-anonymous-struct"]  # fmt: skip
SHARED_BYTES = 32 * 1024  # of threadgroup memory on every Apple GPU
SPACES = {"device": 1, "constant": 2, "threadgroup": 3}  # as in metal_spaces.h
_FUNCTION = re.compile(r"(?:template <(?P<parameters>[^>]*)>\s*)?\[\[kernel\]\] void (?P<name>\w+)\(")
_INSTANCE = re.compile(r"^template \[\[host_name.*?decltype\(\w+<(?P<values>[^>]*)>\).*$", re.M)


_ATTRIBUTES = re.compile(r"^template \[\[host_name.*?\[\[kernel\]\]", re.M)  # where only Metal's compiler takes them


@dataclass(frozen=True)
class Looked:
    """What was found wrong, and what one threadgroup takes."""

    faults: list[str]
    shared_bytes: int
    buffers: int


def refusals(generated: str) -> list[str]:
    """clang's words on a source as MLX generates it, template instantiated."""
    return _diagnostics(_parse(_ATTRIBUTES.sub("template", generated)))


def look(generated: str) -> Looked:
    """The syntax tree, with template values put in by hand so that every type and size is a number."""
    unit = _parse(concrete(generated))
    own = [n for n in unit.cursor.get_children() if n.location.file and n.location.file.name == "kernel.cpp"]
    nodes = [n for top in own for n in (top, *_walk(top))]
    faults = _diagnostics(unit) + [f"line {n.location.line}: {fault}" for n in nodes for fault in _faults(n)]
    variables = [n for n in nodes if n.kind.name == "VAR_DECL" and _space(n.type) == SPACES["threadgroup"]]
    arguments = [n for n in own[-1].get_children() if n.kind.name == "PARM_DECL" and _kind(n.type) == "POINTER"]
    return Looked(faults + _recursions(nodes), sum(n.type.get_size() for n in variables), len(arguments))


def concrete(generated: str) -> str:
    instance, function = _INSTANCE.search(generated), _FUNCTION.search(generated)
    assert function, "no kernel in this source"
    values = [v.strip() for v in instance["values"].split(",")] if instance else []
    names = [p.split() for p in (function["parameters"] or "").split(",") if p]
    given = [
        f"using {name} = {value};" if kind == "typename" else f"constexpr {kind} {name} = {value};"
        for (kind, name), value in zip(names, values, strict=True)
    ]
    start = f"namespace given {{ {' '.join(given)} }} void {function['name']}("
    body = generated[function.end() : instance.start() if instance else None]
    body = body.replace(") {", ") { using namespace given;", 1)
    return generated[: function.start()] + start + re.sub(r"\s*\[\[\w+(\(\d+\))?\]\]", "", body)


def _parse(source: str) -> Any:
    code = f'#include "{HEADER.name}"\n{source}'
    return _index().parse("kernel.cpp", [*FLAGS, f"-I{HEADER.parent}"], unsaved_files=[("kernel.cpp", code)])


@cache
def _index() -> Any:
    from clang import cindex

    return cindex.Index.create()


def _diagnostics(unit: Any) -> list[str]:
    return [f"line {d.location.line}: {d.spelling}" for d in unit.diagnostics if d.severity >= 2]


def _walk(node: Any) -> Iterator[Any]:
    for child in node.get_children():
        yield child
        yield from _walk(child)


def _faults(node: Any) -> Iterator[str]:
    kind, spelled = node.kind.name, _kind(node.type.get_canonical())
    if spelled in ("DOUBLE", "LONGDOUBLE", "FLOAT128"):
        yield f"double precision in `{node.spelling or kind}`"
    if kind in ("LAMBDA_EXPR", "CXX_NEW_EXPR", "CXX_DELETE_EXPR", "CXX_THROW_EXPR", "CXX_TRY_STMT", "GOTO_STMT",
                "CXX_TYPEID_EXPR", "CXX_DYNAMIC_CAST_EXPR", "ASM_STMT", "CONVERSION_FUNCTION"):  # fmt: skip
        yield f"{kind.lower()} is not in Metal"
    if kind in ("PARM_DECL", "VAR_DECL", "FIELD_DECL"):
        if spelled in ("POINTER", "LVALUEREFERENCE") and not _says_its_space(node):
            yield f"`{node.spelling}` points without an address space"
        at_file_scope = node.semantic_parent.kind.name in ("TRANSLATION_UNIT", "NAMESPACE")
        constant = _space(node.type) == SPACES["constant"] or node.semantic_parent.spelling == "given"
        if kind == "VAR_DECL" and at_file_scope and not constant:
            yield f"`{node.spelling}` at file scope is not in the constant address space"
        if kind == "VAR_DECL" and node.storage_class.name == "STATIC" and not _space(node.type):
            yield f"`{node.spelling}` is static"
    if kind == "CXX_METHOD" and node.is_virtual_method():
        yield f"`{node.spelling}` is virtual"


def _kind(of: Any) -> str:
    """The kind of a type; empty for half, which the library's Python side has no name for."""
    try:
        return of.kind.name
    except ValueError:
        return ""


def _space(kind: Any) -> int:
    while _kind(kind) in ("CONSTANTARRAY", "INCOMPLETEARRAY", "DEPENDENTSIZEDARRAY"):
        kind = kind.element_type
    return kind.get_address_space()


def _says_its_space(node: Any) -> bool:
    """`thread` is clang's own space, so it is told by an annotation (metal_spaces.h)."""
    said = any(child.kind.name == "ANNOTATE_ATTR" for child in node.get_children())
    return said or _space(node.type.get_canonical().get_pointee()) > 0


def _recursions(nodes: list[Any]) -> list[str]:
    """Functions that reach themselves."""
    calls: dict[str, set[str]] = {}
    for node in nodes:
        if node.kind.name in ("FUNCTION_DECL", "CXX_METHOD", "FUNCTION_TEMPLATE"):
            inside = [n.referenced for n in _walk(node) if n.kind.name == "CALL_EXPR" and n.referenced]
            calls.setdefault(node.get_usr(), set()).update(n.get_usr() for n in inside)
    reached = {name: set(of) for name, of in calls.items()}
    for _ in calls:
        for of in reached.values():
            of |= set().union(*(reached.get(name, set()) for name in of))
    return [f"`{name}` calls itself" for name, of in reached.items() if name in of]

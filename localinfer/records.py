"""`dataclass`, `field` and `replace` as the standard library has them, for modules that must be imported quickly.

The standard library compiles up to six methods for every class: 1 ms a class, and `fit` imports fifty of them. Here the
methods that only read fields are shared by all classes, and `__init__` is compiled when the first instance is made.
`dataclasses.fields`, `asdict`, `is_dataclass` and pickling work as ever; type checkers see the library's own names.
Known: `frozen`, `eq`, `default_factory`, `__post_init__`, inheritance. Imports nothing of ours.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True):
        """As `dataclasses.dataclass`, with these two options."""
        return _with_methods(cls, frozen, eq) if cls else lambda cls: _with_methods(cls, frozen, eq)

    def field(*, default_factory):
        """As `dataclasses.field`, for values that are made anew for each instance."""
        return _Factory(default_factory)

    def replace(instance, /, **changes):
        """A copy with some fields changed. TypeError for a name that is no field."""
        values = {name: getattr(instance, name) for name in instance._record_defaults}
        return type(instance)(**(values | changes))


__all__ = ["dataclass", "field", "replace"]

_REQUIRED = object()
_set = object.__setattr__


class _Factory:
    """The default of a field that has a default_factory."""

    def __init__(self, make: Any) -> None:
        self.make = make


class _StandardLibrary:
    """What the module `dataclasses` looks for in a class; made when it looks, which is seldom."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: Any) -> Any:
        import dataclasses as library

        columns = []
        for name, default in owner._record_defaults.items():
            if isinstance(default, _Factory):
                how = library.field(default_factory=default.make)
            else:
                how = library.field() if default is _REQUIRED else library.field(default=default)
            columns.append((name, owner.__annotations__.get(name, Any), how))
        made = library.make_dataclass(owner.__name__, columns, frozen=owner._record_frozen)
        setattr(owner, self.name, getattr(made, self.name))
        return getattr(owner, self.name)


class _Methods:
    """Shared by all classes: copied into each as if it had been written there."""

    __dataclass_fields__ = _StandardLibrary()
    __dataclass_params__ = _StandardLibrary()

    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._record_defaults)
        return f"{type(self).__qualname__}({shown})"

    def __eq__(self: Any, other: Any) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self is other or self._record_values(self) == self._record_values(other)

    def __hash__(self: Any) -> int:
        return hash(self._record_values(self))

    def __setattr__(self, name: str, value: object) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __replace__(self, /, **changes: Any) -> Any:
        return replace(self, **changes)  # type: ignore[type-var]


_ALWAYS = ("__dataclass_fields__", "__dataclass_params__", "__repr__", "__replace__")
_EQ = ("__eq__", "__hash__")
_FROZEN = ("__setattr__", "__delattr__")


def _with_methods(cls: Any, frozen: bool, eq: bool) -> Any:
    defaults: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        defaults |= base.__dict__.get("_record_defaults", {})
    for name in cls.__annotations__:
        defaults[name] = cls.__dict__.get(name, _REQUIRED)
        if isinstance(defaults[name], _Factory):
            delattr(cls, name)
    cls._record_defaults, cls._record_frozen = defaults, frozen
    cls._record_values = staticmethod(attrgetter(*defaults) if defaults else lambda instance: ())
    setattr(cls, "__match_args__", tuple(defaults))  # noqa: B010  (mypy takes the assignment for a mistake)
    names = [*_ALWAYS, *(_EQ if eq else ()), *(_FROZEN if frozen else ())]
    own = {name: _Methods.__dict__[name] for name in names if name not in cls.__dict__}
    if "__eq__" in own and not frozen:
        own["__hash__"] = None
    for name, value in own.items():
        setattr(cls, name, value)
    cls.__doc__ = cls.__doc__ or f"{cls.__name__}({', '.join(defaults)})"
    if "__init__" not in cls.__dict__:
        cls.__init__ = _first_init(cls)
    return cls


def _first_init(cls: Any) -> Any:
    """An `__init__` that replaces itself by a compiled one."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _compiled_init(cls)
        cls.__init__(self, *args, **kwargs)

    return __init__


def _compiled_init(cls: Any) -> Any:
    """`def __init__(self, a, b=..., c=...)`: assigns every field, then calls `__post_init__` where there is one."""
    parameters, lines = ["self"], []
    values: dict[str, Any] = {"_set": _set}
    for name, default in cls._record_defaults.items():
        made = isinstance(default, _Factory)
        parameters.append(name if default is _REQUIRED else f"{name}=_default_{name}")
        value = f"_make_{name}() if {name} is _default_{name} else {name}" if made else name
        lines.append(f"_set(self, {name!r}, {value})")
        values |= {f"_default_{name}": default, f"_make_{name}": default.make if made else None}
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    source = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"])
    exec(source, values)
    init = values["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init

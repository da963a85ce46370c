"""The array library, dtype and device of the caller's arguments, inferred and never set.

`resolve` is called once at each public edge. It turns what the caller brought (arrays of NumPy,
PyTorch, JAX or CuPy, nested lists, data frames) into arrays of one library on one device with one
floating dtype, and refuses a mixture with an error that says which argument came from where.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import array_api_compat
import numpy as np

from latensor.exceptions import InvalidInputError

Array: TypeAlias = Any
Namespace: TypeAlias = Any

# What a contraction can be computed in; anything else is refused, or converted if it is integer.
COMPUTABLE = ("float32", "float64", "complex64", "complex128")


def is_array(value: object) -> bool:
    """Whether `value` is an array of a known library (a list or a data frame is not)."""
    return bool(array_api_compat.is_array_api_obj(value)) and not _is_foreign(value)


def _is_foreign(value: object) -> bool:
    # PyData sparse and Dask follow the standard in name, but have no dense contraction of ours.
    return type(value).__module__.split(".")[0] in {"sparse", "dask", "ndonnx", "scipy"}


def is_traced(value: Array) -> bool:
    """Whether `value` stands for numbers not known yet (inside `jax.jit`, `grad` or `vmap`)."""
    core = sys.modules.get("jax.core")
    return core is not None and isinstance(value, core.Tracer)


def is_numpy(value: object) -> bool:
    """Whether `value` is a NumPy array."""
    return isinstance(value, np.ndarray | np.generic)


def library_name(value: Array) -> str:
    """The name of the library that made an array: numpy, torch, jax, cupy."""
    if is_numpy(value):
        return "numpy"
    name = str(array_api_compat.array_namespace(value).__name__)
    return name.removeprefix("array_api_compat.").split(".")[0]


def describe(value: Array) -> str:
    """An array in a few words for an error message: library, device, dtype and shape."""
    name = library_name(value)
    where = "" if name == "numpy" else f" on {array_api_compat.device(value)}"
    dtype = str(value.dtype).removeprefix(f"{name}.")
    return f"{name}{where}, {dtype}, shape {tuple(value.shape)}"


def as_array(value: object, name: str) -> Array:
    """One argument as an array of its own library; lists and frames become NumPy arrays.

    Parameters
    ----------
    value : array of any library, nested lists, or an object with `__array__` (a data frame)
    name : str, what error messages call the argument
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidInputError(
            f"{name} is a masked array, whose mask would be ignored here: give its .filled() "
            "values, and the mask where the function has an argument for it"
        )
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)  # memory maps and other subclasses as plain arrays
    if is_array(value):
        return value
    if _is_foreign(value):
        kind = f"{type(value).__module__.split('.')[0]}.{type(value).__name__}"
        raise InvalidInputError(
            f"{name} is a {kind}: a dense array is needed here; "
            "wrap sparse data with lt.SparseTensor.from_scipy or lt.SparseTensor.from_coo"
        )
    if value is None or isinstance(value, str | bytes | dict | set):
        raise InvalidInputError(f"{name} must be an array, not {type(value).__name__}")
    if isinstance(value, list | tuple):
        return _stacked(value, name)
    return _as_numpy(value, name)


def read_numpy(value: object, name: str) -> Any:
    """Lists, a frame or whatever has `__array__` as a NumPy array, of objects too."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInputError(f"{name} cannot be read as an array: {error}") from error


def _as_numpy(value: object, name: str) -> Any:
    array = read_numpy(value, name)
    if array.dtype == object:
        raise InvalidInputError(
            f"{name} is a {type(value).__name__} of Python objects, not of numbers: "
            "give rows of equal length and numeric entries"
        )
    return array


def _stacked(items: list[Any] | tuple[Any, ...], name: str) -> Array:
    """A list of numbers, lists or arrays as one array, of the library of the arrays in it."""
    others = [item for item in items if is_array(item) and not is_numpy(item)]
    if not others:
        return _as_numpy(items, name)
    if len(others) < len(items) or len({library_name(item) for item in items}) > 1:
        raise InvalidInputError(f"{name} is a list that mixes arrays of several libraries")
    if len({tuple(item.shape) for item in items}) > 1:
        raise InvalidInputError(f"{name} is a list of arrays of unequal shapes")
    return array_api_compat.array_namespace(*items).stack(list(items))


def _as_floating(array: Array, name: str, xp: Namespace) -> Array:
    """`array` in a floating dtype; integers and booleans become the library's default float."""
    if isinstance(array, np.ndarray) and array.dtype.char in "fdFD" and array.dtype.isnative:
        return array  # without spelling out the dtype, which costs more than all the rest
    spelled = str(array.dtype).removeprefix("torch.")
    if is_numpy(array) and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if str(array.dtype).removeprefix("torch.") in COMPUTABLE:
        return array
    if is_numpy(array):
        integral = array.dtype.kind in "biu"
    else:
        integral = bool(xp.isdtype(array.dtype, ("integral", "bool")))
    if not integral:
        numeric = not is_numpy(array) or array.dtype.kind in "fc"
        fault = "in which contractions are not computed" if numeric else "not numbers"
        raise InvalidInputError(
            f"{name} has dtype {spelled}, {fault}: "
            f"convert it to {', '.join(COMPUTABLE[:-1])} or {COMPUTABLE[-1]}"
        )
    return xp.astype(array, xp.zeros(()).dtype)


def resolve(**arguments: object) -> tuple[Namespace, dict[str, Array]]:
    """The one library of all arguments, and the arguments as floating arrays of it.

    Parameters
    ----------
    **arguments : the caller's arrays under the names that the caller knows; None passes through.
        An object given under several names is converted once and stays one object.

    Returns
    -------
    xp : the array namespace
    arrays : dict with the keys of `arguments`, of one library, device and precision. Where dtypes
        differ they are promoted (float32 with float64 gives float64). Lists of plain numbers
        follow the arrays beside them in library, device and precision.

    Raises
    ------
    InvalidInputError, for objects that are not numbers, or a mixture of libraries or devices.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    if not given:
        raise InvalidInputError(f"no array given: {', '.join(arguments)} must hold at least one")
    distinct = {id(value): name for name, value in reversed(given.items())}
    flat = {name: as_array(given[name], name) for name in given if name in distinct.values()}
    strong = {name: array for name, array in flat.items() if not _is_plain(given[name])}
    _refuse_mixture(strong)
    first = next(iter((strong or flat).values()))
    xp: Namespace = array_api_compat.array_namespace(first)
    for name in flat.keys() - strong.keys():
        flat[name] = _adopted(flat[name], name, xp, first if strong else None)
    flat = {name: _as_floating(array, name, xp) for name, array in flat.items()}
    flat = _promote(flat, xp)
    arrays = {
        name: None if value is None else flat[distinct[id(value)]]
        for name, value in arguments.items()
    }
    return xp, arrays


def _is_plain(value: object) -> bool:
    """Whether a value is made of Python's own numbers, which have no library and no precision."""
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return isinstance(value, int | float | complex) and not isinstance(value, np.generic)


def _adopted(values: Any, name: str, xp: Namespace, reference: Array | None) -> Array:
    """Plain numbers in the library and, unless complex, the precision of the arrays beside them."""
    if reference is None or values.dtype.kind not in "biufc":
        return values
    if str(reference.dtype).removeprefix("torch.") not in COMPUTABLE:
        return xp.asarray(values)
    if is_traced(reference):
        return xp.asarray(values, dtype=reference.dtype)
    return like(values if values.dtype.kind == "c" else values.astype(np.float64), reference)


def _refuse_mixture(flat: dict[str, Array]) -> None:
    if not flat:
        return
    first_name, first = next(iter(flat.items()))
    library = library_name(first)
    device = array_api_compat.device(first)
    for name, array in flat.items():
        if library_name(array) != library:
            listing = "; ".join(f"{key}: {describe(value)}" for key, value in flat.items())
            raise InvalidInputError(
                f"{first_name} is a {library} array but {name} is a {library_name(array)} array "
                f"({listing}): give all arguments in one library"
            )
        if is_traced(array) or is_traced(first):
            continue
        if array_api_compat.device(array) != device:
            raise InvalidInputError(
                f"{first_name} is on {device} but {name} is on {array_api_compat.device(array)}: "
                "move all arguments to one device"
            )


def _promote(flat: dict[str, Array], xp: Namespace) -> dict[str, Array]:
    dtypes = [array.dtype for array in flat.values()]
    if all(dtype == dtypes[0] for dtype in dtypes):
        return flat
    common = xp.result_type(*dtypes)
    return {
        name: array if array.dtype == common else xp.astype(array, common)
        for name, array in flat.items()
    }


def matmul(xp: Namespace, left: Array, right: Array) -> Array:
    """The matrix product in the wider of two dtypes, which PyTorch does not choose by itself."""
    if left.dtype != right.dtype:
        wide = xp.result_type(left.dtype, right.dtype)
        left, right = xp.astype(left, wide), xp.astype(right, wide)
    return xp.matmul(left, right)


def is_complex(array: Array) -> bool:
    """Whether an array has a complex dtype."""
    return bool(array_api_compat.array_namespace(array).isdtype(array.dtype, "complex floating"))


def real_dtype(array: Array) -> Any:
    """The dtype of the absolute value of an array's entries."""
    xp = array_api_compat.array_namespace(array)
    if not is_complex(array):
        return array.dtype
    return xp.zeros((), dtype=xp.float32 if array.dtype == xp.complex64 else xp.float64).dtype


def machine_epsilon(array: Array) -> float:
    """The relative spacing of the numbers in an array, from which tolerances derive."""
    xp = array_api_compat.array_namespace(array)
    return float(xp.finfo(real_dtype(array)).eps)


def to_host(array: Array) -> Any:
    """A NumPy copy or view of an array of any library, detached from any gradient."""
    if is_numpy(array):
        return np.asarray(array)
    if library_name(array) == "torch":
        refuse_meta(array)
        return array.detach().cpu().resolve_conj().resolve_neg().numpy()
    if library_name(array) == "cupy":
        return array.get()
    return np.asarray(array)


def refuse_meta(array: Array, name: str = "an array") -> None:
    """Refuse an array of PyTorch's device "meta", which has a shape and no entries."""
    if getattr(getattr(array, "device", None), "type", None) == "meta":
        raise InvalidInputError(
            f'{name} of shape {tuple(array.shape)} is on the device "meta", which holds no '
            "entries: make it on a device that does"
        )


def like(values: Any, reference: Array) -> Array:
    """Host `values` as an array of the library, device and precision of `reference`.

    A complex array stays complex where `reference` is real, with its precision.
    """
    xp = array_api_compat.array_namespace(reference)
    host = np.asarray(values)
    if host.dtype.kind == "c" and not is_complex(reference):
        wide = xp.complex64 if reference.dtype == xp.float32 else xp.complex128
        return xp.asarray(host, dtype=wide, device=array_api_compat.device(reference))
    if host.dtype.kind in "iub":
        return xp.asarray(host, device=array_api_compat.device(reference))
    return xp.asarray(host, dtype=reference.dtype, device=array_api_compat.device(reference))

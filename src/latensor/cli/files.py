"""Tensors from the files that people have: .npy, .npz, .tns, .tns.gz and images."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import latensor as lt
from latensor.array_files import ArrayArchive, damage_explained, is_archive, read_npy
from latensor.decomposition.mode_labels import ModeLabels, vector_labels
from latensor.exceptions import InvalidInputError
from latensor.tensors.size import MAX_SIZE

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
_KNOWN = ".npy, .npz, .tns, .tns.gz or an image (.png, .jpg, .bmp, .gif, .tif, .webp)"
_TABLES = (".csv", ".tsv", ".parquet")
# Modes of Pillow whose pixels are single numbers, of 8, 16 or 32 bits.
_GREY = ("L", "I", "F", "I;16", "I;16B", "I;16L", "I;16N")


@dataclass(frozen=True)
class Input:
    """A tensor from a file.

    Attributes
    ----------
    tensor : array or SparseTensor
    mask : array or SparseTensor of what was observed, or None if everything was
    path : Path
    array : str or None, its name in an .npz file
    is_image : bool
    labels : what the vectors of an .npz file call the modes and their indices, or None
    """

    tensor: Any
    mask: Any
    path: Path
    array: str | None
    is_image: bool
    labels: tuple[ModeLabels, ...] | None = None

    def __post_init__(self) -> None:
        if not self.is_sparse or (size := max(self.shape)) <= max(MAX_SIZE, 2 * self.tensor.nnz):
            return
        # The factors of a few lines would fill any memory.
        raise InvalidInputError(
            f"{self.path}: mode {self.shape.index(size)} has {size:,} indices, at most "
            f"{self.tensor.nnz:,} of which have nonzeros: number those that do without gaps"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimension of every mode."""
        return tuple(int(d) for d in self.tensor.shape)

    @property
    def is_sparse(self) -> bool:
        """Whether the tensor is known by its nonzero entries."""
        return isinstance(self.tensor, lt.SparseTensor)

    @property
    def description(self) -> str:
        """What was read, in a line."""
        shape = " x ".join(str(d) for d in self.shape)
        name = str(self.path) if self.array is None else f"{self.path}, array {self.array}"
        content = f"{self.tensor.nnz:,} nonzeros" if self.is_sparse else str(self.tensor.dtype)
        text = f"{name}: {shape}, {content}"
        if self.mask is not None:
            seen = int(self.mask.nnz if self.is_sparse else np.count_nonzero(self.mask))
            text += f", {100 * seen / prod(self.shape):.4g} % observed"
        return text


def read_input(
    path: Path, array: str | None = None, mask: str | None = None, missing: str | None = None
) -> Input:
    """A tensor and its mask from files.

    Parameters
    ----------
    path : file whose ending names its format
    array : name of the tensor in an .npz file; None takes the only array of largest order
    mask : name of an array in the same .npz file, or of another file; True where observed
    missing : the same, True where missing; or "nan" for the entries that are not a number

    Raises
    ------
    InvalidInputError, OSError
    """
    if mask is not None and missing is not None:
        raise InvalidInputError("--mask and --missing say the same in two ways: give one of them")
    kind = _kind(path)
    if array is not None and kind != ".npz":
        raise InvalidInputError(f"--array={array} needs an .npz file, {path} holds one array only")
    labels = None
    if kind == ".tns":
        tensor: Any = lt.read_tns(path)
    elif kind == ".npz":
        tensor, array, labels = _from_archive(path, array, leave_out=mask or missing)
    elif kind == ".npy":
        if is_archive(path):
            raise InvalidInputError(f"{path} holds an archive of arrays: name it .npz")
        tensor = read_npy(path)
    else:
        tensor = _from_image(path)
    if not isinstance(tensor, lt.SparseTensor):
        tensor = _checked(tensor, f"{path}" if array is None else f"array {array} of {path}")
    observed = None
    if mask is not None or missing is not None:
        observed = _read_mask(path, kind, mask or missing or "", tensor, mask is None)
    return Input(tensor, observed, path, array, kind == "image", labels)


def _kind(path: Path) -> str:
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder: expected a file")
    name = path.name.lower()
    if name.endswith((".tns", ".tns.gz")):
        return ".tns"
    if path.suffix.lower() in (".npy", ".npz"):
        return path.suffix.lower()
    if path.suffix.lower() in IMAGES:
        return "image"
    told = ""
    if path.suffix.lower() in _TABLES:
        told = "; tables are for latensor fit, lines of coordinates and a value (i j k x) are .tns"
    raise InvalidInputError(f"{path}: unknown kind of file, expected {_KNOWN}{told}")


def _checked(array: Any, name: str) -> Any:
    if array.dtype.kind not in "biufc":
        raise InvalidInputError(f"{name} holds {array.dtype} values: expected numbers")
    if array.ndim == 0 or 0 in array.shape:
        raise InvalidInputError(f"{name} has shape {array.shape}: expected a tensor with entries")
    return array


def _from_archive(
    path: Path, name: str | None, leave_out: str | None
) -> tuple[Any, str | None, tuple[ModeLabels, ...] | None]:
    """The tensor, its name, and the labels of its modes where it was the only one."""
    with ArrayArchive(path) as archive:
        if name is None and {"shape", "data"} < set(archive.names):
            sparse = _from_sparse_archive(path, archive)
            if sparse is not None:
                return sparse, None, None
        if name is not None:
            return _member(path, archive, name), name, None
        found = {n: archive[n] for n in archive.names if n != leave_out}
        numbers = {n: a for n, a in found.items() if a.dtype.kind in "iufc" and a.ndim > 0}
        largest = max((a.ndim for a in numbers.values()), default=0)
        chosen = [n for n, a in numbers.items() if a.ndim == largest]
        if len(chosen) == 1:
            tensor = found.pop(chosen[0])
            return tensor, chosen[0], vector_labels(tensor.shape, found)
        listed = ", ".join(f"{n} {a.shape}" for n, a in found.items())
        raise InvalidInputError(
            f"{path} holds {f'the arrays {listed}' if listed else 'no arrays'}: "
            "say which one is the tensor by --array"
        )


def _member(path: Path, archive: ArrayArchive, name: str) -> Any:
    if name not in archive.names:
        raise InvalidInputError(
            f"{path} has no array {name!r}: it holds {', '.join(archive.names) or 'none'}"
        )
    return archive[name]


def _from_sparse_archive(path: Path, archive: ArrayArchive) -> Any:
    """What `sparse.save_npz` or `scipy.sparse.save_npz` wrote, or None."""
    parts = {n: archive[n] for n in archive.names}
    with damage_explained(str(path)):
        if "format" in parts and {"indices", "row", "offsets"} & set(parts):
            from scipy.sparse import load_npz

            found = load_npz(path)
            if hasattr(found, "check_format"):
                found.check_format(full_check=True)
            return lt.SparseTensor.from_scipy(found)
        if "coords" in parts and parts["coords"].ndim == 2:
            if np.any(parts.get("fill_value", 0) != 0):
                raise InvalidInputError(f"{path} has a fill value other than zero")
            shape = tuple(parts["shape"].tolist())
            return lt.SparseTensor(parts["coords"].T, parts["data"], shape)
    return None


def _from_image(path: Path) -> Any:
    """(rows, columns) of a grey image, (rows, columns, 3) of a coloured one, 4 with opacity."""
    try:
        from PIL import Image
    except ImportError as error:
        raise InvalidInputError(
            "reading images needs Pillow: pip install 'latensor[plots]'"
        ) from error
    try:
        with Image.open(path) as image:
            opaque = not image.mode.endswith(("A", "a")) and "transparency" not in image.info
            grey = image.mode in _GREY
            wanted = "RGBA" if not opaque else "L" if image.mode == "1" else "RGB"
            pixels = np.asarray(image if grey and opaque else image.convert(wanted))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        raise InvalidInputError(f"{path} cannot be read as an image: {error}") from error
    if not opaque and bool((pixels[:, :, 3] == 255).all()):
        pixels = pixels[:, :, :3]
    return pixels


def _read_mask(path: Path, kind: str, name: str, tensor: Any, inverted: bool) -> Any:
    """The observed entries, from an array of the same archive or from a file of its own."""
    option = f"--missing={name}" if inverted else f"--mask={name}"
    sparse = isinstance(tensor, lt.SparseTensor)
    if inverted and name == "nan":
        if sparse:
            raise InvalidInputError(f"{option} needs a dense tensor: {path} stores no NaN")
        return ~np.isnan(tensor)
    observed: Any = None
    if kind == ".npz":
        with ArrayArchive(path) as archive:
            if name in archive.names:
                observed = archive[name]
    if observed is None:
        if not Path(name).is_file():
            places = f"neither an array of {path} nor a file" if kind == ".npz" else "not a file"
            raise InvalidInputError(f"{option} is {places}")
        inner = read_input(Path(name))
        observed = inner.tensor
    if sparse != isinstance(observed, lt.SparseTensor):
        form = "a .tns file with an entry for each observed one" if sparse else "an array"
        raise InvalidInputError(f"{option} must be {form}, as the tensor is in {path}")
    if tuple(observed.shape) != tuple(tensor.shape):
        raise InvalidInputError(
            f"{option} has shape {tuple(observed.shape)}, but the tensor has shape "
            f"{tuple(tensor.shape)}"
        )
    if sparse:
        if inverted:
            raise InvalidInputError(f"{option} needs a dense tensor: give --mask for a sparse one")
        return observed
    if observed.dtype.kind != "b" and not np.isin(observed, (0, 1)).all():
        raise InvalidInputError(f"{option} must hold truth values, or 0 and 1 only")
    return observed.astype(bool) ^ inverted

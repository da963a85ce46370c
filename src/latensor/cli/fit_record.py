"""What `latensor fit` leaves in a folder: parameters, answers for all rows, how to repeat it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from latensor.cli.fit_input import Data
from latensor.cli.fit_models import Entry
from latensor.cli.saving import write_columns
from latensor.diagnostics.findings import plain

PARAMETERS = "parameters.json"
ARRAYS = "parameters.npz"


def certificate_content(model: Any) -> dict[str, Any]:
    """The certificate in types that JSON knows."""
    content: dict[str, Any] = model.certificate_.to_dict()
    content["text"] = str(model.certificate_)
    return content


def parameters_of(model: Any, names: Sequence[str]) -> dict[str, Any]:
    """The fitted parameters by name, views as `means_0`, `means_1`, ..."""
    found: dict[str, Any] = {}
    for name in names:
        if not hasattr(model, f"{name}_"):
            # Not all models of a class have all of them.
            continue
        value = getattr(model, f"{name}_")
        if isinstance(value, list):
            found |= {f"{name}_{t}": np.asarray(each) for t, each in enumerate(value)}
        else:
            found[name] = np.asarray(value)
    return found


def as_json(content: Any) -> str:
    """Strict JSON in which a row of numbers is a line."""
    text = json.dumps(plain(content), indent=2, allow_nan=False, ensure_ascii=False, default=str)
    return re.sub(r"\[\n\s*([^\[\]{}\"]*?)\n\s*\]", _one_line, text) + "\n"


def _one_line(found: re.Match[str]) -> str:
    return "[" + " ".join(found[1].split()) + "]"


def write_answers(name: str, stream: IO[bytes], model: Any, data: Data) -> None:
    """Write what the model says of every row: labels, states, sources or scores.

    Parameters
    ----------
    name : str, of the file, which tells what it holds
    stream : binary stream into that file
    """
    X = data.arguments[0]
    columns = {"row": np.arange(data.n_rows)}
    if name == "labels.csv":
        columns["component"] = model.predict(X)
        if hasattr(model, "predict_proba"):
            columns["probability"] = np.asarray(model.predict_proba(X)).max(axis=1)
    elif name == "components.csv":
        chances = np.asarray(model.predict_proba(*data.arguments))
        columns |= {"component": chances.argmax(axis=1), "probability": chances.max(axis=1)}
    elif name == "predictions.csv":
        columns["predicted"] = model.predict(X)
    elif name == "states.csv":
        states = np.asarray(model.predict(*data.arguments))
        if data.lengths is not None:
            names = data.sequences or [str(s) for s in range(len(data.lengths))]
            columns["sequence"] = np.repeat(np.asarray(names), data.lengths)
        chances = np.asarray(model.predict_proba(*data.arguments))
        columns |= {"state": states, "probability": chances[np.arange(len(states)), states]}
    elif name.endswith(".npy"):
        np.save(stream, np.asarray(model.transform(X)), allow_pickle=False)
        return
    else:
        left, right = model.transform(*data.arguments)
        np.savez(stream, allow_pickle=False, x=left, y=right)
        return
    write_columns(stream, columns)


def snippet(entry: Entry, data: Data, arguments: dict[str, Any]) -> str:
    """The same in Python."""
    listed = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    lines = [*data.code, f"model = lt.{entry.model}({listed})", f"model.fit({data.call})"]
    extra = ["import pandas"] if any("pandas." in line for line in lines) else []
    return "\n".join([lines[0], *extra, "import latensor as lt", "", *lines[1:]])

"""Archives: fitted scikit-learn objects as text, free of code, and checked to be sound.

skops stores the types and the state of an object, and no instructions to run. Only types that it
trusts itself are read, and a few more that fitted scikit-learn estimators and our own feature maps
consist of. An archive of equal objects has equal content: names of files within it are digests, and
versions of libraries are left to the file around it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import PurePath
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from consequential.policy.features import PolicyError

_TRUSTED = {  # types that may be read besides those that skops trusts
    "consequential.policy.curves.Curves",
    "consequential.policy.mapped.MappedColumns",
    "consequential.policy.scores.Scores",
    "functools.partial",  # of functions that are trusted themselves
    "numpy.dtype",
    "scipy.interpolate._bsplines.BSpline",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
    "sklearn.compose._column_transformer._RemainderColsList",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils.validation.check_array",
}
# part of a BSpline, and in another place in other versions of SciPy
_ASARRAY = re.compile(r"scipy\.[\w.]*array_api_compat[\w.]*\.asarray").fullmatch
_NOTHING = {
    "__class__": "str",
    "__module__": "builtins",
    "__loader__": "JsonNode",
    "content": "null",
}
_UNPACKED = 4  # bytes per byte of text, at most: reading a file takes little more memory than it
_SMALL = 1 << 20  # bytes that any archive may have
_CATEGORIES = 256  # of a categorical feature in boosted trees, at most
_BITSET = 8  # numbers that say which of them go left
# what splines, products and boosted trees take memory by, and the most they may make of a person
_WIDTHS = ("n_features_out_", "_n_out_full", "n_trees_per_iteration_")
_WIDEST = 100_000
_MACHINES = ("NuSVC", "NuSVR", "OneClassSVM", "SVC", "SVR")  # of libsvm


def archived(fitted: Any) -> dict[str, str]:
    """Return a fitted object as text, with a digest of its content; refuse types not trusted."""
    import skops.io

    try:
        content = _canonical(skops.io.dumps(fitted))
    except (TypeError, ValueError, RecursionError) as error:
        kind = f"{type(fitted).__module__}.{type(fitted).__qualname__}"
        raise PolicyError(f"a {kind} cannot be stored: {error}") from None
    archive = _zipped(content)
    _check_types(archive)
    check_sound(fitted)
    text = base64.b64encode(zlib.compress(archive)).decode("ascii")
    if len(archive) > _largest(text):
        text = base64.b64encode(zlib.compress(archive, 0)).decode("ascii")
    return {"skops": text, "sha256": _digest(content)}


def unarchived(data: Mapping[str, str]) -> Any:
    """Return the object that `archived` made this text of; refuse damage and types not trusted."""
    import skops.io
    from sklearn.exceptions import InconsistentVersionWarning

    try:
        unpacked, text = zlib.decompressobj(), data["skops"]
        archive = unpacked.decompress(base64.b64decode(text, validate=True), _largest(text))
        if not unpacked.eof:
            raise ValueError("it is cut off, or too large")
        with ZipFile(BytesIO(archive)) as files:
            if sum(info.file_size for info in files.infolist()) > len(archive):
                raise ValueError("it is compressed twice")
            content = {name: files.read(name) for name in files.namelist()}
        if _digest(content) != data["sha256"]:
            raise ValueError("its content was changed")
        _check_arrays(content)
        trusted = _check_types(archive)
        with warnings.catch_warnings():
            # the propensities of probe people tell whether another version decides differently
            warnings.simplefilter("ignore", InconsistentVersionWarning)
            fitted = skops.io.loads(archive, trusted=trusted)
    except PolicyError:
        raise
    except Exception as error:  # whatever the types in it raise when they are given their state
        reason = f"{type(error).__name__}: {error}"
        raise PolicyError(f"a stored scikit-learn object is damaged: {reason}") from None
    check_sound(fitted)
    return fitted


def _largest(text: str) -> int:
    """Return how many bytes an archive of this text may have."""
    return max(_UNPACKED * len(text), _SMALL)


def _check_arrays(content: dict[str, bytes]) -> None:
    """Refuse files that are no arrays, and arrays that declare another size than they have."""
    formats = np.lib.format
    read = {(1, 0): formats.read_array_header_1_0, (2, 0): formats.read_array_header_2_0}
    for data in (data for name, data in content.items() if name != "schema.json"):
        stream = BytesIO(data)
        shape, _, dtype = read[formats.read_magic(stream)](stream)
        declared = math.prod(shape) * max(dtype.itemsize, 1)
        if min(shape, default=0) < 0 or declared != len(data) - stream.tell():
            raise ValueError(f"an array of shape {shape} has {len(data)} bytes")


def _check_types(archive: bytes) -> list[str]:
    """Return the types in an archive that skops leaves to us; refuse those that are not known."""
    import skops.io

    left: list[str] = skops.io.get_untrusted_types(data=archive)
    refused = [name for name in left if not (name in _TRUSTED or _ASARRAY(name))]
    if refused:
        raise PolicyError(
            f"a {refused[0]} cannot be stored in a policy file or read from one: only "
            "scikit-learn's own transformers and classifiers can, and of them no trees and forests "
            "(take HistGradientBoostingClassifier), nearest neighbours and support vector machines"
        )
    return left


def _canonical(archive: bytes) -> dict[str, bytes]:
    """Return the files of an archive without what differs between equal objects.

    skops writes the memory address of every object, and names files after it; scikit-learn writes
    its version into every estimator.
    """
    with ZipFile(BytesIO(archive)) as files:
        content = {name: _without_padding(files.read(name)) for name in files.namelist()}
    schema = content.pop("schema.json")
    names = {
        name: hashlib.sha256(data).hexdigest() + PurePath(name).suffix
        for name, data in content.items()
    }

    def canonical(node: dict[str, Any]) -> dict[str, Any]:
        if isinstance(node.get("__id__"), int):
            del node["__id__"]
        if isinstance(node.get("file"), str):
            node["file"] = names[node["file"]]
        if isinstance(node.get("_sklearn_version"), dict):
            node["_sklearn_version"]["content"] = '""'
        inner = node.get("namespace")  # of a partial function: an empty dict or None, which is one
        if isinstance(inner, dict) and inner["content"] in ({}, "null"):
            node["namespace"] = _NOTHING
        return node

    tree = json.loads(schema, object_hook=canonical)
    tree.pop("_skops_version", None)
    stored = {names[name]: content[name] for name in sorted(names, key=names.__getitem__)}
    return {"schema.json": json.dumps(tree, separators=(",", ":")).encode()} | stored


def _without_padding(data: bytes) -> bytes:
    """Return an array in NumPy's format with zeros between its fields; anything else as it is.

    What is there otherwise is whatever was in memory.
    """
    if not data.startswith(np.lib.format.MAGIC_PREFIX):
        return data
    array = np.load(BytesIO(data), allow_pickle=False)
    if array.dtype.names is None:
        return data
    clean, buffer = np.zeros(array.shape, array.dtype), BytesIO()
    for name in array.dtype.names:
        clean[name] = array[name]
    header = np.lib.format.header_data_from_array_1_0(clean)
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + clean.view(np.uint8).tobytes()  # np.save would not keep the zeros


def _zipped(content: dict[str, bytes]) -> bytes:
    buffer = BytesIO()
    with ZipFile(buffer, "w") as files:
        for name, data in content.items():
            files.writestr(ZipInfo(name), data)  # dated 1980
    return buffer.getvalue()


def _digest(content: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in sorted(content.items()):
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def check_sound(fitted: Any) -> None:
    """Refuse an object with a tree, a spline or an encoder that points outside its arrays."""
    for part in _parts(fitted):
        if type(part).__module__ == "sklearn.svm._classes" and type(part).__name__ in _MACHINES:
            raise PolicyError(
                f"a sklearn.svm._classes.{type(part).__name__} cannot be stored in a policy file "
                "or read from one: libsvm does not look at the sizes of its arrays"
            )
        try:
            sound = _is_sound(part)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise PolicyError(f"a stored {type(part).__name__} is damaged: {error}") from None
        if not sound:
            raise PolicyError(
                f"a stored {type(part).__name__} is damaged: it points outside its arrays"
            )


def _parts(fitted: Any) -> Iterator[Any]:
    """Yield an object and everything it consists of."""
    pending, seen = [fitted], {id(fitted)}
    while pending:
        part = pending.pop()
        yield part
        inner = list(_items(part)) + list(getattr(part, "__dict__", {}).values())
        pending += [each for each in inner if id(each) not in seen]
        seen.update(map(id, inner))


def _items(part: Any) -> Any:
    if isinstance(part, dict):
        return part.values()
    if isinstance(part, np.ndarray):
        return part.ravel() if part.dtype == object else ()
    return part if isinstance(part, list | tuple) else ()


def _is_sound(part: Any) -> bool:
    if any(getattr(part, name, 0) > _WIDEST for name in _WIDTHS):
        return False
    if type(part).__name__ == "BSpline":
        type(part)(part.t, part.c, part.k, part.extrapolate)  # checks what it is given
    if hasattr(part, "_n_features_outs"):
        return _is_sound_encoder(part)
    return _is_sound_boosting(part) if hasattr(part, "_predictors") else True


def _is_sound_encoder(encoder: Any) -> bool:
    """Check that a one-hot encoder writes no indicator beside its columns."""
    widths = encoder._compute_n_features_outs()
    n = len(widths)
    dropped = encoder._drop_idx_after_grouping
    dropped = [None] * n if dropped is None else list(dropped)
    mappings = getattr(encoder, "_default_to_infrequent_mappings", [None] * n)
    if list(encoder._n_features_outs) != widths or not len(dropped) == len(mappings) == n:
        return False
    whole = [width + (drop is not None) for width, drop in zip(widths, dropped, strict=True)]
    return all(
        (drop is None or 0 <= drop < size)
        and (mapping is None or bool(((mapping >= 0) & (mapping < size)).all()))
        for size, drop, mapping in zip(whole, dropped, mappings, strict=True)
    )


def _is_sound_boosting(model: Any) -> bool:
    """Check the trees of histogram-based gradient boosting, and its categories."""
    categorical = np.asarray(model._bin_mapper.is_categorical_, dtype=np.bool_)
    values = [model._bin_mapper.bin_thresholds_[k] for k in np.flatnonzero(categorical)]
    predictors = [each for iteration in model._predictors for each in iteration]
    return (
        categorical.shape == (model.n_features_in_,)
        and all(((each >= 0) & (each < _CATEGORIES)).all() for each in values)
        and all(_is_sound_predictor(each, categorical) for each in predictors)
    )


def _is_sound_predictor(predictor: Any, categorical: NDArray[np.bool_]) -> bool:
    nodes, bitsets = predictor.nodes, predictor.raw_left_cat_bitsets
    inner = nodes["is_leaf"] == 0
    by_category = nodes[inner & (nodes["is_categorical"] != 0)]
    feature = nodes["feature_idx"][inner]
    # children come after their parents, so that every path ends within the tree
    children = np.stack([nodes["left"][inner], nodes["right"][inner]]).astype(np.int64)
    return len(nodes) > 0 and bool(
        ((feature >= 0) & (feature < len(categorical))).all()
        and ((children > np.flatnonzero(inner)) & (children < len(nodes))).all()
        and categorical[by_category["feature_idx"]].all()
        and (by_category["bitset_idx"] < len(bitsets)).all()
        and bitsets.shape[1:] == (_BITSET,)
    )

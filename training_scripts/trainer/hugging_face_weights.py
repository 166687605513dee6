"""Start from Hugging Face weights: a folder of safetensors, one file or several with an index.

Everything is checked before the first weight is written: the files against their index, names,
shapes and number formats against the model, and ``config.json`` against what the model computes,
since two models may hold tensors of the same names and shapes and still differ (32 heads of 64
against 16 of 128). Then every rank reads the pieces that it keeps, by torch's own reader and
without a word to the others, and nothing is held twice.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import load

from cdk_blackwell.planning.model_shape import ModelShape
from trainer.errors import data_error, user_error
from trainer.export import hugging_face_name
from trainer.model import Decoder

SINGLE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
READABLE_FORMATS: Final = ("F32", "F16", "BF16")
"""Number formats of safetensors that hold weights as they are; others are quantised."""
COMPUTED_FROM: Final = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "tie_word_embeddings",
    "attention_bias",
    "qk_norm",
    "norm_placement",
)
"""Fields in which the weights' own config must agree with the model's."""
CHANGED_AT_WILL: Final = ("rope_theta", "rope_scaling")
"""Fields that people change to train for longer contexts; a difference is reported."""
UNUSED_ENDING: Final = ".rotary_emb.inv_freq"
"""Tables that old checkpoints of Llama carry; they follow from the config."""
NAMES_SHOWN: Final = 5


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """What a file's header says about a tensor."""

    shape: tuple[int, ...]
    number_format: str


def load_hugging_face_weights(model: Decoder, folder: Path) -> list[str]:
    """Fill a model, sharded or not, from the safetensors of a Hugging Face folder.

    Every rank calls it on the same files; values are converted to the model's number format.
    Returns what the user should know though it stops nothing. Raises TrainingError when the files
    are damaged or incomplete (class ``data``) or belong to another model (class ``user``).
    """
    notes = compare_configs(model.shape, folder)
    stored = read_headers(folder)
    wanted = {hugging_face_name(name): p.detach() for name, p in model.named_parameters()}
    problems = list(find_problems(wanted, stored, tied=model.shape.tie_word_embeddings))
    if problems:
        raise user_error(
            f"the weights in {folder} are not those of the model {model.shape.name}: "
            f"{'; '.join(problems)}; give the model's own weights, or the model of these weights"
        )
    with warnings.catch_warnings():
        # Said whenever ranks read without a word to each other, which is meant here.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load(dict(wanted), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    return notes


def compare_configs(shape: ModelShape, folder: Path) -> list[str]:
    """Refuse a ``config.json`` of another model; differences in RoPE are returned as notes."""
    path = folder / "config.json"
    if not path.exists():
        return [f"{folder} has no config.json: only names and shapes of tensors can be compared"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            theirs = ModelShape.from_hugging_face_config(path)
        except ValueError as error:
            raise user_error(str(error)) from error
    wrong = list(_differences(shape, theirs, COMPUTED_FROM))
    if wrong:
        raise user_error(
            f"the weights in {folder} are of another model than {shape.name}: {'; '.join(wrong)}"
        )
    notes = [str(warning.message) for warning in caught]
    changed = [
        f"{text}: trained as run.json says" for text in _differences(shape, theirs, CHANGED_AT_WILL)
    ]
    return notes + changed


def _differences(ours: ModelShape, theirs: ModelShape, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        mine, other = getattr(ours, name), getattr(theirs, name)
        if mine != other:
            yield f"{name} is {other} in config.json and {mine} in run.json"


def read_headers(folder: Path) -> dict[str, StoredTensor]:
    """Name -> tensor of the model's files: those of the index, else the one file, else all.

    Others may lie beside them, such as Mistral's ``consolidated.safetensors`` with names of its
    own, but may not hold a second tensor of a name.
    """
    headers = {file.name: read_header(file) for file in sorted(folder.glob("*.safetensors"))}
    if not headers:
        raise data_error(
            f"{folder} holds no safetensors file; save the model with transformers' "
            "save_pretrained, which writes them"
        )
    listed = read_index(folder / INDEX_FILE)
    own = set(listed.values()) or {SINGLE_FILE} & set(headers) or set(headers)
    places: dict[str, list[str]] = {}
    for file, header in headers.items():
        for name in header:
            places.setdefault(name, []).append(file)
    stored = {
        name: headers[files[0]][name] for name, files in places.items() if own.intersection(files)
    }
    twice = [name for name in stored if len(places[name]) > 1]
    if twice:
        raise data_error(
            f"{folder} holds {_some(twice)} in {' and in '.join(places[twice[0]])}; remove the "
            "file that does not belong there"
        )
    lost = {file for name, file in listed.items() if places.get(name) != [file]}
    if lost:
        raise data_error(
            f"{folder} is incomplete: its index lists tensors in {_some(sorted(lost))} that are "
            "not there; copy the folder again"
        )
    return stored


def read_header(file: Path) -> dict[str, StoredTensor]:
    """Name -> tensor of one file; its numbers are not read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            pieces = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {
                name: StoredTensor(shape=tuple(piece.get_shape()), number_format=piece.get_dtype())
                for name, piece in pieces.items()
            }
    except (SafetensorError, OSError) as error:
        raise data_error(f"{file} cannot be read: {error}; copy it again") from error


def read_index(index: Path) -> dict[str, str]:
    """Name -> file; empty when there is no index."""
    if not index.exists():
        return {}
    try:
        return dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise data_error(f"{index} is not an index of safetensors: {error!r}") from error


def find_problems(
    wanted: dict[str, Tensor], stored: dict[str, StoredTensor], *, tied: bool
) -> Iterator[str]:
    """What keeps the stored tensors from being the model's, a clause for each kind."""
    missing = [name for name in wanted if name not in stored]
    if missing:
        yield f"missing are {_some(missing)}"
    # A tied head may be stored beside the embedding it equals.
    unexpected = [
        name
        for name in stored
        if name not in wanted
        and not name.endswith(UNUSED_ENDING)
        and not (tied and name == "lm_head.weight")
    ]
    if unexpected:
        yield f"unexpected are {_some(unexpected)}"
    both = [name for name in wanted if name in stored]
    shapes = [
        f"{name} of shape {list(stored[name].shape)} instead of {list(wanted[name].shape)}"
        for name in both
        if stored[name].shape != tuple(wanted[name].shape)
    ]
    if shapes:
        yield f"mis-shaped are {_some(shapes)}"
    formats = [
        f"{name} in {stored[name].number_format}"
        for name in both
        if stored[name].number_format not in READABLE_FORMATS
    ]
    if formats:
        yield f"not in {', '.join(READABLE_FORMATS)} are {_some(formats)}"


def _some(texts: list[str]) -> str:
    more = len(texts) - NAMES_SHOWN
    return ", ".join(texts[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")

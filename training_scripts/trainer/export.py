"""Hugging Face export: safetensors, config, tokenizer and generation settings.

From the model in training, or from a checkpoint on a host without a GPU (``export_checkpoint.py``).

Weights are read by torch's ``HuggingFaceStorageReader`` but not written by its
``HuggingFaceStorageWriter``, which torch 2.13 has. That works on CPU with these names and an index,
but (measured on CPU):

* One call takes the whole model: 128 GB of host memory on rank 0 for 64B parameters in bf16. Its
  distributed mode needs all ranks' shards in one folder, and ``/opt/ml/model`` is each host's own.
  With a call for each file, the index that is left lists the last call's tensors only.
* It serialises a file in memory before it writes it: 768 MiB more at the peak for a file of 512
  MiB, for which ``save_file`` needs none.
* Equal tensors give files of unequal bytes, as the order of its three header entries varies from
  call to call; exports of one checkpoint are compared by their sums here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import Precision
from trainer.manifest import Manifest
from trainer.model import Decoder
from trainer.parallel import World
from trainer.precision import unwrapped
from trainer.tokenizer import (
    TEMPLATE_FILE,
    TOKENIZER_CONFIG_FILE,
    read_end_of_text,
    read_special_tokens,
    read_token_ids,
)

MAXIMUM_FILE_BYTES = 5 * 1000**3
Fetch = Callable[[list[str]], Iterable[tuple[str, Tensor]]]
"""Whole parameters by name, in the order asked for."""


def export(
    model: Decoder,
    *,
    folder: Path,
    precision: Precision,
    dataset: Path,
    manifest: Manifest,
    world: World,
    maximum_file_bytes: int = MAXIMUM_FILE_BYTES,
) -> None:
    """Write everything that ``transformers`` needs to load the model and its tokenizer.

    Parameters are gathered one at a time and leave the device at once: rank 0 holds one file's
    worth in host memory, the others one parameter.
    """
    dtype = export_dtype(precision)
    if world.is_first:
        folder.mkdir(parents=True, exist_ok=True)
        write_settings(model.shape, folder=folder, dtype=dtype, dataset=dataset, manifest=manifest)
    parameters = dict(model.named_parameters())
    write_weights(
        {name: parameter.numel() for name, parameter in parameters.items()},
        partial(gather, parameters),
        folder=folder,
        dtype=dtype,
        writes=world.is_first,
        maximum_file_bytes=maximum_file_bytes,
    )
    world.barrier()


def export_dtype(precision: Precision) -> torch.dtype:
    """bf16, unless the run was computed in fp32; FP8 is of products, never of stored weights."""
    return torch.float32 if precision == "fp32" else torch.bfloat16


def hugging_face_name(name: str) -> str:
    """Name of a parameter in the ``ForCausalLM`` class of the model's family."""
    return name if name.startswith("lm_head.") else f"model.{name}"


def plan_files(sizes: dict[str, int], *, maximum_file_bytes: int) -> list[list[str]]:
    """Consecutive parameters in files of at most the given size (a larger one stands alone)."""
    files: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if files[-1] and filled + size > maximum_file_bytes:
            files.append([])
            filled = 0
        files[-1].append(name)
        filled += size
    return files


def write_weights(
    elements: Mapping[str, int],
    fetch: Fetch,
    *,
    folder: Path,
    dtype: torch.dtype,
    writes: bool,
    maximum_file_bytes: int,
) -> None:
    """One safetensors file, or several with an index; ``elements`` are those of each parameter.

    Every rank fetches; the one that ``writes`` holds one file's worth in host memory.
    """
    from safetensors.torch import save_file

    sizes = {name: count * dtype.itemsize for name, count in elements.items()}
    files = plan_files(sizes, maximum_file_bytes=maximum_file_bytes)
    weight_map: dict[str, str] = {}
    for number, names in enumerate(files, start=1):
        part = f"-{number:05d}-of-{len(files):05d}" if len(files) > 1 else ""
        file = f"model{part}.safetensors"
        tensors: dict[str, Tensor] = {}
        for name, whole in fetch(names):
            if writes:
                tensors[hugging_face_name(name)] = whole.to("cpu", dtype).contiguous()
        if writes:
            save_file(tensors, folder / file, metadata={"format": "pt"})
            weight_map |= dict.fromkeys(tensors, file)
    if writes and len(files) > 1:
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": weight_map}
        write_json(folder / "model.safetensors.index.json", index)


@torch.no_grad()
def gather(
    parameters: Mapping[str, torch.nn.Parameter], names: list[str]
) -> Iterable[tuple[str, Tensor]]:
    """Whole parameters one after the other; every rank must walk along."""
    for name in names:
        parameter = parameters[name]
        whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        yield name, unwrapped(whole.detach())


def write_settings(
    shape: ModelShape, *, folder: Path, dtype: torch.dtype, dataset: Path, manifest: Manifest
) -> None:
    """Everything but the weights.

    Of text, the token that ends documents also begins and ends what is generated. A chat brings
    tokens of its own; generation then ends at either.
    """
    end = manifest.tokenizer.end_of_text_id
    source = dataset / manifest.tokenizer.file
    text = read_end_of_text(source, end)
    special = {"bos_token": text, "eos_token": text, **read_special_tokens(source)}
    ids = read_token_ids(source)
    bos, eos = (ids.get(special[name], end) for name in ("bos_token", "eos_token"))
    config = shape.to_hugging_face_config()
    config |= {"bos_token_id": bos, "eos_token_id": eos, "dtype": str(dtype).removeprefix("torch.")}
    write_json(folder / "config.json", config)
    write_json(
        folder / "generation_config.json",
        {"bos_token_id": bos, "eos_token_id": eos if eos == end else [eos, end]},
    )
    shutil.copyfile(source, folder / "tokenizer.json")
    template = source.with_name(TEMPLATE_FILE)
    if template.is_file():
        shutil.copyfile(template, folder / TEMPLATE_FILE)
    write_json(
        folder / TOKENIZER_CONFIG_FILE,
        {
            **special,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": shape.max_position_embeddings,
            "clean_up_tokenization_spaces": False,
        },
    )


def write_json(path: Path, value: Any) -> None:
    """Indented, for people."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")

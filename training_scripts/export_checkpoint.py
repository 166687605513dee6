"""A checkpoint to Hugging Face safetensors, on a host without a GPU:

    python export_checkpoint.py --run run.json --checkpoints DIR --dataset DIR --output DIR

For the large tier, whose GPUs should not wait for files, and for a checkpoint in the middle of a
run. One process reads one output file's worth of parameters at a time, so a few gigabytes of memory
are enough for any model. The checkpoint's files are compared with its ``COMPLETE.json`` first; the
output folder appears under its name when it is complete.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict_loader import load

from cdk_blackwell.planning.contracts import step_folder
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import RunSpec
from trainer.checkpoint import find_unlisted, recipe_sha256
from trainer.completeness import find_checkpoint_damage, read_marker, step_folders
from trainer.errors import TrainingError, data_error, user_error
from trainer.export import MAXIMUM_FILE_BYTES, export_dtype, write_settings, write_weights
from trainer.manifest import Manifest
from trainer.model import Decoder

EXIT_BAD_INPUT = 2
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was asked for."""

    run: Path
    checkpoints: Path
    dataset: Path
    output: Path
    step: int | None
    dtype: str | None


def parse(arguments: Sequence[str] | None) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="export_checkpoint.py", description="A checkpoint to Hugging Face safetensors."
    )
    parser.add_argument("--run", type=Path, required=True, help="run.json of the run")
    parser.add_argument(
        "--checkpoints", type=Path, required=True, help="folder that holds step-... folders"
    )
    parser.add_argument("--dataset", type=Path, required=True, help="for its tokenizer")
    parser.add_argument("--output", type=Path, required=True, help="folder to create")
    parser.add_argument("--step", type=int, help="default: the newest undamaged checkpoint")
    parser.add_argument(
        "--dtype", choices=tuple(DTYPES), help="default: fp32 for a run in fp32, else bf16"
    )
    return Options(**vars(parser.parse_args(arguments)))


def export_checkpoint(options: Options, *, maximum_file_bytes: int = MAXIMUM_FILE_BYTES) -> Path:
    """Write the folder; returns the checkpoint that was used."""
    if options.output.exists():
        raise user_error(f"{options.output} exists; give a folder that does not")
    spec = read_run(options.run)
    manifest = read_manifest(options.dataset, spec)
    checkpoint = choose_checkpoint(options.checkpoints, options.step, recipe_sha256(spec))
    dtype = DTYPES[options.dtype] if options.dtype else export_dtype(spec.recipe.precision)
    draft = options.output.with_name(options.output.name + ".partial")
    try:
        draft.mkdir(parents=True)
    except FileExistsError as error:
        raise user_error(f"{draft} is left from an earlier try; remove it") from error
    shapes = parameter_shapes(spec.model)
    write_settings(
        spec.model, folder=draft, dtype=dtype, dataset=options.dataset, manifest=manifest
    )
    write_weights(
        {name: size.numel() for name, size in shapes.items()},
        partial(read_parameters, checkpoint, shapes),
        folder=draft,
        dtype=dtype,
        writes=True,
        maximum_file_bytes=maximum_file_bytes,
    )
    draft.replace(options.output)
    return checkpoint


def read_run(path: Path) -> RunSpec:
    """The frozen ``run.json``."""
    try:
        return RunSpec.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise user_error(f"{path}: {error}") from error


def read_manifest(dataset: Path, spec: RunSpec) -> Manifest:
    """The dataset's manifest, which names the tokenizer."""
    try:
        return Manifest.read(dataset / spec.data.manifest)
    except (OSError, ValueError) as error:
        raise data_error(f"{dataset}: {error}") from error


def choose_checkpoint(root: Path, step: int | None, recipe: str) -> Path:
    """The newest complete and undamaged checkpoint of this run, or the one of the given step."""
    folders = step_folders(root) if step is None else [root / step_folder(step)]
    problems = []
    for folder in folders:
        problem = find_problem(folder, recipe)
        if problem is None:
            return folder
        problems.append(f"{folder.name}: {problem}")
    raise data_error(
        f"{root} holds no checkpoint that can be exported ({'; '.join(problems) or 'none at all'})"
    )


def find_problem(folder: Path, recipe: str) -> str | None:
    """Why a checkpoint cannot be used; None when it can."""
    try:
        marker = read_marker(folder)
        if marker.recipe_sha256 != recipe:
            return "it was made with another model, recipe or length than run.json has"
        return find_checkpoint_damage(folder, marker) or find_unlisted(folder, marker)
    except FileNotFoundError:
        return "it is not complete"
    except (OSError, ValueError) as error:
        return str(error)


def parameter_shapes(shape: ModelShape) -> dict[str, torch.Size]:
    """Name -> shape of all parameters, without memory for them."""
    with torch.device("meta"):
        return {name: p.shape for name, p in Decoder(shape).named_parameters()}


def read_parameters(
    checkpoint: Path, shapes: Mapping[str, torch.Size], names: list[str]
) -> Iterable[tuple[str, Tensor]]:
    """Whole fp32 parameters, put together from all ranks' parts."""
    tensors = {name: torch.empty(shapes[name], dtype=torch.float32) for name in names}
    with warnings.catch_warnings():
        # One process is what is meant.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load({"model": tensors}, checkpoint_id=checkpoint, no_dist=True)
    return tensors.items()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when the folder is complete, 2 for a mistake in the request or damaged input."""
    options = parse(arguments)
    try:
        checkpoint = export_checkpoint(options)
    except (TrainingError, OSError) as error:
        print(f"export_checkpoint.py: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print(f"export_checkpoint.py: interrupted; {options.output} was not made", file=sys.stderr)
        return 130
    print(f"{checkpoint} exported to {options.output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

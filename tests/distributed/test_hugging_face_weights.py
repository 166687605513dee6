"""Weights of every family go in and out unchanged, and compute what transformers computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM

from cdk_blackwell.planning.model_shape import ModelShape
from tests.distributed.forked import cpu_meshes, fork_ranks
from tests.training_scripts.tiny import VOCABULARY, tiny_shape, tiny_spec, write_dataset
from trainer.activation_checkpointing import apply_activation_checkpointing
from trainer.errors import TrainingError
from trainer.export import export, hugging_face_name
from trainer.hugging_face_weights import load_hugging_face_weights
from trainer.model import Decoder, initialise
from trainer.optimizer import make_optimizer
from trainer.parallel import World
from trainer.sharding import shard
from trainer.tensor_parallel import split_tensors

SEED = 5
FAMILIES = {
    "llama": tiny_shape(),
    "llama-tied": tiny_shape(tie_word_embeddings=True),
    "mistral": tiny_shape(hidden_size=36, num_attention_heads=8),
    "qwen2": tiny_shape(attention_bias=True, tie_word_embeddings=True),
    "qwen3": tiny_shape(qk_norm="head", head_dim=16),
    "olmo2": tiny_shape(qk_norm="full", norm_placement="post"),
}
TOKENS = torch.arange(2 * 16).remainder(VOCABULARY).reshape(2, 16)
SMALL_FILES = 20_000


def theirs_of(shape: ModelShape) -> Any:
    """A model of transformers with nothing left at ones and zeros."""
    torch.manual_seed(SEED)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**shape.to_hugging_face_config()))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.float().eval()


def whole(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def compare(world: World, shape: ModelShape, root: Path) -> dict[str, Any]:
    """Read their weights into a sharded and a plain model, write the sharded one, read it back."""
    imported, exported, dataset = root / "theirs", root / "ours", root / "dataset"
    theirs = theirs_of(shape)
    if world.is_first:
        theirs.save_pretrained(imported, max_shard_size=SMALL_FILES)
    manifest = write_dataset(dataset / str(world.rank))
    world.barrier()
    sharded, plain = Decoder(shape), Decoder(shape)
    shard(sharded, cpu_meshes(world), "fp32")
    notes = load_hugging_face_weights(sharded, imported)
    load_hugging_face_weights(plain, imported)
    pairs = zip(sharded.parameters(), plain.parameters(), strict=True)
    equal = [torch.equal(whole(one), other) for one, other in pairs]
    export(
        sharded,
        folder=exported,
        precision="fp32",
        dataset=dataset / str(world.rank),
        manifest=manifest,
        world=world,
        maximum_file_bytes=SMALL_FILES,
    )
    again, report = AutoModelForCausalLM.from_pretrained(
        exported, dtype=torch.float32, output_loading_info=True
    )
    reread = Decoder(shape)
    load_hugging_face_weights(reread, exported)
    pairs = zip(sharded.parameters(), reread.parameters(), strict=True)
    reread_equal = [torch.equal(whole(one), other) for one, other in pairs]
    with torch.no_grad():
        logits = theirs(TOKENS).logits
        return {
            "notes": notes,
            "files": len(list(imported.glob("*.safetensors"))),
            "sharded_equals_plain": all(equal),
            "files_exported": len(list(exported.glob("*.safetensors"))),
            "reread_by_torchs_reader": all(reread_equal),
            "imported": float((plain.logits(TOKENS) - logits).abs().max()),
            "exported": float((again(TOKENS).logits - logits).abs().max()),
            "unnamed": [list(report[key]) for key in ("missing_keys", "unexpected_keys")],
            "class": type(again).__name__,
            "spread": float(logits.std()),
        }


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    """By rank and family; one fork for all, since transformers is slow to get ready."""
    root = tmp_path_factory.mktemp("families")
    return fork_ranks(
        2, lambda world: {name: compare(world, FAMILIES[name], root / name) for name in FAMILIES}
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers_in_both_directions(
    family: str, told: list[dict[str, dict[str, Any]]]
) -> None:
    for rank in told:
        assert rank[family]["imported"] < 1e-4
        assert rank[family]["exported"] < 1e-4
        assert rank[family]["spread"] > 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_lost_between_sharded_models_and_several_files(
    family: str, told: list[dict[str, dict[str, Any]]]
) -> None:
    for rank in told:
        assert rank[family]["notes"] == []
        assert rank[family]["files"] > 1
        assert rank[family]["sharded_equals_plain"]
        assert rank[family]["files_exported"] > 1
        assert rank[family]["reread_by_torchs_reader"]
        assert rank[family]["unnamed"] == [[], []]
        assert rank[family]["class"].lower().startswith(family.split("-")[0])


def saved(folder: Path, shape: ModelShape) -> dict[str, torch.Tensor]:
    """A folder of weights in one file; its tensors."""

    def save(_: World) -> None:
        model = Decoder(shape)
        initialise(model, seed=SEED)
        tensors = {hugging_face_name(name): p.detach() for name, p in model.named_parameters()}
        save_file(tensors, folder / "model.safetensors")

    fork_ranks(1, save)
    (folder / "config.json").write_text(json.dumps(shape.to_hugging_face_config()))
    return load_file(folder / "model.safetensors")


def outcome(folder: Path, shape: ModelShape) -> tuple[str, Any]:
    """Failure class and message, or ``loaded`` and the notes."""

    def attempt(_: World) -> tuple[str, Any]:
        try:
            return "loaded", load_hugging_face_weights(Decoder(shape), folder)
        except TrainingError as error:
            return error.kind, str(error)

    (told,) = fork_ranks(1, attempt)
    return told


Change = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
NORM, HEAD, GATE = "model.norm.weight", "lm_head.weight", "model.layers.1.mlp.gate_proj.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: {k: v for k, v in t.items() if k != GATE}, f"missing are {GATE}"),
        (lambda t: t | {"model.bias": t[NORM].clone()}, "unexpected are model.bias"),
        (lambda t: t | {NORM: t[NORM][:16].clone()}, f"{NORM} of shape [16] instead of [32]"),
        (lambda t: t | {NORM: t[NORM].to(torch.float8_e4m3fn)}, f"{NORM} in F8_E4M3"),
        (lambda t: {f"model.{k}": v for k, v in t.items()}, "and 16 more; unexpected are"),
    ],
    ids=["missing", "unexpected", "mis-shaped", "quantised", "all-named-otherwise"],
)
def test_tensors_that_are_not_the_models_are_named(
    change: Change, words: str, tmp_path: Path
) -> None:
    shape = tiny_shape()
    save_file(change(saved(tmp_path, shape)), tmp_path / "model.safetensors")
    kind, message = outcome(tmp_path, shape)
    assert kind == "user"
    assert words in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head_dim": 16, "num_attention_heads": 2, "num_key_value_heads": 1}, "head_dim is 8 in"),
        ({"rms_norm_eps": 1e-6}, "rms_norm_eps is 1e-05 in config.json and 1e-06 in run.json"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is False"),
        ({"attention_bias": True}, "attention_bias is False"),
    ],
)
def test_weights_of_another_model_are_refused_though_their_tensors_fit(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    saved(tmp_path, tiny_shape())
    kind, message = outcome(tmp_path, tiny_shape(**change))
    assert kind == "user"
    assert words in message


def test_another_rotary_base_is_told_and_allowed(tmp_path: Path) -> None:
    """People raise it on purpose, to train for longer contexts."""
    saved(tmp_path, tiny_shape())
    told = outcome(tmp_path, tiny_shape(rope_theta=1e6))
    words = "rope_theta is 10000.0 in config.json and 1000000.0 in run.json: trained as run.json"
    assert told == ("loaded", [f"{words} says"])


def test_a_tied_head_and_old_rotary_tables_may_be_stored_too(tmp_path: Path) -> None:
    shape = tiny_shape(tie_word_embeddings=True)
    tensors = saved(tmp_path, shape)
    tensors[HEAD] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, tmp_path / "model.safetensors")
    assert outcome(tmp_path, shape) == ("loaded", [])


@pytest.mark.parametrize("layout", [{"replicas": 2}, {"tensor_parallel": 2}])
def test_weights_reach_the_ranks_of_any_mesh(layout: dict[str, int], tmp_path: Path) -> None:
    shape = tiny_shape(attention_bias=True)
    tensors = saved(tmp_path, shape)

    def differing(world: World) -> list[str]:
        model = Decoder(shape)
        meshes = cpu_meshes(world, shard_gpus=2, **layout)
        split_tensors(model, meshes.tensor)
        shard(model, meshes, "fp32")
        load_hugging_face_weights(model, tmp_path)
        return [
            name
            for name, parameter in model.named_parameters()
            if not torch.equal(whole(parameter), tensors[hugging_face_name(name)])
        ]

    assert fork_ranks(4, differing) == [[]] * 4


def test_files_in_a_layout_of_their_own_may_lie_beside(tmp_path: Path) -> None:
    """Mistral publishes the same weights twice, once under its own names."""
    tensors = saved(tmp_path, tiny_shape())
    save_file({"norm.weight": tensors[NORM]}, tmp_path / "consolidated.safetensors")
    assert outcome(tmp_path, tiny_shape()) == ("loaded", [])


def test_half_precision_weights_become_the_models_own(tmp_path: Path) -> None:
    tensors = {name: t.bfloat16() for name, t in saved(tmp_path, tiny_shape()).items()}
    save_file(tensors, tmp_path / "model.safetensors")

    def read(_: World) -> tuple[str, bool]:
        model = Decoder(tiny_shape())
        initialise(model, seed=1)
        load_hugging_face_weights(model, tmp_path)
        return str(model.norm.weight.dtype), torch.equal(model.norm.weight, tensors[NORM].float())

    assert fork_ranks(1, read) == [("torch.float32", True)]


def test_a_folder_without_its_config_is_told(tmp_path: Path) -> None:
    saved(tmp_path, tiny_shape())
    (tmp_path / "config.json").unlink()
    kind, notes = outcome(tmp_path, tiny_shape())
    assert kind == "loaded"
    assert "no config.json" in notes[0]


def test_a_config_that_cannot_be_trained_is_refused_by_name(tmp_path: Path) -> None:
    saved(tmp_path, tiny_shape())
    (tmp_path / "config.json").write_text('{"model_type": "mixtral"}')
    kind, message = outcome(tmp_path, tiny_shape())
    assert kind == "user"
    assert "mixture of experts" in message


def damage(folder: Path, what: str) -> None:
    file = folder / "model.safetensors"
    if what == "truncated":
        file.write_bytes(file.read_bytes()[:-100])
    elif what == "empty":
        file.unlink()
    elif what == "twice":
        (folder / "consolidated.safetensors").write_bytes(file.read_bytes())
    else:
        index = {"weight_map": {NORM: "model-00002-of-00002.safetensors"}}
        text = json.dumps(index) if what == "unfinished" else "[]"
        (folder / "model.safetensors.index.json").write_text(text)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("truncated", "model.safetensors cannot be read"),
        ("empty", "no safetensors file; save the model with"),
        ("twice", "in consolidated.safetensors and in model.safetensors; remove"),
        ("unfinished", "incomplete: its index lists tensors in model-00002-of-00002.safetensors"),
        ("garbled", "is not an index of safetensors"),
    ],
)
def test_a_damaged_folder_is_a_fault_of_the_data(what: str, words: str, tmp_path: Path) -> None:
    saved(tmp_path, tiny_shape())
    damage(tmp_path, what)
    kind, message = outcome(tmp_path, tiny_shape())
    assert kind == "data"
    assert words in message


def test_new_models_begin_with_no_bias_and_norms_of_one() -> None:
    def begin(_: World) -> tuple[set[float], set[float]]:
        model = Decoder(FAMILIES["qwen2"])
        initialise(model, seed=SEED)
        named = dict(model.named_parameters())
        biases = {float(v) for k, p in named.items() if k.endswith(".bias") for v in p}
        norms = {float(v) for k, p in named.items() if "norm" in k for v in p}
        return biases, norms

    assert fork_ranks(1, begin) == [({0.0}, {1.0})]


def test_activation_checkpointing_is_bit_identical_in_every_family() -> None:
    def gradients(family: str, mode: str) -> list[torch.Tensor]:
        model = Decoder(FAMILIES[family])
        initialise(model, seed=SEED)
        apply_activation_checkpointing(model, mode)
        model(TOKENS[:, :-1], TOKENS[:, 1:]).backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    def departing(_: World) -> list[tuple[str, str]]:
        return [
            (family, mode)
            for family in FAMILIES
            for mode in ("full", "selective")
            if not all(map(torch.equal, gradients(family, mode), gradients(family, "none")))
        ]

    assert fork_ranks(1, departing) == [[]]


def test_neither_biases_nor_norms_decay() -> None:
    def decayed(_: World) -> set[str]:
        model = Decoder(tiny_shape(attention_bias=True))
        names = {id(p): name for name, p in model.named_parameters()}
        groups = make_optimizer(model, tiny_spec().recipe.optimizer).param_groups
        chosen = {
            names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]
        }
        return {name.rpartition("layers.0.")[2] for name in chosen if "layers.1" not in name}

    matrices = {f"self_attn.{x}_proj.weight" for x in "qkvo"}
    matrices |= {f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")}
    assert fork_ranks(1, decayed) == [matrices | {HEAD}]

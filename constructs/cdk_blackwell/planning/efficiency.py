"""How much of the hardware's peak a training stack reaches: assumptions, each with its source.

Nothing here was measured by this project; a trial run's numbers replace it (``measured``). The
values reproduce published runs: one row fixes one value, the others are tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cdk_blackwell.planning.trial import TrialReport


@dataclass(frozen=True, kw_only=True)
class EfficiencyValues:
    """Shares of peak, 0 to 1, and host times."""

    matmul: Mapping[str, float]
    """Share of dense peak that the blocks' matrix products reach, by precision, without the
    conversions that low precision needs."""
    attention: float
    """Share of dense BF16 peak that flash attention reaches."""
    gathered_attention: float = 0.8
    """What is left of it when keys and values come from other ranks: smaller tiles, and partial
    results to be merged. Torch's context parallelism at 131,072 tokens (torchtitan, H100); its
    table is headed float8, our copy says bf16: with 0.8 both are predicted within 20 % of it."""
    hbm: float = 0.75
    """Share of nominal HBM bandwidth that elementwise kernels reach; GPU vendors' stream copies
    reach 0.8 to 0.92, fused kernels less."""
    nvlink: float = 0.75
    """Share of NVLink's rate that NCCL's collectives reach at tens of MB."""
    fabric: float = 0.8
    """Share of EFA's line rate that NCCL reaches at tens of MB."""
    overlap: float = 0.8
    """Share of the hidable communication that is hidden behind computation."""
    eager_kernel_seconds: float = 10e-6
    """Host time to launch one kernel from eager PyTorch."""
    compiled_kernel_seconds: float = 5e-6
    """The same from compiled code; CUDA graphs need none."""
    time_factor: float = 1.0
    """Multiplies every predicted time; a trial run sets it."""


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Named values and where they come from."""

    name: str
    source: str
    values: EfficiencyValues

    def assumptions(self, precision: str, accelerator: str) -> tuple[str, ...]:
        """In words; kept, since a search asks thousands of times."""
        key = (precision, accelerator)
        if key not in self._lines:
            values = self.values
            self._lines[key] = (
                f"{self.name} on {accelerator}: {self.source}",
                f"matrix products at {values.matmul[precision]:.0%} of dense {precision} peak, "
                f"flash attention at {values.attention:.0%} of bf16 peak, memory at "
                f"{values.hbm:.0%}, NVLink at {values.nvlink:.0%}, EFA at {values.fabric:.0%}",
                f"{values.overlap:.0%} of FSDP and HSDP communication hides behind computation, "
                "that of context and tensor parallelism does not",
                *self._measured_factor(),
            )
        return self._lines[key]

    @cached_property
    def _lines(self) -> dict[tuple[str, str], tuple[str, ...]]:
        return {}

    def _measured_factor(self) -> tuple[str, ...]:
        factor = self.values.time_factor
        if factor == 1:
            return ()
        return (f"every time that follows from these is multiplied by {factor:.2f}, as measured",)

    @classmethod
    def measured(cls, report: TrialReport) -> Efficiency:
        """What a trial run reached, so that its winner's speed comes out exactly."""
        from cdk_blackwell.planning.measured import measured_efficiency

        return measured_efficiency(report)


_H100_MATMUL: Final = {"bf16": 0.50, "fp32": 0.50, "fp8": 0.45, "fp8_rowwise": 0.36}
_H100_ATTENTION: Final = 0.28
_700_W_CLOCK: Final = (700 / 500) ** (1 / 3)
"""What 700 W allow over 500 W: dynamic power grows with the cube of the clock."""

_B200_FSDP2: Final = Efficiency(
    name="fsdp2",
    source=(
        "FSDP2 with torch.compile, Llama 3 8B at 8K tokens and micro-batch 1 on 8 power-limited "
        "B200, published by torchao; not measured by this project"
    ),
    # One published row each: bf16 8,308 tokens/s, fp8 10,417, fp8_rowwise 8,641, mxfp8 9,969. No
    # fp32 row exists: as bf16. Attention could not be told apart from the products: as on H100.
    values=EfficiencyValues(
        matmul={"bf16": 0.223, "fp32": 0.223, "fp8": 0.16, "fp8_rowwise": 0.127, "mxfp8": 0.153},
        attention=_H100_ATTENTION,
    ),
)
_H100_FSDP2: Final = Efficiency(
    name="fsdp2",
    source="FSDP2 with torch.compile, Llama 3 8B on 8 H100 held at 500 W, published by torchtitan",
    # bf16 from 6,667 tokens/s, fp8 from 8,532; rowwise loses as much against fp8 as on B200.
    # Attention: FlashAttention-2's published 300-350 TFLOP/s, lowered by the power limit.
    values=EfficiencyValues(matmul=_H100_MATMUL, attention=_H100_ATTENTION),
)
_HOPPER_700_W_FSDP2: Final = Efficiency(
    name="fsdp2",
    source="the shares of the H100 held at 500 W, raised by what 700 W allow over 500 W",
    values=EfficiencyValues(
        matmul={precision: share * _700_W_CLOCK for precision, share in _H100_MATMUL.items()},
        attention=_H100_ATTENTION * _700_W_CLOCK,
    ),
)


def _megatron(name: str, *, matmul: Mapping[str, float], attention: float) -> Efficiency:
    return Efficiency(
        name=name,
        source=(
            "one end of what NVIDIA publishes for NeMo and Megatron-Bridge on B200 and GB200 "
            "(CUDA graphs, fused kernels); not this project's trainer, never tried by it"
        ),
        values=EfficiencyValues(
            matmul=matmul,
            attention=attention,
            gathered_attention=0.9,
            overlap=0.9,
            eager_kernel_seconds=0.0,
            compiled_kernel_seconds=0.0,
        ),
    )


_MEGATRON_LOW: Final = _megatron(
    "megatron_low",
    # Nemotron-4 15B on 64 B200 (14,760 tokens/s) needs 0.38 of FP8 peak; a tenth below it. No bf16
    # row: the same fraction of the measured ceiling.
    matmul={"bf16": 0.34, "fp32": 0.34, "fp8": 0.34, "fp8_rowwise": 0.32, "mxfp8": 0.32},
    attention=0.40,
)
_MEGATRON_HIGH: Final = _megatron(
    "megatron_high",
    # Llama 3 8B on 8 B200 (30,624 tokens/s) needs 0.54 of FP8 peak; 0.65 is 85 % of the ceiling
    # measured for plain products (0.77 bf16, 0.76 fp8: stas00/ml-engineering).
    matmul={"bf16": 0.66, "fp32": 0.66, "fp8": 0.65, "fp8_rowwise": 0.62, "mxfp8": 0.62},
    attention=0.60,
)

_ACCELERATORS: Final = ("B200", "GB200", "H100", "H100-700W", "H200")

EFFICIENCIES: Final[Mapping[str, Mapping[str, Efficiency]]] = {
    "fsdp2": {
        "B200": _B200_FSDP2,
        "GB200": _B200_FSDP2,
        "H100": _H100_FSDP2,
        "H100-700W": _HOPPER_700_W_FSDP2,
        "H200": _HOPPER_700_W_FSDP2,
    },
    # Published on Blackwell; on Hopper the same shares are taken for granted.
    "megatron_low": dict.fromkeys(_ACCELERATORS, _MEGATRON_LOW),
    "megatron_high": dict.fromkeys(_ACCELERATORS, _MEGATRON_HIGH),
}
"""By stack and accelerator. ``fsdp2`` is what this project's trainer is built on."""


def efficiency_for(stack: str, accelerator: str) -> Efficiency:
    """From the table; ValueError lists what it holds."""
    if stack not in EFFICIENCIES:
        raise ValueError(f"stack is {stack!r}; allowed are {', '.join(EFFICIENCIES)}")
    if accelerator not in EFFICIENCIES[stack]:
        raise ValueError(
            f"accelerator is {accelerator!r}; {stack} has {', '.join(EFFICIENCIES[stack])}"
        )
    return EFFICIENCIES[stack][accelerator]

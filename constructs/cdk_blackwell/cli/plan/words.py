"""Numbers for people."""

from __future__ import annotations


def parameters(count: int) -> str:
    """``8.03B`` or ``596M``."""
    return f"{count / 1e9:.2f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def tokens(count: int) -> str:
    """``300B``, ``160.6B``; all digits below a million."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if count >= size:
            return f"{count / size:,.1f}".removesuffix(".0") + unit
    return f"{count:,}"


def duration(hours: float) -> str:
    """Seconds, minutes, hours, and days beside hours from two days on."""
    if hours < 1 / 60:
        return plural(round(hours * 3600), "second")
    if hours < 1:
        return plural(round(hours * 60), "minute")
    if hours < 48:
        return f"{hours:.1f} hours"
    return f"{hours:,.0f} hours ({hours / 24:,.{0 if hours > 2400 else 1}f} days)"


def usd(amount: float) -> str:
    """Whole dollars, with cents below a hundred."""
    return f"{amount:,.2f} USD" if amount < 100 else f"{amount:,.0f} USD"


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def spaced(name: str) -> str:
    """``weights_and_optimizer`` as words."""
    return name.replace("_", " ")


def kernel_words(kernels: str) -> str:
    """What a memory estimate took the blocks to run."""
    return "plain (eager)" if kernels == "eager" else kernels


def number(value: float) -> str:
    """Separators for thousands; three digits where there is a fraction."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"

"""What a member of the zoo is: a network, its inputs, and the table that the functions making them enter."""

from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Tuple

import torch
from torch import nn


@dataclass
class Input:
    """An input's shape and type, and the range of its values: uniform in lo..hi, or standard normal without one."""

    shape: Tuple[int, ...]
    dtype: torch.dtype = torch.float32
    range: Optional[Tuple[float, float]] = None

    def draw(self) -> torch.Tensor:
        """Random values as whoever runs the model draws them."""
        if self.range is None:
            return torch.randn(self.shape)
        lo, hi = self.range
        if self.dtype.is_floating_point:
            return torch.rand(self.shape, dtype=self.dtype) * (hi - lo) + lo
        return torch.randint(lo, hi + 1, self.shape).to(self.dtype)


def floats(*shape: int) -> Input:
    """Standard normal floats."""
    return Input(shape)


def uniform(lo: float, hi: float, *shape: int) -> Input:
    """Floats, uniform in lo..hi."""
    return Input(shape, range=(lo, hi))


def integers(lo: int, hi: int, *shape: int) -> Input:
    """64-bit integers in lo..hi inclusive."""
    return Input(shape, torch.int64, (lo, hi))


def booleans(*shape: int) -> Input:
    """True or false."""
    return Input(shape, torch.bool, (0, 1))


@dataclass
class Member:
    """A network ready to be exported. Outputs that are not compared follow from others by sorting near-equal scores."""

    module: nn.Module
    inputs: Dict[str, Input]
    outputs: List[str]
    compared: Optional[List[str]] = None
    opset: int = 16


MEMBERS: Dict[str, Callable[[bool], Member]] = {}


def member(make: Callable[[bool], Member]) -> Callable[[bool], Member]:
    """Enter make, which takes whether the small form is wanted, under its own name."""
    MEMBERS[make.__name__] = make
    return make

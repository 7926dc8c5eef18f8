"""Weights as those of a trained network are: none is trivially 0 or 1, and activations neither explode nor vanish."""

from typing import Callable, List

import torch
from torch import Tensor, nn
from torchvision.models import resnet

WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def jitter(model: nn.Module) -> None:
    """Make parameters that are one number throughout differ by 10 %, or by 0.1 where that number is 0."""
    for parameter in model.parameters():
        value = parameter.flatten()[0].item()
        if (parameter == value).all():
            noise = torch.rand_like(parameter) * 0.2 - 0.1
            parameter.data = value * (1 + noise) if abs(value) > 1e-3 else noise


def subdue(model: nn.Module) -> None:
    """Make what residual branches add a third of what it is added to, as training does, which starts from 0 where it can:
    at equal parts each block passes on the rounding errors of those before it enlarged, and behind fifty layers two
    implementations that both add up f32 well differ in the fourth digit."""
    for block in model.modules():
        if isinstance(block, resnet.Bottleneck):
            block.bn3.weight.data /= 3
        if isinstance(block, resnet.BasicBlock):
            block.bn2.weight.data /= 3


def calibrate(model: nn.Module, draw: Callable[[], List[Tensor]], draws: int) -> None:
    """Scale each convolution and linear layer so that its first result on inputs that are drawn has a standard deviation
    of 1, and give batch norms the mean and the variance of what they are first given, which is of that many draws."""
    if not any(isinstance(layer, BATCH_NORMS) for layer in model.modules()):
        draws = 1
    inputs = [torch.cat(values) for values in zip(*(draw() for _ in range(draws)))]
    seen = set()
    hooks = []

    def scale(layer, _, output):
        if layer in seen or output.numel() == 1:
            return output
        seen.add(layer)
        std = output.std().clamp(min=1e-3)
        layer.weight.data /= std
        if layer.bias is not None:
            layer.bias.data /= std
        return output / std

    def measure(layer, given):
        if layer in seen:
            return
        seen.add(layer)
        values = given[0].transpose(0, 1).flatten(1)
        layer.running_mean.data = values.mean(1)
        layer.running_var.data = values.var(1, unbiased=False) + 0.1 * values.var(unbiased=False) + 1e-3

    for layer in model.modules():
        if isinstance(layer, WEIGHTED):
            hooks.append(layer.register_forward_hook(scale))
        if isinstance(layer, BATCH_NORMS):
            hooks.append(layer.register_forward_pre_hook(measure))
    model(*inputs)
    for hook in hooks:
        hook.remove()

"""The same network with fewer channels."""

from fnmatch import fnmatch
from typing import Sequence

from torch import nn

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def narrow(model: nn.Module, factor: int, keep: Sequence[str] = ()) -> nn.Module:
    """Divide the channels of every layer of model by factor, rounding up, except those of the image, which has three or
    fewer, and those that layers whose names match a pattern in keep put out. Groups become fewer, and none becomes
    thinner. Where channels are concatenated or split, factor must divide them."""

    def channels(count: int) -> int:
        return count if count <= 3 else -(-count // factor)

    def rebuilt(name: str, old: nn.Module) -> nn.Module:
        kept = any(fnmatch(name, pattern) for pattern in keep)
        if isinstance(old, CONVS):
            groups = channels(old.groups)
            inputs = groups * (old.in_channels // old.groups) if groups > 1 else channels(old.in_channels)
            outputs = old.out_channels if kept else groups * max(1, channels(old.out_channels) // groups)
            sizes = (old.kernel_size, old.stride, old.padding, old.dilation, groups, old.bias is not None)
            return next(plain for plain in CONVS if isinstance(old, plain))(inputs, outputs, *sizes)
        if isinstance(old, nn.ConvTranspose2d):
            outputs = old.out_channels if kept else channels(old.out_channels)
            return nn.ConvTranspose2d(channels(old.in_channels), outputs, old.kernel_size, old.stride, old.padding)
        if isinstance(old, BATCH_NORMS):
            return type(old)(channels(old.num_features), old.eps, old.momentum)
        if isinstance(old, nn.Linear):
            outputs = old.out_features if kept else channels(old.out_features)
            return nn.Linear(channels(old.in_features), outputs, old.bias is not None)
        return old

    for path, parent in list(model.named_modules()):
        for name, child in list(parent.named_children()):
            setattr(parent, name, rebuilt(f"{path}.{name}".lstrip("."), child))
    return model

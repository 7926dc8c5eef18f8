"""Images: U-Nets, diffusion, generators, super-resolution, detection by queries and by heat maps, text in images."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from member import Member, floats, integers, member, uniform


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution, a batch norm and a ReLU."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class DoubleConv(nn.Sequential):
    def __init__(self, inputs: int, outputs: int):
        super().__init__(conv_norm(inputs, outputs, 3), conv_norm(outputs, outputs, 3))


class UNet(nn.Module):
    """The U-Net with batch norms, max pools and transposed convolutions 2x2."""

    def __init__(self, width: int, levels: int, classes: int):
        super().__init__()
        widths = [width * 2**i for i in range(levels + 1)]
        self.enter = DoubleConv(3, width)
        self.downs = nn.ModuleList(DoubleConv(a, b) for a, b in zip(widths, widths[1:]))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(list(zip(widths, widths[1:]))))
        self.convs = nn.ModuleList(DoubleConv(2 * a, a) for a in reversed(widths[:-1]))
        self.leave = nn.Conv2d(width, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        skips = [self.enter(image)]
        for down in self.downs:
            skips.append(down(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for up, conv in zip(self.ups, self.convs):
            x = conv(torch.cat((skips.pop(), up(x)), dim=1))
        return self.leave(x)


@member
def unet_batchnorm(small: bool) -> Member:
    width, levels, size = (4, 4, 64) if small else (32, 4, 192)
    return Member(UNet(width, levels, 2), {"image": floats(1, 3, size, size)}, ["scores"])


class GroupNormUNet(nn.Module):
    """Group norms, SiLU, strided convolutions down and nearest neighbours up, sums in place of concatenations."""

    def __init__(self, width: int, groups: int):
        super().__init__()

        def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.GroupNorm(groups, outputs), nn.SiLU())

        self.enter = block(3, width)
        self.down1, self.down2 = block(width, 2 * width, 2), block(2 * width, 4 * width, 2)
        self.middle = block(4 * width, 4 * width)
        self.up2, self.up1 = block(4 * width, 2 * width), block(2 * width, width)
        self.leave = nn.Conv2d(width, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        x0 = self.enter(image)
        x1 = self.down1(x0)
        x = self.middle(self.down2(x1))
        x = self.up2(F.interpolate(x, scale_factor=2, mode="nearest")) + x1
        x = self.up1(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)) + x0
        return torch.sigmoid(self.leave(x))


@member
def unet_groupnorm(small: bool) -> Member:
    width, groups, size = (8, 4, 32) if small else (64, 8, 128)
    return Member(GroupNormUNet(width, groups), {"image": floats(1, 3, size, size)}, ["mask"])


class ResBlock(nn.Module):
    """A residual block that adds the embedded time step between its convolutions."""

    def __init__(self, inputs: int, outputs: int, time: int, groups: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2, self.conv2 = nn.GroupNorm(groups, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(h)))


class CrossAttention(nn.Module):
    """Attention of heads folded into the batch."""

    def __init__(self, width: int, context: int, heads: int):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k, self.to_v = nn.Linear(context, width, bias=False), nn.Linear(context, width, bias=False)
        self.to_out = nn.Linear(width, width)

    def fold(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        x = x.reshape(batch, length, self.heads, width // self.heads).permute(0, 2, 1, 3)
        return x.reshape(batch * self.heads, length, width // self.heads)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        q, k, v = self.fold(self.to_q(x)), self.fold(self.to_k(context)), self.fold(self.to_v(context))
        y = torch.bmm(F.softmax(torch.bmm(q, k.transpose(1, 2)) * self.scale, dim=-1), v)
        y = y.reshape(x.size(0), self.heads, x.size(1), -1).permute(0, 2, 1, 3).reshape(x.shape)
        return self.to_out(y)


class SpatialTransformer(nn.Module):
    """Self-attention, attention to the prompt and GEGLU over the pixels."""

    def __init__(self, width: int, context: int, heads: int, groups: int):
        super().__init__()
        self.norm = nn.GroupNorm(groups, width, eps=1e-6)
        self.proj_in, self.proj_out = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn1, self.attn2 = CrossAttention(width, width, heads), CrossAttention(width, context, heads)
        self.geglu, self.ff = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        batch, width, height, columns = x.shape
        h = self.proj_in(self.norm(x)).permute(0, 2, 3, 1).reshape(batch, height * columns, width)
        n = self.norm1(h)
        h = h + self.attn1(n, n)
        h = h + self.attn2(self.norm2(h), context)
        value, gate = self.geglu(self.norm3(h)).chunk(2, dim=-1)
        h = h + self.ff(value * F.gelu(gate))
        return x + self.proj_out(h.reshape(batch, height, columns, width).permute(0, 3, 1, 2))


class Diffusion(nn.Module):
    """The innermost level of a latent diffusion U-Net."""

    def __init__(self, width: int, context: int, heads: int, groups: int):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.res1 = ResBlock(width, width, 4 * width, groups)
        self.attention1 = SpatialTransformer(width, context, heads, groups)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.res2 = ResBlock(width, 2 * width, 4 * width, groups)
        self.attention2 = SpatialTransformer(2 * width, context, heads, groups)
        self.up = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.res3 = ResBlock(3 * width, width, 4 * width, groups)
        self.leave = nn.Sequential(nn.GroupNorm(groups, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1))

    def forward(self, latent: Tensor, step: Tensor, context: Tensor) -> Tensor:
        half = self.width // 2
        frequencies = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half)
        angles = step[:, None].float() * frequencies[None]
        time = self.time(torch.cat((torch.cos(angles), torch.sin(angles)), dim=-1))
        skip = self.attention1(self.res1(self.enter(latent), time), context)
        x = self.attention2(self.res2(self.down(skip), time), context)
        x = self.up(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.leave(self.res3(torch.cat((x, skip), dim=1), time))


@member
def diffusion_block(small: bool) -> Member:
    width, context, heads, groups, size, tokens = (16, 24, 2, 4, 16, 7) if small else (192, 512, 8, 32, 32, 77)
    inputs = {"latent": floats(1, 4, size, size), "step": integers(0, 999, 1), "context": floats(1, tokens, context)}
    return Member(Diffusion(width, context, heads, groups), inputs, ["noise"])


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, width: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.token_mix = nn.Sequential(nn.Linear(tokens, width // 2), nn.GELU(), nn.Linear(width // 2, tokens))
        self.channel_mix = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.token_mix(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mix(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, size: int, patch: int, width: int, depth: int, classes: int):
        super().__init__()
        self.stem = nn.Conv2d(3, width, patch, stride=patch)
        self.blocks = nn.Sequential(*(MixerBlock((size // patch) ** 2, width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


@member
def mlp_mixer(small: bool) -> Member:
    size, width, depth, classes = (64, 32, 2, 10) if small else (224, 384, 4, 1000)
    return Member(Mixer(size, 16, width, depth, classes), {"image": floats(1, 3, size, size)}, ["logits"], opset=17)


class DenseBlock(nn.Module):
    """Five convolutions, each of which sees all before it."""

    def __init__(self, width: int, growth: int):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width + i * growth, growth if i < 4 else width, 3, padding=1) for i in range(5))

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for conv in self.convs[:-1]:
            found.append(F.leaky_relu(conv(torch.cat(found, 1)), 0.2))
        return self.convs[-1](torch.cat(found, 1)) * 0.2 + x


class RRDB(nn.Module):
    def __init__(self, width: int, growth: int):
        super().__init__()
        self.blocks = nn.Sequential(*(DenseBlock(width, growth) for _ in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x) * 0.2 + x


class ESRGAN(nn.Module):
    """Four times the resolution: once by pixel shuffle, once by nearest neighbours."""

    def __init__(self, width: int, growth: int, blocks: int):
        super().__init__()
        self.conv_first = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(RRDB(width, growth) for _ in range(blocks)))
        self.conv_body = nn.Conv2d(width, width, 3, padding=1)
        self.shuffle = nn.Sequential(nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.LeakyReLU(0.2))
        self.conv_up = nn.Conv2d(width, width, 3, padding=1)
        self.conv_last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        x = self.conv_first(image)
        x = self.shuffle(x + self.conv_body(self.body(x)))
        x = F.leaky_relu(self.conv_up(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
        return self.conv_last(x)


@member
def super_resolution(small: bool) -> Member:
    width, growth, blocks, size = (8, 4, 1, 24) if small else (32, 16, 2, 64)
    return Member(ESRGAN(width, growth, blocks), {"image": uniform(0, 1, 1, 3, size, size)}, ["image_x4"])


class ModulatedConv(nn.Module):
    """StyleGAN 2's convolution, whose weights the style scales and a norm scales back."""

    def __init__(self, inputs: int, outputs: int, style: int, up: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, outputs, inputs, 3, 3) / math.sqrt(inputs * 9))
        self.style = nn.Linear(style, inputs)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.strength = nn.Parameter(torch.full((1,), 0.1))
        self.up = up

    def forward(self, x: Tensor, style: Tensor, noise: Tensor) -> Tensor:
        batch, inputs, height, width = x.shape
        weight = self.weight * (self.style(style) + 1).view(batch, 1, inputs, 1, 1)
        weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)
        if self.up:
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        outputs = weight.size(1)
        x = x.reshape(1, batch * inputs, *x.shape[2:])
        x = F.conv2d(x, weight.view(batch * outputs, inputs, 3, 3), padding=1, groups=batch)
        x = x.view(batch, outputs, *x.shape[2:]) + self.strength * noise + self.bias.view(1, -1, 1, 1)
        return F.leaky_relu(x, 0.2) * math.sqrt(2)


class StyleGAN(nn.Module):
    def __init__(self, style: int, width: int, levels: int):
        super().__init__()
        self.mapping = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(style, style), nn.LeakyReLU(0.2))))
        self.constant = nn.Parameter(torch.randn(1, width, 4, 4))
        self.convs = nn.ModuleList(ModulatedConv(width >> max(i - 1, 0), width >> i, style, i > 0) for i in range(levels))
        self.to_rgb = nn.ModuleList(nn.Conv2d(width >> i, 3, 1) for i in range(levels))
        for i in range(levels):
            self.register_buffer(f"noise_{i}", torch.randn(1, 1, 4 << i, 4 << i))

    def forward(self, z: Tensor) -> Tensor:
        style = self.mapping(z * torch.rsqrt(z.pow(2).mean(dim=1, keepdim=True) + 1e-8))
        x, image = self.constant.expand(z.size(0), -1, -1, -1), 0
        for i, (conv, rgb) in enumerate(zip(self.convs, self.to_rgb)):
            x = conv(x, style, getattr(self, f"noise_{i}"))
            image = rgb(x) + (F.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False) if i else image)
        return image


@member
def stylegan(small: bool) -> Member:
    style, width, levels = (16, 16, 3) if small else (256, 256, 5)
    return Member(StyleGAN(style, width, levels), {"z": floats(1, style)}, ["image"])


@member
def dcgan(small: bool) -> Member:
    noise, width = (16, 4) if small else (100, 64)
    layers, inputs = [], noise
    for i, outputs in enumerate((8 * width, 4 * width, 2 * width, width)):
        stride, padding = (2, 1) if i else (1, 0)
        up = nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False)
        layers += [up, nn.BatchNorm2d(outputs), nn.ReLU(True)]
        inputs = outputs
    layers += [nn.ConvTranspose2d(inputs, 3, 4, 2, 1, bias=False), nn.Tanh()]
    return Member(nn.Sequential(*layers), {"noise": floats(1, noise, 1, 1)}, ["image"])


@member
def autoencoder(small: bool) -> Member:
    width, size = (4, 32) if small else (48, 128)
    encoder = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2),
               nn.Conv2d(width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
               nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.ELU()]
    decoder = [nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(),
               nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Sigmoid()]
    return Member(nn.Sequential(*encoder, *decoder), {"image": floats(1, 3, size, size)}, ["image_again"])


class VariationalDecoder(nn.Module):
    """Mean and deviation of an image from a sample of the latent distribution, whose noise is an input."""

    def __init__(self, latent: int, width: int):
        super().__init__()
        self.mean, self.log_variance = nn.Linear(latent, latent), nn.Linear(latent, latent)
        self.enter = nn.Linear(latent, width * 8 * 8)
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(width, width // 2, 3, stride=2, padding=1, output_padding=1), nn.Softplus(),
            nn.ConvTranspose2d(width // 2, width // 4, 5, stride=2, padding=2, output_padding=1), nn.Mish(),
        )
        self.image, self.spread = nn.Conv2d(width // 4, 1, 3, padding=1), nn.Conv2d(width // 4, 1, 3, padding=1)

    def forward(self, code: Tensor, noise: Tensor):
        z = self.mean(code) + torch.exp(0.5 * self.log_variance(code)) * noise
        x = self.layers(F.hardswish(self.enter(z)).view(z.size(0), -1, 8, 8))
        return torch.sigmoid(self.image(x)), F.softplus(self.spread(x)) + 1e-4


@member
def variational_decoder(small: bool) -> Member:
    latent, width = (8, 16) if small else (128, 256)
    inputs = {"code": floats(1, latent), "noise": floats(1, latent)}
    return Member(VariationalDecoder(latent, width), inputs, ["mean", "deviation"])


class Detr(nn.Module):
    """Queries that look for objects in the pixels of a small backbone; sines of both coordinates are the positions."""

    def __init__(self, width: int, heads: int, layers: int, queries: int, size: int):
        super().__init__()
        channels = [3, width // 4, width // 2, width, width]
        self.backbone = nn.Sequential(*(conv_norm(a, b, 3, 2) for a, b in zip(channels, channels[1:])))
        self.projection = nn.Conv2d(width, width, 1)
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.transformer = nn.Transformer(width, heads, layers, layers, 2 * width, batch_first=True)
        self.classes = nn.Linear(width, 12)
        self.boxes = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))
        side = size // 16
        angles = torch.arange(side)[:, None] * torch.exp(torch.arange(0, width // 2, 2) * (-math.log(1e4) / (width // 2)))
        line = torch.cat((angles.sin(), angles.cos()), dim=1)
        grid = torch.cat((line[:, None].expand(-1, side, -1), line[None].expand(side, -1, -1)), dim=2)
        self.register_buffer("positions", grid.reshape(1, side * side, width))

    def forward(self, image: Tensor):
        x = self.projection(self.backbone(image)).flatten(2).permute(0, 2, 1)
        h = self.transformer(x + self.positions, self.queries.unsqueeze(0).expand(x.size(0), -1, -1))
        return self.classes(h), self.boxes(h).sigmoid()


@member
def detr_like(small: bool) -> Member:
    width, heads, layers, queries, size = (32, 4, 1, 6, 64) if small else (256, 8, 2, 50, 256)
    return Member(Detr(width, heads, layers, queries, size), {"image": floats(1, 3, size, size)}, ["classes", "boxes"])


class CenterNet(nn.Module):
    """Heat maps of objects' centres, their local maxima, and sizes."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        channels = [3, width, 2 * width, 4 * width, 4 * width]
        self.downs = nn.Sequential(*(conv_norm(a, b, 3, 2) for a, b in zip(channels, channels[1:])))
        self.ups = nn.Sequential(*(
            nn.Sequential(nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            for a, b in ((4 * width, 2 * width), (2 * width, width))
        ))
        self.heat = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, classes, 1))
        self.size = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2, 1))

    def forward(self, image: Tensor):
        x = self.ups(self.downs(image))
        heat, size = torch.sigmoid(self.heat(x)), self.size(x)
        peaks = heat * (F.max_pool2d(heat, 3, stride=1, padding=1) == heat).float()
        scores, index = torch.topk(peaks.flatten(1), 10)
        cells = index % (heat.size(2) * heat.size(3))
        sizes = size.flatten(2).gather(2, cells.unsqueeze(1).expand(-1, 2, -1))
        return heat, size, scores, cells, sizes


@member
def centernet_like(small: bool) -> Member:
    width, size = (8, 64) if small else (64, 256)
    outputs = ["heat", "size", "scores", "cells", "sizes"]
    return Member(CenterNet(width, 5), {"image": floats(1, 3, size, size)}, outputs, compared=["heat", "size", "scores"])


class SqueezeExcite(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, width // 4), nn.Linear(width // 4, width)

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.sigmoid(self.fc2(F.relu(self.fc1(x.mean(dim=(2, 3))))))
        return x * scale.view(x.size(0), -1, 1, 1)


class Ghost(nn.Module):
    """Half of the channels by a pointwise convolution, and half by a cheap depthwise one of those."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        half = outputs // 2
        self.primary, self.cheap = conv_norm(inputs, half, 1), conv_norm(half, half, 3, groups=half)

    def forward(self, x: Tensor) -> Tensor:
        primary = self.primary(x)
        return torch.cat((primary, self.cheap(primary)), dim=1)


class GhostBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.layers = nn.Sequential(Ghost(width, 2 * width), SqueezeExcite(2 * width), Ghost(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


@member
def ghostnet(small: bool) -> Member:
    width, size, classes = (16, 32, 10) if small else (64, 112, 1000)
    layers = [nn.Conv2d(3, width, 3, 2, 1)]
    for inputs in (width, 2 * width, 4 * width):
        layers += [GhostBlock(inputs), nn.Conv2d(inputs, 2 * inputs, 3, 2, 1), nn.PReLU(2 * inputs)]
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes))
    return Member(module, {"image": floats(1, 3, size, size)}, ["logits"])


class Siamese(nn.Module):
    """Both images' embeddings of length 1, and how alike they are."""

    def __init__(self, width: int, embedding: int):
        super().__init__()
        layers, inputs = [], 3
        for outputs in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(inputs, outputs, 5, padding=2), nn.LocalResponseNorm(5), nn.ReLU(), nn.MaxPool2d(3, 2)]
            inputs = outputs
        self.net = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(inputs, embedding))

    def forward(self, first: Tensor, second: Tensor):
        a, b = F.normalize(self.net(first), dim=1), F.normalize(self.net(second), dim=1)
        return a, b, F.cosine_similarity(a, b), F.pairwise_distance(a, b)


@member
def siamese(small: bool) -> Member:
    width, embedding, size = (4, 16, 32) if small else (32, 128, 128)
    inputs = {name: floats(1, 3, size, size) for name in ("first", "second")}
    return Member(Siamese(width, embedding), inputs, ["embedding_1", "embedding_2", "similarity", "distance"])


class CRNN(nn.Module):
    """Text lines: convolutions that leave a row, and a bidirectional LSTM along it."""

    def __init__(self, width: int, symbols: int):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            conv_norm(width, 2 * width, 3), nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            conv_norm(2 * width, 4 * width, 3), nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            nn.Conv2d(4 * width, 4 * width, (4, 2)), nn.ReLU(),
        )
        self.rnn = nn.LSTM(4 * width, 2 * width, num_layers=2, bidirectional=True)
        self.symbols = nn.Linear(4 * width, symbols)

    def forward(self, image: Tensor) -> Tensor:
        x = self.cnn(image).squeeze(2).permute(2, 0, 1)
        return F.log_softmax(self.symbols(self.rnn(x)[0]), dim=2)


@member
def crnn(small: bool) -> Member:
    width, symbols, columns = (6, 12, 32) if small else (64, 96, 128)
    return Member(CRNN(width, symbols), {"image": floats(1, 1, 32, columns)}, ["symbols"])


class StyleConv(nn.Sequential):
    """Reflection padding, a convolution, and instance norm and ReLU where told so."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, up: bool = False, norm: bool = True):
        layers = [nn.Upsample(scale_factor=2, mode="nearest")] if up else []
        layers += [nn.ReflectionPad2d(kernel // 2), nn.Conv2d(inputs, outputs, kernel, stride)]
        layers += [nn.InstanceNorm2d(outputs, affine=True), nn.ReLU()] if norm else []
        super().__init__(*layers)


class StyleBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        second = [nn.ReplicationPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width)]
        self.layers = nn.Sequential(StyleConv(width, width, 3), *second)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


@member
def style_transfer(small: bool) -> Member:
    width, size = (4, 32) if small else (32, 128)
    module = nn.Sequential(
        StyleConv(3, width, 9), StyleConv(width, 2 * width, 3, 2), StyleConv(2 * width, 4 * width, 3, 2),
        StyleBlock(4 * width), StyleBlock(4 * width), StyleConv(4 * width, 2 * width, 3, up=True),
        StyleConv(2 * width, width, 3, up=True), StyleConv(width, 3, 9, norm=False),
    )
    return Member(module, {"image": uniform(0, 1, 1, 3, size, size)}, ["styled"])


class VolumeConv(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, groups: int):
        super().__init__(
            nn.Conv3d(inputs, outputs, 3, padding=1), nn.GroupNorm(groups, outputs), nn.LeakyReLU(0.01),
            nn.Conv3d(outputs, outputs, 3, padding=1), nn.GroupNorm(groups, outputs), nn.LeakyReLU(0.01),
        )


class VolumeUNet(nn.Module):
    def __init__(self, width: int, groups: int):
        super().__init__()
        self.enter, self.down = VolumeConv(1, width, groups), VolumeConv(width, 2 * width, groups)
        self.middle = VolumeConv(2 * width, 4 * width, groups)
        self.up2 = nn.ConvTranspose3d(4 * width, 2 * width, 2, stride=2)
        self.conv2 = VolumeConv(4 * width, 2 * width, groups)
        self.up1 = nn.ConvTranspose3d(2 * width, width, 2, stride=2)
        self.conv1 = VolumeConv(2 * width, width, groups)
        self.leave = nn.Conv3d(width, 3, 1)

    def forward(self, volume: Tensor) -> Tensor:
        x0 = self.enter(volume)
        x1 = self.down(F.max_pool3d(x0, 2))
        x = self.middle(F.max_pool3d(x1, 2))
        x = self.conv2(torch.cat((self.up2(x), x1), dim=1))
        x = self.conv1(torch.cat((self.up1(x), x0), dim=1))
        return F.softmax(self.leave(x), dim=1)


@member
def unet_3d(small: bool) -> Member:
    width, groups, size = (4, 2, 8) if small else (16, 4, 32)
    return Member(VolumeUNet(width, groups), {"volume": floats(1, 1, size, size, size)}, ["classes"])

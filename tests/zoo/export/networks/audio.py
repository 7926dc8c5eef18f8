"""Speech and sound: 1-D convolutions of every kind, and transformers over frames."""

import math
from typing import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from member import Member, floats, member, uniform


class Wav2Vec(nn.Module):
    """wav2vec 2.0: strided convolutions over the wave, positions by a grouped convolution, a transformer."""

    def __init__(self, channels: int, width: int, heads: int, layers: int, kernel: int, groups: int):
        super().__init__()
        kernels, strides = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)
        self.convs = nn.ModuleList(
            nn.Conv1d(channels if i else 1, channels, k, s, bias=False) for i, (k, s) in enumerate(zip(kernels, strides))
        )
        self.group_norm = nn.GroupNorm(channels, channels)
        self.norm = nn.LayerNorm(channels)
        self.projection = nn.Linear(channels, width)
        self.positions = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=groups)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, wave: Tensor) -> Tensor:
        x = wave.unsqueeze(1)
        for i, conv in enumerate(self.convs):
            x = conv(x)
            x = F.gelu(self.group_norm(x) if i == 0 else x)
        x = self.projection(self.norm(x.transpose(1, 2)))
        positions = self.positions(x.transpose(1, 2))[:, :, : x.size(1)]
        return self.encoder(x + F.gelu(positions).transpose(1, 2))


@member
def wav2vec_like(small: bool) -> Member:
    sizes, samples = ((16, 32, 4, 2, 32, 4), 3200) if small else ((256, 512, 8, 3, 128, 16), 16000)
    return Member(Wav2Vec(*sizes), {"wave": floats(1, samples)}, ["frames"])


def sines(positions: Tensor, width: int) -> Tensor:
    """Sines and cosines of positions, (positions, width)."""
    angles = positions[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
    return torch.cat((angles.sin(), angles.cos()), dim=1)


class FeedForward(nn.Sequential):
    def __init__(self, width: int):
        super().__init__(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))


class RelativeAttention(nn.Module):
    """Transformer-XL's attention, whose scores of distances are shifted into place."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.position = nn.Linear(width, width, bias=False)
        self.u = nn.Parameter(torch.randn(heads, self.size) * 0.1)
        self.w = nn.Parameter(torch.randn(heads, self.size) * 0.1)

    def shift(self, scores: Tensor) -> Tensor:
        batch, heads, queries, distances = scores.shape
        padded = F.pad(scores, (1, 0)).view(batch, heads, distances + 1, queries)
        return padded[:, :, 1:].reshape(batch, heads, queries, distances)[:, :, :, :queries]

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size)
        k = self.k(x).view(batch, length, self.heads, self.size).permute(0, 2, 3, 1)
        v = self.v(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        p = self.position(positions).view(1, -1, self.heads, self.size).permute(0, 2, 3, 1)
        content = torch.matmul((q + self.u).transpose(1, 2), k)
        distance = self.shift(torch.matmul((q + self.w).transpose(1, 2), p))
        weights = torch.softmax((content + distance) / math.sqrt(self.size), dim=-1)
        return self.out(torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, width))


class ConvModule(nn.Module):
    """Pointwise GLU, a depthwise convolution, batch norm, SiLU, pointwise."""

    def __init__(self, width: int, kernel: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch_norm = nn.BatchNorm1d(width)
        self.down = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.glu(self.up(self.norm(x).transpose(1, 2)), dim=1)
        return self.down(F.silu(self.batch_norm(self.depthwise(x)))).transpose(1, 2)


class Conformer(nn.Module):
    def __init__(self, width: int, heads: int, kernel: int, length: int):
        super().__init__()
        self.ff_1, self.ff_2 = FeedForward(width), FeedForward(width)
        self.attention_norm, self.attention = nn.LayerNorm(width), RelativeAttention(width, heads)
        self.conv = ConvModule(width, kernel)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("positions", sines(torch.arange(length - 1, -length, -1), width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.ff_1(x)
        x = x + self.attention(self.attention_norm(x), self.positions)
        x = x + self.conv(x)
        return self.norm(x + 0.5 * self.ff_2(x))


@member
def conformer_block(small: bool) -> Member:
    width, heads, kernel, length = (32, 4, 31, 24) if small else (256, 4, 31, 200)
    module = nn.Sequential(*(Conformer(width, heads, kernel, length) for _ in range(2)))
    return Member(module, {"frames": floats(1, length, width)}, ["y"])


class SeparatorBlock(nn.Module):
    """Pointwise, PReLU and a norm over everything, a dilated depthwise convolution, and a way out to the sum of skips."""

    def __init__(self, width: int, hidden: int, dilation: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(width, hidden, 1), nn.PReLU(), nn.GroupNorm(1, hidden),
            nn.Conv1d(hidden, hidden, 3, padding=dilation, dilation=dilation, groups=hidden),
            nn.PReLU(), nn.GroupNorm(1, hidden),
        )
        self.residual, self.skip = nn.Conv1d(hidden, width, 1), nn.Conv1d(hidden, width, 1)

    def forward(self, x: Tensor):
        h = self.body(x)
        return x + self.residual(h), self.skip(h)


class ConvTasNet(nn.Module):
    """Masks over a learnt transform separate two speakers."""

    def __init__(self, filters: int, width: int, hidden: int, blocks: int, repeats: int):
        super().__init__()
        self.encoder = nn.Conv1d(1, filters, 16, stride=8, bias=False)
        self.norm = nn.GroupNorm(1, filters)
        self.bottleneck = nn.Conv1d(filters, width, 1)
        self.blocks = nn.ModuleList(SeparatorBlock(width, hidden, 2**i) for _ in range(repeats) for i in range(blocks))
        self.prelu = nn.PReLU()
        self.masks = nn.Conv1d(width, 2 * filters, 1)
        self.decoder = nn.ConvTranspose1d(filters, 1, 16, stride=8, bias=False)

    def forward(self, wave: Tensor) -> Tensor:
        encoded = F.relu(self.encoder(wave))
        x, total = self.bottleneck(self.norm(encoded)), 0
        for block in self.blocks:
            x, skip = block(x)
            total = total + skip
        batch, filters, frames = encoded.shape
        masks = torch.sigmoid(self.masks(self.prelu(total))).view(batch, 2, filters, frames)
        separated = (masks * encoded.unsqueeze(1)).view(batch * 2, filters, frames)
        return self.decoder(separated).view(batch, 2, -1)


@member
def tcn_separator(small: bool) -> Member:
    sizes, samples = ((32, 16, 32, 4, 2), 800) if small else ((256, 128, 256, 8, 2), 8000)
    return Member(ConvTasNet(*sizes), {"wave": floats(1, 1, samples)}, ["speakers"])


class CausalBlock(nn.Module):
    """Two dilated convolutions that see the past alone: padded on both sides, the end cut off."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int):
        super().__init__()
        self.past = (kernel - 1) * dilation
        self.conv1 = nn.Conv1d(inputs, outputs, kernel, padding=self.past, dilation=dilation)
        self.conv2 = nn.Conv1d(outputs, outputs, kernel, padding=self.past, dilation=dilation)
        self.downsample = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv1(x)[:, :, : -self.past])
        y = F.relu(self.conv2(y)[:, :, : -self.past])
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


@member
def tcn(small: bool) -> Member:
    inputs, width, length = (4, 12, 64) if small else (32, 192, 512)
    blocks = [CausalBlock(inputs if i == 0 else width, width, 3, 2**i) for i in range(5)]
    return Member(nn.Sequential(*blocks, nn.Conv1d(width, inputs, 1)), {"x": floats(1, inputs, length)}, ["y"])


class ResidualBlock(nn.Module):
    """HiFi-GAN's first kind of residual block."""

    def __init__(self, width: int, kernel: int, dilations: Sequence[int]):
        super().__init__()
        half = kernel // 2
        self.convs1 = nn.ModuleList(nn.Conv1d(width, width, kernel, padding=half * d, dilation=d) for d in dilations)
        self.convs2 = nn.ModuleList(nn.Conv1d(width, width, kernel, padding=half) for _ in dilations)

    def forward(self, x: Tensor) -> Tensor:
        for conv1, conv2 in zip(self.convs1, self.convs2):
            x = x + conv2(F.leaky_relu(conv1(F.leaky_relu(x, 0.1)), 0.1))
        return x


class HiFiGAN(nn.Module):
    """A wave from a mel spectrogram, 256 samples a frame."""

    def __init__(self, mels: int, width: int):
        super().__init__()
        self.conv_pre = nn.Conv1d(mels, width, 7, padding=3)
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for rate, kernel in ((8, 16), (8, 16), (2, 4), (2, 4)):
            self.ups.append(nn.ConvTranspose1d(width, width // 2, kernel, rate, padding=(kernel - rate) // 2))
            width //= 2
            self.blocks.append(nn.ModuleList(ResidualBlock(width, k, (1, 3, 5)) for k in (3, 7, 11)))
        self.conv_post = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, mel: Tensor) -> Tensor:
        x = self.conv_pre(mel)
        for up, blocks in zip(self.ups, self.blocks):
            x = up(F.leaky_relu(x, 0.1))
            x = sum(block(x) for block in blocks) / len(blocks)
        return torch.tanh(self.conv_post(F.leaky_relu(x)))


@member
def vocoder(small: bool) -> Member:
    mels, width, frames = (8, 32, 8) if small else (80, 128, 24)
    return Member(HiFiGAN(mels, width), {"mel": floats(1, mels, frames)}, ["wave"])


class WhisperLayer(nn.Module):
    """Norms before, and keys without a bias, queries and keys scaled by the fourth root."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attn_ln, self.mlp_ln = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        h = self.attn_ln(x)
        scale = (x.size(-1) // self.heads) ** -0.25
        q = self.query(h).view(*h.shape[:2], self.heads, -1).permute(0, 2, 1, 3) * scale
        k = self.key(h).view(*h.shape[:2], self.heads, -1).permute(0, 2, 3, 1) * scale
        v = self.value(h).view(*h.shape[:2], self.heads, -1).permute(0, 2, 1, 3)
        x = x + self.out((F.softmax(q @ k, dim=-1) @ v).permute(0, 2, 1, 3).flatten(start_dim=2))
        return x + self.mlp(self.mlp_ln(x))


class WhisperEncoder(nn.Module):
    def __init__(self, mels: int, width: int, heads: int, layers: int, frames: int):
        super().__init__()
        self.conv1 = nn.Conv1d(mels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.register_buffer("positions", sines(torch.arange(frames // 2), width))
        self.blocks = nn.ModuleList(WhisperLayer(width, heads) for _ in range(layers))
        self.ln_post = nn.LayerNorm(width)

    def forward(self, mel: Tensor) -> Tensor:
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).permute(0, 2, 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.ln_post(x)


@member
def whisper_encoder(small: bool) -> Member:
    mels, width, heads, layers, frames = (16, 32, 4, 2, 48) if small else (80, 384, 6, 4, 600)
    inputs = {"mel": floats(1, mels, frames)}
    return Member(WhisperEncoder(mels, width, heads, layers, frames), inputs, ["frames"], opset=17)


class SpectrogramCNN(nn.Module):
    """Sound classes by 2-D convolutions over the logarithm of a spectrogram, whose transform is a convolution."""

    def __init__(self, window: int, width: int, classes: int):
        super().__init__()
        bins = window // 2 + 1
        angles = 2 * math.pi * torch.arange(bins)[:, None] * torch.arange(window)[None, :] / window
        basis = torch.cat((torch.cos(angles), -torch.sin(angles))) * torch.hann_window(window)
        self.register_buffer("basis", basis.unsqueeze(1))
        self.hop = window // 2
        layers, inputs = [], 1
        for outputs in (width, 2 * width, 4 * width):
            conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            layers += [conv, nn.BatchNorm2d(outputs), nn.ReLU(), nn.AvgPool2d(2)]
            inputs = outputs
        self.cnn = nn.Sequential(*layers)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, wave: Tensor) -> Tensor:
        real, imaginary = F.conv1d(wave.abs().unsqueeze(1), self.basis, stride=self.hop).chunk(2, dim=1)
        power = real**2 + imaginary**2
        x = self.cnn(10.0 * torch.log10(torch.clamp(power, min=1e-10)).unsqueeze(1))
        x = x.mean(dim=2)
        return torch.sigmoid(self.fc(x.max(dim=2)[0] + x.mean(dim=2)))


@member
def spectrogram_cnn(small: bool) -> Member:
    window, width, samples = (64, 8, 1200) if small else (512, 32, 16000)
    return Member(SpectrogramCNN(window, width, 10), {"wave": uniform(-1, 1, 1, samples)}, ["classes"])

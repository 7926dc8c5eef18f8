"""The networks of tests/archs in PyTorch, with random weights: the same operators, shapes, inputs
and outputs as their ONNX files."""

import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    """An encoder layer whose norms follow the residual sums."""

    def __init__(self, hidden, heads, inner, activation, epsilon):
        super().__init__()
        self.heads, self.activation = heads, activation
        self.query, self.key, self.value, self.output = (nn.Linear(hidden, hidden) for _ in range(4))
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.attended, self.fed = nn.LayerNorm(hidden, epsilon), nn.LayerNorm(hidden, epsilon)

    def forward(self, x, mask):
        def heads(y):
            return y.view(y.shape[0], y.shape[1], self.heads, -1).transpose(1, 2)

        y = F.scaled_dot_product_attention(heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), attn_mask=mask)
        x = self.attended(self.output(y.transpose(1, 2).reshape(x.shape)) + x)
        return self.fed(self.down(self.activation(self.up(x))) + x)


class BERT(nn.Module):
    def __init__(self, layers, hidden, heads, inner, vocabulary=30522, positions=512):
        super().__init__()
        self.words, self.types, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(2, hidden), nn.Embedding(positions, hidden)
        self.norm = nn.LayerNorm(hidden, 1e-12)
        self.layers = nn.ModuleList(Layer(hidden, heads, inner, F.gelu, 1e-12) for _ in range(layers))
        self.pooler = nn.Linear(hidden, hidden)

    def forward(self, ids, mask, types):
        x = self.norm(self.words(ids) + self.types(types) + self.positions.weight[: ids.shape[1]])
        mask = (1 - mask[:, None, None, :].to(x.dtype)) * -10000
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class Encoder(nn.Module):
    def __init__(self, layers, hidden, heads, inner):
        super().__init__()
        self.layers = nn.ModuleList(Layer(hidden, heads, inner, F.relu, 1e-5) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x, None)
        return (x,)


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width

        def unit(a, b, kernel, stride=1):
            return nn.Sequential(nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(b))

        self.a, self.b, self.c = unit(inside, width, 1), unit(width, width, 3, stride), unit(width, outside, 1)
        self.shortcut = unit(inside, outside, 1, stride) if stride > 1 or inside != outside else nn.Identity()

    def forward(self, x):
        return F.relu(self.c(F.relu(self.b(F.relu(self.a(x))))) + self.shortcut(x))


class ResNet(nn.Module):
    """In its v1.5 form: a bottleneck's stride is on its 3x3 convolution."""

    def __init__(self, blocks, width, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        stages, inside = [], width
        for i, count in enumerate(blocks):
            for j in range(count):
                stages.append(Bottleneck(inside, width << i, 2 if i > 0 and j == 0 else 1))
                inside = 4 * width << i
        self.stages, self.head = nn.Sequential(*stages), nn.Linear(inside, classes)

    def forward(self, x):
        return (self.head(self.stages(self.stem(x)).mean((2, 3))),)


def tokens(vocabulary, length):
    """Inputs of BERT for a batch."""

    def draw(batch):
        ids = torch.randint(0, vocabulary, (batch, length))
        return ids, torch.ones_like(ids), torch.zeros_like(ids)

    return draw


class Network:
    """A network by the name of its ONNX file, the inputs for a batch, and the symbols of the file's inputs but the batch."""

    def __init__(self, name, make, inputs, dims=()):
        self.name, self.make, self.inputs, self.dims = name, make, inputs, dims


def published():
    length = ("sequence=128",)
    return [
        Network("bert-base", lambda: BERT(12, 768, 12, 3072), tokens(30522, 128), length),
        Network("transformer-big", lambda: Encoder(6, 1024, 16, 4096), lambda batch: (torch.randn(batch, 128, 1024),), length),
        Network("resnet50", lambda: ResNet((3, 4, 6, 3), 64, 1000), lambda batch: (torch.randn(batch, 3, 224, 224),)),
        Network("minilm", lambda: BERT(6, 384, 12, 1536), tokens(30522, 128), length),
    ]


def tiny():
    """Those of the same architectures that take milliseconds on a processor."""
    length = ("sequence=16",)
    return [
        Network("bert", lambda: BERT(2, 32, 4, 64, 50, 16), tokens(50, 16), length),
        Network("encoder", lambda: Encoder(2, 32, 4, 64), lambda batch: (torch.randn(batch, 16, 32),), length),
        Network("resnet", lambda: ResNet((1, 2, 1, 1), 8, 10), lambda batch: (torch.randn(batch, 3, 32, 32),)),
    ]

"""Tables, recommendations, graphs and clouds of points."""

from typing import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from member import Member, booleans, floats, integers, member


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with ReLUs between them."""
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    """Clicks from numbers and bags of categories, by the dot products of all pairs."""

    def __init__(self, dense: int, tables: int, rows: int, width: int, hidden: int):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        for table in self.tables:
            nn.init.normal_(table.weight, std=width**-0.5)
        self.bottom = mlp(dense, hidden, width)
        pairs = (tables + 1) * tables // 2
        self.top = mlp(pairs + width, hidden, hidden // 2, 1)
        low = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("low", low[0] * (tables + 1) + low[1])

    def forward(self, dense: Tensor, bags: Tensor) -> Tensor:
        x = F.relu(self.bottom(dense))
        vectors = [x] + [table(bags[:, i]).sum(dim=1) for i, table in enumerate(self.tables)]
        stacked = torch.stack(vectors, dim=1)
        dots = torch.bmm(stacked, stacked.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat((x, dots[:, self.low]), dim=1)))


@member
def dlrm(small: bool) -> Member:
    dense, tables, rows, width, hidden, bag = (13, 6, 100, 16, 64, 3) if small else (13, 26, 5000, 64, 512, 8)
    inputs = {"dense": floats(1, dense), "bags": integers(0, rows - 1, 1, tables, bag)}
    return Member(DLRM(dense, tables, rows, width, hidden), inputs, ["click"])


class GNN(nn.Module):
    """Messages along edges, added up at their ends and, in every second layer, their mean."""

    def __init__(self, features: int, width: int, layers: int, classes: int):
        super().__init__()
        self.enter = nn.Linear(features, width)
        self.messages = nn.ModuleList(mlp(2 * width, width, width) for _ in range(layers))
        self.updates = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.leave = nn.Linear(width, classes)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        x = F.relu(self.enter(nodes))
        for i, (message, update) in enumerate(zip(self.messages, self.updates)):
            sent = message(torch.cat((x[source], x[target]), dim=1))
            if i % 2 == 0:
                received = torch.zeros_like(x).scatter_add(0, target.unsqueeze(1).expand_as(sent), sent)
            else:
                received = torch.zeros_like(x).index_put((target,), sent, accumulate=True)
                count = torch.zeros(x.size(0)).scatter_add(0, target, torch.ones(target.size(0)))
                received = received / count.clamp(min=1).unsqueeze(1)
            x = x + F.relu(update(torch.cat((x, received), dim=1)))
        return F.log_softmax(self.leave(x), dim=1)


@member
def gnn(small: bool) -> Member:
    nodes, edges, features, width = (20, 60, 8, 16) if small else (1000, 4000, 64, 128)
    inputs = {"nodes": floats(nodes, features), "edges": integers(0, nodes - 1, 2, edges)}
    return Member(GNN(features, width, 3, 7), inputs, ["classes"])


class Pointwise(nn.Sequential):
    """The same layers with batch norms for every point."""

    def __init__(self, *widths: int):
        layers = []
        for inputs, outputs in zip(widths, widths[1:]):
            layers += [nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU()]
        super().__init__(*layers)


class PointNet(nn.Module):
    """A class of a cloud, which is first turned by a learnt transform."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.turn_points, self.turn = Pointwise(3, width, 4 * width), mlp(4 * width, width, 9)
        self.points = Pointwise(3, width, 2 * width, 8 * width)
        hidden = [nn.Linear(8 * width, 4 * width), nn.BatchNorm1d(4 * width), nn.ReLU()]
        self.head = nn.Sequential(*hidden, nn.Linear(4 * width, classes))

    def forward(self, points: Tensor) -> Tensor:
        turn = self.turn(torch.max(self.turn_points(points), 2)[0]).view(-1, 3, 3) + torch.eye(3)
        turned = torch.bmm(points.transpose(2, 1), turn).transpose(2, 1)
        return F.log_softmax(self.head(torch.max(self.points(turned), 2, keepdim=True)[0].flatten(1)), dim=-1)


@member
def pointnet(small: bool) -> Member:
    width, points = (8, 64) if small else (64, 1024)
    return Member(PointNet(width, 10), {"points": floats(1, 3, points)}, ["classes"])


def gather_points(x: Tensor, index: Tensor) -> Tensor:
    """x (batch, points, width) at index (batch, groups, neighbours)."""
    batch, groups, neighbours = index.shape
    flat = index.reshape(batch, groups * neighbours, 1).expand(-1, -1, x.size(-1))
    return torch.gather(x, 1, flat).view(batch, groups, neighbours, x.size(-1))


class SetAbstraction(nn.Module):
    """The nearest neighbours of every fourth point, relative to it, and the maximum of what they say."""

    def __init__(self, neighbours: int, *widths: int):
        super().__init__()
        self.neighbours = neighbours
        layers = []
        for inputs, outputs in zip(widths, widths[1:]):
            layers += [nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, xyz: Tensor, features: Tensor):
        centres = xyz[:, ::4]
        distance = ((centres.unsqueeze(2) - xyz.unsqueeze(1)) ** 2).sum(-1)
        _, index = torch.topk(distance, self.neighbours, dim=-1, largest=False, sorted=False)
        offsets = gather_points(xyz, index) - centres.unsqueeze(2)
        grouped = torch.cat((offsets, gather_points(features, index)), dim=-1).permute(0, 3, 2, 1)
        return centres, self.layers(grouped).max(dim=2)[0].transpose(1, 2)


class PointNetPP(nn.Module):
    def __init__(self, width: int, neighbours: int, classes: int):
        super().__init__()
        self.sa1 = SetAbstraction(neighbours, 6, width, 2 * width)
        self.sa2 = SetAbstraction(neighbours, 3 + 2 * width, 2 * width, 4 * width)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, points: Tensor) -> Tensor:
        xyz, features = self.sa1(points, points)
        _, features = self.sa2(xyz, features)
        return self.head(features.max(dim=1)[0])


@member
def pointnet_pp(small: bool) -> Member:
    width, neighbours, points = (8, 8, 64) if small else (64, 32, 1024)
    return Member(PointNetPP(width, neighbours, 10), {"points": floats(1, points, 3)}, ["classes"])


class TabularTransformer(nn.Module):
    """A token for each column of a table, numbers and categories alike; missing numbers have a token of their own."""

    def __init__(self, numbers: int, sizes: Sequence[int], width: int, heads: int, layers: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(numbers, width))
        self.bias = nn.Parameter(torch.randn(numbers, width))
        self.missing = nn.Parameter(torch.randn(numbers, width))
        self.categories = nn.Embedding(sum(sizes), width)
        self.register_buffer("offsets", torch.tensor([sum(sizes[:i]) for i in range(len(sizes))]))
        self.cls = nn.Parameter(torch.randn(1, 1, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, numbers: Tensor, known: Tensor, categories: Tensor) -> Tensor:
        tokens = numbers.unsqueeze(-1) * self.weight + self.bias
        tokens = torch.where(known.unsqueeze(-1), tokens, self.missing)
        x = torch.cat((self.cls.expand(numbers.size(0), -1, -1), tokens, self.categories(categories + self.offsets)), dim=1)
        return self.head(self.encoder(x)[:, 0])


@member
def tabular_transformer(small: bool) -> Member:
    numbers, columns, rows, width, heads, layers = (6, 4, 10, 24, 4, 2) if small else (40, 24, 100, 192, 8, 3)
    inputs = {"numbers": floats(1, numbers), "known": booleans(1, numbers), "categories": integers(0, rows - 1, 1, columns)}
    return Member(TabularTransformer(numbers, [rows] * columns, width, heads, layers), inputs, ["logits"])

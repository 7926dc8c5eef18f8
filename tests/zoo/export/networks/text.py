"""Language models: decoders with a cache, encoders, recurrent taggers, mixtures of experts, state spaces."""

import math
from typing import List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from member import Member, floats, integers, member


def cache(layers: int, *shape: int) -> dict:
    """The keys and values of each layer, as inputs."""
    return {f"past_{kind}_{i}": floats(*shape) for i in range(layers) for kind in ("key", "value")}


def presents(layers: int) -> List[str]:
    return [f"present_{kind}_{i}" for i in range(layers) for kind in ("key", "value")]


class GPTAttention(nn.Module):
    """Queries, keys and values by one product, and a causal mask that is a buffer."""

    def __init__(self, width: int, heads: int, positions: int):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.heads = heads
        mask = torch.tril(torch.ones(positions, positions)).view(1, 1, positions, positions)
        self.register_buffer("mask", mask.bool())

    def forward(self, x: Tensor, past: Tuple[Tensor, Tensor] = None) -> Tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape
        q, k, v = self.c_attn(x).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
        total = k.size(2)
        mask = self.mask[:, :, total - length : total, :total]
        scores = torch.where(mask, scores, torch.full([], torch.finfo(scores.dtype).min))
        y = F.softmax(scores, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, length, width)), k, v


class GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int, positions: int):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = GPTAttention(width, heads, positions)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def gelu(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))

    def forward(self, x: Tensor, past: Tuple[Tensor, Tensor] = None) -> Tuple[Tensor, Tensor, Tensor]:
        y, k, v = self.attn(self.ln_1(x), past)
        x = x + y
        return x + self.c_proj(self.gelu(self.c_fc(self.ln_2(x)))), k, v


class GPT(nn.Module):
    """GPT-2: learnt positions, and logits by the embedding's own weights."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, positions: int):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(positions, width)
        self.h = nn.ModuleList(GPTBlock(width, heads, positions) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids: Tensor, *past: Tensor):
        start = past[0].size(2) if past else 0
        x = self.wte(ids) + self.wpe(torch.arange(start, start + ids.size(1)).unsqueeze(0))
        present = []
        for i, block in enumerate(self.h):
            x, k, v = block(x, past[2 * i : 2 * i + 2] if past else None)
            present += [k, v]
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return (logits, *present) if past else logits


@member
def gpt_decoder(small: bool) -> Member:
    vocabulary, width, heads, layers, past = (256, 64, 4, 2, 15) if small else (8192, 768, 12, 4, 255)
    inputs = {"ids": integers(0, vocabulary - 1, 1, 1), **cache(layers, 1, heads, past, width // heads)}
    return Member(GPT(vocabulary, width, heads, layers, past + 9), inputs, ["logits", *presents(layers)])


@member
def gpt_prefill(small: bool) -> Member:
    vocabulary, width, heads, layers, length = (256, 64, 4, 2, 16) if small else (8192, 512, 8, 4, 128)
    inputs = {"ids": integers(0, vocabulary - 1, 1, length)}
    return Member(GPT(vocabulary, width, heads, layers, 2 * length), inputs, ["logits"], opset=17)


class RMSNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


def rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def repeat_kv(x: Tensor, repeats: int) -> Tensor:
    batch, heads, length, width = x.shape
    x = x[:, :, None, :, :].expand(batch, heads, repeats, length, width)
    return x.reshape(batch, heads * repeats, length, width)


class LlamaBlock(nn.Module):
    """Grouped-query attention with rotary positions, and SwiGLU."""

    def __init__(self, width: int, heads: int, groups: int):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.input_norm, self.post_norm = RMSNorm(width), RMSNorm(width)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, groups * self.size, bias=False)
        self.v_proj = nn.Linear(width, groups * self.size, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.gate_proj = nn.Linear(width, width * 11 // 4, bias=False)
        self.up_proj = nn.Linear(width, width * 11 // 4, bias=False)
        self.down_proj = nn.Linear(width * 11 // 4, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, past: Tuple[Tensor, Tensor]):
        batch, length, width = x.shape
        h = self.input_norm(x)
        q = self.q_proj(h).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(h).view(batch, length, self.groups, self.size).transpose(1, 2)
        v = self.v_proj(h).view(batch, length, self.groups, self.size).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        if past:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        keys, values = repeat_kv(k, self.heads // self.groups), repeat_kv(v, self.heads // self.groups)
        scores = torch.matmul(q, keys.transpose(2, 3)) / math.sqrt(self.size)
        if mask is not None:
            scores = scores + mask
        y = torch.matmul(F.softmax(scores, dim=-1), values).transpose(1, 2).reshape(batch, length, width)
        x = x + self.o_proj(y)
        h = self.post_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h)), k, v


class Llama(nn.Module):
    """Llama: positions are an input with a cache, and count up from 0 without."""

    def __init__(self, vocabulary: int, width: int, heads: int, groups: int, layers: int):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaBlock(width, heads, groups) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, size, 2).float() / size)))

    def forward(self, ids: Tensor, position: Tensor = None, *past: Tensor):
        length = ids.size(1)
        mask = None
        if position is None:
            position = torch.arange(length).unsqueeze(0)
            mask = torch.triu(torch.full((length, length), float("-inf")), diagonal=1)
        angles = position[:, :, None].float() * self.inv_freq
        angles = torch.cat((angles, angles), dim=-1).unsqueeze(1)
        cos, sin = angles.cos(), angles.sin()
        x = self.embed_tokens(ids)
        present = []
        for i, layer in enumerate(self.layers):
            x, k, v = layer(x, cos, sin, mask, past[2 * i : 2 * i + 2])
            present += [k, v]
        logits = self.lm_head(self.norm(x))
        return (logits, *present) if past else logits


@member
def llama_decoder(small: bool) -> Member:
    vocabulary, width, heads, groups, layers, past = (256, 64, 4, 2, 2, 15) if small else (8192, 768, 12, 4, 4, 255)
    inputs = {"ids": integers(0, vocabulary - 1, 1, 1), "position": integers(0, past, 1, 1)}
    inputs.update(cache(layers, 1, groups, past, width // heads))
    return Member(Llama(vocabulary, width, heads, groups, layers), inputs, ["logits", *presents(layers)])


@member
def llama_prefill(small: bool) -> Member:
    vocabulary, width, heads, groups, layers, length = (256, 64, 4, 2, 2, 16) if small else (8192, 512, 8, 2, 4, 128)
    inputs = {"ids": integers(0, vocabulary - 1, 1, length)}
    return Member(Llama(vocabulary, width, heads, groups, layers), inputs, ["logits"])


class BertLayer(nn.Module):
    """Norms after the sums, and separate queries, keys and values."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense = nn.Linear(width, width)
        self.intermediate = nn.Linear(width, 4 * width)
        self.output = nn.Linear(4 * width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.size()[:-1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1)) + mask
        y = torch.matmul(F.softmax(scores, dim=-1), v).permute(0, 2, 1, 3).contiguous()
        x = self.norm_1(self.dense(y.view(*y.size()[:-2], -1)) + x)
        return self.norm_2(self.output(F.gelu(self.intermediate(x))) + x)


class Bert(nn.Module):
    """An encoder with an attention mask and a pooled first token."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, positions: int):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.types = nn.Embedding(2, width)
        self.positions = nn.Embedding(positions, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Tensor, attention_mask: Tensor, token_types: Tensor) -> Tuple[Tensor, Tensor]:
        positions = torch.arange(ids.size(1)).expand((1, -1))
        x = self.norm(self.words(ids) + self.types(token_types) + self.positions(positions))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


@member
def encoder_768(small: bool) -> Member:
    vocabulary, width, heads, layers, length = (256, 64, 4, 2, 16) if small else (8192, 768, 12, 3, 128)
    inputs = {name: integers(0, top, 1, length) for name, top in
              (("ids", vocabulary - 1), ("attention_mask", 1), ("token_types", 1))}
    return Member(Bert(vocabulary, width, heads, layers, length), inputs, ["hidden", "pooled"])


class T5Attention(nn.Module):
    """Attention without scaling; a bias by relative position where one is given."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor = None) -> Tensor:
        q, k, v = (f(t).view(t.size(0), -1, self.heads, t.size(-1) // self.heads).transpose(1, 2)
                   for f, t in ((self.q, x), (self.k, memory), (self.v, memory)))
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.size(-1))
        if bias is not None:
            scores = scores + bias
        y = torch.einsum("bhqk,bhkd->bhqd", F.softmax(scores, dim=-1), v)
        return self.o(y.transpose(1, 2).flatten(2))


class RelativeBias(nn.Module):
    """A learnt number for each head and bucket of distances, exact when near and logarithmic when far."""

    def __init__(self, heads: int, bidirectional: bool, buckets: int = 32, far: int = 128):
        super().__init__()
        self.bias = nn.Embedding(buckets, heads)
        self.bidirectional, self.buckets, self.far = bidirectional, buckets, far

    def forward(self, queries: int, keys: int) -> Tensor:
        distance = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
        buckets, offset = self.buckets, torch.zeros_like(distance)
        if self.bidirectional:
            buckets //= 2
            offset = (distance > 0).long() * buckets
            distance = distance.abs()
        else:
            distance = -torch.min(distance, torch.zeros_like(distance))
        exact = buckets // 2
        growth = torch.log(distance.float().clamp(min=1) / exact) / math.log(self.far / exact)
        far = exact + (growth * (buckets - exact)).long()
        far = torch.min(far, torch.full_like(far, buckets - 1))
        return self.bias(offset + torch.where(distance < exact, distance, far)).permute(2, 0, 1).unsqueeze(0)


class T5Block(nn.Module):
    def __init__(self, width: int, heads: int, cross: bool):
        super().__init__()
        self.norm, self.attention = RMSNorm(width), T5Attention(width, heads)
        self.cross_norm, self.cross = (RMSNorm(width), T5Attention(width, heads)) if cross else (None, None)
        self.ff_norm = RMSNorm(width)
        self.wi, self.wo = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor = None) -> Tensor:
        h = self.norm(x)
        x = x + self.attention(h, h, bias)
        if self.cross is not None:
            x = x + self.cross(self.cross_norm(x), memory)
        return x + self.wo(F.relu(self.wi(self.ff_norm(x))))


class T5(nn.Module):
    def __init__(self, vocabulary: int, width: int, heads: int, layers: int):
        super().__init__()
        self.shared = nn.Embedding(vocabulary, width)
        self.encoder_bias, self.decoder_bias = RelativeBias(heads, True), RelativeBias(heads, False)
        self.encoder = nn.ModuleList(T5Block(width, heads, False) for _ in range(layers))
        self.decoder = nn.ModuleList(T5Block(width, heads, True) for _ in range(layers))
        self.encoder_norm, self.decoder_norm = RMSNorm(width), RMSNorm(width)
        self.scale = width**-0.5

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, bias = self.shared(source), self.encoder_bias(source.size(1), source.size(1))
        for block in self.encoder:
            memory = block(memory, bias)
        memory = self.encoder_norm(memory)
        length = target.size(1)
        causal = (1.0 - torch.tril(torch.ones(length, length))) * -1e9
        x, bias = self.shared(target), self.decoder_bias(length, length) + causal
        for block in self.decoder:
            x = block(x, bias, memory)
        return F.linear(self.decoder_norm(x) * self.scale, self.shared.weight)


@member
def encoder_decoder(small: bool) -> Member:
    vocabulary, width, heads, layers, source, target = (256, 64, 4, 2, 20, 12) if small else (8192, 512, 8, 3, 96, 32)
    inputs = {"source": integers(0, vocabulary - 1, 1, source), "target": integers(0, vocabulary - 1, 1, target)}
    return Member(T5(vocabulary, width, heads, layers), inputs, ["logits"])


class GRUText(nn.Module):
    """A classifier of texts by both ends of a bidirectional GRU."""

    def __init__(self, vocabulary: int, width: int, classes: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.gru = nn.GRU(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        _, hidden = self.gru(self.embedding(ids))
        return self.fc(torch.cat((hidden[-2], hidden[-1]), dim=1))


@member
def gru_text(small: bool) -> Member:
    vocabulary, width, length = (256, 24, 12) if small else (8192, 256, 64)
    return Member(GRUText(vocabulary, width, 8), {"ids": integers(0, vocabulary - 1, 1, length)}, ["logits"])


class LSTMTagger(nn.Module):
    """A tag for each word."""

    def __init__(self, vocabulary: int, width: int, tags: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * width, tags)

    def forward(self, ids: Tensor) -> Tensor:
        return F.log_softmax(self.tags(self.lstm(self.embedding(ids))[0]), dim=-1)


@member
def lstm_tagger(small: bool) -> Member:
    vocabulary, width, length = (256, 24, 12) if small else (8192, 256, 64)
    return Member(LSTMTagger(vocabulary, width, 20), {"ids": integers(0, vocabulary - 1, 1, length)}, ["tags"])


class Experts(nn.Module):
    """Every token goes to the two experts that its gate likes best, all of which compute all tokens."""

    def __init__(self, width: int, experts: int):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, width, 2 * width) / math.sqrt(width))
        self.w2 = nn.Parameter(torch.randn(experts, 2 * width, width) / math.sqrt(width))

    def forward(self, x: Tensor) -> Tensor:
        probabilities = F.softmax(self.gate(x), dim=-1)
        best, chosen = torch.topk(probabilities, 2, dim=-1)
        best = best / best.sum(dim=-1, keepdim=True)
        weights = torch.zeros_like(probabilities).scatter(-1, chosen, best)
        hidden = F.gelu(torch.einsum("btd,edf->btef", x, self.w1))
        return torch.einsum("btef,efd,bte->btd", hidden, self.w2, weights)


class MoE(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, experts: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.attentions = nn.ModuleList(nn.MultiheadAttention(width, heads, batch_first=True) for _ in range(layers))
        self.experts = nn.ModuleList(Experts(width, experts) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for i, (attention, experts) in enumerate(zip(self.attentions, self.experts)):
            h = self.norms[2 * i](x)
            x = x + attention(h, h, h, need_weights=False)[0]
            x = x + experts(self.norms[2 * i + 1](x))
        return x


@member
def moe(small: bool) -> Member:
    width, heads, layers, experts, length = (32, 4, 2, 4, 12) if small else (256, 8, 2, 8, 64)
    return Member(MoE(width, heads, layers, experts), {"x": floats(1, length, width)}, ["y"])


class MambaBlock(nn.Module):
    """A selective state space whose scan is a loop that exporting unrolls."""

    def __init__(self, width: int, states: int, rank: int):
        super().__init__()
        inner = 2 * width
        self.states, self.rank = states, rank
        self.norm = RMSNorm(width)
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.x_proj = nn.Linear(inner, rank + 2 * states, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.size(1)
        h, gate = self.in_proj(self.norm(x)).chunk(2, dim=-1)
        h = F.silu(self.conv1d(h.transpose(1, 2))[:, :, :length].transpose(1, 2))
        dt, b, c = self.x_proj(h).split([self.rank, self.states, self.states], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        decay = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.A_log))
        drive = dt.unsqueeze(-1) * b.unsqueeze(2) * h.unsqueeze(-1)
        state, ys = torch.zeros_like(drive[:, 0]), []
        for t in range(length):
            state = decay[:, t] * state + drive[:, t]
            ys.append(torch.einsum("bds,bs->bd", state, c[:, t]))
        y = (torch.stack(ys, dim=1) + h * self.D) * F.silu(gate)
        return x + self.out_proj(y)


@member
def mamba_block(small: bool) -> Member:
    width, states, length = (32, 8, 8) if small else (384, 16, 64)
    module = nn.Sequential(MambaBlock(width, states, width // 16), MambaBlock(width, states, width // 16))
    return Member(module, {"x": floats(1, length, width)}, ["y"])

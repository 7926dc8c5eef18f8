// Scaled dot-product attention, softmax(scale Q K' + mask) V, of which the scores never lie in memory.
#include "spc/product.cuh"

namespace spc {

// SPC_ATTENTION is the parameters of attention: Q, K, V and Y, of which element d of token t of a
// head h of a sample b is at b*batch + h*head + t*token + d; group query heads share a key head;
// causal hides from a query the keys after it. mask has kind 0 where there is none, 1 for what is
// added, 2 for bytes that are 0 where a key is hidden; its keys lie together, those from
// mask_keys on are hidden.
#define SPC_ATTENTION(T) \
  const T *q, const T *k, const T *v, T *y, int queries, int keys, int depth, int width, int group, float scale, int causal, \
      int64_t q_batch, int64_t q_head, int64_t q_token, int64_t k_batch, int64_t k_head, int64_t k_token, int64_t v_batch, int64_t v_head, int64_t v_token, \
      int64_t y_batch, int64_t y_head, int64_t y_token, const void *mask, int mask_kind, int mask_keys, int64_t mask_batch, int64_t mask_head, int64_t mask_query
#define SPC_ATTENTION_ARGS \
  q, k, v, y, queries, keys, depth, width, group, scale, causal, q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token, y_batch, \
      y_head, y_token, mask, mask_kind, mask_keys, mask_batch, mask_head, mask_query

// Attention is those parameters, for the head and the sample of a block: blocks y and z of the
// grid.
template <class T> struct Attention {
  const T *q, *k, *v;
  T *y;
  int queries, keys, depth, width;
  float scale;
  int causal;
  int64_t qToken, kToken, vToken, yToken;
  const void *mask;
  int maskKind, maskKeys;
  int64_t maskAt, maskQuery;

  __device__ Attention(SPC_ATTENTION(T))
      : q(q + blockIdx.z * q_batch + blockIdx.y * q_head), k(k + blockIdx.z * k_batch + blockIdx.y / group * k_head),
        v(v + blockIdx.z * v_batch + blockIdx.y / group * v_head), y(y + blockIdx.z * y_batch + blockIdx.y * y_head), queries(queries), keys(keys),
        depth(depth), width(width), scale(scale), causal(causal), qToken(q_token), kToken(k_token), vToken(v_token), yToken(y_token), mask(mask),
        maskKind(mask_kind), maskKeys(mask_keys), maskAt(blockIdx.z * mask_batch + blockIdx.y * mask_head), maskQuery(mask_query) {}

  // score is that of a query and a key whose product is dot, -inf where the key is hidden.
  __device__ __forceinline__ float score(float dot, int query, int key) const {
    float s = dot * scale;
    if (key >= keys || (causal && key > query))
      return -INFINITY;
    if (maskKind == 0 || query >= queries)
      return s;
    if (key >= maskKeys)
      return -INFINITY;
    int64_t at = maskAt + query * maskQuery + key;
    if (maskKind == 2)
      return static_cast<const uint8_t *>(mask)[at] ? s : -INFINITY;
    float bias = number(static_cast<const T *>(mask)[at]);
    return bias == -INFINITY ? bias : s + bias;
  }
};

// attend gives 64 queries to a block of 4 warps, 16 to each, and goes through the keys 64 at a
// time; heads have at most D features. V of a hidden key must be finite: it is multiplied with 0.
// The sums are those of FlashAttention-2 (Dao, 2023, algorithm
// 1). Grid (ceil(queries/64), heads, batch).
template <class T, int D> __device__ __forceinline__ void attend(const Attention<T> &o) {
  constexpr int Threads = 128, Keys = 64;
  using Features = Feed<T, D, Keys, Threads>; // K'
  using Tokens = Feed<T, Keys, D, Threads>;   // V
  SPC_SHARED(typename Features::Slab, ks);
  SPC_SHARED(typename Tokens::Slab, vs);
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, first = blockIdx.x * 64 + threadIdx.x / 32 * 16;
  Operands<T> ko(o.k, nullptr, 0, o.depth, o.keys, 1, o.kToken, 0, 0, 0, 0, nullptr, nullptr, 1), vo(o.v, nullptr, 0, o.keys, o.width, o.vToken, 1, 0, 0, 0, 0, nullptr, nullptr, 1);
  uint32_t a[D / 16][4];
#pragma unroll
  for (int s = 0; s < D / 16; s++)
#pragma unroll
    for (int r = 0; r < 4; r++) {
      int query = first + g + 8 * (r % 2), d = 16 * s + 8 * (r / 2) + 2 * t;
      const T *from = o.q + query * o.qToken + d;
      a[s][r] = query < o.queries && d < o.depth ? from[0].bits : 0;
      if (query < o.queries && d + 1 < o.depth)
        a[s][r] |= uint32_t(from[1].bits) << 16;
    }
  float out[D / 8][4], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
  for (int c = 0; c < D / 8; c++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      out[c][i] = 0;
  int last = o.causal && blockIdx.x * 64 + 64 < unsigned(o.keys) ? blockIdx.x * 64 + 64 : o.keys;
  for (int key0 = 0; key0 < last; key0 += Keys) {
    // V comes while K' is multiplied.
    Features keys(ko, o.k, key0);
    keys.template begin<true>(ks, 0);
    keys.template end<true>(ks);
    copy_commit();
    Tokens values(vo, o.v, 0);
    values.template begin<false>(vs, key0);
    values.template end<false>(vs);
    copy_commit();
    copy_wait<1>();
    __syncthreads();
    float s[8][4];
#pragma unroll
    for (int c = 0; c < 8; c++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        s[c][i] = 0;
#pragma unroll
    for (int f = 0; f < D / 16; f++) {
      uint32_t b[8][2];
      ks.template fragments<true, 8, 1>(b, 16 * f, 0);
#pragma unroll
      for (int c = 0; c < 8; c++)
        mma<T>(s[c], a[f], b[c]);
    }
    float now[2] = {top[0], top[1]};
#pragma unroll
    for (int c = 0; c < 8; c++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        s[c][i] = o.score(s[c][i], first + g + 8 * (i / 2), key0 + 8 * c + 2 * t + i % 2);
        now[i / 2] = s[c][i] != s[c][i] || s[c][i] > now[i / 2] ? s[c][i] : now[i / 2];
      }
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
      for (int by = 1; by < 4; by *= 2) {
        float other = __shfl_xor_sync(~0u, now[h], by);
        now[h] = other != other || other > now[h] ? other : now[h];
      }
      scale[h] = top[h] == -INFINITY ? 0 : expf(top[h] - now[h]);
      top[h] = now[h];
      sum[h] *= scale[h];
    }
#pragma unroll
    for (int c = 0; c < D / 8; c++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        out[c][i] *= scale[i / 2];
    uint32_t p[4][4];
#pragma unroll
    for (int c = 0; c < 8; c++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        T pair[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float e = s[c][2 * h + i] == -INFINITY ? 0 : expf(s[c][2 * h + i] - top[h]);
          put(pair[i], e);
          sum[h] += number(pair[i]);
        }
        p[c / 2][c % 2 * 2 + h] = pair[0].bits | uint32_t(pair[1].bits) << 16;
      }
    copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int f = 0; f < 4; f++) {
      uint32_t b[D / 8][2];
      vs.template fragments<false, D / 8, 1>(b, 16 * f, 0);
#pragma unroll
      for (int c = 0; c < D / 8; c++)
        mma<T>(out[c], p[f], b[c]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    for (int by = 1; by < 4; by *= 2)
      sum[h] += __shfl_xor_sync(~0u, sum[h], by);
    sum[h] = sum[h] == 0 ? 0 : 1 / sum[h]; // a query that sees no key
  }
#pragma unroll
  for (int c = 0; c < D / 8; c++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int query = first + g + 8 * (i / 2), d = 8 * c + 2 * t + i % 2;
      if (query < o.queries && d < o.width)
        put(o.y[query * o.yToken + d], out[c][i] * sum[i / 2]);
    }
}

// attend_row gives a query to a block of 128 threads, whose scores are in dynamic shared memory, a
// float for each key. Grid (queries, heads, batch).
template <class T> __device__ __forceinline__ void attend_row(const Attention<T> &o) {
  constexpr int Threads = 128;
  SPC_DYNAMIC(float, scores);
  using Part = float[Threads];
  SPC_SHARED(Part, part);
  int query = blockIdx.x, me = threadIdx.x;
  const T *q = o.q + query * o.qToken;
  float top = -INFINITY;
  for (int key = me; key < o.keys; key += Threads) {
    float dot = 0;
    for (int d = 0; d < o.depth; d++)
      dot += number(q[d]) * number(o.k[key * o.kToken + d]);
    float s = o.score(dot, query, key);
    scores[key] = s;
    top = s != s || s > top ? s : top;
  }
  part[me] = top;
  __syncthreads();
  for (int i = 0; i < Threads; i++)
    top = part[i] != part[i] || part[i] > top ? part[i] : top;
  __syncthreads();
  float sum = 0;
  for (int key = me; key < o.keys; key += Threads) {
    float e = scores[key] == -INFINITY ? 0 : expf(scores[key] - top);
    scores[key] = e;
    sum += e;
  }
  part[me] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < Threads; i++)
    sum += part[i];
  sum = sum == 0 ? 0 : 1 / sum;
  for (int d = me; d < o.width; d += Threads) {
    float total = 0;
    for (int key = 0; key < o.keys; key++)
      if (scores[key] != 0) // what a hidden key has may be no number
        total += scores[key] * number(o.v[key * o.vToken + d]);
    put(o.y[query * o.yToken + d], total * sum);
  }
}

} // namespace spc

#define ATTEND_ROW(T) SPC_KERNEL(T##_attention_row, 128, (SPC_ATTENTION(spc::T)), spc::attend_row(spc::Attention<spc::T>(SPC_ATTENTION_ARGS)))
#define ATTEND(T, D) SPC_KERNEL(T##_attention_64x64x##D##_mma, 128, (SPC_ATTENTION(spc::T)), (spc::attend<spc::T, D>(spc::Attention<spc::T>(SPC_ATTENTION_ARGS))))
ATTEND_ROW(f32)
ATTEND_ROW(f16)
ATTEND_ROW(bf16)
ATTEND(f16, 32)
ATTEND(f16, 64)
ATTEND(f16, 128)
ATTEND(bf16, 32)
ATTEND(bf16, 64)
ATTEND(bf16, 128)

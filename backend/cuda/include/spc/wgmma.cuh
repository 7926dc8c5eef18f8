// wgmma.cuh is the tensor cores' products of four warps together, which sm_90a has and reaches its
// peak by (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions"). A warp
// brings 16 rows of A in registers and holds 16 rows of D, both as with mma; B[K,8*C] is read from shared
// memory. Other architectures, and the emulator unless SPC_WARPGROUPS is defined, multiply by mma in their place.
#pragma once

#include "spc/mma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SPC_WARPGROUPS 1
#elif !defined(SPC_WARPGROUPS)
#define SPC_WARPGROUPS 0
#endif

#if SPC_WARPGROUPS
namespace spc {

#if defined(__CUDACC__)
__device__ __forceinline__ uint64_t shared_address(const void *of) { return __cvta_generic_to_shared(of); }
#else
inline uint64_t shared_address(const void *of) { return simt::address(of); }
#endif

// descriptor says where B is: lines of 64 elements, 128 bytes, from on, swizzled within 8 lines
// of 1024 bytes, which follow each other; of 64 rows of more than 64 columns the first 64 of each come first.
__device__ __forceinline__ uint64_t descriptor(const void *from) {
  constexpr uint64_t Eight = 1024 >> 4, Next = 64 * 128 >> 4, Swizzled = 1; // by 128 bytes
  return (shared_address(from) & 0x3ffff) >> 4 | Next << 16 | Eight << 32 | Swizzled << 62;
}

#if defined(__CUDACC__)
// group_fence orders what was done with the registers of A and D before, and group_commit and
// group_wait end the products since then and wait for them.
__device__ __forceinline__ void group_fence() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
__device__ __forceinline__ void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
__device__ __forceinline__ void group_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory"); }

// group_hold keeps registers that products read or write in their places until here: to the compiler they are
// free once those are issued, which may be long before they are done.
template <class T> __device__ __forceinline__ void group_hold(T &registers) {
  static_assert(sizeof(T) % 4 == 0, "registers are words");
  uint32_t *word = reinterpret_cast<uint32_t *>(&registers);
#pragma unroll
  for (int i = 0; i < int(sizeof(T) / 4); i++)
    asm volatile("" : "+r"(word[i]) : : "memory");
}

// group_visible lets products read what was written to shared memory before.
__device__ __forceinline__ void group_visible() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

// registers_take and registers_give set how many registers threads of four warps have.
template <int N> __device__ __forceinline__ void registers_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(N)); }
template <int N> __device__ __forceinline__ void registers_give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(N)); }

// Barrier is an mbarrier in shared memory (PTX ISA, "mbarrier"): a phase ends when so many threads have arrived.
class Barrier {
  uint64_t state;
  __device__ __forceinline__ uint32_t address() const { return uint32_t(__cvta_generic_to_shared(&state)); }

public:
  __device__ __forceinline__ void init(unsigned threads) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(address()), "r"(threads) : "memory"); }
  __device__ __forceinline__ void arrive() { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(address()) : "memory"); }
  // arrive_copied is arrive when all copies that the thread has begun are done.
  __device__ __forceinline__ void arrive_copied() { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" : : "r"(address()) : "memory"); }
  // wait waits for the end of the phase whose lowest bit is parity.
  __device__ __forceinline__ void wait(unsigned parity) const {
    asm volatile("{\n.reg .pred ended;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n@!ended bra again;\n}" : : "r"(address()), "r"(parity) : "memory");
  }
};

#define SPC_QUAD(c) "+f"(d[c][0]), "+f"(d[c][1]), "+f"(d[c][2]), "+f"(d[c][3])
#define SPC_D8(c) SPC_QUAD(c), SPC_QUAD(c + 1), SPC_QUAD(c + 2), SPC_QUAD(c + 3), SPC_QUAD(c + 4), SPC_QUAD(c + 5), SPC_QUAD(c + 6), SPC_QUAD(c + 7)
#define SPC_D16 SPC_D8(0), SPC_D8(8)
#define SPC_NAMES8 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define SPC_NAMES16 SPC_NAMES8 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
// SPC_WGMMA is for C columns of 8: their operands and their names, and those of A and what B's descriptor
// is, and of the two after that.
#define SPC_WGMMA(types, T, C, N, D, names, inputs, next, last) \
  template <bool Down> __device__ __forceinline__ void wgmma(T, float (&d)[C][4], const uint32_t (&a)[4], uint64_t b) { \
    asm volatile("{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." types " {" names "}, " inputs ", add, 1, 1, " next ";\n}" \
                 : D \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Down ? 0 : 1)); \
  } \
  template <bool Down> __device__ __forceinline__ void wgmmaSparse(T, float (&d)[C][4], const uint32_t (&a)[4], uint64_t b, uint32_t places) { \
    asm volatile("{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n" \
                 "wgmma.mma_async.sp.sync.aligned.m64n" N "k32.f32." types " {" names "}, " inputs ", " next ", 0, add, 1, 1, " last ";\n}" \
                 : D \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(places), "n"(Down ? 0 : 1)); \
  }
#define SPC_WGMMA_WIDTHS(types, T) \
  SPC_WGMMA(types, T, 8, "64", SPC_D8(0), SPC_NAMES8, "{%32,%33,%34,%35}, %36", "%37", "%38") \
  SPC_WGMMA(types, T, 16, "128", SPC_D16, SPC_NAMES16, "{%64,%65,%66,%67}, %68", "%69", "%70")

// wgmma adds A[64,16] B[16,8*C] to D, and wgmmaSparse A[64,32] B[32,8*C] as mmaSparse takes A. B's columns
// are lines, which is down, or its rows are.
SPC_WGMMA_WIDTHS("f16.f16", f16)
SPC_WGMMA_WIDTHS("bf16.bf16", bf16)
#else
inline void group_fence() { simt::fence(); }
inline void group_commit() { simt::commit(); }
inline void group_wait() { simt::finish(); }
template <class T> void group_hold(T &) {}
inline void group_visible() { simt::visible(); }
template <int N> void registers_take() {}
template <int N> void registers_give() {}
using simt::Barrier;

namespace emulated {

// read reads B[K,N], as the PTX ISA has its canonical layouts with a swizzle of 128 bytes:
// units of 16 bytes, eight of them in a line and eight lines one after another, the units of a
// line in other places by bits of the address. Where columns are lines, rows are units in a line, and
// lines are repeated for each 8 columns; where rows are, columns are units, lines are repeated for each 8 rows,
// and all of them for each 64 columns.
inline std::vector<uint16_t> read(uint64_t descriptor, bool down, int K, int N) {
  constexpr uint32_t Unit = 16, Line = 8 * Unit;
  auto field = [=](int bit) { return uint32_t(descriptor >> bit & 0x3fff) << 4; };
  uint32_t start = field(0), leading = field(16), stride = field(32);
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
    simt::fail("a descriptor is not of lines of 128 bytes from the first of eight on");
  std::vector<uint16_t> b(K * N);
  for (int line = 0; line < (down ? N : K); line++)
    for (int unit = 0; unit < (down ? K : N) / 8; unit++) {
      uint32_t at = start + line / 8 * stride + line % 8 * Line + unit / 8 * leading + unit % 8 * Unit;
      at ^= at / Line % 8 * Unit;
      const char *from = simt::at(at, Unit);
      if (!simt::seen(from))
        simt::fail("a product reads what was copied and not shown to it");
      for (int i = 0; i < 8; i++)
        memcpy(&b[down ? (unit * 8 + i) * N + line : line * N + unit * 8 + i], from + 2 * i, 2);
    }
  return b;
}

// group_multiply adds to the sums of a warp what each of its lanes issued.
template <class T, int C, bool Down, bool Sparse> void group_multiply(simt::Product *const (&lanes)[32]) {
  constexpr int K = Sparse ? 32 : 16, N = 8 * C;
  float a[16][16];
  static thread_local float b[K][N];
  int column[16][16];
  if (read(lanes[0]->b, Down, K, N) != lanes[0]->elements)
    simt::fail("what a product reads in shared memory changes before it is waited for");
  for (int i = 0; i < K * N; i++)
    b[i / N][i % N] = number(T{lanes[0]->elements[i]});
  for (int lane = 0; lane < 32; lane++)
    for (int r = 0; r < 4; r++)
      for (int i = 0; i < 2; i++) {
        int row = lane / 4 + 8 * (r % 2), at = 8 * (r / 2) + lane % 4 * 2 + i;
        a[row][at] = half<T>(lanes[lane]->a[r], i);
        column[row][at] = at;
        if (Sparse) {
          // Lanes 0 and 1 of four have the places in columns 0 to 15 and in the others, rows from 8 on above.
          int group = at / 2;
          uint32_t bits = lanes[lane / 4 * 4 + group / 4]->places >> (row / 8 * 16 + group % 4 * 4);
          if ((bits & 3) >= (bits >> 2 & 3))
            simt::fail("the places of a group do not ascend");
          column[row][at] = group * 4 + (bits >> 2 * i & 3);
        }
      }
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4 * C; i++) {
      int row = lane / 4 + i % 4 / 2 * 8, n = i / 4 * 8 + lane % 4 * 2 + i % 2;
      for (int k = 0; k < 16; k++)
        lanes[lane]->sums[i] += a[row][k] * b[column[row][k]][n];
    }
}

template <class T, bool Down, bool Sparse, int C> void issue(float (&d)[C][4], const uint32_t (&a)[4], uint64_t b, uint32_t places) {
  static_assert(C == 8 || C == 16, "there are instructions for 64 and 128 columns here");
  simt::Product p{a, {a[0], a[1], a[2], a[3]}, places, b, {}, nullptr, group_multiply<T, C, Down, Sparse>};
  if (simt::block->current->linear % 32 == 0)
    p.elements = read(b, Down, Sparse ? 32 : 16, 8 * C);
  simt::issue(d[0], 4 * C, std::move(p));
}

} // namespace emulated

template <bool Down, class T, int C> void wgmma(T, float (&d)[C][4], const uint32_t (&a)[4], uint64_t b) {
  emulated::issue<T, Down, false>(d, a, b, 0);
}
template <bool Down, class T, int C> void wgmmaSparse(T, float (&d)[C][4], const uint32_t (&a)[4], uint64_t b, uint32_t places) {
  emulated::issue<T, Down, true>(d, a, b, places);
}
#endif

} // namespace spc
#endif

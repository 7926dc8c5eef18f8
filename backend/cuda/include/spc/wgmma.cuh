// wgmma.cuh is the tensor cores' products of four warps together, which sm_90a has and reaches its
// peak by (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions"). A warp
// brings 16 rows of A in registers and holds 16 rows of D, both as with mma; B[K,64] is read from shared
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
// of 1024 bytes, which follow each other.
__device__ __forceinline__ uint64_t descriptor(const void *from) {
  constexpr uint64_t Eight = 1024 >> 4, Swizzled = 1; // by 128 bytes
  return (shared_address(from) & 0x3ffff) >> 4 | uint64_t(1) << 16 | Eight << 32 | Swizzled << 62;
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

// group_visible shows what this thread wrote to shared memory to the tensor cores, after the barrier
// that follows.
__device__ __forceinline__ void group_visible() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

#define SPC_QUAD(c) "+f"(d[c][0]), "+f"(d[c][1]), "+f"(d[c][2]), "+f"(d[c][3])
#define SPC_D SPC_QUAD(0), SPC_QUAD(1), SPC_QUAD(2), SPC_QUAD(3), SPC_QUAD(4), SPC_QUAD(5), SPC_QUAD(6), SPC_QUAD(7)
#define SPC_D_NAMES \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, "
#define SPC_WGMMA(types, T) \
  template <bool Down> __device__ __forceinline__ void wgmma(T, float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) { \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." types " " SPC_D_NAMES "add, 1, 1, %38;\n}" \
                 : SPC_D \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1), "n"(Down ? 0 : 1)); \
  } \
  template <bool Down> __device__ __forceinline__ void wgmmaSparse(T, float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, uint32_t places) { \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %38, 0;\n" \
                 "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32." types " " SPC_D_NAMES "%37, 0, add, 1, 1, %39;\n}" \
                 : SPC_D \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(places), "r"(1), "n"(Down ? 0 : 1)); \
  }

// wgmma adds A[64,16] B[16,64] to D, and wgmmaSparse A[64,32] B[32,64] as mmaSparse takes A. B's columns
// are lines, which is down, or its rows are.
SPC_WGMMA("f16.f16", f16)
SPC_WGMMA("bf16.bf16", bf16)
#else
inline void group_fence() { simt::fence(); }
inline void group_commit() { simt::commit(); }
inline void group_wait() { simt::finish(); }
template <class T> void group_hold(T &) {}
inline void group_visible() { simt::visible(); }

namespace emulated {

// read reads B[K,64], as the PTX ISA has its canonical layouts with a swizzle of 128 bytes:
// units of 16 bytes, eight of them in a line and eight lines one after another, the units of a
// line in other places by bits of the address. Where columns are lines, rows are units in a line, and
// lines are repeated for each 8 columns; where rows are, columns are units, and lines are repeated for each 8 rows.
inline std::vector<uint16_t> read(uint64_t descriptor, bool down, int K) {
  constexpr uint32_t Unit = 16, Line = 8 * Unit;
  uint32_t start = uint32_t(descriptor & 0x3fff) << 4, stride = uint32_t(descriptor >> 32 & 0x3fff) << 4;
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
    simt::fail("a descriptor is not of lines of 128 bytes from the first of eight on");
  std::vector<uint16_t> b(K * 64);
  for (int line = 0; line < (down ? 64 : K); line++)
    for (int unit = 0; unit < (down ? K : 64) / 8; unit++) {
      uint32_t at = start + line / 8 * stride + line % 8 * Line + unit * Unit;
      at ^= at / Line % 8 * Unit;
      const char *from = simt::at(at, Unit);
      if (simt::block->unseen.count(reinterpret_cast<uintptr_t>(from) / Unit))
        simt::fail("a product reads what was copied and not shown to it");
      for (int i = 0; i < 8; i++)
        memcpy(&b[down ? (unit * 8 + i) * 64 + line : line * 64 + unit * 8 + i], from + 2 * i, 2);
    }
  return b;
}

// group_multiply adds to the sums of a warp what each of its lanes issued.
template <class T, bool Down, bool Sparse> void group_multiply(simt::Product *const (&lanes)[32]) {
  constexpr int K = Sparse ? 32 : 16;
  float a[16][16], b[K][64];
  int column[16][16];
  if (read(lanes[0]->b, Down, K) != lanes[0]->elements)
    simt::fail("what a product reads in shared memory changes before it is waited for");
  for (int i = 0; i < K * 64; i++)
    b[i / 64][i % 64] = number(T{lanes[0]->elements[i]});
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
    for (int i = 0; i < 32; i++) {
      int row = lane / 4 + i % 4 / 2 * 8, n = i / 4 * 8 + lane % 4 * 2 + i % 2;
      for (int k = 0; k < 16; k++)
        lanes[lane]->sums[i / 4][i % 4] += a[row][k] * b[column[row][k]][n];
    }
}

template <class T, bool Down, bool Sparse> void issue(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, uint32_t places) {
  simt::Product p{a, {a[0], a[1], a[2], a[3]}, places, b, {}, nullptr, group_multiply<T, Down, Sparse>};
  if (simt::block->current->linear % 32 == 0)
    p.elements = read(b, Down, Sparse ? 32 : 16);
  simt::issue(d, std::move(p));
}

} // namespace emulated

template <bool Down, class T> void wgmma(T, float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
  emulated::issue<T, Down, false>(d, a, b, 0);
}
template <bool Down, class T> void wgmmaSparse(T, float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, uint32_t places) {
  emulated::issue<T, Down, true>(d, a, b, places);
}
#endif

} // namespace spc
#endif

// Products of four warps, right and with faults that the emulator must find.
#include "spc/wgmma.cuh"

namespace {

enum Fault { None, Unfenced, Unseen, Different, Missing, Uncommitted, Changed, Overwritten, Written, Early, Left };

struct alignas(1024) Lines {
  uint4 units[24 * 8]; // of B[16,64], and more
};

// ones multiplies A[64,16] of ones by B as it lies in memory, of which each column is the same in each row.
__device__ void ones(float *y, const uint4 *x, Fault fault) {
  SPC_SHARED(Lines, lines);
  spc::copy_async<16>(lines.units + threadIdx.x, x + threadIdx.x, 16);
  spc::copy_commit();
  spc::copy_wait<0>();
  __syncthreads();
  if (fault != Unseen)
    spc::group_visible();
  uint32_t a[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};
  float d[8][4] = {};
  int warp = threadIdx.x / 32;
  if (fault != Unfenced)
    spc::group_fence();
  spc::wgmma<false>(spc::f16(), d, a, spc::descriptor(lines.units + (fault == Different && warp == 2 ? 8 * 8 : 0)));
  if (fault != Missing || warp != 2)
    spc::wgmma<false>(spc::f16(), d, a, spc::descriptor(lines.units));
  if (fault != Uncommitted)
    spc::group_commit();
  float early = d[1][2];
  if (fault == Changed)
    a[3] = 0;
  if (fault == Overwritten)
    lines.units[threadIdx.x].w ^= 1;
  if (fault == Written)
    d[7][3] = 1;
  if (fault != Left)
    spc::group_wait();
  for (int i = 0; i < 32; i++)
    y[threadIdx.x * 32 + i] = fault == Early ? early : d[i / 4][i % 4];
}

} // namespace

SPC_KERNEL(multiply_ones, 128, (float *y, const uint4 *x, int fault), ones(y, x, Fault(fault)))

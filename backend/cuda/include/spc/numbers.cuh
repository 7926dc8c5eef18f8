// What kernels and package cuda number alike. Written by backend/cuda/include from backend/cuda/numbers.go; do not edit.
#pragma once

namespace spc {

constexpr int FlatThreads = 256; // of a block that has an element, or a vector, for each
constexpr int RowThreads = 128; // of a block that has a row
constexpr int ColumnThreads = 512; // of a block that has 32 neighbouring rows, one for each lane
constexpr int UnitsOfBlock = 4; // units of a recurrent layer, a warp for each
constexpr int ChannelUnit = 8; // channels of a pixel that are loaded at once where these come last
constexpr int ChainRegisters = 8; // values of a chain that are held at once
constexpr int ChainOperands = 6; // of a chain

} // namespace spc

// Activations of epilogues.
#define SPC_ACTIVATIONS \
  None = 0, \
  Clip = 1, \
  LeakyRelu = 2, \
  HardSigmoid = 3, \
  HardSwish = 4, \
  Sigmoid = 5, \
  Tanh = 6, \
  Swish = 7, \
  Gelu = 8, \
  GeluTanh = 9

// Functions of chains, beside the activations.
#define SPC_FUNCTIONS \
  Copy = 0, \
  Abs = 16, \
  Neg = 17, \
  Not = 18, \
  NotZero = 19, \
  Sign = 20, \
  Ceil = 21, \
  Floor = 22, \
  Round = 23, \
  Sqrt = 24, \
  Reciprocal = 25, \
  Exp = 26, \
  Log = 27, \
  Erf = 28, \
  Softplus = 29, \
  Softsign = 30, \
  Narrow = 31, \
  IsNaN = 32, \
  IsInf = 33, \
  Sin = 34, \
  Cos = 35, \
  Tan = 36, \
  Asin = 37, \
  Acos = 38, \
  Atan = 39, \
  Sinh = 40, \
  Cosh = 41, \
  Asinh = 42, \
  Acosh = 43, \
  Atanh = 44, \
  Mish = 45, \
  Elu = 46, \
  Selu = 47, \
  Celu = 48, \
  ThresholdedRelu = 49, \
  Add = 64, \
  Sub = 65, \
  Mul = 66, \
  Div = 67, \
  Max = 68, \
  Min = 69, \
  PRelu = 70, \
  Pow = 71, \
  Mod = 72, \
  FMod = 73, \
  Equal = 74, \
  Less = 75, \
  LessOrEqual = 76, \
  Greater = 77, \
  GreaterOrEqual = 78, \
  And = 79, \
  Or = 80, \
  Xor = 81, \
  Where = 96

// What operands of chains hold.
#define SPC_CHAIN_KINDS \
  Own = 0, \
  I64 = 1, \
  I32 = 2, \
  U8 = 3, \
  I8 = 4

// Cells of recurrent layers.
#define SPC_CELLS \
  Tanh1 = 0, \
  Lstm = 1, \
  GruAfter = 2, \
  GruGates = 3, \
  GruRest = 4

// Pools.
#define SPC_POOLS \
  MaxPool = 0, \
  AveragePool = 1, \
  AveragePadded = 2

// Reductions.
#define SPC_REDUCTIONS \
  Sum = 0, \
  Greatest = 1, \
  Least = 2, \
  Product = 3, \
  AbsSum = 4, \
  SquareSum = 5, \
  Norm = 6, \
  LogSum = 7, \
  LogSumExp = 8

// Types of residuals and results of integer products.
#define SPC_TYPES \
  U8 = 0, \
  F32 = 1, \
  F16 = 2, \
  BF16 = 3

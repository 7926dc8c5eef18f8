"""Products by NVIDIA's libraries, called as a C program calls them: cuBLASLt, with the algorithms
that it suggests, and cuSPARSE, with each algorithm of a format. PyTorch offers neither choice.

Each class has offers(), functions by name that take X and Y and return one that queues the
product: X[K,N] and Y[M,N] row by row in f16, or, for i8, X[N,K] and Y[N,M], of which Y is i32.
A name is a family and an algorithm, family/algorithm.
"""

import ctypes
import glob
import os
import sys

import torch

# Of library_types.h, by bytes of an element: f16 and i8.
F16, I8, F32, I32 = 2, 3, 0, 10


class Failed(Exception):
    pass


def load(*names):
    """The first library that is found, also among those that come with PyTorch's packages."""
    for name in names:
        beside = [f for path in sys.path for f in glob.glob(os.path.join(path, "nvidia", "*", "lib", name))]
        for file in [name, *beside]:
            try:
                return ctypes.CDLL(file)
            except OSError:
                pass
    raise Failed(f"no library {' or '.join(names)}")


def call(library, name, *args):
    result = getattr(library, name)(*args)
    if result != 0:
        raise Failed(f"{name}: status {result}")


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def pointer(t):
    return ctypes.c_void_p(t.data_ptr())


class Handle:
    """A library with its handle, made when it is first needed."""

    def __init__(self, create, *names):
        self.create, self.names, self.made = create, names, None

    def get(self):
        if self.made is None:
            library, handle = load(*self.names), ctypes.c_void_p()
            call(library, self.create, ctypes.byref(handle))
            self.made = library, handle
        return self.made


BLAS = Handle("cublasLtCreate", "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11")
SPARSE = Handle("cusparseCreate", "libcusparse.so.12", "libcusparse.so.11")


def versions():
    out = {}
    try:
        library, _ = BLAS.get()
        library.cublasLtGetVersion.restype = ctypes.c_size_t
        out["cuBLASLt"] = str(library.cublasLtGetVersion())
    except Exception as e:
        out["cuBLASLt"] = str(e)
    try:
        (library, handle), version = SPARSE.get(), ctypes.c_int()
        call(library, "cusparseGetVersion", handle, ctypes.byref(version))
        out["cuSPARSE"] = str(version.value)
    except Exception as e:
        out["cuSPARSE"] = str(e)
    return out


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


class Missing(Failed):
    """There is no such algorithm for a size, and nothing is wrong."""


class Dense:
    """cuBLASLt with the first algorithms that it suggests for a size."""

    FAMILY = "cuBLASLt dense"
    TOP = 3
    WORKSPACE = 32 << 20

    def __init__(self, w):
        self.w = w  # f16 or i8 [M,K] on the device
        self.workspace = torch.empty(self.WORKSPACE, dtype=torch.uint8, device="cuda")

    def offers(self):
        out = {}
        for i in range(self.TOP):
            out[f"{self.FAMILY}/{i}"] = lambda x, y, i=i: self.multiply(x, y, i, False)
            if self.w.dtype != torch.int8:  # the other way is for a vector, which lies as its transpose does
                out[f"{self.FAMILY}/v{i}"] = lambda x, y, i=i: self.multiply(x, y, i, True)
        return out

    def multiply(self, x, y, i, vector):
        """The product by suggestion i. The library's matrices lie column by column, so that it is
        given those that it takes for the transposes."""
        lt, handle = BLAS.get()
        m, k = self.w.shape
        integer = self.w.dtype == torch.int8
        n = x.shape[0] if integer else x.shape[1]
        if vector and n != 1:
            raise Missing("X is no vector")
        op, preference = ctypes.c_void_p(), ctypes.c_void_p()
        call(lt, "cublasLtMatmulDescCreate", ctypes.byref(op), 72 if integer else 68, I32 if integer else F32)
        kind, result, number = (I8, I32, ctypes.c_int32) if integer else (F16, F16, ctypes.c_float)
        if integer or vector:  # W^T is the first operand, and is transposed again
            transposed = ctypes.c_int32(1)
            call(lt, "cublasLtMatmulDescSetAttribute", op, 3, ctypes.byref(transposed), ctypes.c_size_t(4))
            a, b, c = (self.w, kind, k, m, k), (x, kind, k, n, k), (y, result, m, n, m)
        else:  # Y^T[N,M] = X^T W^T
            a, b, c = (x, kind, n, k, n), (self.w, kind, k, m, k), (y, result, n, m, n)
        one, zero = number(1), number(0)
        layouts = []
        for _, kind, rows, columns, leading in (a, b, c):
            d = ctypes.c_void_p()
            call(lt, "cublasLtMatrixLayoutCreate", ctypes.byref(d), kind, ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(leading))
            layouts.append(d)
        call(lt, "cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        limit = ctypes.c_uint64(self.WORKSPACE)
        call(lt, "cublasLtMatmulPreferenceSetAttribute", preference, 1, ctypes.byref(limit), ctypes.c_size_t(8))
        found, count = (Heuristic * self.TOP)(), ctypes.c_int()
        call(lt, "cublasLtMatmulAlgoGetHeuristic", handle, op, layouts[0], layouts[1], layouts[2], layouts[2], preference, self.TOP, found, ctypes.byref(count))
        if i >= count.value or found[i].state != 0:
            raise Missing(f"{count.value} algorithms are suggested")
        args = [handle, op, ctypes.byref(one), pointer(a[0]), layouts[0], pointer(b[0]), layouts[1], ctypes.byref(zero), pointer(y), layouts[2], pointer(y), layouts[2],
                ctypes.byref(found[i]), pointer(self.workspace), ctypes.c_size_t(self.WORKSPACE)]
        kept = (found, one, zero, x, y, self)

        def run():
            assert kept
            call(lt, "cublasLtMatmul", *args, stream())

        return run


class Sparse:
    """A weight of cuSPARSE in f16, and the algorithms for its format, by number."""

    ROW = 2  # CUSPARSE_ORDER_ROW

    def __init__(self, family, algorithms):
        self.family, self.algorithms, self.a, self.kept = family, algorithms, ctypes.c_void_p(), []

    def make(self, name, *args):
        """Makes the descriptor; tensors among the arguments are kept, and given by address."""
        library, _ = SPARSE.get()
        self.kept += [a for a in args if torch.is_tensor(a)]
        call(library, name, ctypes.byref(self.a), *(pointer(a) if torch.is_tensor(a) else a for a in args))
        return self

    def offers(self):
        return {f"{self.family}/{name}": lambda x, y, number=number: self.multiply(x, y, number) for name, number in self.algorithms.items()}

    def multiply(self, x, y, algorithm):
        library, handle = SPARSE.get()
        dense = []
        for t in (x, y):
            d = ctypes.c_void_p()
            call(library, "cusparseCreateDnMat", ctypes.byref(d), ctypes.c_int64(t.shape[0]), ctypes.c_int64(t.shape[1]), ctypes.c_int64(t.shape[1]), pointer(t), F16, self.ROW)
            dense.append(d)
        one, zero, size = ctypes.c_float(1), ctypes.c_float(0), ctypes.c_size_t()
        args = [handle, 0, 0, ctypes.byref(one), self.a, dense[0], ctypes.byref(zero), dense[1], F32, algorithm]
        call(library, "cusparseSetStream", handle, stream())
        call(library, "cusparseSpMM_bufferSize", *args, ctypes.byref(size))
        room = torch.empty(max(1, size.value), dtype=torch.uint8, device="cuda")
        if self.family == "cuSPARSE CSR":
            call(library, "cusparseSpMM_preprocess", *args, pointer(room))
        kept = (one, zero, room, x, y, self)

        def run():
            assert kept
            call(library, "cusparseSetStream", handle, stream())
            call(library, "cusparseSpMM", *args, pointer(room))

        return run


def i64(v):
    return ctypes.c_int64(v)


I32_INDEX, ZERO = 2, 0  # CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO


def csr(w):
    """W f16 [M,K] on the device."""
    row, column = w.nonzero(as_tuple=True)
    offsets = torch.zeros(w.shape[0] + 1, dtype=torch.int32, device=w.device)
    offsets[1:] = (w != 0).sum(dim=1).cumsum(0).int()
    return Sparse("cuSPARSE CSR", {"default": 0, "1": 4, "2": 6, "3": 12}).make(
        "cusparseCreateCsr", i64(w.shape[0]), i64(w.shape[1]), i64(row.numel()), offsets, column.int(), w[row, column].contiguous(), I32_INDEX, I32_INDEX, ZERO, F16)


def coo(w):
    row, column = w.nonzero(as_tuple=True)
    return Sparse("cuSPARSE COO", {"default": 0, "2": 2, "4": 5}).make(
        "cusparseCreateCoo", i64(w.shape[0]), i64(w.shape[1]), i64(row.numel()), row.int(), column.int(), w[row, column].contiguous(), I32_INDEX, ZERO, F16)


def tiles(w, order, size):
    """The blocks [rows of blocks, blocks, size, size] at the columns of blocks that order has for each row."""
    m, k = w.shape
    all = w.reshape(m // size, size, k // size, size).permute(0, 2, 1, 3)
    return torch.gather(all, 1, order[:, :, None, None].expand(-1, -1, size, size))


def bsr(w, order, size):
    """W of square blocks, as many in each row of blocks, in the columns of blocks that order has."""
    down, each = order.shape
    offsets = (torch.arange(down + 1, device=w.device) * each).int()
    return Sparse("cuSPARSE BSR", {"default": 0}).make(
        "cusparseCreateBsr", i64(down), i64(w.shape[1] // size), i64(down * each), i64(size), i64(size), offsets, order.int().contiguous(), tiles(w, order, size).contiguous(),
        I32_INDEX, I32_INDEX, ZERO, F16, Sparse.ROW)


def blocked_ell(w, order, size):
    """The same weight."""
    m, k = w.shape
    values = tiles(w, order, size).permute(0, 2, 1, 3).reshape(m, order.shape[1] * size).contiguous()
    return Sparse("cuSPARSE Blocked-ELL", {"1": 13}).make(
        "cusparseCreateBlockedEll", i64(m), i64(k), i64(size), i64(order.shape[1] * size), order.int().contiguous(), values, I32_INDEX, ZERO, F16)

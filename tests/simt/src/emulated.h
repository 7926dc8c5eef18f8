// emulated.h is what libraries for the emulated driver of libcuda.cpp share: its calls that are
// for them, and elements of arrays.
#pragma once

#include "spc/device.cuh"

#include <dlfcn.h>
#include <set>

namespace emulated {

using Address = unsigned long long;

enum Type { R32F = 0, R16F = 2, R16BF = 14 }; // cudaDataType

inline bool isType(int t) { return t == R32F || t == R16F || t == R16BF; }
inline size_t sizeOf(int type) { return type == R32F ? 4 : 2; }

// load is element i of an array.
inline double load(int type, Address at, int64_t i) {
  switch (type) {
  case R16F: return spc::number(reinterpret_cast<const spc::f16 *>(at)[i]);
  case R16BF: return spc::number(reinterpret_cast<const spc::bf16 *>(at)[i]);
  }
  return reinterpret_cast<const float *>(at)[i];
}

inline void store(int type, Address at, int64_t i, double v) {
  switch (type) {
  case R16F: return spc::put(reinterpret_cast<spc::f16 *>(at)[i], float(v));
  case R16BF: return spc::put(reinterpret_cast<spc::bf16 *>(at)[i], float(v));
  }
  reinterpret_cast<float *>(at)[i] = float(v);
}

// driver finds a call of the emulated driver.
template <class F> F *driver(const char *name) {
  static void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void *found = library ? dlsym(library, name) : nullptr;
  if (!found) {
    fprintf(stderr, "simt: the driver is not the emulated one: no %s\n", name);
    abort();
  }
  return reinterpret_cast<F *>(found);
}

// holds reports whether bytes are of one allocation of the current device.
inline bool holds(Address at, size_t bytes) {
  static auto *call = driver<int(Address, size_t)>("spcEmulatedHolds");
  return call(at, bytes);
}

// enqueue queues work on a stream, as a kernel of that name, and returns false where that fails.
inline bool enqueue(void *stream, const char *kernel, const std::function<bool()> &work) {
  static auto *call = driver<int(void *, const char *, const std::function<bool()> *)>("spcEmulatedEnqueue");
  return call(stream, kernel, &work) == 0;
}

// Loads is what a library does when a product is first called: it loads kernels, which may not be
// captured.
class Loads {
  std::mutex lock;
  std::set<uint64_t> loaded;

public:
  // can loads the kernels of a product, and returns false where that is captured.
  bool can(void *stream, uint64_t product) {
    static auto *capture = driver<int(void *, int)>("spcEmulatedCapture");
    std::lock_guard<std::mutex> guard(lock);
    const bool known = loaded.count(product) > 0;
    if (capture(stream, known) && !known)
      return false;
    loaded.insert(product);
    return true;
  }
};

// fault is the status of a call that is to fail, or 0.
inline int fault(const char *name) {
  static auto *call = driver<int(const char *)>("spcEmulatedFault");
  return call(name);
}

// MAY_FAIL begins a call that is told to fail by SPC_EMULATED_FAULT.
#define MAY_FAIL()                        \
  do {                                    \
    int told = emulated::fault(__func__); \
    if (told)                             \
      return told;                        \
  } while (0)

// make gives the current context an object, false where it can have none.
inline bool make(const void *object) {
  static auto *call = driver<int(const void *)>("spcEmulatedMake");
  return call(object) == 0;
}

// drop takes an object from the current context, false where that fails.
inline bool drop(const void *object) {
  static auto *call = driver<int(const void *)>("spcEmulatedDrop");
  return call(object) == 0;
}

// own ends the process where an object is not the current context's: a library may do so, too,
// where the object is one of a context that was destroyed.
inline void own(const void *object, const char *name) {
  static auto *call = driver<int(const void *)>("spcEmulatedHas");
  if (call(object))
    return;
  fprintf(stderr, "simt: %s: an object that is none of the current context\n", name);
  abort();
}

// describe counts descriptors, which are of no context: 1 for one that is made, -1 for one destroyed.
inline void describe(int n) {
  static auto *call = driver<void(int)>("spcEmulatedDescribe");
  call(n);
}

// copy is an attribute of a descriptor, false where it has another size.
template <class T> bool copy(T &to, const void *from, size_t bytes) {
  if (!from || bytes != sizeof to)
    return false;
  memcpy(&to, from, sizeof to);
  return true;
}

} // namespace emulated

// Enough of Metal's language for a host compiler to type-check what MLX generates. Address spaces are not checked.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
using std::exp; using std::floor; using std::tanh;
#define device
#define constant
#define thread
#define threadgroup static
typedef unsigned int uint;
typedef unsigned short ushort;
typedef _Float16 half;
typedef _Float16 float16_t;
struct bfloat16_t { float v; bfloat16_t(float x) : v(x) {} operator float() const { return v; } };
struct uint3 { uint x, y, z; };
struct uint4 { uint x, y, z, w; };
struct float4 { float x, y, z, w; };
template <typename T, typename U> T as_type(U u) {
  static_assert(sizeof(T) == sizeof(U), "as_type between different sizes");
  T t; memcpy(&t, &u, sizeof t); return t;
}
template <typename T> T simd_sum(T v) { return v; }
template <typename T> T simd_max(T v) { return v; }
struct mem_flags { enum { mem_none, mem_device, mem_threadgroup }; };
inline void threadgroup_barrier(int) {}

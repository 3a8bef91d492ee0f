// The dialect on CUDA: Metal's words for places and its SIMD-group functions, on a warp of 32.
// A threadgroup is (32, groups, 1) or a flat row of threads; see metal_kernels/dialect.metal.
#define LI_IN(T) const T*
#define LI_THREAD
#define LI_SHARED __shared__
#define LI_TABLE static __device__ const
#define LI_FN __device__ __forceinline__
#define LI_UNROLL _Pragma("unroll")
#define LI_WORDS(...) _Pragma(#__VA_ARGS__)
#define LI_UNROLL_BY(N) LI_WORDS(unroll (N))
#define LI_BARRIER __syncthreads()
#define LI_BYTES(p) ((const uint8_t*)(p))
#define thread_index_in_simdgroup (threadIdx.x & 31)
#define simdgroup_index_in_threadgroup (threadIdx.y)
#define threadgroup_position_in_grid (blockIdx)
#define thread_position_in_grid (make_uint3(blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y, blockIdx.z))

LI_FN float f16_bits(uint32_t bits) { return __half2float(__ushort_as_half((unsigned short)bits)); }
LI_FN float f32_bits(uint32_t bits) { return __uint_as_float(bits); }
LI_FN uint32_t f16_to_bits(float v) { return __half_as_ushort(__float2half(v)); }
LI_FN uint32_t load_u8(LI_IN(uint8_t) p) { return p[0]; }
LI_FN uint32_t load_u16(LI_IN(uint8_t) p) { return *(const uint16_t*)p; }
LI_FN uint32_t load_u32(LI_IN(uint8_t) p) { return *(const uint32_t*)p; }
LI_FN void load_u128(LI_IN(uint8_t) p, uint32_t* to) {
  uint4 v = *(const uint4*)p;
  to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
}
LI_FN void load_f32x4(LI_IN(float) p, float* to) {
  float4 v = *(const float4*)p;
  to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
}
LI_FN float simd_sum(float v) {
  LI_UNROLL for (int s = 16; s; s >>= 1) v += __shfl_xor_sync(0xffffffff, v, s);
  return v;
}
LI_FN float simd_max(float v) {
  LI_UNROLL for (int s = 16; s; s >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, s));
  return v;
}

// The dialect on Metal: the words that kernels use where Metal, CUDA and a host C++ compiler differ.
// Kernels are written in Metal's own words for places (thread_index_in_simdgroup, ...), which the other two define.
// Keep every file here plain ASCII: MLX hands the source to Metal as an ASCII string.
#define LI_IN(T) const device T*       // an input in device memory
#define LI_THREAD thread               // address space of local variables
#define LI_SHARED threadgroup          // memory of one threadgroup
#define LI_TABLE constant              // a constant table at file scope
#define LI_FN inline
#define LI_UNROLL _Pragma("clang loop unroll(full)")
#define LI_WORDS(...) _Pragma(#__VA_ARGS__)
#define LI_UNROLL_BY(N) LI_WORDS(clang loop unroll_count(N))
#define LI_BARRIER threadgroup_barrier(mem_flags::mem_threadgroup)
#define LI_BYTES(p) ((const device uint8_t*)(p))

LI_FN float f16_bits(uint32_t bits) { return float(as_type<half>(ushort(bits))); }
LI_FN float f32_bits(uint32_t bits) { return as_type<float>(bits); }
LI_FN uint32_t f16_to_bits(float v) { return as_type<ushort>(half(v)); }
LI_FN uint32_t load_u8(LI_IN(uint8_t) p) { return p[0]; }
LI_FN uint32_t load_u16(LI_IN(uint8_t) p) { return ((const device ushort*)p)[0]; }
LI_FN uint32_t load_u32(LI_IN(uint8_t) p) { return ((const device uint32_t*)p)[0]; }
LI_FN void load_u128(LI_IN(uint8_t) p, LI_THREAD uint32_t* to) {
  uint4 v = ((const device uint4*)p)[0];
  to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
}
LI_FN void load_f32x4(LI_IN(float) p, LI_THREAD float* to) {
  float4 v = ((const device float4*)p)[0];
  to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
}

// Metal's language for clang, with real address spaces: a pointer into one is another type than a pointer into the next.
// Only what Metal declares itself is here, so that a name from C or C++ that Metal lacks is an error.
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2)))
#define threadgroup static __attribute__((address_space(3)))
#define thread __attribute__((annotate("thread")))
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t, ushort;
typedef short int16_t;
typedef unsigned int uint32_t, uint;
typedef int int32_t;
typedef unsigned long uint64_t;
typedef long int64_t;
typedef _Float16 half, float16_t;
struct bfloat16_t { bfloat16_t(float); operator float() const; };
typedef uint uint3 __attribute__((ext_vector_type(3)));
typedef uint uint4 __attribute__((ext_vector_type(4)));
typedef float float4 __attribute__((ext_vector_type(4)));
template <typename T, typename U> T as_type(U u) {
  static_assert(sizeof(T) == sizeof(U), "as_type between different sizes");
  return __builtin_bit_cast(T, u);
}
float simd_sum(float); half simd_sum(half); int simd_sum(int); uint simd_sum(uint);
float simd_max(float); half simd_max(half); int simd_max(int); uint simd_max(uint);
float exp(float); half exp(half);
float tanh(float); half tanh(half);
float floor(float); half floor(half);
struct mem_flags { enum Of { mem_none, mem_device, mem_threadgroup }; };
void threadgroup_barrier(mem_flags::Of);

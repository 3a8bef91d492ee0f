/* Attention's inner loops for AVX2, FMA and F16C. */
#include "attention_kernels.h"

#if LI_X86
#include <math.h>
#include <string.h>

#include "x86_level.h"

LI_TARGET_BEGIN
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

#include "kv_half.h"
#include "vec_math.h"

#define INLINE static inline __attribute__((always_inline))
#define FIXED_ROWS 1

typedef __m256 vf;
typedef int32_t vi __attribute__((vector_size(32))); /* not __m256i: gcc keeps sums of this type in place */

INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
INLINE vf vf_set1(float x) { return _mm256_set1_ps(x); }
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vf_exp(vf x) { return li_exp_avx2(x); }
INLINE vf vf_tanh(vf x) { return li_tanh_avx2(x); }
INLINE vf vf_count(float first)
{
    return _mm256_add_ps(_mm256_set1_ps(first), _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7));
}
/* Lanes lo .. hi-1 of x, the others `other`. */
INLINE vf vf_keep(vf x, int lo, int hi, float other)
{
    if (lo <= 0 && hi >= 8)
        return x;
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i keep = _mm256_and_si256(_mm256_cmpgt_epi32(lane, _mm256_set1_epi32(lo - 1)),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), lane));
    return _mm256_blendv_ps(_mm256_set1_ps(other), x, _mm256_castsi256_ps(keep));
}
INLINE vf vf_half(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }
INLINE void vf_to_half(vf v, uint16_t *out)
{
    _mm_storeu_si128((__m128i *)(void *)out, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
INLINE vf vf_int8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
INLINE vf vf_nibbles(const uint8_t *p, int high)
{
    __m256i v = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(high ? v : _mm256_slli_epi32(v, 28), high ? 4 : 28));
}
INLINE vf vf_from_vi(vi a) { return _mm256_cvtepi32_ps((__m256i)a); }
INLINE vi vi_load(const uint8_t *p) { return (vi)_mm256_loadu_si256((const __m256i *)(const void *)p); }
INLINE void vi_store(uint8_t *p, vi v) { _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)v); }
INLINE vi vi_set1(int32_t x) { return (vi)_mm256_set1_epi32(x); }
INLINE vi vi_add_products(vi sum, vi a, vi b)
{
#if LI_FOR_AVX512
    return (vi)_mm256_dpwssd_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#else
    return sum + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#endif
}
INLINE vi vi_pair(const int16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, 4);
    return vi_set1(pair);
}
INLINE vi vi_widen(const uint8_t *p)
{
    return (vi)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}
INLINE vi vi_nibble(vi words) { return words & 0x000f000f; }
INLINE vi vi_next_nibble(vi words) { return (vi)_mm256_srli_epi32((__m256i)words, 4); }
INLINE vi vi_sub16(vi a, int32_t x) { return (vi)_mm256_sub_epi16((__m256i)a, _mm256_set1_epi16((int16_t)x)); }

#define LI_ATTENTION_TABLE LI_LEVEL(li_attention)
#include "attention_kernels.inc"

LI_TARGET_END
#else
typedef int li_attention_avx2_is_for_x86_only;
#endif

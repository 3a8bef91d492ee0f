/* Decoders of the codebook and ternary types with AVX2. */
#include "blocks_iq.h"

#if LI_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#include <immintrin.h>

static inline __m128i shorts_of(const int8_t *p)
{
    return _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

static inline void eight(int16_t *q, const int8_t *point, const int8_t *sign, int scale)
{
    __m128i v = _mm_sign_epi16(shorts_of(point), shorts_of(sign));
    _mm_storeu_si128((__m128i *)(void *)q, _mm_mullo_epi16(v, _mm_set1_epi16((short)scale)));
}

static inline void eight_shifted(int16_t *q, const int8_t *point, int down, int scale)
{
    __m128i v = _mm_add_epi16(_mm_slli_epi16(shorts_of(point), 3), _mm_set1_epi16(down ? -1 : 1));
    _mm_storeu_si128((__m128i *)(void *)q, _mm_mullo_epi16(v, _mm_set1_epi16((short)scale)));
}

#define LI_GROUP(name) li_group_##name##_avx2
#include "blocks_iq.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int li_blocks_iq_avx2_is_for_x86_only;
#endif

/* Block decoders for AVX2 of the types with 256 values a block (blocks_avx2.h says what they do). */
#ifndef LI_BLOCKS_AVX2_K_H
#define LI_BLOCKS_AVX2_K_H

#include "blocks_avx2.h"

/* Plane b of 2-bit values: blocks b = 0 .. 7, 32 bytes for each four. */
LI_AVX2_INLINE __m256i two_bit_bytes(const uint8_t *qs, int j, int half)
{
    return and8(down(twice16(qs + 32 * (j / 2) + 16 * half), 4 * (j % 2), 4 * (j % 2) + 2), 3);
}

LI_AVX2_INLINE void q2_k_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    (void)has_b;
    widen(two_bit_bytes(group + 16, j, 0), u);
    widen(two_bit_bytes(group + 16, j, 1), u + 2);
}
LI_AVX2_INLINE __m128i q2_k_bytes16(const uint8_t *group) { return _mm_and_si128(load16(group), _mm_set1_epi8(15)); }
LI_AVX2_INLINE __m128i q2_k_min_bytes(const uint8_t *group)
{
    return _mm_and_si128(_mm_srli_epi16(load16(group), 4), _mm_set1_epi8(15));
}
LI_AVX2_INLINE void q2_k_scales(const uint8_t *group, int n, __m256 *d, __m256 *m)
{
    (void)n;
    *d = all_half(group + 80);
    *m = negated(all_half(group + 82));
}

LI_AVX2_INLINE __m256i q3_k_bytes(const uint8_t *group, int j, int half)
{
    __m256i third = and8(moved(twice16(group + 16 * half), 2 - 2 * j, 1 - 2 * j), 4);
    return _mm256_or_si256(two_bit_bytes(group + 32, j, half), third);
}
LI_AVX2_INLINE void q3_k_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    (void)has_b;
    widen(q3_k_bytes(group, j, 0), u);
    widen(q3_k_bytes(group, j, 1), u + 2);
}
LI_AVX2_INLINE __m128i q3_k_bytes16(const uint8_t *group)
{
    uint32_t words[4];
    li_unpack_q3_k_scales(group + 96, words);
    __m128i bytes = _mm_setr_epi32((int)words[0], (int)words[1], (int)words[2], (int)words[3]);
    return _mm_sub_epi8(bytes, _mm_set1_epi8(32));
}
LI_AVX2_INLINE void q3_k_scales(const uint8_t *group, int n, __m256 *d, __m256 *m)
{
    (void)n, (void)m;
    *d = all_half(group + 108);
}

/* 16 bytes hold nibbles of both blocks of a pair: A's are the low ones. */
LI_AVX2_INLINE __m256i shared_nibbles(const uint8_t *qs) { return and8(down(twice16(qs), 0, 4), 15); }

LI_AVX2_INLINE void q4_k_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    const uint8_t *qs = group + 16 + 32 * j;
    (void)has_b;
    widen(shared_nibbles(qs), u);
    widen(shared_nibbles(qs + 16), u + 2);
}
LI_AVX2_INLINE void q4_k_scales(const uint8_t *group, int n, __m256 *d, __m256 *m)
{
    uint32_t scales[2], mins[2];
    (void)n;
    li_unpack_k_scales(group + 4, scales, mins);
    *d = _mm256_mul_ps(all_half(group), floats_of_bytes(scales[0], scales[1]));
    *m = _mm256_mul_ps(negated(all_half(group + 2)), floats_of_bytes(mins[0], mins[1]));
}

LI_AVX2_INLINE __m256i q5_k_bytes(const uint8_t *group, int j, int half)
{
    __m256i fifth = and8(moved(twice16(group + 16 + 16 * half), 4 - 2 * j, 3 - 2 * j), 16);
    return _mm256_or_si256(shared_nibbles(group + 48 + 32 * j + 16 * half), fifth);
}
LI_AVX2_INLINE void q5_k_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    (void)has_b;
    widen(q5_k_bytes(group, j, 0), u);
    widen(q5_k_bytes(group, j, 1), u + 2);
}
#define q5_k_scales q4_k_scales

/* Pair j: A's nibbles in 32 bytes, B's in the next 32; low ones where j is even, high ones where it is odd. */
LI_AVX2_INLINE __m256i q6_k_bytes(const uint8_t *group, int j, int half)
{
    const uint8_t *ql = group + 64 * (j / 2) + 16 * half, *qh = group + 128 + 32 * (j / 2) + 16 * half;
    __m256i nibbles = and8(down(two16(ql, ql + 32), 4 * (j % 2), 4 * (j % 2)), 15);
    __m256i high = and8(moved(twice16(qh), 4 - 4 * (j % 2), 2 - 4 * (j % 2)), 48);
    return _mm256_or_si256(nibbles, high);
}
LI_AVX2_INLINE void q6_k_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    (void)has_b;
    widen(q6_k_bytes(group, j, 0), u);
    widen(q6_k_bytes(group, j, 1), u + 2);
}
LI_AVX2_INLINE __m128i q6_k_bytes16(const uint8_t *group) { return load16(group + 192); }
LI_AVX2_INLINE void q6_k_scales(const uint8_t *group, int n, __m256 *d, __m256 *m)
{
    (void)n, (void)m;
    *d = all_half(group + 208);
}

LI_AVX2_INLINE void iq4_xs_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    const uint8_t *a = group + 8 + 32 * j;
    (void)has_b;
    level_pair(a, a + 16, li_iq4_levels, u);
}
LI_AVX2_INLINE void iq4_xs_scales(const uint8_t *group, int n, __m256 *d, __m256 *m)
{
    const __m256i two_bits = _mm256_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14);
    const __m256i four_bits = _mm256_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28);
    __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(li_load_u16(group + 2)), two_bits);
    __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32((int)li_load_u32(group + 4)), four_bits);
    (void)n, (void)m;
    high = _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4);
    low = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)), high);
    *d = _mm256_mul_ps(all_half(group), _mm256_cvtepi32_ps(_mm256_sub_epi32(low, _mm256_set1_epi32(32))));
}

#endif

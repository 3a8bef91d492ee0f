/* Block decoders for AVX2.
 *
 * Blocks of 32 are taken in pairs, A = 2j and B = 2j + 1 of a group of 8. A pair is four vectors of 16 int16, A's values
 * in the lower half and B's in the upper, so that sums never have to cross the halves, in the order of li_place:
 *     u[0] = A[0, 2, .. 14], B[the same]     u[1] = A[1, 3, .. 15], ..     u[2] = A[16, 18 ..], ..     u[3] = A[17, 19 ..]
 * Vectors with a lane per block are in the order of li_slot: blocks 0, 2, 4, 6, 1, 3, 5, 7. Most work is done on bytes,
 * 32 values at a time, and values are left unsigned: the true value is u - offset, and where sub-blocks of 16 have scales
 * of their own, (u - offset) * scale. Types of the nibble kind leave more than one value in a lane (linear_parts.h).
 *
 * A type NAME has
 *     NAME_pair(group, j, has_b, u)           the pair; where not has_b, B is not read and A stands in for it
 *     NAME_scales(group, n, d, m)             D and M of the blocks (blocks.h); those that a type lacks are left
 *     NAME_scales4(at, has_b, d, m)           blocks of 32: D and M of A in four rows, at[0] .. at[3], then of B
 *     NAME_bytes16(group)                     for types with scales of 16 values: the 16 scales as signed bytes
 * `group` is the first of n <= 8 blocks of 32 values (8 where a block of the file has 256); nothing beyond them is read,
 * and lanes of blocks beyond n are 0. The compiler sees j as a constant and finds what pairs share.
 */
#ifndef LI_BLOCKS_AVX2_H
#define LI_BLOCKS_AVX2_H

#include "blocks.h"
#include "x86_level.h"

#define LI_AVX2 __attribute__((target(LI_TARGET)))
#define LI_AVX2_INLINE static inline __attribute__((always_inline, target(LI_TARGET)))

/* sum + the products of neighbouring int16, two of them added up. */
LI_AVX2_INLINE __m256i add_products(__m256i sum, __m256i a, __m256i b)
{
#if LI_FOR_AVX512
    return _mm256_dpwssd_epi32(sum, a, b);
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
#endif
}

LI_AVX2_INLINE __m128i load16(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
/* 16 bytes twice, and 16 bytes from each of two places. */
LI_AVX2_INLINE __m256i twice16(const uint8_t *p) { return _mm256_broadcastsi128_si256(load16(p)); }
LI_AVX2_INLINE __m256i two16(const uint8_t *a, const uint8_t *b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load16(a)), load16(b), 1);
}
LI_AVX2_INLINE __m256i and8(__m256i v, int mask) { return _mm256_and_si256(v, _mm256_set1_epi8((char)mask)); }
LI_AVX2_INLINE __m256i or8(__m256i v, int bits) { return _mm256_or_si256(v, _mm256_set1_epi8((char)bits)); }
/* Shifts of the lower and the upper half, within 32-bit lanes: bits that cross bytes have to be masked. */
LI_AVX2_INLINE __m256i down(__m256i v, int low, int high)
{
    return low == high ? (low ? _mm256_srli_epi32(v, low) : v)
                       : _mm256_srlv_epi32(v, _mm256_setr_epi32(low, low, low, low, high, high, high, high));
}
LI_AVX2_INLINE __m256i up(__m256i v, int low, int high)
{
    return low == high ? (low ? _mm256_slli_epi32(v, low) : v)
                       : _mm256_sllv_epi32(v, _mm256_setr_epi32(low, low, low, low, high, high, high, high));
}
/* Bits moved up by `low` and `high`, or down where those are negative; not one up and the other down. */
LI_AVX2_INLINE __m256i moved(__m256i v, int low, int high)
{
    return low > 0 ? up(v, low, high) : down(v, -low, -high);
}

/* Unsigned bytes, 16 of A and 16 of B -> two vectors of a pair. */
LI_AVX2_INLINE void widen(__m256i bytes, __m256i *u)
{
    u[0] = _mm256_and_si256(bytes, _mm256_set1_epi16(255));
    u[1] = _mm256_srli_epi16(bytes, 8);
}

/* -- scales ---------------------------------------------------------------------------------------------------------*/

/* The 4 bytes at the start of blocks first, first + 2, + 4, + 6 < n, 0 for those beyond; blocks are `stride` >= 16 bytes
 * apart. Loads that begin 4 bytes earlier in each block put every word into its lane. */
LI_AVX2_INLINE __m128i four_words(const uint8_t *group, int first, int n, int stride)
{
#define LI_WORD(k) load16(group + (first + 2 * (k)) * stride - 4 * (k))
    const __m128i zero = _mm_setzero_si128();
    if (n == 8)
        return _mm_blend_epi32(_mm_blend_epi32(LI_WORD(0), LI_WORD(1), 2), _mm_blend_epi32(LI_WORD(2), LI_WORD(3), 8),
                               0xC);
    if (n <= first)
        return zero;
    __m128i v = n > first + 2 ? _mm_blend_epi32(LI_WORD(0), LI_WORD(1), 2) : _mm_blend_epi32(LI_WORD(0), zero, 0xE);
    v = n > first + 4 ? _mm_blend_epi32(v, LI_WORD(2), 4) : _mm_blend_epi32(v, zero, 0xC);
    return n > first + 6 ? _mm_blend_epi32(v, LI_WORD(3), 8) : _mm_blend_epi32(v, zero, 0x8);
#undef LI_WORD
}

/* The 4 bytes at `offset` of the same block of four rows that lie one after the other, by loads as above; rows have 17
 * bytes or more. */
LI_AVX2_INLINE __m128i row_words(const uint8_t *const at[4], int offset)
{
#define LI_WORD(k) load16(at[k] + offset - 4 * (k))
    return _mm_blend_epi32(_mm_blend_epi32(LI_WORD(0), LI_WORD(1), 2), _mm_blend_epi32(LI_WORD(2), LI_WORD(3), 8), 0xC);
#undef LI_WORD
}
LI_AVX2_INLINE __m128i row_words_of_b(const uint8_t *const at[4], int has_b, int stride)
{
    return has_b ? row_words(at, stride) : _mm_setzero_si128();
}

/* Words that start with a half float. */
LI_AVX2_INLINE __m256 halves(__m128i even, __m128i odd)
{
    __m128i words = _mm_blend_epi16(even, _mm_slli_epi32(odd, 16), 0xAA);
    const __m128i apart = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm256_cvtph_ps(_mm_shuffle_epi8(words, apart));
}

/* Words of d and m, both half floats. */
LI_AVX2_INLINE void halves_and_mins(__m128i even, __m128i odd, __m256 *d, __m256 *m)
{
    const __m128i apart = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    even = _mm_shuffle_epi8(even, apart);
    odd = _mm_shuffle_epi8(odd, apart);
    *d = _mm256_cvtph_ps(_mm_unpacklo_epi64(even, odd));
    *m = _mm256_cvtph_ps(_mm_unpackhi_epi64(even, odd));
}

/* Blocks that start with d, or with d and m. */
#define LI_HALF_SCALES(name, stride)                                                                                  \
    LI_AVX2_INLINE void name##_scales(const uint8_t *group, int n, __m256 *d, __m256 *m)                              \
    {                                                                                                                 \
        (void)m;                                                                                                      \
        *d = halves(four_words(group, 0, n, stride), four_words(group, 1, n, stride));                                \
    }                                                                                                                 \
    LI_AVX2_INLINE void name##_scales4(const uint8_t *const at[4], int has_b, __m256 *d, __m256 *m)                   \
    {                                                                                                                 \
        (void)m;                                                                                                      \
        *d = halves(row_words(at, 0), row_words_of_b(at, has_b, stride));                                             \
    }
#define LI_HALF_SCALES_AND_MINS(name, stride)                                                                         \
    LI_AVX2_INLINE void name##_scales(const uint8_t *group, int n, __m256 *d, __m256 *m)                              \
    {                                                                                                                 \
        halves_and_mins(four_words(group, 0, n, stride), four_words(group, 1, n, stride), d, m);                      \
    }                                                                                                                 \
    LI_AVX2_INLINE void name##_scales4(const uint8_t *const at[4], int has_b, __m256 *d, __m256 *m)                   \
    {                                                                                                                 \
        halves_and_mins(row_words(at, 0), row_words_of_b(at, has_b, stride), d, m);                                   \
    }

LI_AVX2_INLINE __m256 all_half(const uint8_t *p) { return _mm256_set1_ps(_cvtsh_ss(li_load_u16(p))); }
LI_AVX2_INLINE __m256 negated(__m256 v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }

/* 8 unsigned bytes, block 0 first -> floats in slots. */
LI_AVX2_INLINE __m256 floats_of_bytes(uint32_t low, uint32_t high)
{
    __m128i bytes = _mm_cvtsi64_si128((long long)((uint64_t)high << 32 | low));
    bytes = _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, -1, -1, -1, -1, -1, -1, -1, -1));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

/* 16 signed bytes, first and second sub-block of block 0, then of block 1, ... -> int32 in slots, first and second. */
LI_AVX2_INLINE void slots_of_16(__m128i bytes, __m256i *first, __m256i *second)
{
    bytes = _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15));
    *first = _mm256_cvtepi8_epi32(bytes);
    *second = _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes));
}

/* -- 32 values a block ----------------------------------------------------------------------------------------------*/

/* Both blocks' nibbles as the nibble kind takes them: the first 16 values are the low ones. */
LI_AVX2_INLINE void nibble_pair(const uint8_t *a, const uint8_t *b, __m256i *u)
{
    __m256i words = two16(a, b);
    u[0] = _mm256_and_si256(words, _mm256_set1_epi16(15));
    u[1] = _mm256_srli_epi16(words, 8);
    u[2] = _mm256_srli_epi16(words, 4);
    u[3] = _mm256_srli_epi16(words, 12);
}

LI_AVX2_INLINE void q4_0_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    const uint8_t *a = group + 36 * j + 2;
    nibble_pair(a, has_b ? a + 18 : a, u);
}
LI_HALF_SCALES(q4_0, 18)

LI_AVX2_INLINE void q4_1_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    const uint8_t *a = group + 40 * j + 4;
    nibble_pair(a, has_b ? a + 20 : a, u);
}
LI_HALF_SCALES_AND_MINS(q4_1, 20)

/* Nibbles at a and b, fifth bits in the 4 bytes before. */
LI_AVX2_INLINE void five_bit_pair(const uint8_t *a, const uint8_t *b, __m256i *u)
{
    const __m256i first = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,
                                           1, 1, 1, 1, 1);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i nibbles = two16(a, b), sixteen = _mm256_set1_epi8(16);
    __m256i bits = _mm256_blend_epi32(_mm256_set1_epi32((int)li_load_u32(a - 4)),
                                      _mm256_set1_epi32((int)li_load_u32(b - 4)), 0xF0);
    __m256i low = _mm256_shuffle_epi8(bits, first), high = _mm256_shuffle_epi8(bits, or8(first, 2));
    low = _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(low, bit), bit), sixteen);
    high = _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(high, bit), bit), sixteen);
    widen(_mm256_or_si256(and8(nibbles, 15), low), u);
    widen(_mm256_or_si256(and8(_mm256_srli_epi16(nibbles, 4), 15), high), u + 2);
}

LI_AVX2_INLINE void q5_0_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    const uint8_t *a = group + 44 * j + 6;
    five_bit_pair(a, has_b ? a + 22 : a, u);
}
LI_HALF_SCALES(q5_0, 22)

LI_AVX2_INLINE void q5_1_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    const uint8_t *a = group + 48 * j + 8;
    five_bit_pair(a, has_b ? a + 24 : a, u);
}
LI_HALF_SCALES_AND_MINS(q5_1, 24)

LI_AVX2_INLINE void q8_0_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    const uint8_t *a = group + 68 * j + 2, *b = has_b ? a + 34 : a;
    const __m256i flip = _mm256_set1_epi8(-128); /* signed -> unsigned + 128 */
    widen(_mm256_xor_si256(two16(a, b), flip), u);
    widen(_mm256_xor_si256(two16(a + 16, b + 16), flip), u + 2);
}
LI_HALF_SCALES(q8_0, 34)

/* 16 levels, signed; u has 128 added. */
LI_AVX2_INLINE void level_pair(const uint8_t *a, const uint8_t *b, const int8_t *levels, __m256i *u)
{
    __m256i table = _mm256_xor_si256(twice16((const uint8_t *)levels), _mm256_set1_epi8(-128));
    __m256i nibbles = two16(a, b);
    widen(_mm256_shuffle_epi8(table, and8(nibbles, 15)), u);
    widen(_mm256_shuffle_epi8(table, and8(_mm256_srli_epi16(nibbles, 4), 15)), u + 2);
}

LI_AVX2_INLINE void iq4_nl_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    const uint8_t *a = group + 36 * j + 2;
    level_pair(a, has_b ? a + 18 : a, li_iq4_levels, u);
}
#define iq4_nl_scales q4_0_scales
#define iq4_nl_scales4 q4_0_scales4

LI_AVX2_INLINE void mxfp4_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    const uint8_t *a = group + 34 * j + 1;
    level_pair(a, has_b ? a + 17 : a, li_fp4_levels, u);
}
/* Words that start with an exponent. */
LI_AVX2_INLINE __m256 exponents(__m128i even, __m128i odd)
{
    __m256i words = _mm256_inserti128_si256(_mm256_castsi128_si256(even), odd, 1);
    __m256i e = _mm256_and_si256(words, _mm256_set1_epi32(255)), one = _mm256_set1_epi32(1);
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23);
    __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi32(e, one)));
}
LI_AVX2_INLINE void mxfp4_scales(const uint8_t *group, int n, __m256 *d, __m256 *m)
{
    (void)m;
    *d = exponents(four_words(group, 0, n, 17), four_words(group, 1, n, 17));
}
LI_AVX2_INLINE void mxfp4_scales4(const uint8_t *const at[4], int has_b, __m256 *d, __m256 *m)
{
    (void)m;
    *d = exponents(row_words(at, 0), row_words_of_b(at, has_b, 17));
}

/* -- any type, decoded by plain C: the group is a li_group ------------------------------------------------------------*/

/* 16 values in their own order -> those with even numbers, those with odd ones. */
LI_AVX2_INLINE __m256i evens_and_odds(__m256i v)
{
    const __m256i apart = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13,
                                           2, 3, 6, 7, 10, 11, 14, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, apart), 0xD8);
}

LI_AVX2_INLINE void decoded_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    const __m256i *q = (const __m256i *)(const void *)(((const li_group *)(const void *)group)->q + 64 * j);
    (void)has_b;
    for (int half = 0; half < 2; half++) {
        __m256i a = evens_and_odds(_mm256_loadu_si256(q + half)), b = evens_and_odds(_mm256_loadu_si256(q + 2 + half));
        u[2 * half] = _mm256_permute2x128_si256(a, b, 0x20);
        u[2 * half + 1] = _mm256_permute2x128_si256(a, b, 0x31);
    }
}
/* The same as the nibble kind takes them. */
LI_AVX2_INLINE void decoded_nibbles_pair(const uint8_t *group, int j, int has_b, __m256i *u)
{
    decoded_pair(group, j, has_b, u);
    u[1] = _mm256_add_epi16(u[1], _mm256_slli_epi16(u[3], 4));
    u[2] = _mm256_add_epi16(u[2], _mm256_slli_epi16(u[1], 4));
}
LI_AVX2_INLINE __m256 in_slots(const float s[8]) { return _mm256_setr_ps(s[0], s[2], s[4], s[6], s[1], s[3], s[5], s[7]); }
LI_AVX2_INLINE void decoded_scales(const uint8_t *group, int n, __m256 *d, __m256 *m)
{
    const li_group *g = (const li_group *)(const void *)group;
    (void)n;
    *d = in_slots(g->d);
    *m = in_slots(g->m);
}
#define decoded_nibbles_scales decoded_scales

#endif

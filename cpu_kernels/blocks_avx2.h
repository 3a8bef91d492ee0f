/* Block decoders for AVX2. A type NAME has
 *     NAME_context NAME_open(group)               what all 8 blocks of a group share
 *     NAME_values(group, b, context, &lo, &hi)    values 0..15 and 16..31 of block b as int16
 *     NAME_scales(group, n, context, &d, &m, &m2) lane b: D and M of block b (blocks.h); those a type lacks are left
 * `group` is the first of n <= 8 blocks of 32 values (8 where a block of the file has 256), and nothing beyond them is
 * read; lanes of blocks beyond n are 0. The compiler sees b as a constant (loops over it are unrolled) and finds what two
 * blocks share.
 */
#ifndef LI_BLOCKS_AVX2_H
#define LI_BLOCKS_AVX2_H

#include <immintrin.h>

#include "blocks.h"

#define LI_AVX2 __attribute__((target("avx2,fma,f16c")))
#define LI_AVX2_INLINE static inline __attribute__((always_inline, target("avx2,fma,f16c")))

typedef struct {
    __m256i low, high; /* int16 scales of sub-blocks 0..7 and 8..15, in both 128-bit halves */
} li_scales16;
typedef struct {
    char none;
} li_no_context;

LI_AVX2_INLINE li_no_context open_none(const uint8_t *group)
{
    (void)group;
    return (li_no_context){0};
}

/* 16 bytes -> 16 int16. One shuffle within lanes of a broadcast load is half the price of vpmovzxbw on Zen 3. */
LI_AVX2_INLINE __m256i load_u8x16(const uint8_t *p)
{
    const __m256i spread = _mm256_setr_epi8(0, -1, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7, -1, 8, -1, 9, -1, 10, -1,
                                            11, -1, 12, -1, 13, -1, 14, -1, 15, -1);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p)), spread);
}
LI_AVX2_INLINE __m256i load_i8x16(const uint8_t *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)); }
LI_AVX2_INLINE __m256i and16(__m256i v, int mask) { return _mm256_and_si256(v, _mm256_set1_epi16((short)mask)); }
LI_AVX2_INLINE __m256i shift_down(__m256i v, int n) { return n ? _mm256_srli_epi16(v, n) : v; }
/* Bits moved up by n, or down by -n. */
LI_AVX2_INLINE __m256i shift_up(__m256i v, int n)
{
    return n > 0 ? _mm256_slli_epi16(v, n) : n < 0 ? _mm256_srli_epi16(v, -n) : v;
}

/* -- scales ---------------------------------------------------------------------------------------------------------*/

/* Lane b: the 4 bytes at the start of block b < n, 0 for b >= n; blocks are `stride` >= 16 bytes apart. Loads that begin
 * 4 bytes earlier in each block put every word into its lane; none reads before block 0 or beyond block n-1. */
LI_AVX2_INLINE __m256i first_words(const uint8_t *group, int n, int stride)
{
#define LI_FOUR(b) _mm_loadu_si128((const __m128i *)(group + (b) * (stride - 4)))
#define LI_EIGHT(b) _mm256_loadu_si256((const __m256i *)(group + (b) * (stride - 4)))
    if (n == 8) {
        __m256i v01 = _mm256_blend_epi32(LI_EIGHT(0), LI_EIGHT(1), 0x02);
        __m256i v23 = _mm256_blend_epi32(LI_EIGHT(2), LI_EIGHT(3), 0x08);
        __m256i v45 = _mm256_blend_epi32(LI_EIGHT(4), LI_EIGHT(5), 0x20);
        __m256i v67 = _mm256_blend_epi32(LI_EIGHT(6), LI_EIGHT(7), 0x80);
        return _mm256_blend_epi32(_mm256_blend_epi32(v01, v23, 0x0C), _mm256_blend_epi32(v45, v67, 0xC0), 0xF0);
    }
    __m128i low = LI_FOUR(0);
    low = n > 1 ? _mm_blend_epi32(low, LI_FOUR(1), 0x2) : _mm_blend_epi32(low, _mm_setzero_si128(), 0xE);
    low = n > 2 ? _mm_blend_epi32(low, LI_FOUR(2), 0x4) : _mm_blend_epi32(low, _mm_setzero_si128(), 0xC);
    low = n > 3 ? _mm_blend_epi32(low, LI_FOUR(3), 0x8) : _mm_blend_epi32(low, _mm_setzero_si128(), 0x8);
    if (n <= 4)
        return _mm256_inserti128_si256(_mm256_setzero_si256(), low, 0);
    __m256i all = _mm256_blend_epi32(_mm256_castsi128_si256(low), LI_EIGHT(4), 0x10);
    all = n > 5 ? _mm256_blend_epi32(all, LI_EIGHT(5), 0x20) : _mm256_blend_epi32(all, _mm256_setzero_si256(), 0xE0);
    return n > 6 ? _mm256_blend_epi32(_mm256_blend_epi32(all, LI_EIGHT(6), 0x40), _mm256_setzero_si256(), 0x80)
                 : _mm256_blend_epi32(all, _mm256_setzero_si256(), 0xC0);
#undef LI_FOUR
#undef LI_EIGHT
}

LI_AVX2_INLINE __m256 half_scales(const uint8_t *group, int n, int stride)
{
    const __m256i low = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1, 0, 1, 4, 5, 8, 9, 12, 13,
                                         -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i words = _mm256_shuffle_epi8(first_words(group, n, stride), low);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(words, 0x08)));
}

/* Blocks that start with d and m, both half floats. */
LI_AVX2_INLINE void half_scales_and_mins(const uint8_t *group, int n, int stride, __m256 *d, __m256 *m)
{
    const __m256i apart = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13,
                                           2, 3, 6, 7, 10, 11, 14, 15);
    __m256i words = _mm256_shuffle_epi8(first_words(group, n, stride), apart);
    __m256i packed = _mm256_permute4x64_epi64(words, 0xD8);
    *d = _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
    *m = _mm256_cvtph_ps(_mm256_extracti128_si256(packed, 1));
}

LI_AVX2_INLINE __m256 all_half(const uint8_t *p)
{
    return _mm256_set1_ps(_cvtsh_ss(li_load_u16(p)));
}

LI_AVX2_INLINE __m256 floats_of_bytes(uint32_t low, uint32_t high)
{
    __m128i bytes = _mm_cvtsi64_si128((long long)((uint64_t)high << 32 | low));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

LI_AVX2_INLINE __m256 negated(__m256 v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }

LI_AVX2_INLINE li_scales16 scales16(__m128i bytes, int is_signed)
{
    __m256i words = is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
    return (li_scales16){_mm256_permute2x128_si256(words, words, 0x00), _mm256_permute2x128_si256(words, words, 0x11)};
}

/* The scale of sub-block s of 16 values in all 16 lanes. */
LI_AVX2_INLINE __m256i scale16(li_scales16 scales, int s)
{
    __m256i select = _mm256_set1_epi16((short)(2 * (s & 7) | (2 * (s & 7) + 1) << 8));
    return _mm256_shuffle_epi8(s < 8 ? scales.low : scales.high, select);
}

/* -- 32 values a block ----------------------------------------------------------------------------------------------*/

LI_AVX2_INLINE void nibble_values(const uint8_t *qs, __m256i *lo, __m256i *hi)
{
    __m256i both = load_u8x16(qs);
    *lo = and16(both, 15);
    *hi = _mm256_srli_epi16(both, 4);
}

LI_AVX2_INLINE void q4_0_values(const uint8_t *group, int b, li_no_context c, __m256i *lo, __m256i *hi)
{
    (void)c;
    nibble_values(group + 18 * b + 2, lo, hi);
    *lo = _mm256_sub_epi16(*lo, _mm256_set1_epi16(8));
    *hi = _mm256_sub_epi16(*hi, _mm256_set1_epi16(8));
}
LI_AVX2_INLINE void q4_0_scales(const uint8_t *group, int n, li_no_context c, __m256 *d, __m256 *m, __m256 *m2)
{
    (void)c, (void)m, (void)m2;
    *d = half_scales(group, n, 18);
}

LI_AVX2_INLINE void q4_1_values(const uint8_t *group, int b, li_no_context c, __m256i *lo, __m256i *hi)
{
    (void)c;
    nibble_values(group + 20 * b + 4, lo, hi);
}
LI_AVX2_INLINE void q4_1_scales(const uint8_t *group, int n, li_no_context c, __m256 *d, __m256 *m, __m256 *m2)
{
    (void)c, (void)m2;
    half_scales_and_mins(group, n, 20, d, m);
}

/* Lane i of *lo: -16 where bit i of the 32 at p is clear, else 0; *hi: the same for bits 16 .. 31. Each lane gets its
 * byte as upper byte; (2^(8+j) or 0) * -2^(12-j) has the answer in its upper half (bit 15 is a minus sign itself). */
LI_AVX2_INLINE void minus_16_where_clear(const uint8_t *p, __m256i *lo, __m256i *hi)
{
    const __m256i low_byte = _mm256_setr_epi8(-1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1,
                                              -1, 1, -1, 1, -1, 1, -1, 1, -1, 1);
    const __m256i high_byte = _mm256_setr_epi8(-1, 2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 3, -1, 3, -1,
                                               3, -1, 3, -1, 3, -1, 3, -1, 3, -1, 3);
    const __m256i bit = _mm256_setr_epi16(256, 512, 1024, 2048, 4096, 8192, 16384, -32768, 256, 512, 1024, 2048, 4096,
                                          8192, 16384, -32768);
    const __m256i factor = _mm256_setr_epi16(-4096, -2048, -1024, -512, -256, -128, -64, 32, -4096, -2048, -1024, -512,
                                             -256, -128, -64, 32);
    __m256i bits = _mm256_set1_epi32((int)li_load_u32(p));
    *lo = _mm256_mulhi_epi16(_mm256_andnot_si256(_mm256_shuffle_epi8(bits, low_byte), bit), factor);
    *hi = _mm256_mulhi_epi16(_mm256_andnot_si256(_mm256_shuffle_epi8(bits, high_byte), bit), factor);
}

/* The same with 16 where a bit is set. */
LI_AVX2_INLINE void plus_16_where_set(const uint8_t *p, __m256i *lo, __m256i *hi)
{
    minus_16_where_clear(p, lo, hi);
    *lo = _mm256_add_epi16(*lo, _mm256_set1_epi16(16));
    *hi = _mm256_add_epi16(*hi, _mm256_set1_epi16(16));
}

LI_AVX2_INLINE void q5_0_values(const uint8_t *group, int b, li_no_context c, __m256i *lo, __m256i *hi)
{
    const uint8_t *block = group + 22 * b;
    __m256i high_lo, high_hi;
    (void)c;
    nibble_values(block + 6, lo, hi);
    minus_16_where_clear(block + 2, &high_lo, &high_hi);
    *lo = _mm256_or_si256(*lo, high_lo); /* nibble | -16 = nibble - 16 */
    *hi = _mm256_or_si256(*hi, high_hi);
}
LI_AVX2_INLINE void q5_0_scales(const uint8_t *group, int n, li_no_context c, __m256 *d, __m256 *m, __m256 *m2)
{
    (void)c, (void)m, (void)m2;
    *d = half_scales(group, n, 22);
}

LI_AVX2_INLINE void q5_1_values(const uint8_t *group, int b, li_no_context c, __m256i *lo, __m256i *hi)
{
    const uint8_t *block = group + 24 * b;
    __m256i high_lo, high_hi;
    (void)c;
    nibble_values(block + 8, lo, hi);
    plus_16_where_set(block + 4, &high_lo, &high_hi);
    *lo = _mm256_or_si256(*lo, high_lo);
    *hi = _mm256_or_si256(*hi, high_hi);
}
LI_AVX2_INLINE void q5_1_scales(const uint8_t *group, int n, li_no_context c, __m256 *d, __m256 *m, __m256 *m2)
{
    (void)c, (void)m2;
    half_scales_and_mins(group, n, 24, d, m);
}

LI_AVX2_INLINE void q8_0_values(const uint8_t *group, int b, li_no_context c, __m256i *lo, __m256i *hi)
{
    (void)c;
    *lo = load_i8x16(group + 34 * b + 2);
    *hi = load_i8x16(group + 34 * b + 18);
}
LI_AVX2_INLINE void q8_0_scales(const uint8_t *group, int n, li_no_context c, __m256 *d, __m256 *m, __m256 *m2)
{
    (void)c, (void)m, (void)m2;
    *d = half_scales(group, n, 34);
}

LI_AVX2_INLINE void level_values(const uint8_t *qs, const int8_t *levels, __m256i *lo, __m256i *hi)
{
    __m128i table = _mm_loadu_si128((const __m128i *)levels), bytes = _mm_loadu_si128((const __m128i *)qs);
    __m128i nibble = _mm_set1_epi8(15);
    *lo = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(table, _mm_and_si128(bytes, nibble)));
    *hi = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble)));
}

LI_AVX2_INLINE void iq4_nl_values(const uint8_t *group, int b, li_no_context c, __m256i *lo, __m256i *hi)
{
    (void)c;
    level_values(group + 18 * b + 2, li_iq4_levels, lo, hi);
}
#define iq4_nl_scales q4_0_scales

LI_AVX2_INLINE void mxfp4_values(const uint8_t *group, int b, li_no_context c, __m256i *lo, __m256i *hi)
{
    (void)c;
    level_values(group + 17 * b + 1, li_fp4_levels, lo, hi);
}
LI_AVX2_INLINE void mxfp4_scales(const uint8_t *group, int n, li_no_context c, __m256 *d, __m256 *m, __m256 *m2)
{
    __m256i e = _mm256_and_si256(first_words(group, n, 17), _mm256_set1_epi32(255)), one = _mm256_set1_epi32(1);
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23);
    __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    (void)c, (void)m, (void)m2;
    *d = _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi32(e, one)));
}

/* -- 256 values a block ---------------------------------------------------------------------------------------------*/

LI_AVX2_INLINE li_scales16 q2_k_open(const uint8_t *group)
{
    return scales16(_mm_and_si128(_mm_loadu_si128((const __m128i *)group), _mm_set1_epi8(15)), 0);
}
LI_AVX2_INLINE void q2_k_values(const uint8_t *group, int b, li_scales16 c, __m256i *lo, __m256i *hi)
{
    const uint8_t *qs = group + 16 + 32 * (b / 4);
    __m256i q0 = and16(shift_down(load_u8x16(qs), 2 * (b % 4)), 3);
    __m256i q1 = and16(shift_down(load_u8x16(qs + 16), 2 * (b % 4)), 3);
    *lo = _mm256_mullo_epi16(q0, scale16(c, 2 * b));
    *hi = _mm256_mullo_epi16(q1, scale16(c, 2 * b + 1));
}
LI_AVX2_INLINE void q2_k_scales(const uint8_t *group, int n, li_scales16 c, __m256 *d, __m256 *m, __m256 *m2)
{
    __m128i mins = _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128((const __m128i *)group), 4), _mm_set1_epi8(15));
    const __m128i split = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    __m256 dmin = negated(all_half(group + 82));
    (void)c, (void)n;
    mins = _mm_shuffle_epi8(mins, split);
    *d = all_half(group + 80);
    *m = _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(mins)));
    *m2 = _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(mins, 8))));
}

LI_AVX2_INLINE li_scales16 q3_k_open(const uint8_t *group)
{
    uint32_t words[4];
    li_unpack_q3_k_scales(group + 96, words);
    __m128i bytes = _mm_setr_epi32((int)words[0], (int)words[1], (int)words[2], (int)words[3]);
    return scales16(_mm_sub_epi8(bytes, _mm_set1_epi8(32)), 1);
}
LI_AVX2_INLINE __m256i q3_k_half(const uint8_t *qs, const uint8_t *hmask, int b)
{
    __m256i low = and16(shift_down(load_u8x16(qs), 2 * (b % 4)), 3);
    __m256i high = and16(shift_up(load_u8x16(hmask), 2 - b), 4);
    return _mm256_sub_epi16(_mm256_or_si256(low, high), _mm256_set1_epi16(4));
}
LI_AVX2_INLINE void q3_k_values(const uint8_t *group, int b, li_scales16 c, __m256i *lo, __m256i *hi)
{
    const uint8_t *qs = group + 32 + 32 * (b / 4);
    *lo = _mm256_mullo_epi16(q3_k_half(qs, group, b), scale16(c, 2 * b));
    *hi = _mm256_mullo_epi16(q3_k_half(qs + 16, group + 16, b), scale16(c, 2 * b + 1));
}
LI_AVX2_INLINE void q3_k_scales(const uint8_t *group, int n, li_scales16 c, __m256 *d, __m256 *m, __m256 *m2)
{
    (void)c, (void)n, (void)m, (void)m2;
    *d = all_half(group + 108);
}

LI_AVX2_INLINE void q4_k_values(const uint8_t *group, int b, li_no_context c, __m256i *lo, __m256i *hi)
{
    const uint8_t *qs = group + 16 + 32 * (b / 2);
    __m256i q0 = load_u8x16(qs), q1 = load_u8x16(qs + 16);
    (void)c;
    *lo = b % 2 ? _mm256_srli_epi16(q0, 4) : and16(q0, 15);
    *hi = b % 2 ? _mm256_srli_epi16(q1, 4) : and16(q1, 15);
}
LI_AVX2_INLINE void q4_k_scales(const uint8_t *group, int n, li_no_context c, __m256 *d, __m256 *m, __m256 *m2)
{
    uint32_t scales[2], mins[2];
    (void)c, (void)n, (void)m2;
    li_unpack_k_scales(group + 4, scales, mins);
    *d = _mm256_mul_ps(all_half(group), floats_of_bytes(scales[0], scales[1]));
    *m = _mm256_mul_ps(negated(all_half(group + 2)), floats_of_bytes(mins[0], mins[1]));
}

LI_AVX2_INLINE void q5_k_values(const uint8_t *group, int b, li_no_context c, __m256i *lo, __m256i *hi)
{
    q4_k_values(group + 32, b, c, lo, hi);
    *lo = _mm256_or_si256(*lo, and16(shift_up(load_u8x16(group + 16), 4 - b), 16));
    *hi = _mm256_or_si256(*hi, and16(shift_up(load_u8x16(group + 32), 4 - b), 16));
}
#define q5_k_scales q4_k_scales

LI_AVX2_INLINE li_scales16 q6_k_open(const uint8_t *group)
{
    return scales16(_mm_loadu_si128((const __m128i *)(group + 192)), 1);
}
LI_AVX2_INLINE __m256i q6_k_half(const uint8_t *ql, const uint8_t *qh, int j)
{
    __m256i nibble = j / 2 ? _mm256_srli_epi16(load_u8x16(ql), 4) : and16(load_u8x16(ql), 15);
    __m256i high = and16(shift_up(load_u8x16(qh), 4 - 2 * j), 48);
    return _mm256_sub_epi16(_mm256_or_si256(nibble, high), _mm256_set1_epi16(32));
}
LI_AVX2_INLINE void q6_k_values(const uint8_t *group, int b, li_scales16 c, __m256i *lo, __m256i *hi)
{
    const uint8_t *ql = group + 64 * (b / 4) + 32 * (b % 2), *qh = group + 128 + 32 * (b / 4);
    *lo = _mm256_mullo_epi16(q6_k_half(ql, qh, b % 4), scale16(c, 2 * b));
    *hi = _mm256_mullo_epi16(q6_k_half(ql + 16, qh + 16, b % 4), scale16(c, 2 * b + 1));
}
LI_AVX2_INLINE void q6_k_scales(const uint8_t *group, int n, li_scales16 c, __m256 *d, __m256 *m, __m256 *m2)
{
    (void)c, (void)n, (void)m, (void)m2;
    *d = all_half(group + 208);
}

LI_AVX2_INLINE void iq4_xs_values(const uint8_t *group, int b, li_no_context c, __m256i *lo, __m256i *hi)
{
    (void)c;
    level_values(group + 8 + 16 * b, li_iq4_levels, lo, hi);
}
LI_AVX2_INLINE void iq4_xs_scales(const uint8_t *group, int n, li_no_context c, __m256 *d, __m256 *m, __m256 *m2)
{
    const __m256i twice = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const __m256i four_times = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(li_load_u16(group + 2)), twice);
    __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32((int)li_load_u32(group + 4)), four_times);
    (void)c, (void)n, (void)m, (void)m2;
    high = _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4);
    low = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)), high);
    *d = _mm256_mul_ps(all_half(group), _mm256_cvtepi32_ps(_mm256_sub_epi32(low, _mm256_set1_epi32(32))));
}

/* -- any type, decoded by plain C: the group is a li_group ------------------------------------------------------------*/

LI_AVX2_INLINE void decoded_values(const uint8_t *group, int b, li_no_context c, __m256i *lo, __m256i *hi)
{
    const __m256i *q = (const __m256i *)(const void *)((const li_group *)(const void *)group)->q;
    (void)c;
    *lo = _mm256_loadu_si256(q + 2 * b);
    *hi = _mm256_loadu_si256(q + 2 * b + 1);
}
LI_AVX2_INLINE void decoded_scales(const uint8_t *group, int n, li_no_context c, __m256 *d, __m256 *m, __m256 *m2)
{
    const li_group *g = (const li_group *)(const void *)group;
    (void)c, (void)n;
    *d = _mm256_loadu_ps(g->d);
    *m = _mm256_loadu_ps(g->m);
    *m2 = _mm256_loadu_ps(g->m2);
}

#endif

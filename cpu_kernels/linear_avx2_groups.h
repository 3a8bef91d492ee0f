/* Few tokens times Q2_K and Q3_K: the template of the kernel that makes one sum of a group of 256 values.
 *
 * A block of 32 values is a vector of unsigned bytes, values 0..15 in its lower half and 16..31 in its upper, and so is x,
 * apart into p = 128 hi + lo. Products of bytes are summed in pairs of int16; a second multiplication, by the scales of 16
 * values, makes the sums int32, and nothing else is done until the group ends. Then the sums of four rows become one
 * vector, a lane per row, the halves of blocks in its halves: the two lanes of linear.h.
 * Bytes are taken apart by masks rather than shifts where that does: values are then too large by a power of two, and the
 * scales of the other blocks are made as much larger.
 */
#ifndef LI_LINEAR_AVX2_GROUPS_H
#define LI_LINEAR_AVX2_GROUPS_H

#include "linear_avx2_rows.h"

/* Tokens whose sums stay in registers. */
enum { GROUP_TOKENS = 3 };

/* Keeps the compiler from loading what p points to once for all rows, which it then has to put away on the stack. */
#define LI_LOAD_AGAIN(p) __asm__("" : "+r"(p))

LI_AVX2_INLINE __m256i both_halves(__m128i v) { return _mm256_broadcastsi128_si256(v); }

/* -- blocks -----------------------------------------------------------------------------------------------------------*/

/* Blocks 4k .. 4k + 3 of a group, 1, 4, 16 and 64 times as large as they are. */
LI_AVX2_INLINE void two_bit_blocks(const uint8_t *group, int k, __m256i u[4])
{
    __m256i v = load_ints(group + 16 + 32 * k);
    for (int i = 0; i < 4; i++)
        u[i] = and8(v, 3 << 2 * i);
}

/* Blocks 4k .. 4k + 3 of a group, 1, 1, 16 and 16 times as large as they are. Third bits are in the first 32 bytes, bit
 * 4k + i for block i: tables put those of two blocks where they belong in nibbles. */
LI_AVX2_INLINE void three_bit_blocks(const uint8_t *group, int k, __m256i u[4])
{
    const __m256i evens = both_halves(
        _mm_setr_epi8(0, 4, 0, 4, 64, 68, 64, 68, 0, 4, 0, 4, 64, 68, 64, 68)); /* bits 0 and 2 -> 2 and 6 */
    const __m256i odds = both_halves(
        _mm_setr_epi8(0, 0, 4, 4, 0, 0, 4, 4, 64, 64, 68, 68, 64, 64, 68, 68)); /* bits 1 and 3 -> 2 and 6 */
    __m256i v = load_ints(group + 32 + 32 * k), third = load_ints(group);
    third = and8(k ? _mm256_srli_epi16(third, 4) : third, 15);
    __m256i even = _mm256_or_si256(and8(v, 0x33), _mm256_shuffle_epi8(evens, third));
    __m256i odd = _mm256_or_si256(and8(_mm256_srli_epi16(v, 2), 0x33), _mm256_shuffle_epi8(odds, third));
    u[0] = and8(even, 0x07);
    u[1] = and8(odd, 0x07);
    u[2] = and8(even, 0x70);
    u[3] = and8(odd, 0x70);
}

LI_AVX2_INLINE void four_blocks(int type, const uint8_t *group, int k, __m256i u[4])
{
    if (type == LI_Q2_K)
        two_bit_blocks(group, k, u);
    else
        three_bit_blocks(group, k, u);
}

/* -- scales -----------------------------------------------------------------------------------------------------------*/

/* The log2 by which sums are too large, and what makes it the same for all blocks. */
LI_AVX2_INLINE int sum_bits(int type) { return type == LI_Q2_K ? 6 : 4; }
LI_AVX2_INLINE __m256i evened(int type, __m256i scales)
{
    const __m256i q2_k = both_halves(_mm_setr_epi16(64, 16, 4, 1, 64, 16, 4, 1));
    const __m256i q3_k = both_halves(_mm_setr_epi16(16, 16, 1, 1, 16, 16, 1, 1));
    return _mm256_mullo_epi16(scales, type == LI_Q2_K ? q2_k : q3_k);
}

/* Of a group of 256 values: scales and mins of 16 values as int16, of block b in word b of each half. */
typedef struct {
    __m256i scales, mins;
} group_words;

LI_AVX2_INLINE group_words q2_k_words(const uint8_t *group)
{
    const __m256i apart = _mm256_setr_epi8(0, -1, 2, -1, 4, -1, 6, -1, 8, -1, 10, -1, 12, -1, 14, -1,
                                           1, -1, 3, -1, 5, -1, 7, -1, 9, -1, 11, -1, 13, -1, 15, -1);
    __m256i words = _mm256_shuffle_epi8(twice16(group), apart);
    return (group_words){and8(words, 15), _mm256_srli_epi16(words, 4)};
}

/* li_unpack_q3_k_scales: the lower four bits are in nibbles of 8 bytes, the upper two in quarters of the next 4. */
LI_AVX2_INLINE group_words q3_k_words(const uint8_t *group)
{
    const __m256i low = _mm256_setr_epi8(2, -1, 4, -1, 6, -1, 8, -1, 2, -1, 4, -1, 6, -1, 8, -1,
                                         3, -1, 5, -1, 7, -1, 9, -1, 3, -1, 5, -1, 7, -1, 9, -1);
    const __m256i high = _mm256_setr_epi8(-1, 10, -1, 12, -1, 10, -1, 12, -1, 10, -1, 12, -1, 10, -1, 12,
                                          -1, 11, -1, 13, -1, 11, -1, 13, -1, 11, -1, 13, -1, 11, -1, 13);
    __m256i bytes = twice16(group + 94); /* from two bytes before them, since the matrix may end after them */
    __m256i a = _mm256_srlv_epi32(_mm256_shuffle_epi8(bytes, low), _mm256_setr_epi32(0, 0, 4, 4, 0, 0, 4, 4));
    __m256i b = _mm256_srlv_epi32(_mm256_shuffle_epi8(bytes, high), _mm256_setr_epi32(4, 6, 8, 10, 4, 6, 8, 10));
    a = _mm256_or_si256(_mm256_and_si256(a, _mm256_set1_epi16(15)), _mm256_and_si256(b, _mm256_set1_epi16(0x30)));
    return (group_words){_mm256_sub_epi16(a, _mm256_set1_epi16(32)), _mm256_setzero_si256()};
}

LI_AVX2_INLINE group_words words_of(int type, const uint8_t *group)
{
    return type == LI_Q2_K ? q2_k_words(group) : q3_k_words(group);
}

/* Word b of each half in all words of that half. */
LI_AVX2_INLINE __m256i of_block(__m256i words, int b)
{
    return _mm256_shuffle_epi8(words, _mm256_set1_epi16((short)((2 * b + 1) << 8 | 2 * b)));
}

/* The last word of the 16 bytes at `offset` of four groups. */
LI_AVX2_INLINE __m128i last_words(const uint8_t *const at[ROWS], int offset)
{
    __m128i a = _mm_unpackhi_epi32(load16(at[0] + offset), load16(at[1] + offset));
    return _mm_unpackhi_epi64(a, _mm_unpackhi_epi32(load16(at[2] + offset), load16(at[3] + offset)));
}

/* D of four groups, and -dmin of Q2_K, each twice. */
LI_AVX2_INLINE void factors(int type, const uint8_t *const at[ROWS], __m256 *d, __m256 *m)
{
    const __m128i apart = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    __m128i words = _mm_shuffle_epi8(last_words(at, type == LI_Q2_K ? 68 : 94), apart);
    if (type == LI_Q3_K) { /* the upper halves of the words */
        *d = _mm256_cvtph_ps(_mm_unpackhi_epi64(words, words));
        return;
    }
    *d = _mm256_cvtph_ps(_mm_unpacklo_epi64(words, words));
    *m = negated(_mm256_cvtph_ps(_mm_unpackhi_epi64(words, words)));
}

/* -- sums -------------------------------------------------------------------------------------------------------------*/

/* Sums of products with hi and with lo. */
typedef struct {
    __m256i hi, lo;
} split_sums;

/* add_products whose sum stays in its register: left to itself GCC makes trees of sums and spills them. */
LI_AVX2_INLINE void add_in_place(__m256i *sum, __m256i a, __m256i b)
{
#if LI_FOR_AVX512
    *sum = add_products(*sum, a, b);
#else
    __asm__("vpaddd %1, %0, %0" : "+x"(*sum) : "x"(_mm256_madd_epi16(a, b)));
#endif
}

/* Two products are at most 2 * 192 * 64 < 2^15, and a lane's 32 of them with scales 2^25. */
LI_AVX2_INLINE void add_block(__m256i u, __m256i scale, const li_split_group *x, int b, split_sums *s)
{
    __m256i hi = _mm256_maddubs_epi16(u, load_ints(x->hi + 32 * b));
    __m256i lo = _mm256_maddubs_epi16(u, load_ints(x->lo + 32 * b));
    if (b == 0) {
        *s = (split_sums){_mm256_madd_epi16(hi, scale), _mm256_madd_epi16(lo, scale)};
        return;
    }
    add_in_place(&s->hi, hi, scale);
    add_in_place(&s->lo, lo, scale);
}

/* Words of a group times the sums of x. */
LI_AVX2_INLINE split_sums times_sums(__m256i words, const li_split_group *x)
{
    return (split_sums){_mm256_madd_epi16(words, load_ints(x->sum_hi)), _mm256_madd_epi16(words, load_ints(x->sum_lo))};
}

/* 128 hi + lo of sums that are 2^bits too large. */
LI_AVX2_INLINE __m256i joined(split_sums s, int bits)
{
    return _mm256_add_epi32(_mm256_slli_epi32(s.hi, 7 - bits), bits ? _mm256_srai_epi32(s.lo, bits) : s.lo);
}

/* A row's sums of values, and of Q2_K's mins; Q3_K's values are 4 too large. */
LI_AVX2_INLINE two_sums row_sums(int type, group_words w, split_sums s, const li_split_group *x)
{
    if (type == LI_Q2_K)
        return (two_sums){joined(s, sum_bits(type)), joined(times_sums(w.mins, x), 0)};
    split_sums offset = times_sums(_mm256_slli_epi16(w.scales, 2 + sum_bits(type)), x);
    s = (split_sums){_mm256_sub_epi32(s.hi, offset.hi), _mm256_sub_epi32(s.lo, offset.lo)};
    return (two_sums){joined(s, sum_bits(type)), s.hi};
}

/* Group b / 8 of four rows into the running lanes of n_tokens, a constant <= GROUP_TOKENS. */
LI_AVX2_INLINE void group_tokens(int type, const uint8_t *const at[ROWS], int64_t b, int n_tokens, const li_int_row *x,
                                 __m256 *lanes)
{
    two_sums one[GROUP_TOKENS], two[GROUP_TOKENS];
    const li_split_group *groups[GROUP_TOKENS];
    __m256 d, m = _mm256_setzero_ps();
    for (int t = 0; t < n_tokens; t++)
        groups[t] = x[t].groups + b / 8;
    LI_UNROLL_8
    for (int r = 0; r < ROWS; r++) {
        group_words w = words_of(type, at[r]);
        __m256i scales = evened(type, w.scales);
        split_sums s[GROUP_TOKENS];
        for (int t = 0; t < n_tokens; t++)
            LI_LOAD_AGAIN(groups[t]);
        LI_UNROLL_8
        for (int i = 0; i < 8; i++) {
            __m256i u[4], scale = of_block(scales, i);
            four_blocks(type, at[r], i / 4, u);
            for (int t = 0; t < n_tokens; t++)
                add_block(u[i % 4], scale, groups[t], i, &s[t]);
        }
        for (int t = 0; t < n_tokens; t++)
            take_row(type == LI_Q2_K, r, row_sums(type, w, s[t], groups[t]), &one[t], &two[t]);
    }
    factors(type, at, &d, &m);
    for (int t = 0; t < n_tokens; t++) {
        __m256 dx = _mm256_set1_ps(x[t].dx[b]);
        lanes[t] = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(two[t].first), lanes[t]);
        if (type == LI_Q2_K)
            lanes[t] = _mm256_fmadd_ps(_mm256_mul_ps(m, dx), _mm256_cvtepi32_ps(two[t].second), lanes[t]);
    }
}

/* group_tokens for two and for three tokens: functions of their own, so that the compiler has registers for them. */
typedef void li_group_tokens(const uint8_t *const at[ROWS], int64_t b, const li_int_row *x, __m256 *lanes);

/* One token; or where `many` two or more, which are taken by twos and threes. */
LI_AVX2_INLINE void groups_kernel(int type, li_group_tokens *two, li_group_tokens *three, const li_matrix *w,
                                  const char *xq, int many, int n_tokens, float *y, int64_t ldy, int64_t row0,
                                  int64_t row1)
{
    li_int_row x[LI_ROW_TOKENS];
    const li_row_streams streams = li_streams_of(w, row0, row1);
    int64_t stride = li_token_bytes(LI_KIND_GROUP, w->n_in), row[ROWS];
    for (int k = 0; k < n_tokens; k++)
        x[k] = li_int_row_at(xq + k * stride, w->n_in);
    first_bytes_of(w, &streams);
    for (int64_t i = 0; i < streams.quarter; i++) {
        __m256 lanes[LI_ROW_TOKENS];
        const uint8_t *at[ROWS];
        li_rows_at(&streams, i, row);
        for (int r = 0; r < ROWS; r++)
            at[r] = w->blocks + row[r] * w->row_bytes;
        for (int k = 0; k < n_tokens; k++)
            lanes[k] = _mm256_setzero_ps();
        for (int64_t b = 0; b < w->n_in / 32; b += 8) {
            prefetch(at, PREFETCH_BYTES, group_bytes(type));
            if (!many)
                group_tokens(type, at, b, 1, x, lanes);
            for (int t = 0, n; many && t < n_tokens; t += n) {
                n = (n_tokens - t) % 3 == 0 ? 3 : 2;
                (n == 3 ? three : two)(at, b, x + t, lanes + t);
            }
            for (int r = 0; r < ROWS; r++)
                at[r] += group_bytes(type);
        }
        store_rows(lanes, n_tokens, row, y, ldy, row0, row1);
    }
}

#endif

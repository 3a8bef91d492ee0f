/* Scales of four rows at once. */
#ifndef LI_LINEAR_AVX2_SCALES_H
#define LI_LINEAR_AVX2_SCALES_H

#include "linear_avx2_types.h"

enum { ROWS = 4 };

/* Of a pair of blocks of four rows, a lane per row and block: D, M, and the scales of the first and second 16 values. */
typedef struct {
    __m256 d, m;
    __m256i first, second;
} pair_scales;

/* v[r]: slots of row r -> v[j]: pair j, a lane per row and block. */
LI_AVX2_INLINE void pairs_of_rows(__m256 v[ROWS])
{
    __m256 a = _mm256_unpacklo_ps(v[0], v[1]), b = _mm256_unpackhi_ps(v[0], v[1]);
    __m256 c = _mm256_unpacklo_ps(v[2], v[3]), d = _mm256_unpackhi_ps(v[2], v[3]);
    v[0] = _mm256_shuffle_ps(a, c, 0x44);
    v[1] = _mm256_shuffle_ps(a, c, 0xEE);
    v[2] = _mm256_shuffle_ps(b, d, 0x44);
    v[3] = _mm256_shuffle_ps(b, d, 0xEE);
}

/* v[r]: 16 bytes of row r, two for each block of 32 -> first and second ones of pair j, a lane per row and block. */
LI_AVX2_INLINE void pairs_of_bytes(const __m128i v[ROWS], __m256i first[4], __m256i second[4])
{
    __m128i a = _mm_unpacklo_epi32(v[0], v[1]), b = _mm_unpackhi_epi32(v[0], v[1]);
    __m128i c = _mm_unpacklo_epi32(v[2], v[3]), d = _mm_unpackhi_epi32(v[2], v[3]);
    const __m128i pair[4] = {_mm_unpacklo_epi64(a, c), _mm_unpackhi_epi64(a, c), _mm_unpacklo_epi64(b, d),
                             _mm_unpackhi_epi64(b, d)};
    LI_UNROLL_8
    for (int j = 0; j < 4; j++) {
        __m128i bytes = _mm_shuffle_epi8(pair[j], _mm_setr_epi8(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15));
        first[j] = _mm256_cvtepi8_epi32(bytes);
        second[j] = _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes));
    }
}

/* The half floats at `offset` of four groups, twice. */
LI_AVX2_INLINE __m256 row_halves(const uint8_t *const at[ROWS], int offset)
{
    __m128i h = _mm_cvtsi32_si128((int)(li_load_u16(at[0] + offset) | (uint32_t)li_load_u16(at[1] + offset) << 16));
    h = _mm_insert_epi32(h, (int)(li_load_u16(at[2] + offset) | (uint32_t)li_load_u16(at[3] + offset) << 16), 1);
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(h, h));
}

/* Word k of each row's 16 bytes: bytes of row 0, of row 1, ... */
LI_AVX2_INLINE void words_of_rows(const __m128i v[ROWS], __m128i words[4])
{
    __m128i a = _mm_unpacklo_epi32(v[0], v[1]), b = _mm_unpackhi_epi32(v[0], v[1]);
    __m128i c = _mm_unpacklo_epi32(v[2], v[3]), d = _mm_unpackhi_epi32(v[2], v[3]);
    words[0] = _mm_unpacklo_epi64(a, c);
    words[1] = _mm_unpackhi_epi64(a, c);
    words[2] = _mm_unpacklo_epi64(b, d);
    words[3] = _mm_unpackhi_epi64(b, d);
}

/* Four unsigned bytes of each row -> factors times the first two (pair 0), or the last two (pair 1). */
LI_AVX2_INLINE __m256 times_bytes(__m256 factors, __m128i bytes, int pair)
{
    const __m128i first = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m128i last = _mm_setr_epi8(2, 6, 10, 14, 3, 7, 11, 15, -1, -1, -1, -1, -1, -1, -1, -1);
    return _mm256_mul_ps(factors, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_shuffle_epi8(bytes, pair ? last : first))));
}

/* li_unpack_k_scales of four rows at once. */
LI_AVX2_INLINE void k_scales(const uint8_t *const at[ROWS], pair_scales w[4])
{
    const __m128i six = _mm_set1_epi8(0x3F), four = _mm_set1_epi8(0x0F), two = _mm_set1_epi8(0x30);
    __m128i rows[ROWS], words[4];
    for (int r = 0; r < ROWS; r++)
        rows[r] = load16(at[r]); /* d and dmin, then the 12 bytes */
    words_of_rows(rows, words);
    __m128i both = _mm_shuffle_epi8(words[0], _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    __m256 d = _mm256_cvtph_ps(_mm_unpacklo_epi64(both, both)), dmin = _mm256_cvtph_ps(_mm_unpackhi_epi64(both, both));
    __m128i low = words[3];
    __m128i scales[2] = {_mm_and_si128(words[1], six),
                         _mm_or_si128(_mm_and_si128(low, four), _mm_and_si128(_mm_srli_epi32(words[1], 2), two))};
    __m128i mins[2] = {_mm_and_si128(words[2], six),
                       _mm_or_si128(_mm_and_si128(_mm_srli_epi32(low, 4), four),
                                    _mm_and_si128(_mm_srli_epi32(words[2], 2), two))};
    dmin = negated(dmin);
    LI_UNROLL_8
    for (int j = 0; j < 4; j++) {
        w[j].d = times_bytes(d, scales[j / 2], j % 2);
        w[j].m = times_bytes(dmin, mins[j / 2], j % 2);
    }
}

/* Scales of the four pairs of a group of 256 values. */
LI_AVX2_INLINE void group_scales(int type, int n_mins, const uint8_t *const at[ROWS], pair_scales w[4])
{
    if (has_scales16(type)) {
        __m128i bytes[ROWS];
        __m256i first[4], second[4];
        __m256 d = row_halves(at, 208);
        for (int r = 0; r < ROWS; r++)
            bytes[r] = bytes16(type, at[r]);
        pairs_of_bytes(bytes, first, second);
        for (int j = 0; j < 4; j++)
            w[j] = (pair_scales){.d = d, .first = first[j], .second = second[j]};
        return;
    }
    if (type == LI_Q4_K || type == LI_Q5_K) {
        k_scales(at, w);
        return;
    }
    __m256 d[ROWS], m[ROWS];
    for (int r = 0; r < ROWS; r++)
        scales(type, at[r], 8, &d[r], &m[r]);
    pairs_of_rows(d);
    if (n_mins == 1)
        pairs_of_rows(m);
    for (int j = 0; j < 4; j++) {
        w[j].d = d[j];
        if (n_mins == 1)
            w[j].m = m[j];
    }
}

#endif

/* The templates of linear_avx2.h's kernels; only the files that make kernels of them include this. */
#ifndef LI_LINEAR_AVX2_ROWS_H
#define LI_LINEAR_AVX2_ROWS_H

#include <stddef.h>

#include "linear_avx2.h"

/* Type, name of its decoder, bytes of 8 blocks of 32 values (0: decoded by plain C), and the log2 of the offset that the
 * decoder leaves in (-1: none). The functions below take the type as a constant and keep one line of it. */
#define LI_FOR_ALL_TYPES(DO)                                                                                          \
    DO(Q4_0, q4_0, 144, 3)                                                                                            \
    DO(Q4_1, q4_1, 160, -1)                                                                                           \
    DO(Q5_0, q5_0, 176, 4)                                                                                            \
    DO(Q5_1, q5_1, 192, -1)                                                                                           \
    DO(Q8_0, q8_0, 272, 7)                                                                                            \
    DO(Q2_K, q2_k, 84, -1)                                                                                            \
    DO(Q3_K, q3_k, 110, 2)                                                                                            \
    DO(Q4_K, q4_k, 144, -1)                                                                                           \
    DO(Q5_K, q5_k, 176, -1)                                                                                           \
    DO(Q6_K, q6_k, 210, 5)                                                                                            \
    DO(IQ4_NL, iq4_nl, 144, 7)                                                                                        \
    DO(IQ4_XS, iq4_xs, 136, 7)                                                                                        \
    DO(MXFP4, mxfp4, 136, 7)                                                                                          \
    DO(DECODED, decoded, 0, -1)                                                                                       \
    DO(DECODED_NIBBLES, decoded_nibbles, 0, -1)

LI_AVX2_INLINE void pair_of(int type, const uint8_t *group, int j, int has_b, __m256i *u)
{
#define LI_CASE(TYPE, name, bytes, offset)                                                                            \
    if (type == LI_##TYPE)                                                                                            \
        name##_pair(group, j, has_b, u);
    LI_FOR_ALL_TYPES(LI_CASE)
#undef LI_CASE
}

LI_AVX2_INLINE void scales(int type, const uint8_t *group, int n, __m256 *d, __m256 *m, __m256 *m2)
{
#define LI_CASE(TYPE, name, bytes, offset)                                                                            \
    if (type == LI_##TYPE)                                                                                            \
        name##_scales(group, n, d, m, m2);
    LI_FOR_ALL_TYPES(LI_CASE)
#undef LI_CASE
}

/* Bytes of a group of 256 values. */
LI_AVX2_INLINE int group_bytes(int type)
{
#define LI_CASE(TYPE, name, bytes, offset)                                                                            \
    if (type == LI_##TYPE)                                                                                            \
        return bytes;
    LI_FOR_ALL_TYPES(LI_CASE)
#undef LI_CASE
    return 0;
}

LI_AVX2_INLINE int has_256_values(int type)
{
    return (type >= LI_Q2_K && type <= LI_Q6_K) || type == LI_IQ4_XS;
}

/* Bytes of a block of 32 values; 0 for the types that have none. */
LI_AVX2_INLINE int block_of_32_bytes(int type) { return has_256_values(type) ? 0 : group_bytes(type) / 8; }

/* Of the types with blocks of 32 values. */
LI_AVX2_INLINE void scales4(int type, const uint8_t *const at[4], int has_b, __m256 *d, __m256 *m, __m256 *m2)
{
#define LI_CASE(TYPE, name)                                                                                           \
    if (type == LI_##TYPE)                                                                                            \
        name##_scales4(at, has_b, d, m, m2);
    LI_CASE(Q4_0, q4_0)
    LI_CASE(Q4_1, q4_1)
    LI_CASE(Q5_0, q5_0)
    LI_CASE(Q5_1, q5_1)
    LI_CASE(Q8_0, q8_0)
    LI_CASE(IQ4_NL, iq4_nl)
    LI_CASE(MXFP4, mxfp4)
#undef LI_CASE
}

LI_AVX2_INLINE int offset_bits(int type)
{
#define LI_CASE(TYPE, name, bytes, offset)                                                                            \
    if (type == LI_##TYPE)                                                                                            \
        return offset;
    LI_FOR_ALL_TYPES(LI_CASE)
#undef LI_CASE
    return -1;
}

/* Types with scales of 16 values. */
LI_AVX2_INLINE int has_scales16(int type) { return type == LI_Q2_K || type == LI_Q3_K || type == LI_Q6_K; }

LI_AVX2_INLINE __m128i bytes16(int type, const uint8_t *group)
{
    return type == LI_Q2_K ? q2_k_bytes16(group) : type == LI_Q3_K ? q3_k_bytes16(group) : q6_k_bytes16(group);
}

/* How often the offset is in lane k of u: in the nibble kind, once for each value and the factor it has there. */
LI_AVX2_INLINE int values_in_lane(int type, int k)
{
    return type != LI_Q4_0 ? 1 : k == 1 ? 17 : k == 2 ? 273 : 1;
}

/* The group of n blocks of a row that starts at block b0; decoded by plain C into `room` where the type needs that. */
LI_AVX2_INLINE const uint8_t *group_at(int type, const li_type_info *t, const uint8_t *row, int64_t b0, int n,
                                       li_group *room)
{
#define LI_CASE(TYPE, name, bytes, offset)                                                                            \
    if (type == LI_##TYPE && bytes)                                                                                   \
        return row + b0 / 8 * bytes;
    LI_FOR_ALL_TYPES(LI_CASE)
#undef LI_CASE
    if (n < 8)
        memset(room, 0, sizeof *room);
    t->decode_group(row + b0 / 8 * li_group_bytes(t), n, room);
    return (const uint8_t *)room;
}

/* -- few tokens -----------------------------------------------------------------------------------------------------*/

enum { ROWS = 4, REGISTER_TOKENS = 4 };

/* Sums of neighbours, two vectors into one: 32-bit lanes, then 64-bit lanes. Of the vectors of four rows, a pair of blocks
 * each, the two steps make one vector with a lane per row and block. */
LI_AVX2_INLINE __m256i add_pairs(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}
LI_AVX2_INLINE __m256i add_fours(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* Sums of the two halves of blocks; only `first`, for whole blocks, where scales are theirs. */
typedef struct {
    __m256i first, second;
} two_sums;

LI_AVX2_INLINE two_sums dot(int type, const __m256i *u, const int16_t *p)
{
    const __m256i *x = (const __m256i *)(const void *)p;
    __m256i low = _mm256_add_epi32(_mm256_madd_epi16(u[0], _mm256_loadu_si256(x)),
                                   _mm256_madd_epi16(u[1], _mm256_loadu_si256(x + 1)));
    __m256i high = _mm256_add_epi32(_mm256_madd_epi16(u[2], _mm256_loadu_si256(x + 2)),
                                    _mm256_madd_epi16(u[3], _mm256_loadu_si256(x + 3)));
    return has_scales16(type) ? (two_sums){low, high} : (two_sums){_mm256_add_epi32(low, high), low};
}

LI_AVX2_INLINE two_sums two_sums_of(int type, __m256i (*add)(__m256i, __m256i), two_sums a, two_sums b)
{
    return (two_sums){add(a.first, b.first), has_scales16(type) ? add(a.second, b.second) : a.second};
}

/* Takes rows 0 to 3 one after the other; what is in `two` after row 3 is the sums of all. */
LI_AVX2_INLINE void take_row(int type, int r, two_sums s, two_sums *one, two_sums *two)
{
    if (r % 2 == 0)
        *one = s;
    else if (r == 1)
        *two = two_sums_of(type, add_pairs, *one, s);
    else
        *two = two_sums_of(type, add_fours, *two, two_sums_of(type, add_pairs, *one, s));
}

/* Of a pair of blocks of four rows, a lane per row and block: D, M (M of the first and second 16 values), and the scales
 * of the first and second 16 values. */
typedef struct {
    __m256 d, m, m2;
    __m256i first, second;
} pair_scales;

LI_AVX2_INLINE __m256i load_ints(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

/* Of eight floats or int32 in slots, those of pair j: A in the lower half, B in the upper. */
LI_AVX2_INLINE __m256 floats_of_pair(const float *slots, int j)
{
    return _mm256_permutevar_ps(_mm256_loadu_ps(slots), _mm256_set1_epi32(j));
}
LI_AVX2_INLINE __m256i ints_of_pair(__m256i slots, int j)
{
    return _mm256_castps_si256(_mm256_permutevar_ps(_mm256_castsi256_ps(slots), _mm256_set1_epi32(j)));
}

/* The sums of linear.h from those of the unsigned values: offset and scales of 16 values put right. `slots` is where the
 * group's slots begin, j the pair in it. */
LI_AVX2_INLINE __m256i true_sums(int type, const pair_scales *w, two_sums s, const li_int_row *x, int64_t slots, int j)
{
    int bits = offset_bits(type);
    if (!has_scales16(type)) {
        if (bits < 0)
            return s.first;
        __m256i sum = _mm256_add_epi32(load_ints(x->low + slots), load_ints(x->high + slots));
        return _mm256_sub_epi32(s.first, ints_of_pair(_mm256_slli_epi32(sum, bits), j));
    }
    if (bits >= 0) {
        s.first = _mm256_sub_epi32(s.first, _mm256_slli_epi32(ints_of_pair(load_ints(x->low + slots), j), bits));
        s.second = _mm256_sub_epi32(s.second, _mm256_slli_epi32(ints_of_pair(load_ints(x->high + slots), j), bits));
    }
    return _mm256_add_epi32(_mm256_mullo_epi32(s.first, w->first), _mm256_mullo_epi32(s.second, w->second));
}

/* The pair's sums into a token's running lanes. */
LI_AVX2_INLINE __m256 add_pair(int type, int n_mins, const pair_scales *w, two_sums s, const li_int_row *x,
                               int64_t slots, int j, __m256 lanes)
{
    __m256 dx = floats_of_pair(x->dx + slots, j);
    __m256i isum = true_sums(type, w, s, x, slots, j);
    lanes = _mm256_fmadd_ps(_mm256_mul_ps(w->d, dx), _mm256_cvtepi32_ps(isum), lanes);
    if (n_mins == 1)
        lanes = _mm256_fmadd_ps(w->m, floats_of_pair(x->sum + slots, j), lanes);
    if (n_mins == 2) {
        __m256 low = _mm256_mul_ps(dx, _mm256_cvtepi32_ps(ints_of_pair(load_ints(x->low + slots), j)));
        __m256 high = _mm256_mul_ps(dx, _mm256_cvtepi32_ps(ints_of_pair(load_ints(x->high + slots), j)));
        lanes = _mm256_fmadd_ps(w->m, low, lanes);
        lanes = _mm256_fmadd_ps(w->m2, high, lanes);
    }
    return lanes;
}

/* Pair j of the group at at[0 .. 3], whose values begin at p and slots at `slots`, for n_tokens. n_tokens is a constant up
 * to REGISTER_TOKENS or, where `many`, any number. */
LI_AVX2_INLINE void pair_tokens(int type, int n_mins, const uint8_t *const at[ROWS], int j, int has_b,
                                const pair_scales *w, int many, int n_tokens, const li_int_row *x, int64_t p,
                                int64_t slots, int slot_pair, __m256 *lanes)
{
    two_sums one[REGISTER_TOKENS], two[REGISTER_TOKENS];
    __m256i u[ROWS][4];
    if (!many) {
        LI_UNROLL_8
        for (int r = 0; r < ROWS; r++) {
            pair_of(type, at[r], j, has_b, u[0]);
            LI_UNROLL_8
            for (int t = 0; t < n_tokens; t++)
                take_row(type, r, dot(type, u[0], x[t].p + p), &one[t], &two[t]);
        }
        LI_UNROLL_8
        for (int t = 0; t < n_tokens; t++)
            lanes[t] = add_pair(type, n_mins, w, two[t], &x[t], slots, slot_pair, lanes[t]);
        return;
    }
    LI_UNROLL_8
    for (int r = 0; r < ROWS; r++)
        pair_of(type, at[r], j, has_b, u[r]);
    LI_NO_UNROLL
    for (int t = 0; t < n_tokens; t++) {
        LI_UNROLL_8
        for (int r = 0; r < ROWS; r++)
            take_row(type, r, dot(type, u[r], x[t].p + p), &one[0], &two[0]);
        lanes[t] = add_pair(type, n_mins, w, two[0], &x[t], slots, slot_pair, lanes[t]);
    }
}

/* -- scales of four rows ----------------------------------------------------------------------------------------------*/

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
        __m256 d = row_halves(at, type == LI_Q2_K ? 80 : type == LI_Q3_K ? 108 : 208);
        for (int r = 0; r < ROWS; r++)
            bytes[r] = bytes16(type, at[r]);
        pairs_of_bytes(bytes, first, second);
        for (int j = 0; j < 4; j++)
            w[j] = (pair_scales){.d = d, .first = first[j], .second = second[j]};
        if (n_mins == 0)
            return;
        __m256 dmin = negated(row_halves(at, 82));
        for (int r = 0; r < ROWS; r++)
            bytes[r] = q2_k_min_bytes(at[r]);
        pairs_of_bytes(bytes, first, second);
        for (int j = 0; j < 4; j++) {
            w[j].m = _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(first[j]));
            w[j].m2 = _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(second[j]));
        }
        return;
    }
    if (type == LI_Q4_K || type == LI_Q5_K) {
        k_scales(at, w);
        return;
    }
    __m256 d[ROWS], m[ROWS], m2[ROWS];
    for (int r = 0; r < ROWS; r++)
        scales(type, at[r], 8, &d[r], &m[r], &m2[r]);
    pairs_of_rows(d);
    if (n_mins >= 1)
        pairs_of_rows(m);
    if (n_mins == 2)
        pairs_of_rows(m2);
    for (int j = 0; j < 4; j++) {
        w[j].d = d[j];
        if (n_mins >= 1)
            w[j].m = m[j];
        if (n_mins == 2)
            w[j].m2 = m2[j];
    }
}

/* -- rows -------------------------------------------------------------------------------------------------------------*/

/* A piece of rows is read as four streams, each a quarter of it: the hardware's prefetchers run further ahead on four
 * streams than on one. They start anew at every page of 4 KiB, and nothing has asked for a piece's first bytes: what comes
 * PREFETCH_BYTES later is asked for as well. Never faults, also beyond the matrix. */
enum { PREFETCH_BYTES = 512 };

LI_AVX2_INLINE void prefetch(const uint8_t *const at[ROWS], int distance, int n_bytes)
{
    LI_UNROLL_8
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < n_bytes; i += 64)
            __builtin_prefetch(at[r] + distance + i);
}

/* Four rows of blocks of 32. */
LI_AVX2_INLINE void rows_of_pairs(int type, int n_mins, int block_bytes, const li_matrix *w, const int64_t row[ROWS],
                                  int many, int n_tokens, const li_int_row *x, __m256 *lanes)
{
    const uint8_t *at[ROWS];
    int64_t n_blocks = w->n_in / 32;
    pair_scales s;
    for (int r = 0; r < ROWS; r++)
        at[r] = w->blocks + row[r] * w->row_bytes;
    for (int64_t b = 0; b + 2 <= n_blocks; b += 2) {
        prefetch(at, PREFETCH_BYTES, 2 * block_bytes);
        scales4(type, at, 1, &s.d, &s.m, &s.m2);
        pair_tokens(type, n_mins, at, 0, 1, &s, many, n_tokens, x, 32 * b, b / 8 * 8, (int)(b % 8 / 2), lanes);
        for (int r = 0; r < ROWS; r++)
            at[r] += 2 * block_bytes;
    }
    if (n_blocks % 2) {
        int64_t b = n_blocks - 1;
        scales4(type, at, 0, &s.d, &s.m, &s.m2);
        pair_tokens(type, n_mins, at, 0, 0, &s, many, n_tokens, x, 32 * b, b / 8 * 8, (int)(b % 8 / 2), lanes);
    }
}

/* Four rows of groups of 256 values; decoded by plain C where the type says so. */
LI_AVX2_INLINE void rows_of_groups(int type, int n_mins, const li_matrix *w, const int64_t row[ROWS], int many,
                                   int n_tokens, const li_int_row *x, __m256 *lanes)
{
    const li_type_info *t = li_type(w->type);
    int64_t n_blocks = w->n_in / 32;
    li_group rooms[ROWS];
    for (int64_t b = 0; b < n_blocks; b += 8) {
        int n = n_blocks - b < 8 ? (int)(n_blocks - b) : 8;
        const uint8_t *at[ROWS];
        pair_scales s[4];
        for (int r = 0; r < ROWS; r++)
            at[r] = group_at(type, t, w->blocks + row[r] * w->row_bytes, b, n, &rooms[r]);
        if (type >= 0)
            prefetch(at, PREFETCH_BYTES, group_bytes(type));
        group_scales(type, n_mins, at, s);
        LI_UNROLL_8
        for (int j = 0; j < 4; j++)
            pair_tokens(type, n_mins, at, j, 1, &s[j], many, n_tokens, x, 32 * b + 64 * j, b, j, lanes);
    }
}

LI_AVX2_INLINE void rows_kernel(int type, int n_mins, const li_matrix *w, const char *xq, int many, int n_tokens,
                                float *y, int64_t ldy, int64_t row0, int64_t row1)
{
    li_int_row x[LI_ROW_TOKENS];
    const li_row_streams streams = li_streams_of(w, row0, row1);
    const uint8_t *first[ROWS];
    int64_t stride = li_token_bytes(LI_KIND_INT, w->n_in), row[ROWS];
    if (n_mins < 0)
        n_mins = li_type(w->type)->n_mins;
    for (int k = 0; k < n_tokens; k++)
        x[k] = li_int_row_at(xq + k * stride, w->n_in);
    li_rows_at(&streams, 0, row);
    for (int r = 0; r < ROWS; r++)
        first[r] = w->blocks + row[r] * w->row_bytes;
    prefetch(first, 0, PREFETCH_BYTES);
    for (int64_t i = 0; i < streams.quarter; i++) {
        __m256 lanes[LI_ROW_TOKENS];
        li_rows_at(&streams, i, row);
        for (int k = 0; k < n_tokens; k++)
            lanes[k] = _mm256_setzero_ps();
        if (block_of_32_bytes(type))
            rows_of_pairs(type, n_mins, block_of_32_bytes(type), w, row, many, n_tokens, x, lanes);
        else
            rows_of_groups(type, n_mins, w, row, many, n_tokens, x, lanes);
        for (int k = 0; k < n_tokens; k++) {
            float sums[ROWS];
            _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(lanes[k]), _mm256_extractf128_ps(lanes[k], 1)));
            for (int r = 0; r < ROWS; r++)
                if (row[r] >= row0 && row[r] < row1)
                    y[k * ldy + row[r]] = sums[r];
        }
    }
}

/* -- more tokens: tiles -----------------------------------------------------------------------------------------------*/

/* The slot's lane of s[r], block b of row r -> the scales of 8 rows in tile b < n. */
LI_AVX2_INLINE void store_scales(const __m256 s[8], int n, li_block_tile *tile, size_t field, int column)
{
    __m256i v[8];
    LI_UNROLL_8
    for (int r = 0; r < 8; r++)
        v[r] = _mm256_castps_si256(s[r]);
    transpose8(v);
    for (int b = 0; b < n; b++)
        _mm256_store_si256((__m256i *)(void *)((char *)&tile[b] + field + 4 * (size_t)column), v[li_slot(b)]);
}

/* The scales of 16 values of half `half` of the blocks of pair j, in all lanes of A and of B. */
LI_AVX2_INLINE __m256i pair_scale(__m128i bytes, int j, int half)
{
    __m128i both = _mm_shuffle_epi8(bytes, _mm_setr_epi8(
        (char)(4 * j + half), (char)(4 * j + half), (char)(4 * j + half), (char)(4 * j + half), (char)(4 * j + half),
        (char)(4 * j + half), (char)(4 * j + half), (char)(4 * j + half), (char)(4 * j + 2 + half),
        (char)(4 * j + 2 + half), (char)(4 * j + 2 + half), (char)(4 * j + 2 + half), (char)(4 * j + 2 + half),
        (char)(4 * j + 2 + half), (char)(4 * j + 2 + half), (char)(4 * j + 2 + half)));
    return _mm256_cvtepi8_epi16(both);
}

/* The true values q of a pair. */
LI_AVX2_INLINE void true_pair(int type, const uint8_t *group, int j, int has_b, __m256i *u)
{
    int bits = offset_bits(type);
    pair_of(type, group, j, has_b, u);
    if (bits >= 0)
        for (int k = 0; k < 4; k++)
            u[k] = _mm256_sub_epi16(u[k], _mm256_set1_epi16((short)(values_in_lane(type, k) << bits)));
    if (has_scales16(type)) {
        __m128i bytes = bytes16(type, group);
        for (int k = 0; k < 4; k++)
            u[k] = _mm256_mullo_epi16(u[k], pair_scale(bytes, j, k / 2));
    }
}

/* Columns column .. column+7 of the n tiles of one group, from 8 rows. */
LI_AVX2_INLINE void tile_group(int type, int n_mins, const uint8_t *const group[8], int n, li_block_tile *tile, int column)
{
    __m256 d[8], m[8], m2[8];
    for (int r = 0; r < 8; r++)
        scales(type, group[r], n, &d[r], &m[r], &m2[r]);
    store_scales(d, n, tile, offsetof(li_block_tile, d), column);
    if (n_mins >= 1)
        store_scales(m, n, tile, offsetof(li_block_tile, m), column);
    if (n_mins == 2)
        store_scales(m2, n, tile, offsetof(li_block_tile, m2), column);
    LI_UNROLL_8
    for (int j = 0; j < 4; j++) {
        __m256i u[8][4];
        int has_b = 2 * j + 1 < n;
        if (2 * j >= n)
            break;
        for (int r = 0; r < 8; r++)
            true_pair(type, group[r], j, has_b, u[r]);
        for (int k = 0; k < 4; k++) {
            __m256i v[8];
            LI_UNROLL_8
            for (int r = 0; r < 8; r++)
                v[r] = u[r][k];
            transpose8(v);
            for (int i = 0; i < 4; i++) {
                _mm256_store_si256((__m256i *)(void *)&tile[2 * j].q[4 * k + i][column], v[i]);
                if (has_b)
                    _mm256_store_si256((__m256i *)(void *)&tile[2 * j + 1].q[4 * k + i][column], v[i + 4]);
            }
        }
    }
}

/* 16 rows from row r on, of which `n_rows` exist; the last one stands in for those beyond. */
LI_AVX2_INLINE void tile_kernel(int type, int n_mins, const li_matrix *w, int64_t r, int n_rows, li_block_tile *tile)
{
    const li_type_info *t = li_type(w->type);
    int64_t n_blocks = w->n_in / 32;
    li_group rooms[8];
    if (n_mins < 0)
        n_mins = t->n_mins;
    for (int column = 0; column < LI_TILE_ROWS; column += 8)
        for (int64_t b = 0; b < n_blocks; b += 8) {
            int n = n_blocks - b < 8 ? (int)(n_blocks - b) : 8;
            const uint8_t *group[8];
            for (int i = 0; i < 8; i++) {
                int64_t row = r + (column + i < n_rows ? column + i : n_rows - 1);
                group[i] = group_at(type, t, w->blocks + row * w->row_bytes, b, n, &rooms[i]);
            }
            tile_group(type, n_mins, group, n, tile + b, column);
        }
}

/* The sum stays in its register: left to itself GCC copies every running sum in every step. */
LI_AVX2_INLINE void add_in_place(__m256i *sum, __m256i v)
{
    __asm__("vpaddd %1, %0, %0" : "+x"(*sum) : "x"(v));
}

/* -- the two kernels of a block type ----------------------------------------------------------------------------------*/

#define LI_AVX2_ROWS(name, type, n_mins, t)                                                                           \
    static LI_AVX2 __attribute__((noinline)) void rows_##name##_##t(                                                  \
        const li_matrix *w, const char *xq, int n_tokens, float *y, int64_t ldy, int64_t row0, int64_t row1)          \
    {                                                                                                                 \
        rows_kernel(type, n_mins, w, xq, t == 0, t == 0 ? n_tokens : t, y, ldy, row0, row1);                          \
    }

#define LI_AVX2_KERNELS(name, type, n_mins)                                                                           \
    LI_AVX2_ROWS(name, type, n_mins, 0)                                                                               \
    LI_AVX2_ROWS(name, type, n_mins, 1)                                                                               \
    LI_AVX2_ROWS(name, type, n_mins, 2)                                                                               \
    LI_AVX2_ROWS(name, type, n_mins, 3)                                                                               \
    LI_AVX2_ROWS(name, type, n_mins, 4)                                                                               \
    static LI_AVX2 void rows_##name(const li_matrix *w, const char *xq, int n_tokens, float *y, int64_t ldy,          \
                                    int64_t row0, int64_t row1)                                                       \
    {                                                                                                                 \
        (n_tokens == 1   ? rows_##name##_1                                                                            \
         : n_tokens == 2 ? rows_##name##_2                                                                            \
         : n_tokens == 3 ? rows_##name##_3                                                                            \
         : n_tokens == 4 ? rows_##name##_4                                                                            \
                         : rows_##name##_0)(w, xq, n_tokens, y, ldy, row0, row1);                                     \
    }                                                                                                                 \
    static LI_AVX2 void tile_##name(const li_matrix *w, int64_t r, int n_rows, li_block_tile *tile)                   \
    {                                                                                                                 \
        tile_kernel(type, n_mins, w, r, n_rows, tile);                                                                \
    }                                                                                                                 \
    const li_avx2_kernels li_avx2_##name = {rows_##name, tile_##name};

#endif

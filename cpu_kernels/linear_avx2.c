/* linear.h with AVX2, FMA and F16C.
 *
 * Few tokens: a row at a time straight from its blocks, for up to four tokens at once. 8 blocks give 4 vectors of int32
 * with two blocks each, which are summed crosswise into one vector whose lanes are the blocks, so scales are applied to 8
 * blocks at once.
 * More tokens: 16 rows are decoded once into a tile whose lanes are rows, then 4 tokens at a time run over it: a pair of
 * x values is broadcast, no sum crosses lanes, and scratch holds 16 rows, never the matrix.
 * Both follow the order of sums of linear.h.
 */
#include "linear_parts.h"

#if LI_X86

#include "blocks_avx2.h"

#if defined(__clang__)
#define LI_UNROLL_8 _Pragma("unroll")
#define LI_NO_UNROLL _Pragma("nounroll")
#else
#define LI_UNROLL_8 _Pragma("GCC unroll 8")
#define LI_NO_UNROLL _Pragma("GCC unroll 1")
#endif

/* Stops the compiler from loading a value again at each use. */
#define LI_IN_REGISTER(v) __asm__("" : "+x"(v))

enum { LI_DECODED = -1, ROW_TOKENS = 4, TILE_ROWS = 16, TILE_TOKENS = 4 };

/* -- activations ----------------------------------------------------------------------------------------------------*/

LI_AVX2_INLINE int32_t sum_of_lanes(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
    return _mm_cvtsi128_si32(s);
}

LI_AVX2_INLINE uint32_t largest_lane(__m256i v)
{
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(s);
}

LI_AVX2_INLINE void store_eights(int16_t *p, int64_t b, int k, __m256i q)
{
    _mm_storeu_si128((__m128i *)(void *)(p + li_place(b, k)), _mm256_castsi256_si128(q));
    _mm_storeu_si128((__m128i *)(void *)(p + li_place(b, k + 1)), _mm256_extracti128_si256(q, 1));
}

LI_AVX2 void li_prepare_int_avx2(const float *x, int64_t n_in, int64_t b0, int64_t b1, void *xq)
{
    li_int_row to = li_int_row_at(xq, n_in);
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF), ones = _mm256_set1_epi16(1);
    for (int64_t b = b0; b < b1; b++) {
        __m256 v[4];
        __m256i bits[4], q[2];
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + 32 * b + 8 * i);
            bits[i] = _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude);
        }
        uint32_t top = largest_lane(_mm256_max_epi32(_mm256_max_epi32(bits[0], bits[1]),
                                                     _mm256_max_epi32(bits[2], bits[3])));
        float largest = li_float_of_bits(top);
        int usable = largest >= 1e-30f && top < 0x7F800000u;
        __m256 inverse = _mm256_set1_ps(LI_ACTIVATION_MAX / largest);
        for (int i = 0; i < 2; i++) {
            __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(v[2 * i], inverse));
            __m256i c = _mm256_cvtps_epi32(_mm256_mul_ps(v[2 * i + 1], inverse));
            q[i] = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, c), 0xD8);
            if (!usable)
                q[i] = _mm256_setzero_si256();
            store_eights(to.p, b, 2 * i, q[i]);
        }
        int64_t slot = li_slot(b);
        int32_t low = sum_of_lanes(_mm256_madd_epi16(q[0], ones)), high = sum_of_lanes(_mm256_madd_epi16(q[1], ones));
        to.dx[slot] = usable ? largest / LI_ACTIVATION_MAX : top < 0x7F800000u ? 0.0f : li_float_of_bits(0x7FC00000u);
        to.sum[slot] = to.dx[slot] * (float)(low + high);
        to.low[slot] = low;
        to.high[slot] = high;
    }
    if (b1 == n_in / 32)
        li_fill_up(to, n_in);
}

/* -- block types ----------------------------------------------------------------------------------------------------*/

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
    DO(DECODED, decoded, 0, -1)

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

LI_AVX2_INLINE int has_256_values(int type)
{
    return (type >= LI_Q2_K && type <= LI_Q6_K) || type == LI_IQ4_XS;
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

/* -- few tokens: rows straight from their blocks -----------------------------------------------------------------------*/

LI_AVX2_INLINE float tree(__m256 lanes)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* Sums of neighbours, two vectors into one: 32-bit lanes, then 64-bit lanes. Of four vectors with a pair of blocks each,
 * the two steps make one vector with a lane per block, in slots. */
LI_AVX2_INLINE __m256i add_pairs(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}
LI_AVX2_INLINE __m256i add_fours(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* Sums of the two halves of blocks, not yet across lanes; only `first`, for whole blocks, where scales are theirs. */
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

LI_AVX2_INLINE __m256i load_ints(const int32_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }

/* The sums of linear.h from those of the unsigned values: offset and scales of 16 values put right. */
LI_AVX2_INLINE __m256i true_sums(int type, const uint8_t *group, two_sums s, li_int_row x, int64_t b0)
{
    int bits = offset_bits(type);
    __m256i first, second;
    if (!has_scales16(type)) {
        if (bits < 0)
            return s.first;
        __m256i sum = _mm256_add_epi32(load_ints(x.low + b0), load_ints(x.high + b0));
        return _mm256_sub_epi32(s.first, _mm256_slli_epi32(sum, bits));
    }
    if (bits >= 0) {
        s.first = _mm256_sub_epi32(s.first, _mm256_slli_epi32(load_ints(x.low + b0), bits));
        s.second = _mm256_sub_epi32(s.second, _mm256_slli_epi32(load_ints(x.high + b0), bits));
    }
    slots_of_16(bytes16(type, group), &first, &second);
    return _mm256_add_epi32(_mm256_mullo_epi32(s.first, first), _mm256_mullo_epi32(s.second, second));
}

/* sums[t]: the first n_pairs (a constant) pairs of a group times token t's, which start at block b0. Lanes are added as
 * early as they can be, for want of registers. */
LI_AVX2_INLINE void group_sums(int type, const uint8_t *group, int n_pairs, int n_tokens, const li_int_row *x,
                               int64_t b0, two_sums *sums)
{
    two_sums v[ROW_TOKENS], two[ROW_TOKENS], four[ROW_TOKENS];
    const two_sums zero = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    LI_UNROLL_8
    for (int j = 0; j < n_pairs; j++) {
        __m256i u[4];
        pair_of(type, group, j, 1, u);
        LI_UNROLL_8
        for (int t = 0; t < n_tokens; t++) {
            two_sums s = dot(type, u, x[t].p + 32 * b0 + 64 * j);
            if (j % 2 == 0 && j + 1 < n_pairs) {
                v[t] = s;
                continue;
            }
            two[t] = j % 2 ? two_sums_of(type, add_pairs, v[t], s) : two_sums_of(type, add_pairs, s, zero);
            if (j < 2 && n_pairs > 2)
                four[t] = two[t];
            else
                sums[t] = j < 2 ? two_sums_of(type, add_fours, two[t], zero)
                                : two_sums_of(type, add_fours, four[t], two[t]);
        }
    }
}

/* The same for any n < 8 blocks. */
LI_AVX2_INLINE void part_sums(int type, const uint8_t *group, int n, int n_tokens, const li_int_row *x, int64_t b0,
                              two_sums *sums)
{
    two_sums v[ROW_TOKENS][4];
    LI_NO_UNROLL
    for (int j = 0; j < 4; j++) {
        __m256i u[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                        _mm256_setzero_si256()};
        if (2 * j < n)
            pair_of(type, group, j, 2 * j + 1 < n, u);
        LI_UNROLL_8
        for (int t = 0; t < n_tokens; t++)
            v[t][j] = dot(type, u, x[t].p + 32 * b0 + 64 * j);
    }
    LI_UNROLL_8
    for (int t = 0; t < n_tokens; t++)
        sums[t] = two_sums_of(type, add_fours, two_sums_of(type, add_pairs, v[t][0], v[t][1]),
                              two_sums_of(type, add_pairs, v[t][2], v[t][3]));
}

/* n blocks of a row, a whole group or its last blocks, into the running lanes of n_tokens tokens. n is a constant and
 * even where is_constant. */
LI_AVX2_INLINE void add_group(int type, int n_mins, const uint8_t *group, int is_constant, int n, int n_tokens,
                              const li_int_row *x, int64_t b0, __m256 *lanes)
{
    two_sums sums[ROW_TOKENS];
    __m256 d, m, m2;
    if (is_constant)
        group_sums(type, group, n / 2, n_tokens, x, b0, sums);
    else
        part_sums(type, group, n, n_tokens, x, b0, sums);
    scales(type, group, n, &d, &m, &m2);
    LI_UNROLL_8
    for (int t = 0; t < n_tokens; t++) {
        __m256 dx = _mm256_loadu_ps(x[t].dx + b0), scale = _mm256_mul_ps(d, dx);
        __m256i isum = true_sums(type, group, sums[t], x[t], b0);
        lanes[t] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(isum), lanes[t]);
        if (n_mins == 1)
            lanes[t] = _mm256_fmadd_ps(m, _mm256_loadu_ps(x[t].sum + b0), lanes[t]);
        if (n_mins == 2) {
            __m256 low = _mm256_mul_ps(dx, _mm256_cvtepi32_ps(load_ints(x[t].low + b0)));
            __m256 high = _mm256_mul_ps(dx, _mm256_cvtepi32_ps(load_ints(x[t].high + b0)));
            lanes[t] = _mm256_fmadd_ps(m, low, lanes[t]);
            lanes[t] = _mm256_fmadd_ps(m2, high, lanes[t]);
        }
    }
}

/* One row for n_tokens <= ROW_TOKENS tokens. */
LI_AVX2_INLINE void row_tokens(int type, int n_mins, const li_type_info *t, const uint8_t *row, int64_t n_in,
                               int n_tokens, const li_int_row *x, float *y, int64_t ldy)
{
    int64_t whole = n_in / 256 * 8;
    int rest = (int)(n_in / 32 - whole);
    li_group room;
    __m256 lanes[ROW_TOKENS];
    LI_UNROLL_8
    for (int k = 0; k < n_tokens; k++)
        lanes[k] = _mm256_setzero_ps();
    for (int64_t b = 0; b < whole; b += 8)
        add_group(type, n_mins, group_at(type, t, row, b, 8, &room), 1, 8, n_tokens, x, b, lanes);
    if (has_256_values(type))
        rest = 0;
    if (rest == 2) /* n_in 576, 2880 */
        add_group(type, n_mins, group_at(type, t, row, whole, 2, &room), 1, 2, n_tokens, x, whole, lanes);
    else if (rest == 4) /* n_in 640, 896, 1152 */
        add_group(type, n_mins, group_at(type, t, row, whole, 4, &room), 1, 4, n_tokens, x, whole, lanes);
    else if (rest)
        add_group(type, n_mins, group_at(type, t, row, whole, rest, &room), 0, rest, n_tokens, x, whole, lanes);
    LI_UNROLL_8
    for (int k = 0; k < n_tokens; k++)
        y[k * ldy] = tree(lanes[k]);
}

/* Rows are one stream, but the hardware's prefetcher and the address translation start anew at every page of 4 KiB. One
 * page ahead: SmolLM2 decodes 18 % faster on one thread, Gemma-3-270M on two. */
enum { PREFETCH_BYTES = 4096 };

LI_AVX2_INLINE void rows_kernel(int type, int n_mins, const li_matrix *w, const char *xq, int n_tokens, float *y,
                                int64_t ldy, int64_t row0, int64_t row1)
{
    const li_type_info *t = li_type(w->type);
    li_int_row x[ROW_TOKENS];
    for (int k = 0; k < n_tokens; k++)
        x[k] = li_int_row_at(xq + k * li_token_bytes(LI_KIND_INT, w->n_in), w->n_in);
    for (int64_t r = row0; r < row1; r++) {
        const uint8_t *row = w->blocks + r * w->row_bytes;
        for (int64_t at = 0; at < w->row_bytes; at += 64)
            __builtin_prefetch(row + PREFETCH_BYTES + at); /* never faults, also beyond the matrix */
        row_tokens(type, n_mins, t, row, w->n_in, n_tokens, x, y + r, ldy);
    }
}

/* -- more tokens ----------------------------------------------------------------------------------------------------*/

/* A block of 32 of 16 rows: pair k (values 2k and 2k+1) of row r is q[k][r]. 64-byte aligned. */
typedef struct {
    int32_t q[16][TILE_ROWS];
    float d[TILE_ROWS], m[TILE_ROWS], m2[TILE_ROWS];
} block_tile;

LI_AVX2_INLINE void transpose8(__m256i v[8])
{
    __m256i a[8], b[8];
    LI_UNROLL_8
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    LI_UNROLL_8
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    LI_UNROLL_8
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/* The slot's lane of s[r], block b of row r -> the scales of 8 rows in tile b < n. */
LI_AVX2_INLINE void store_scales(const __m256 s[8], int n, block_tile *tile, size_t field, int column)
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
            u[k] = _mm256_sub_epi16(u[k], _mm256_set1_epi16((short)(1 << bits)));
    if (has_scales16(type)) {
        __m128i bytes = bytes16(type, group);
        for (int k = 0; k < 4; k++)
            u[k] = _mm256_mullo_epi16(u[k], pair_scale(bytes, j, k / 2));
    }
}

/* Columns column .. column+7 of the n tiles of one group, from 8 rows. */
LI_AVX2_INLINE void tile_group(int type, int n_mins, const uint8_t *const group[8], int n, block_tile *tile, int column)
{
    __m256 d[8], m[8], m2[8];
    for (int r = 0; r < 8; r++)
        scales(type, group[r], n, &d[r], &m[r], &m2[r]);
    store_scales(d, n, tile, offsetof(block_tile, d), column);
    if (n_mins >= 1)
        store_scales(m, n, tile, offsetof(block_tile, m), column);
    if (n_mins == 2)
        store_scales(m2, n, tile, offsetof(block_tile, m2), column);
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
LI_AVX2_INLINE void tile_kernel(int type, int n_mins, const li_matrix *w, int64_t r, int n_rows, block_tile *tile)
{
    const li_type_info *t = li_type(w->type);
    int64_t n_blocks = w->n_in / 32;
    li_group rooms[8];
    for (int column = 0; column < TILE_ROWS; column += 8)
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

/* Sums of one block for n tokens into lanes[token][row]. */
LI_AVX2_INLINE void tile_block(int n_mins, int n, const block_tile *tile, const li_int_row *x, int64_t b,
                               float (*lanes)[TILE_ROWS])
{
    int64_t slot = li_slot(b);
    __m256i sum[TILE_TOKENS][2];
    for (int t = 0; t < n; t++)
        sum[t][0] = sum[t][1] = _mm256_setzero_si256();
    LI_NO_UNROLL
    for (int64_t k = 0; k < 16; k += 4) {
        int64_t place = li_place(b, 0) + 4 * k;
        LI_UNROLL_8
        for (int i = 0; i < 4; i++) {
            __m256i w0 = _mm256_load_si256((const __m256i *)(const void *)&tile->q[k + i][0]);
            __m256i w1 = _mm256_load_si256((const __m256i *)(const void *)&tile->q[k + i][8]);
            LI_IN_REGISTER(w0);
            LI_IN_REGISTER(w1);
            for (int t = 0; t < n; t++) {
                int32_t values;
                memcpy(&values, x[t].p + place + 2 * i, sizeof values);
                __m256i xs = _mm256_set1_epi32(values);
                add_in_place(&sum[t][0], _mm256_madd_epi16(w0, xs));
                add_in_place(&sum[t][1], _mm256_madd_epi16(w1, xs));
            }
        }
    }
    for (int t = 0; t < n; t++)
        for (int half = 0; half < 2; half++) {
            float *lane = lanes[t] + 8 * half;
            __m256 d = _mm256_mul_ps(_mm256_load_ps(tile->d + 8 * half), _mm256_broadcast_ss(x[t].dx + slot));
            __m256 s = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(sum[t][half]), _mm256_load_ps(lane));
            if (n_mins == 1)
                s = _mm256_fmadd_ps(_mm256_load_ps(tile->m + 8 * half), _mm256_broadcast_ss(x[t].sum + slot), s);
            if (n_mins == 2) {
                float dx = x[t].dx[slot], low = dx * (float)x[t].low[slot], high = dx * (float)x[t].high[slot];
                s = _mm256_fmadd_ps(_mm256_load_ps(tile->m + 8 * half), _mm256_set1_ps(low), s);
                s = _mm256_fmadd_ps(_mm256_load_ps(tile->m2 + 8 * half), _mm256_set1_ps(high), s);
            }
            _mm256_store_ps(lane, s);
        }
}

/* lanes[lane][token][row] -> y: the tree of linear.h, rows side by side. `order` lists the lanes as they are added. */
LI_AVX2_INLINE void store_tree(const int order[8], int n, float (*lanes)[TILE_TOKENS][TILE_ROWS], float *y, int64_t ldy,
                               int n_rows)
{
    for (int t = 0; t < n; t++) {
        float result[TILE_ROWS];
        for (int half = 0; half < 2; half++) {
            __m256 v[8];
            LI_UNROLL_8
            for (int l = 0; l < 8; l++)
                v[l] = _mm256_load_ps(lanes[order[l]][t] + 8 * half);
            __m256 left = _mm256_add_ps(_mm256_add_ps(v[0], v[1]), _mm256_add_ps(v[2], v[3]));
            __m256 right = _mm256_add_ps(_mm256_add_ps(v[4], v[5]), _mm256_add_ps(v[6], v[7]));
            _mm256_storeu_ps(result + 8 * half, _mm256_add_ps(left, right));
        }
        memcpy(y + t * ldy, result, (size_t)n_rows * sizeof *y);
    }
}

static const int block_order[8] = {0, 1, 4, 5, 2, 3, 6, 7}, float_order[8] = {0, 4, 2, 6, 1, 5, 3, 7};

typedef struct {
    _Alignas(32) float at[8][TILE_TOKENS][TILE_ROWS];
} tile_lanes;

LI_AVX2_INLINE void int_tokens(int n_mins, int n, const block_tile *tile, int64_t n_in, const char *xq, float *y,
                               int64_t ldy, int n_rows)
{
    tile_lanes lanes;
    li_int_row x[TILE_TOKENS];
    for (int t = 0; t < n; t++)
        x[t] = li_int_row_at(xq + t * li_token_bytes(LI_KIND_INT, n_in), n_in);
    memset(&lanes, 0, sizeof lanes);
    for (int64_t b = 0; b < n_in / 32; b++)
        tile_block(n_mins, n, tile + b, x, b, lanes.at[b % 8]);
    store_tree(block_order, n, lanes.at, y, ldy, n_rows);
}

#define LI_TOKENS_FUNCTION(mins)                                                                                      \
    static LI_AVX2 void int_tokens_##mins(int n, const block_tile *tile, int64_t n_in, const char *xq, float *y,      \
                                          int64_t ldy, int n_rows)                                                    \
    {                                                                                                                 \
        if (n == 4)                                                                                                   \
            int_tokens(mins, 4, tile, n_in, xq, y, ldy, n_rows);                                                      \
        else if (n == 3)                                                                                              \
            int_tokens(mins, 3, tile, n_in, xq, y, ldy, n_rows);                                                      \
        else if (n == 2)                                                                                              \
            int_tokens(mins, 2, tile, n_in, xq, y, ldy, n_rows);                                                      \
        else                                                                                                          \
            int_tokens(mins, 1, tile, n_in, xq, y, ldy, n_rows);                                                      \
    }
LI_TOKENS_FUNCTION(0)
LI_TOKENS_FUNCTION(1)
LI_TOKENS_FUNCTION(2)

/* -- the two kernels of each block type -------------------------------------------------------------------------------*/

#define LI_KERNELS(name, type, n_mins)                                                                                \
    static LI_AVX2 void rows_##name(const li_matrix *w, const char *xq, int n_tokens, float *y, int64_t ldy,          \
                                    int64_t row0, int64_t row1)                                                       \
    {                                                                                                                 \
        if (n_tokens == 1)                                                                                            \
            rows_kernel(type, n_mins, w, xq, 1, y, ldy, row0, row1);                                                  \
        else if (n_tokens == 2)                                                                                       \
            rows_kernel(type, n_mins, w, xq, 2, y, ldy, row0, row1);                                                  \
        else if (n_tokens == 3)                                                                                       \
            rows_kernel(type, n_mins, w, xq, 3, y, ldy, row0, row1);                                                  \
        else                                                                                                          \
            rows_kernel(type, n_mins, w, xq, 4, y, ldy, row0, row1);                                                  \
    }                                                                                                                 \
    static LI_AVX2 void tile_##name(const li_matrix *w, int64_t r, int n_rows, block_tile *tile)                      \
    {                                                                                                                 \
        tile_kernel(type, n_mins, w, r, n_rows, tile);                                                                \
    }

LI_KERNELS(q4_0, LI_Q4_0, 0)
LI_KERNELS(q4_1, LI_Q4_1, 1)
LI_KERNELS(q5_0, LI_Q5_0, 0)
LI_KERNELS(q5_1, LI_Q5_1, 1)
LI_KERNELS(q8_0, LI_Q8_0, 0)
LI_KERNELS(q2_k, LI_Q2_K, 2)
LI_KERNELS(q3_k, LI_Q3_K, 0)
LI_KERNELS(q4_k, LI_Q4_K, 1)
LI_KERNELS(q5_k, LI_Q5_K, 1)
LI_KERNELS(q6_k, LI_Q6_K, 0)
LI_KERNELS(iq4_nl, LI_IQ4_NL, 0)
LI_KERNELS(iq4_xs, LI_IQ4_XS, 0)
LI_KERNELS(mxfp4, LI_MXFP4, 0)
LI_KERNELS(decoded, LI_DECODED, 0) /* the types without a decoder above have no mins */

typedef struct {
    void (*rows)(const li_matrix *w, const char *xq, int n_tokens, float *y, int64_t ldy, int64_t row0, int64_t row1);
    void (*tile)(const li_matrix *w, int64_t r, int n_rows, block_tile *tile);
} int_kernels;

static const int_kernels kernels[LI_N_TYPES] = {
    [LI_Q4_0] = {rows_q4_0, tile_q4_0},
    [LI_Q4_1] = {rows_q4_1, tile_q4_1},
    [LI_Q5_0] = {rows_q5_0, tile_q5_0},
    [LI_Q5_1] = {rows_q5_1, tile_q5_1},
    [LI_Q8_0] = {rows_q8_0, tile_q8_0},
    [LI_Q2_K] = {rows_q2_k, tile_q2_k},
    [LI_Q3_K] = {rows_q3_k, tile_q3_k},
    [LI_Q4_K] = {rows_q4_k, tile_q4_k},
    [LI_Q5_K] = {rows_q5_k, tile_q5_k},
    [LI_Q6_K] = {rows_q6_k, tile_q6_k},
    [LI_IQ4_NL] = {rows_iq4_nl, tile_iq4_nl},
    [LI_IQ4_XS] = {rows_iq4_xs, tile_iq4_xs},
    [LI_MXFP4] = {rows_mxfp4, tile_mxfp4},
};

static int_kernels kernels_of(int type)
{
    return kernels[type].rows ? kernels[type] : (int_kernels){rows_decoded, tile_decoded};
}

static void linear_int(const li_matrix *w, const char *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                       int64_t row1, block_tile *tile)
{
    int_kernels k = kernels_of(w->type);
    int n_mins = li_type(w->type)->n_mins;
    int64_t token_bytes = li_token_bytes(LI_KIND_INT, w->n_in);
    if (n_tokens <= ROW_TOKENS) {
        k.rows(w, xq, (int)n_tokens, y, ldy, row0, row1);
        return;
    }
    for (int64_t r = row0; r < row1; r += TILE_ROWS) {
        int n_rows = row1 - r < TILE_ROWS ? (int)(row1 - r) : TILE_ROWS;
        k.tile(w, r, n_rows, tile);
        for (int64_t t = 0; t < n_tokens; t += TILE_TOKENS) {
            int n = n_tokens - t < TILE_TOKENS ? (int)(n_tokens - t) : TILE_TOKENS;
            (n_mins == 0 ? int_tokens_0 : n_mins == 1 ? int_tokens_1 : int_tokens_2)(
                n, tile, w->n_in, xq + t * token_bytes, y + t * ldy + r, ldy, n_rows);
        }
    }
}

/* -- float types ------------------------------------------------------------------------------------------------------*/

/* Half the value of an unsigned E4M3 code, as in blocks.c: its bits are those of a float but for the exponent's bias. */
LI_AVX2_INLINE float half_e4m3(uint8_t code)
{
    return (code & 127) == 127 ? 0.0f : li_float_of_bits((uint32_t)(code & 127) << 20) * 0x1p119f;
}

LI_AVX2_INLINE __m256 eight_nvfp4(const uint8_t *row, int64_t i)
{
    const uint8_t *block = row + i / 64 * 36;
    int64_t s = i % 64 / 16;
    __m128i table = _mm_loadu_si128((const __m128i *)(const void *)li_fp4_levels);
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(block + 4 + 8 * s));
    bytes = _mm_and_si128(i % 16 ? _mm_srli_epi16(bytes, 4) : bytes, _mm_set1_epi8(15));
    __m256 levels = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_shuffle_epi8(table, bytes)));
    return _mm256_mul_ps(_mm256_set1_ps(half_e4m3(block[s])), levels);
}

/* Values i .. i+7 of a row of a float type. */
LI_AVX2_INLINE __m256 eight_floats(int type, const uint8_t *row, int64_t i)
{
    if (type == LI_NVFP4)
        return eight_nvfp4(row, i);
    if (type == LI_F32)
        return _mm256_loadu_ps((const float *)(const void *)(row + 4 * i));
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(row + 2 * i));
    if (type == LI_F16)
        return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* Values i .. i+n-1, n < 8, filled up with zeros. */
LI_AVX2_INLINE __m256 some_floats(int type, const uint8_t *row, int64_t i, int n)
{
    uint8_t bytes[32] = {0};
    int size = type == LI_F32 ? 4 : 2;
    memcpy(bytes, row + size * i, (size_t)(size * n));
    return eight_floats(type, bytes, 0);
}

/* n_rows <= 4 rows at once: their sums do not wait for each other. */
LI_AVX2_INLINE void float_rows(int type, const li_matrix *w, const float *x, float *y, int n_rows, int64_t r)
{
    const uint8_t *row[4];
    __m256 lanes[4];
    int64_t whole = w->n_in / 8 * 8;
    for (int k = 0; k < n_rows; k++) {
        row[k] = w->blocks + (r + k) * w->row_bytes;
        lanes[k] = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < whole; i += 8) {
        __m256 xs = _mm256_loadu_ps(x + i);
        for (int k = 0; k < n_rows; k++)
            lanes[k] = _mm256_fmadd_ps(eight_floats(type, row[k], i), xs, lanes[k]);
    }
    for (int k = 0; k < n_rows; k++) {
        if (whole < w->n_in)
            lanes[k] = _mm256_fmadd_ps(some_floats(type, row[k], whole, (int)(w->n_in - whole)),
                                       _mm256_loadu_ps(x + whole), lanes[k]);
        y[r + k] = tree(lanes[k]);
    }
}

LI_AVX2_INLINE void float_vector(int type, const li_matrix *w, const float *x, float *y, int64_t row0, int64_t row1)
{
    int64_t r = row0;
    for (; r + 4 <= row1; r += 4)
        float_rows(type, w, x, y, 4, r);
    for (; r < row1; r++)
        float_rows(type, w, x, y, 1, r);
}

static LI_AVX2 void vector_f32(const li_matrix *w, const float *x, float *y, int64_t row0, int64_t row1)
{
    float_vector(LI_F32, w, x, y, row0, row1);
}
static LI_AVX2 void vector_f16(const li_matrix *w, const float *x, float *y, int64_t row0, int64_t row1)
{
    float_vector(LI_F16, w, x, y, row0, row1);
}
static LI_AVX2 void vector_bf16(const li_matrix *w, const float *x, float *y, int64_t row0, int64_t row1)
{
    float_vector(LI_BF16, w, x, y, row0, row1);
}
static LI_AVX2 void vector_nvfp4(const li_matrix *w, const float *x, float *y, int64_t row0, int64_t row1)
{
    float_vector(LI_NVFP4, w, x, y, row0, row1);
}

/* Value i of row r is tile[i][r]; n_in rounded up to a multiple of 8. */
typedef float float_tile[TILE_ROWS];

/* Values i .. i+7 of 8 rows; n of them where a row ends there. */
LI_AVX2_INLINE void float_tile_8(int type, const uint8_t *const row[8], int64_t i, int n, float_tile *tile, int column)
{
    __m256i v[8];
    LI_UNROLL_8
    for (int r = 0; r < 8; r++)
        v[r] = _mm256_castps_si256(n == 8 ? eight_floats(type, row[r], i) : some_floats(type, row[r], i, n));
    transpose8(v);
    for (int k = 0; k < 8; k++)
        _mm256_store_si256((__m256i *)(void *)&tile[k][column], v[k]);
}

LI_AVX2_INLINE void float_tile_row8(int type, const uint8_t *const row[8], int64_t n_in, float_tile *tile, int column)
{
    int64_t whole = n_in / 8 * 8;
    for (int64_t i = 0; i < whole; i += 8)
        float_tile_8(type, row, i, 8, tile + i, column);
    if (whole < n_in)
        float_tile_8(type, row, whole, (int)(n_in - whole), tile + whole, column);
}

static LI_AVX2 void float_tile_fill(const li_matrix *w, int64_t r, int n_rows, float_tile *tile)
{
    for (int column = 0; column < TILE_ROWS; column += 8) {
        const uint8_t *row[8];
        for (int i = 0; i < 8; i++)
            row[i] = w->blocks + (r + (column + i < n_rows ? column + i : n_rows - 1)) * w->row_bytes;
        if (w->type == LI_F32)
            float_tile_row8(LI_F32, row, w->n_in, tile, column);
        else if (w->type == LI_F16)
            float_tile_row8(LI_F16, row, w->n_in, tile, column);
        else if (w->type == LI_BF16)
            float_tile_row8(LI_BF16, row, w->n_in, tile, column);
        else
            float_tile_row8(LI_NVFP4, row, w->n_in, tile, column);
    }
}

/* One lane of linear.h after the other, so that its sums stay in registers. */
LI_AVX2_INLINE void float_tokens(int n, const float_tile *tile, int64_t n_in, const float *x, float *y, int64_t ldy,
                                 int n_rows)
{
    int64_t stride = li_round_up(n_in, 16), n8 = li_round_up(n_in, 8);
    tile_lanes lanes;
    for (int l = 0; l < 8; l++) {
        __m256 sum[TILE_TOKENS][2];
        for (int t = 0; t < n; t++)
            sum[t][0] = sum[t][1] = _mm256_setzero_ps();
        for (int64_t i = l; i < n8; i += 8) {
            __m256 w0 = _mm256_load_ps(tile[i]), w1 = _mm256_load_ps(tile[i] + 8);
            for (int t = 0; t < n; t++) {
                __m256 xs = _mm256_broadcast_ss(x + t * stride + i);
                sum[t][0] = _mm256_fmadd_ps(w0, xs, sum[t][0]);
                sum[t][1] = _mm256_fmadd_ps(w1, xs, sum[t][1]);
            }
        }
        for (int t = 0; t < n; t++) {
            _mm256_store_ps(lanes.at[l][t], sum[t][0]);
            _mm256_store_ps(lanes.at[l][t] + 8, sum[t][1]);
        }
    }
    store_tree(float_order, n, lanes.at, y, ldy, n_rows);
}

static LI_AVX2 void float_tokens_any(int n, const float_tile *tile, int64_t n_in, const float *x, float *y,
                                     int64_t ldy, int n_rows)
{
    if (n == 4)
        float_tokens(4, tile, n_in, x, y, ldy, n_rows);
    else if (n == 3)
        float_tokens(3, tile, n_in, x, y, ldy, n_rows);
    else if (n == 2)
        float_tokens(2, tile, n_in, x, y, ldy, n_rows);
    else
        float_tokens(1, tile, n_in, x, y, ldy, n_rows);
}

static void linear_float(const li_matrix *w, const float *x, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                         int64_t row1, float_tile *tile)
{
    int64_t stride = li_round_up(w->n_in, 16);
    if (n_tokens == 1) {
        (w->type == LI_F32    ? vector_f32
         : w->type == LI_F16  ? vector_f16
         : w->type == LI_BF16 ? vector_bf16
                              : vector_nvfp4)(w, x, y, row0, row1);
        return;
    }
    for (int64_t r = row0; r < row1; r += TILE_ROWS) {
        int n_rows = row1 - r < TILE_ROWS ? (int)(row1 - r) : TILE_ROWS;
        float_tile_fill(w, r, n_rows, tile);
        for (int64_t t = 0; t < n_tokens; t += TILE_TOKENS) {
            int n = n_tokens - t < TILE_TOKENS ? (int)(n_tokens - t) : TILE_TOKENS;
            float_tokens_any(n, tile, w->n_in, x + t * stride, y + t * ldy + r, ldy, n_rows);
        }
    }
}

/* -- doors ------------------------------------------------------------------------------------------------------------*/

int64_t li_scratch_avx2(const li_type_info *t, int64_t n_in, int64_t n_tokens)
{
    if (n_tokens == 1)
        return 0;
    return t->kind == LI_KIND_INT ? n_in / 32 * (int64_t)sizeof(block_tile)
                                  : li_round_up(n_in, 8) * (int64_t)sizeof(float_tile);
}

void li_linear_avx2(const li_matrix *w, const void *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                    int64_t row1, void *scratch)
{
    if (li_type(w->type)->kind == LI_KIND_INT)
        linear_int(w, xq, n_tokens, y, ldy, row0, row1, scratch);
    else
        linear_float(w, xq, n_tokens, y, ldy, row0, row1, scratch);
}

#endif

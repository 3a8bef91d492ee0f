/* linear.h with AVX2, FMA and F16C: activations, and the way to each type's kernels (linear_avx2.h). */
#include "linear_avx2.h"

#if LI_X86

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

LI_AVX2_INLINE void store_eights(int16_t *p, __m256i q)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(q));
    _mm_storeu_si128((__m128i *)(void *)(p + 16), _mm256_extracti128_si256(q, 1));
}

/* q[0] = x0, x2 and q[1] = x1, x3 of linear_parts.h -> the differences. */
LI_AVX2_INLINE void to_differences(__m256i q[2])
{
    __m256i x0x1 = _mm256_permute2x128_si256(q[0], q[1], 0x20), x2x2 = _mm256_permute4x64_epi64(q[0], 0xEE);
    __m256i x1x2 = _mm256_permute2x128_si256(q[1], x2x2, 0x20), x2x3 = _mm256_permute2x128_si256(q[0], q[1], 0x31);
    __m256i differences = _mm256_sub_epi16(x2x3, _mm256_slli_epi16(x1x2, 4));
    q[0] = _mm256_permute2x128_si256(x0x1, differences, 0x20);
    q[1] = _mm256_permute2x128_si256(x0x1, differences, 0x31);
}

/* Bits of the largest of n |x|: infinities and NaNs come out on top. */
LI_AVX2_INLINE uint32_t largest_bits(const float *x, int n)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
    __m256i bits = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8)
        bits = _mm256_max_epi32(bits, _mm256_castps_si256(_mm256_and_ps(_mm256_loadu_ps(x + i), magnitude)));
    return largest_lane(bits);
}

/* The group kind: q of block b of a group as bytes, and its sums. */
LI_AVX2_INLINE void split(const __m256i values[2], const int32_t sums[2], li_split_group *to, int64_t b)
{
    __m256i hi[2], lo[2];
    for (int i = 0; i < 2; i++) {
        hi[i] = _mm256_srai_epi16(_mm256_add_epi16(values[i], _mm256_set1_epi16(64)), 7);
        lo[i] = _mm256_sub_epi16(values[i], _mm256_slli_epi16(hi[i], 7));
    }
    hi[0] = _mm256_permute4x64_epi64(_mm256_packs_epi16(hi[0], hi[1]), 0xD8);
    lo[0] = _mm256_permute4x64_epi64(_mm256_packs_epi16(lo[0], lo[1]), 0xD8);
    _mm256_storeu_si256((__m256i *)(void *)(to->hi + 32 * b), hi[0]);
    _mm256_storeu_si256((__m256i *)(void *)(to->lo + 32 * b), lo[0]);
    for (int half = 0; half < 2; half++) {
        to->sum_hi[half][b] = (int16_t)(sums[half] >> 7);
        to->sum_lo[half][b] = (int16_t)(sums[half] & 127);
    }
}

/* Block b, of which `top` has the bits of the largest |x| that its scale is for. */
LI_AVX2_INLINE void prepare_block(int kind, const float *x, int64_t b, uint32_t top, const li_int_row *to)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const float most = li_activation_max(kind), largest = li_float_of_bits(top);
    const __m256 inverse = _mm256_set1_ps(most / largest);
    int usable = largest >= 1e-30f && top < 0x7F800000u;
    int64_t slot = li_slot(b);
    __m256i values[2], q[2];
    int32_t sums[2];
    for (int i = 0; i < 2; i++) {
        __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16 * i), inverse));
        __m256i c = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16 * i + 8), inverse));
        values[i] = usable ? _mm256_permute4x64_epi64(_mm256_packs_epi32(a, c), 0xD8) : _mm256_setzero_si256();
        sums[i] = sum_of_lanes(_mm256_madd_epi16(values[i], ones));
        q[i] = evens_and_odds(values[i]);
    }
    to->dx[slot] = usable ? largest / most : top < 0x7F800000u ? 0.0f : li_float_of_bits(0x7FC00000u);
    to->sum[slot] = to->dx[slot] * (float)(sums[0] + sums[1]);
    to->low[slot] = sums[0];
    to->high[slot] = sums[1];
    if (kind == LI_KIND_NIBBLE)
        to_differences(q);
    for (int i = 0; i < 2; i++)
        store_eights(to->p + li_start(b) + 32 * i, q[i]);
    if (kind == LI_KIND_GROUP)
        split(values, sums, &to->groups[b / 8], b % 8);
}

static LI_AVX2 void prepare_int(int kind, const float *x, int64_t n_in, int64_t b0, int64_t b1, void *xq)
{
    const li_int_row to = li_int_row_at(xq, n_in);
    const int shared = li_shared_blocks(kind);
    for (int64_t b = b0; b < b1; b += shared) {
        uint32_t top = largest_bits(x + 32 * b, 32 * shared);
        for (int64_t i = b; i < b + shared; i++)
            prepare_block(kind, x + 32 * i, i, top, &to);
    }
    if (b1 == n_in / 32)
        li_fill_up(to, n_in);
}

/* -- doors ------------------------------------------------------------------------------------------------------------*/

static const li_avx2_kernels *const kernels[LI_N_TYPES] = {
    [LI_Q4_0] = &LI_KERNELS(q4_0),
    [LI_Q4_1] = &LI_KERNELS(q4_1),
    [LI_Q5_0] = &LI_KERNELS(q5_0),
    [LI_Q5_1] = &LI_KERNELS(q5_1),
    [LI_Q8_0] = &LI_KERNELS(q8_0),
    [LI_Q2_K] = &LI_KERNELS(q2_k),
    [LI_Q3_K] = &LI_KERNELS(q3_k),
    [LI_Q4_K] = &LI_KERNELS(q4_k),
    [LI_Q5_K] = &LI_KERNELS(q5_k),
    [LI_Q6_K] = &LI_KERNELS(q6_k),
    [LI_IQ4_NL] = &LI_KERNELS(iq4_nl),
    [LI_IQ4_XS] = &LI_KERNELS(iq4_xs),
    [LI_MXFP4] = &LI_KERNELS(mxfp4),
};

li_group_decoder *LI_LEVEL(li_decoder)(const li_type_info *t)
{
    static li_group_decoder *const decoders[LI_N_TYPES] = {
        [LI_IQ1_S] = li_group_iq1_s_avx2,     [LI_IQ1_M] = li_group_iq1_m_avx2,   [LI_IQ2_XXS] = li_group_iq2_xxs_avx2,
        [LI_IQ2_XS] = li_group_iq2_xs_avx2,   [LI_IQ2_S] = li_group_iq2_s_avx2,   [LI_IQ3_XXS] = li_group_iq3_xxs_avx2,
        [LI_IQ3_S] = li_group_iq3_s_avx2,     [LI_TQ1_0] = li_group_tq1_0_avx2,   [LI_TQ2_0] = li_group_tq2_0_avx2,
    };
    li_group_decoder *decoder = decoders[t - li_types];
    return decoder ? decoder : t->decode_group;
}

/* Up to so many tokens rows are read straight from their blocks. */
enum { MOST_ROW_TOKENS = 8 };

/* Kernels of blocks of 32 read as if there were three rows before. */
static const li_avx2_kernels *kernels_of(const li_matrix *w)
{
    const li_type_info *t = li_type(w->type);
    if (kernels[w->type] && (w->n_out >= 4 || t->kind == LI_KIND_GROUP))
        return kernels[w->type];
    return t->kind == LI_KIND_NIBBLE ? &LI_KERNELS(decoded_nibbles) : &LI_KERNELS(decoded);
}

static li_tile_times_tokens *tile_tokens_of(const li_type_info *t)
{
    if (t->kind == LI_KIND_GROUP)
        return t->n_mins ? LI_LEVEL(li_tile_tokens_groups_mins) : LI_LEVEL(li_tile_tokens_groups);
    return t->n_mins ? LI_LEVEL(li_tile_tokens_mins) : LI_LEVEL(li_tile_tokens);
}

static void linear_int(const li_matrix *w, const char *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                       int64_t row1, li_block_tile *tile)
{
    const li_avx2_kernels *k = kernels_of(w);
    li_tile_times_tokens *times_tile = tile_tokens_of(li_type(w->type));
    if (n_tokens <= MOST_ROW_TOKENS) {
        k->rows(w, xq, (int)n_tokens, y, ldy, row0, row1);
        return;
    }
    for (int64_t r = row0; r < row1; r += LI_TILE_ROWS) {
        int n_rows = row1 - r < LI_TILE_ROWS ? (int)(row1 - r) : LI_TILE_ROWS;
        k->tile(w, r, n_rows, tile);
        times_tile(n_tokens, tile, w->n_in, xq, y + r, ldy, n_rows);
    }
}

static int64_t scratch_bytes(const li_type_info *t, int64_t n_in, int64_t n_tokens)
{
    if (n_tokens == 1)
        return 0;
    return t->kind != LI_KIND_FLOAT ? n_in / 32 * (int64_t)sizeof(li_block_tile)
                                    : li_round_up(n_in, 8) * LI_TILE_ROWS * (int64_t)sizeof(float);
}

static void linear(const li_matrix *w, const void *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                   int64_t row1, void *scratch)
{
    if (li_type(w->type)->kind != LI_KIND_FLOAT)
        linear_int(w, xq, n_tokens, y, ldy, row0, row1, scratch);
    else
        LI_LEVEL(li_linear_float)(w, xq, n_tokens, y, ldy, row0, row1, scratch);
}

const li_linear_kernels LI_LEVEL(li_linear) = {prepare_int, linear, scratch_bytes};

#endif

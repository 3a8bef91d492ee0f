/* A tile of 16 rows (linear_avx2.h) times many tokens: a few of them at a time run over it, a pair of x values is
 * broadcast, and no sum crosses lanes. */
#include "linear_avx2.h"

#if LI_X86

/* sum += products of pairs of values. */
LI_AVX2_INLINE void add_pair(li_wide_ints *sum, li_wide_ints w, li_wide_ints x)
{
#if LI_FOR_AVX512
    *sum = LI_WIDE(dpwssd_epi32)(*sum, w, x);
#else /* the sum stays in its register: left to itself GCC copies every running sum in every step */
    __asm__("vpaddd %1, %0, %0" : "+x"(*sum) : "x"(LI_WIDE(madd_epi16)(w, x)));
#endif
}

LI_AVX2_INLINE li_wide_ints load_pair(const int32_t *rows)
{
    li_wide_ints w = *(const li_wide_ints *)(const void *)rows;
#if !LI_FOR_AVX512 /* stops the compiler from loading it again at each use */
    __asm__("" : "+x"(w));
#endif
    return w;
}

/* Products of four pairs of 16 rows, q[0] .. q[3], with the values at `place` of n tokens into their sums. */
LI_AVX2_INLINE void add_four_pairs(int n, const int32_t (*q)[LI_TILE_ROWS], const li_int_row *x, int64_t place,
                                   li_wide_ints (*sum)[LI_TILE_PARTS])
{
    LI_UNROLL_8
    for (int i = 0; i < 4; i++) {
        li_wide_ints w[LI_TILE_PARTS];
        for (int part = 0; part < LI_TILE_PARTS; part++)
            w[part] = load_pair(&q[i][LI_WIDE_LANES * part]);
        for (int t = 0; t < n; t++) {
            int32_t values;
            memcpy(&values, x[t].p + place + 2 * i, sizeof values);
            li_wide_ints xs = LI_WIDE(set1_epi32)(values);
            for (int part = 0; part < LI_TILE_PARTS; part++)
                add_pair(&sum[t][part], w[part], xs);
        }
    }
}

LI_AVX2_INLINE void zero_sums(int n, li_wide_ints (*sum)[LI_TILE_PARTS])
{
    for (int t = 0; t < n; t++)
        for (int part = 0; part < LI_TILE_PARTS; part++)
            sum[t][part] = LI_WIDE(set1_epi32)(0);
}

/* fma(factors * dx, sum, lane) for some rows. */
LI_AVX2_INLINE li_wide_floats add_scaled(const float *factors, float dx, li_wide_floats sum, li_wide_floats lane)
{
    return LI_WIDE(fmadd_ps)(LI_WIDE(mul_ps)(LI_WIDE(load_ps)(factors), LI_WIDE(set1_ps)(dx)), sum, lane);
}

/* Sums of one block for n tokens into lanes[token][row]. */
LI_AVX2_INLINE void tile_block(int has_mins, int n, const li_block_tile *tile, const li_int_row *x, int64_t b,
                               float (*lanes)[LI_TILE_ROWS])
{
    int64_t slot = li_slot(b);
    li_wide_ints sum[LI_TILE_TOKENS][LI_TILE_PARTS];
    zero_sums(n, sum);
    LI_NO_UNROLL
    for (int64_t k = 0; k < 16; k += 4)
        add_four_pairs(n, tile->q + k, x, li_start(b) + 4 * k, sum);
    for (int t = 0; t < n; t++)
        for (int part = 0; part < LI_TILE_PARTS; part++) {
            int at = LI_WIDE_LANES * part;
            li_wide_floats s = LI_WIDE(load_ps)(lanes[t] + at);
            s = add_scaled(tile->d + at, x[t].dx[slot], LI_WIDE(cvtepi32_ps)(sum[t][part]), s);
            if (has_mins)
                s = LI_WIDE(fmadd_ps)(LI_WIDE(load_ps)(tile->m + at), LI_WIDE(set1_ps)(x[t].sum[slot]), s);
            LI_WIDE(store_ps)(lanes[t] + at, s);
        }
}

/* Mins of half `half` of the blocks of a group times the sums of x: whole numbers below 2^24, so exact in any order. */
LI_AVX2_INLINE void times_mins(const li_block_tile *tile, const li_int_row *x, int64_t b0, int half,
                               li_wide_floats result[LI_TILE_PARTS])
{
    float sums[8]; /* in slots */
    const int32_t *ints = (half ? x->high : x->low) + b0;
    _mm256_storeu_ps(sums, _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)(const void *)ints)));
    for (int part = 0; part < LI_TILE_PARTS; part++) {
        li_wide_floats sum[2]; /* so that one addition need not wait for the other */
        LI_UNROLL_8
        for (int64_t b = 0; b < 8; b++) {
            li_wide_floats mins = LI_WIDE(load_ps)(tile[b].mins[half] + LI_WIDE_LANES * part);
            li_wide_floats x_sum = LI_WIDE(set1_ps)(sums[li_slot(b)]);
            sum[b % 2] = b < 2 ? LI_WIDE(mul_ps)(mins, x_sum) : LI_WIDE(fmadd_ps)(mins, x_sum, sum[b % 2]);
        }
        result[part] = LI_WIDE(add_ps)(sum[0], sum[1]);
    }
}

/* Half `half` of the blocks of a group for n tokens into lanes[token][row]. */
LI_AVX2_INLINE void tile_group_half(int has_mins, int n, const li_block_tile *tile, const li_int_row *x, int64_t b0,
                                    int half, float (*lanes)[LI_TILE_ROWS])
{
    int64_t slot = li_slot(b0);
    li_wide_ints sum[LI_TILE_TOKENS][LI_TILE_PARTS];
    zero_sums(n, sum);
    LI_NO_UNROLL
    for (int64_t b = 0; b < 8; b++) {
        add_four_pairs(n, tile[b].q + 8 * half, x, li_start(b0 + b) + 32 * half, sum);
        add_four_pairs(n, tile[b].q + 8 * half + 4, x, li_start(b0 + b) + 32 * half + 16, sum);
    }
    for (int t = 0; t < n; t++) {
        li_wide_floats mins[LI_TILE_PARTS];
        if (has_mins)
            times_mins(tile, &x[t], b0, half, mins);
        for (int part = 0; part < LI_TILE_PARTS; part++) {
            int at = LI_WIDE_LANES * part;
            li_wide_floats s = LI_WIDE(load_ps)(lanes[t] + at);
            s = add_scaled(tile->d + at, x[t].dx[slot], LI_WIDE(cvtepi32_ps)(sum[t][part]), s);
            if (has_mins)
                s = add_scaled(tile->m + at, x[t].dx[slot], mins[part], s);
            LI_WIDE(store_ps)(lanes[t] + at, s);
        }
    }
}

/* Running sums: two lanes of linear.h. */
typedef struct {
    _Alignas(64) float at[2][LI_TILE_TOKENS][LI_TILE_ROWS];
} tile_lanes;

LI_AVX2_INLINE void store_sums(int n, const tile_lanes *lanes, float *y, int64_t ldy, int n_rows)
{
    for (int t = 0; t < n; t++, y += ldy) {
        float some[LI_TILE_ROWS], *result = n_rows == LI_TILE_ROWS ? y : some;
        for (int i = 0; i < LI_TILE_ROWS; i += LI_WIDE_LANES)
            LI_WIDE(storeu_ps)(result + i, LI_WIDE(add_ps)(LI_WIDE(load_ps)(lanes->at[0][t] + i),
                                                           LI_WIDE(load_ps)(lanes->at[1][t] + i)));
        if (result != y)
            memcpy(y, some, (size_t)n_rows * sizeof *y);
    }
}

LI_AVX2_INLINE void int_tokens(int kind, int has_mins, int n, const li_block_tile *tile, int64_t n_in, const char *xq,
                               float *y, int64_t ldy, int n_rows)
{
    tile_lanes lanes;
    li_int_row x[LI_TILE_TOKENS];
    for (int t = 0; t < n; t++)
        x[t] = li_int_row_at(xq + t * li_token_bytes(kind, n_in), n_in);
    for (int lane = 0; lane < 2; lane++) /* a memset of so few bytes takes 4 % of all */
        for (int t = 0; t < n; t++)
            for (int i = 0; i < LI_TILE_ROWS; i += LI_WIDE_LANES)
                LI_WIDE(store_ps)(lanes.at[lane][t] + i, LI_WIDE(set1_ps)(0.0f));
    if (kind == LI_KIND_GROUP)
        for (int64_t b = 0; b < n_in / 32; b += 8)
            for (int half = 0; half < 2; half++)
                tile_group_half(has_mins, n, tile + b, x, b, half, lanes.at[half]);
    else
        for (int64_t b = 0; b < n_in / 32; b++)
            tile_block(has_mins, n, tile + b, x, b, lanes.at[b % 2]);
    store_sums(n, &lanes, y, ldy, n_rows);
}

#define LI_TOKENS(kind, has_mins, n)                                                                                  \
    for (; t + (n) <= n_tokens; t += (n))                                                                             \
        int_tokens(kind, has_mins, n, tile, n_in, xq + t * li_token_bytes(kind, n_in), y + t * ldy, ldy, n_rows)

#define LI_TOKENS_FUNCTION(name, kind, has_mins)                                                                      \
    LI_AVX2 void LI_LEVEL(li_tile_tokens##name)(int64_t n_tokens, const li_block_tile *tile, int64_t n_in,            \
                                                const char *xq, float *y, int64_t ldy, int n_rows)                    \
    {                                                                                                                 \
        int64_t t = 0;                                                                                                \
        if (LI_TILE_TOKENS > 4)                                                                                       \
            LI_TOKENS(kind, has_mins, LI_TILE_TOKENS);                                                                \
        LI_TOKENS(kind, has_mins, 4);                                                                                 \
        LI_TOKENS(kind, has_mins, 3);                                                                                 \
        LI_TOKENS(kind, has_mins, 2);                                                                                 \
        LI_TOKENS(kind, has_mins, 1);                                                                                 \
    }
LI_TOKENS_FUNCTION(, LI_KIND_INT, 0) /* and LI_KIND_NIBBLE */
LI_TOKENS_FUNCTION(_mins, LI_KIND_INT, 1)
LI_TOKENS_FUNCTION(_groups, LI_KIND_GROUP, 0)
LI_TOKENS_FUNCTION(_groups_mins, LI_KIND_GROUP, 1)

#endif

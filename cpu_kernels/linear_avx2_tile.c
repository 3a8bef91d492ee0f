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

/* Sums of one block for n tokens into lanes[token][row]. */
LI_AVX2_INLINE void tile_block(int n_mins, int n, const li_block_tile *tile, const li_int_row *x, int64_t b,
                               float (*lanes)[LI_TILE_ROWS])
{
    int64_t slot = li_slot(b);
    li_wide_ints sum[LI_TILE_TOKENS][LI_TILE_PARTS];
    for (int t = 0; t < n; t++)
        for (int part = 0; part < LI_TILE_PARTS; part++)
            sum[t][part] = LI_WIDE(set1_epi32)(0);
    LI_NO_UNROLL
    for (int64_t k = 0; k < 16; k += 4) {
        int64_t place = li_start(b) + 4 * k;
        LI_UNROLL_8
        for (int i = 0; i < 4; i++) {
            li_wide_ints w[LI_TILE_PARTS];
            for (int part = 0; part < LI_TILE_PARTS; part++)
                w[part] = load_pair(&tile->q[k + i][LI_WIDE_LANES * part]);
            for (int t = 0; t < n; t++) {
                int32_t values;
                memcpy(&values, x[t].p + place + 2 * i, sizeof values);
                li_wide_ints xs = LI_WIDE(set1_epi32)(values);
                for (int part = 0; part < LI_TILE_PARTS; part++)
                    add_pair(&sum[t][part], w[part], xs);
            }
        }
    }
    for (int t = 0; t < n; t++)
        for (int part = 0; part < LI_TILE_PARTS; part++) {
            int at = LI_WIDE_LANES * part;
            float dx = x[t].dx[slot];
            li_wide_floats d = LI_WIDE(mul_ps)(LI_WIDE(load_ps)(tile->d + at), LI_WIDE(set1_ps)(dx));
            li_wide_floats m = LI_WIDE(load_ps)(tile->m + at), m2 = LI_WIDE(load_ps)(tile->m2 + at);
            li_wide_floats s = LI_WIDE(load_ps)(lanes[t] + at);
            s = LI_WIDE(fmadd_ps)(d, LI_WIDE(cvtepi32_ps)(sum[t][part]), s);
            if (n_mins == 1)
                s = LI_WIDE(fmadd_ps)(m, LI_WIDE(set1_ps)(x[t].sum[slot]), s);
            if (n_mins == 2) {
                s = LI_WIDE(fmadd_ps)(m, LI_WIDE(set1_ps)(dx * (float)x[t].low[slot]), s);
                s = LI_WIDE(fmadd_ps)(m2, LI_WIDE(set1_ps)(dx * (float)x[t].high[slot]), s);
            }
            LI_WIDE(store_ps)(lanes[t] + at, s);
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

LI_AVX2_INLINE void int_tokens(int n_mins, int n, const li_block_tile *tile, int64_t n_in, const char *xq, float *y,
                               int64_t ldy, int n_rows)
{
    tile_lanes lanes;
    li_int_row x[LI_TILE_TOKENS];
    for (int t = 0; t < n; t++)
        x[t] = li_int_row_at(xq + t * li_token_bytes(LI_KIND_INT, n_in), n_in);
    for (int lane = 0; lane < 2; lane++) /* a memset of so few bytes takes 4 % of all */
        for (int t = 0; t < n; t++)
            for (int i = 0; i < LI_TILE_ROWS; i += LI_WIDE_LANES)
                LI_WIDE(store_ps)(lanes.at[lane][t] + i, LI_WIDE(set1_ps)(0.0f));
    for (int64_t b = 0; b < n_in / 32; b++)
        tile_block(n_mins, n, tile + b, x, b, lanes.at[b % 2]);
    store_sums(n, &lanes, y, ldy, n_rows);
}

#define LI_TOKENS(n_mins, n)                                                                                          \
    for (; t + (n) <= n_tokens; t += (n))                                                                             \
        int_tokens(n_mins, n, tile, n_in, xq + t * li_token_bytes(LI_KIND_INT, n_in), y + t * ldy, ldy, n_rows)

#define LI_TOKENS_FUNCTION(n_mins)                                                                                    \
    LI_AVX2 void LI_LEVEL(li_tile_tokens_##n_mins)(int64_t n_tokens, const li_block_tile *tile, int64_t n_in,         \
                                                   const char *xq, float *y, int64_t ldy, int n_rows)                 \
    {                                                                                                                 \
        int64_t t = 0;                                                                                                \
        if (LI_TILE_TOKENS > 4)                                                                                       \
            LI_TOKENS(n_mins, LI_TILE_TOKENS);                                                                        \
        LI_TOKENS(n_mins, 4);                                                                                         \
        LI_TOKENS(n_mins, 3);                                                                                         \
        LI_TOKENS(n_mins, 2);                                                                                         \
        LI_TOKENS(n_mins, 1);                                                                                         \
    }
LI_TOKENS_FUNCTION(0)
LI_TOKENS_FUNCTION(1)
LI_TOKENS_FUNCTION(2)

#endif

/* A tile of 16 rows (linear_avx2.h) times many tokens: 4 of them at a time run over it, a pair of x values is broadcast,
 * and no sum crosses lanes. */
#include "linear_avx2.h"

#if LI_X86

/* Stops the compiler from loading a value again at each use. */
#define LI_IN_REGISTER(v) __asm__("" : "+x"(v))

enum { TILE_TOKENS = 4 };

/* The sum stays in its register: left to itself GCC copies every running sum in every step. */
LI_AVX2_INLINE void add_in_place(__m256i *sum, __m256i v)
{
    __asm__("vpaddd %1, %0, %0" : "+x"(*sum) : "x"(v));
}

/* Sums of one block for n tokens into lanes[token][row]. */
LI_AVX2_INLINE void tile_block(int n_mins, int n, const li_block_tile *tile, const li_int_row *x, int64_t b,
                               float (*lanes)[LI_TILE_ROWS])
{
    int64_t slot = li_slot(b);
    __m256i sum[TILE_TOKENS][2];
    for (int t = 0; t < n; t++)
        sum[t][0] = sum[t][1] = _mm256_setzero_si256();
    LI_NO_UNROLL
    for (int64_t k = 0; k < 16; k += 4) {
        int64_t place = li_start(b) + 4 * k;
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

/* Running sums: two lanes of linear.h. */
typedef struct {
    _Alignas(32) float at[2][TILE_TOKENS][LI_TILE_ROWS];
} tile_lanes;

LI_AVX2_INLINE void store_sums(int n, const tile_lanes *lanes, float *y, int64_t ldy, int n_rows)
{
    for (int t = 0; t < n; t++) {
        float result[LI_TILE_ROWS];
        for (int i = 0; i < LI_TILE_ROWS; i += 8)
            _mm256_storeu_ps(result + i, _mm256_add_ps(_mm256_load_ps(lanes->at[0][t] + i),
                                                       _mm256_load_ps(lanes->at[1][t] + i)));
        memcpy(y + t * ldy, result, (size_t)n_rows * sizeof *y);
    }
}

LI_AVX2_INLINE void int_tokens(int n_mins, int n, const li_block_tile *tile, int64_t n_in, const char *xq, float *y,
                               int64_t ldy, int n_rows)
{
    tile_lanes lanes;
    li_int_row x[TILE_TOKENS];
    for (int t = 0; t < n; t++)
        x[t] = li_int_row_at(xq + t * li_token_bytes(LI_KIND_INT, n_in), n_in);
    memset(&lanes, 0, sizeof lanes);
    for (int64_t b = 0; b < n_in / 32; b++)
        tile_block(n_mins, n, tile + b, x, b, lanes.at[b % 2]);
    store_sums(n, &lanes, y, ldy, n_rows);
}

#define LI_TOKENS_FUNCTION(mins)                                                                                      \
    LI_AVX2 void li_tile_tokens_avx2_##mins(int n, const li_block_tile *tile, int64_t n_in, const char *xq, float *y, \
                                            int64_t ldy, int n_rows)                                                  \
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

#endif

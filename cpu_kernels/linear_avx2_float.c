/* Float types with AVX2, FMA and F16C: rows times vectors, or 16 rows decoded into a tile. */
#include "linear_avx2.h"

#if LI_X86

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

LI_AVX2_INLINE float tree(__m256 lanes)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
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
typedef float float_tile[LI_TILE_ROWS];

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
    for (int column = 0; column < LI_TILE_ROWS; column += 8) {
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

typedef struct {
    _Alignas(64) float at[8][LI_TILE_TOKENS][LI_TILE_ROWS];
} tile_lanes;

/* lanes[lane][token][row] -> y: the tree of linear.h, rows side by side. */
LI_AVX2_INLINE void store_tree(int n, float (*lanes)[LI_TILE_TOKENS][LI_TILE_ROWS], float *y, int64_t ldy,
                               int n_rows)
{
    static const int order[8] = {0, 4, 2, 6, 1, 5, 3, 7};
    for (int t = 0; t < n; t++) {
        float result[LI_TILE_ROWS];
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

/* One lane of linear.h after the other, so that its sums stay in registers. */
LI_AVX2_INLINE void float_tokens(int n, const float_tile *tile, int64_t n_in, const float *x, float *y, int64_t ldy,
                                 int n_rows)
{
    int64_t stride = li_round_up(n_in, 16), n8 = li_round_up(n_in, 8);
    tile_lanes lanes;
    for (int l = 0; l < 8; l++) {
        li_wide_floats sum[LI_TILE_TOKENS][LI_TILE_PARTS];
        for (int t = 0; t < n; t++)
            for (int part = 0; part < LI_TILE_PARTS; part++)
                sum[t][part] = LI_WIDE(set1_ps)(0.0f);
        for (int64_t i = l; i < n8; i += 8) {
            li_wide_floats w[LI_TILE_PARTS];
            for (int part = 0; part < LI_TILE_PARTS; part++)
                w[part] = LI_WIDE(load_ps)(tile[i] + LI_WIDE_LANES * part);
            for (int t = 0; t < n; t++) {
                li_wide_floats xs = LI_WIDE(set1_ps)(x[t * stride + i]);
                for (int part = 0; part < LI_TILE_PARTS; part++)
                    sum[t][part] = LI_WIDE(fmadd_ps)(w[part], xs, sum[t][part]);
            }
        }
        for (int t = 0; t < n; t++)
            for (int part = 0; part < LI_TILE_PARTS; part++)
                LI_WIDE(store_ps)(lanes.at[l][t] + LI_WIDE_LANES * part, sum[t][part]);
    }
    store_tree(n, lanes.at, y, ldy, n_rows);
}

static LI_AVX2 void all_tokens(int64_t n_tokens, const float_tile *tile, int64_t n_in, const float *x, float *y,
                               int64_t ldy, int n_rows)
{
    int64_t t = 0;
#define LI_TOKENS(n)                                                                                                  \
    for (; t + (n) <= n_tokens; t += (n))                                                                             \
        float_tokens(n, tile, n_in, x + t * li_round_up(n_in, 16), y + t * ldy, ldy, n_rows)
    if (LI_TILE_TOKENS > 4)
        LI_TOKENS(LI_TILE_TOKENS);
    LI_TOKENS(4);
    LI_TOKENS(3);
    LI_TOKENS(2);
    LI_TOKENS(1);
#undef LI_TOKENS
}

void LI_LEVEL(li_linear_float)(const li_matrix *w, const float *x, int64_t n_tokens, float *y, int64_t ldy,
                               int64_t row0, int64_t row1, void *room)
{
    float_tile *tile = room;
    if (n_tokens == 1) {
        (w->type == LI_F32    ? vector_f32
         : w->type == LI_F16  ? vector_f16
         : w->type == LI_BF16 ? vector_bf16
                              : vector_nvfp4)(w, x, y, row0, row1);
        return;
    }
    for (int64_t r = row0; r < row1; r += LI_TILE_ROWS) {
        int n_rows = row1 - r < LI_TILE_ROWS ? (int)(row1 - r) : LI_TILE_ROWS;
        float_tile_fill(w, r, n_rows, tile);
        all_tokens(n_tokens, tile, w->n_in, x, y + r, ldy, n_rows);
    }
}

#endif

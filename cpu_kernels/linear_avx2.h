/* The matrix kernels of one block type with AVX2, FMA and F16C, as templates: linear_avx2_*.c make them for each type.
 *
 * Few tokens: four rows at a time straight from their blocks. A pair of blocks of one row gives a vector of int32 whose
 * halves are the blocks; those of four rows are summed crosswise into one vector whose lanes are the rows, block A in the
 * lower half and B in the upper. So scales are applied to 8 blocks at once, and nothing is left over at the end of a row.
 * Up to 4 tokens keep their sums in registers; for more, the pair is decoded into the cache once.
 * More tokens: 16 rows are decoded once into a tile whose lanes are rows (linear_avx2_tile.c).
 * Both follow the order of sums of linear.h.
 */
#ifndef LI_LINEAR_AVX2_H
#define LI_LINEAR_AVX2_H

#include "linear_parts.h"

#if LI_X86

#include "blocks_avx2.h"
#include "blocks_iq.h"

#if defined(__clang__)
#define LI_UNROLL_8 _Pragma("unroll")
#define LI_NO_UNROLL _Pragma("nounroll")
#else
#define LI_UNROLL_8 _Pragma("GCC unroll 8")
#define LI_NO_UNROLL _Pragma("GCC unroll 1")
#endif

enum {
    LI_DECODED = -1,
    LI_DECODED_NIBBLES = -2,
    LI_ROW_TOKENS = 16, /* most tokens of li_rows_* */
    LI_TILE_ROWS = 16,
    LI_TILE_PARTS = LI_TILE_ROWS / LI_WIDE_LANES, /* vectors that a tile's rows are */
    LI_TILE_TOKENS = LI_TILE_PARTS == 1 ? 8 : 6   /* whose sums are kept in registers */
};

/* A block of 32 of 16 rows: pair k (values 2k and 2k+1 of p) of row r is q[k][r]. 64-byte aligned. */
typedef struct {
    int32_t q[16][LI_TILE_ROWS];
    float d[LI_TILE_ROWS], m[LI_TILE_ROWS]; /* in the group kind of the first of 8 blocks only */
    float mins[2][LI_TILE_ROWS];            /* Q2_K: of the halves of the block */
} li_block_tile;

/* What a block type has. */
typedef struct {
    /* y[t * ldy + row] for rows [row0, row1) and n_tokens <= LI_ROW_TOKENS. */
    void (*rows)(const li_matrix *w, const char *xq, int n_tokens, float *y, int64_t ldy, int64_t row0, int64_t row1);
    /* Rows r .. r + n_rows - 1 <= 16 into n_in / 32 tiles; the last one stands in for those beyond. */
    void (*tile)(const li_matrix *w, int64_t r, int n_rows, li_block_tile *tile);
} li_avx2_kernels;

#define LI_KERNELS(name) LI_LEVEL(li_kernels_##name)
extern const li_avx2_kernels LI_KERNELS(q4_0), LI_KERNELS(q4_1), LI_KERNELS(q5_0), LI_KERNELS(q5_1), LI_KERNELS(q8_0),
    LI_KERNELS(q2_k), LI_KERNELS(q3_k), LI_KERNELS(q4_k), LI_KERNELS(q5_k), LI_KERNELS(q6_k), LI_KERNELS(iq4_nl),
    LI_KERNELS(iq4_xs), LI_KERNELS(mxfp4), LI_KERNELS(decoded), LI_KERNELS(decoded_nibbles);

/* The fastest decoder of a type that the kernels have none of their own for. */
li_group_decoder *LI_LEVEL(li_decoder)(const li_type_info *t);

/* Tokens prepared from xq on, times a tile of n_rows: y[t * ldy + row]. */
typedef void li_tile_times_tokens(int64_t n_tokens, const li_block_tile *tile, int64_t n_in, const char *xq, float *y,
                                  int64_t ldy, int n_rows);
/* Of types without and with mins; of the group kind without and with mins. */
li_tile_times_tokens LI_LEVEL(li_tile_tokens), LI_LEVEL(li_tile_tokens_mins), LI_LEVEL(li_tile_tokens_groups),
    LI_LEVEL(li_tile_tokens_groups_mins);

void LI_LEVEL(li_linear_float)(const li_matrix *w, const float *x, int64_t n_tokens, float *y, int64_t ldy,
                               int64_t row0, int64_t row1, void *tile);

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

#endif
#endif

/* What the files of linear*.c share: the layout of prepared activations, the order of the last sum, and who does what.
 *
 * Prepared activations of one token, int types; n8 is the number of blocks of 32, rounded up to a multiple of 8:
 *     int16 p[32 * n8], float dx[n8], sum[n8], int32 low[n8], high[n8]
 * where low and high are the sums over values 0..15 and 16..31 of a block, and sum = dx * (low + high). Blocks lie in
 * pairs, eight values of the one and eight of the other in turn (li_place), so that a vector of 16 holds both in its
 * halves; values with even and with odd numbers lie apart, since that is how two bytes in a word come apart. Scales and
 * sums lie in the order of li_slot. Fields of the blocks that fill up are 0.
 *
 * The nibble kind holds differences. A word of two bytes of such a block has four values of it, n0 + 16 n1 + 256 n2 +
 * 4096 n3, which stand for values 2i, 16 + 2i, 2i + 1, 16 + 2i + 1 of the block. With x0 .. x3 for those of x,
 *     n0 x0 + n1 x1 + n2 x2 + n3 x3 = (w & 15) x0 + (w >> 4) x1 + (w >> 8) (x2 - 16 x1) + (w >> 12) (x3 - 16 x2)
 * so p holds x0, x1, x2 - 16 x1 and x3 - 16 x2 in the places of the four values, and nothing but shifts is needed to
 * take the word apart.
 * In the group kind all blocks of a group of 256 values have the same dx, and after high come li_split_group, one for
 * each group: the same values as bytes.
 * 64-bit ARM keeps the bytes of p apart instead (linear_neon_rows.h).
 * Float types: float x[n], n = n_in rounded up to a multiple of 16, filled up with 0.
 */
#ifndef LI_LINEAR_PARTS_H
#define LI_LINEAR_PARTS_H

#include "blocks.h"
#include "cpu.h"
#include "linear.h"

/* Sums must not become fused multiply-adds by the compiler's choice: they are spelled out where they are meant. GCC
 * leaves them alone with -std=c11 (not gnu11) or -ffp-contract=off; clang by this. */
#if defined(__clang__)
#pragma clang fp contract(off)
#endif

/* |p| <= 16383; in the nibble kind 17 * 1927 still fits 16 bits; in the group kind p falls into two signed bytes of which
 * the largest is 64, and 15 times the sums of 16 values of 8 blocks stay below 2^24. */
static inline float li_activation_max(int kind)
{
    return kind == LI_KIND_NIBBLE ? 1927.0f : kind == LI_KIND_GROUP ? 8191.0f : 16383.0f;
}

/* 256 values of p in their own order, p = 128 hi + lo, |hi| and |lo| <= 64, and sums of 16 of them, sum = 128 sum_hi +
 * sum_lo: those of values 0..15 of each block of 32, then those of values 16..31. */
typedef struct {
    int8_t hi[256], lo[256];
    int16_t sum_hi[2][8], sum_lo[2][8];
} li_split_group;

/* How many blocks of 32 values have the same dx. */
static inline int li_shared_blocks(int kind) { return kind == LI_KIND_GROUP ? 8 : 1; }

static inline int64_t li_round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Blocks of 32 of a row, rounded up to whole groups of 8. */
static inline int64_t li_padded_blocks(int64_t n_in) { return li_round_up(n_in, 256) / 32; }

/* Bytes of one token's prepared activations; a multiple of 64. */
static inline int64_t li_token_bytes(int kind, int64_t n_in)
{
    if (kind == LI_KIND_FLOAT)
        return li_round_up(n_in, 16) * 4;
    return li_padded_blocks(n_in) * 80 + (kind == LI_KIND_GROUP ? n_in / 256 * (int64_t)sizeof(li_split_group) : 0);
}

/* Where block b begins in p: it has 8 of every 16 values from there on. */
static inline int64_t li_start(int64_t b) { return b / 2 * 64 + b % 2 * 8; }
/* Where value i of block b is in p, and where the block's scales and sums are. */
static inline int64_t li_place(int64_t b, int i) { return li_start(b) + (i / 16 * 2 + i % 2) * 16 + i % 16 / 2; }
static inline int64_t li_slot(int64_t b) { return b / 8 * 8 + b % 2 * 4 + b % 8 / 2; }

typedef struct {
    int16_t *p;
    float *dx, *sum;
    int32_t *low, *high;
    li_split_group *groups; /* group kind */
} li_int_row;

static inline li_int_row li_int_row_at(const void *xq, int64_t n_in)
{
    int64_t n8 = li_padded_blocks(n_in);
    char *scales = (char *)xq + 64 * n8;
    return (li_int_row){(int16_t *)(char *)xq, (float *)(void *)scales, (float *)(void *)(scales + 4 * n8),
                        (int32_t *)(void *)(scales + 8 * n8), (int32_t *)(void *)(scales + 12 * n8),
                        (li_split_group *)(void *)(scales + 16 * n8)};
}

/* Zeros for the blocks that fill up. */
static inline void li_fill_up(li_int_row x, int64_t n_in)
{
    for (int64_t b = n_in / 32; b < li_padded_blocks(n_in); b++) {
        int64_t slot = li_slot(b);
        for (int k = 0; k < 4; k++)
            memset(x.p + li_start(b) + 16 * k, 0, 8 * sizeof *x.p);
        x.dx[slot] = x.sum[slot] = 0.0f;
        x.low[slot] = x.high[slot] = 0;
    }
}

/* What an instruction set has behind the doors of linear.h. */
typedef struct {
    /* One token's row of x, blocks [b0, b1) of 32 values: li_prepare_blocks for the int kinds. */
    void (*prepare_int)(int kind, const float *x, int64_t n_in, int64_t b0, int64_t b1, void *xq);
    void (*linear)(const li_matrix *w, const void *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                   int64_t row1, void *scratch);
    int64_t (*scratch_bytes)(const li_type_info *t, int64_t n_in, int64_t n_tokens);
} li_linear_kernels;

extern const li_linear_kernels li_linear_scalar;
#if LI_X86
extern const li_linear_kernels li_linear_avx2, li_linear_avx512;
#elif LI_ARM64
extern const li_linear_kernels li_linear_neon;
#endif

/* Rows [row0, row1) as four streams of `quarter` rows, since four are read faster than one (PROFILE.md). Where these are
 * not whole, the last row is computed more than once; fewer than four rows are computed with some beside them where the
 * matrix has them, since kernels work on four that lie one after the other. */
enum { LI_STREAMS = 4 };

typedef struct {
    int64_t row0, last, quarter;
} li_row_streams;

static inline li_row_streams li_streams_of(const li_matrix *w, int64_t row0, int64_t row1)
{
    int64_t n = row1 - row0;
    if (n < LI_STREAMS && w->n_out >= LI_STREAMS) {
        row0 = row0 + LI_STREAMS <= w->n_out ? row0 : w->n_out - LI_STREAMS;
        n = LI_STREAMS;
    }
    return (li_row_streams){row0, row0 + n - 1, (n + LI_STREAMS - 1) / LI_STREAMS};
}

/* Row i of each stream. */
static inline void li_rows_at(const li_row_streams *s, int64_t i, int64_t row[LI_STREAMS])
{
    for (int r = 0; r < LI_STREAMS; r++) {
        int64_t at = s->row0 + r * s->quarter + i;
        row[r] = at < s->last ? at : s->last;
    }
}

#endif

/* What the files of linear*.c share: the layout of prepared activations, the order of the last sum, and who does what.
 *
 * Prepared activations of one token, int types; n8 is the number of blocks of 32, rounded up to a multiple of 8:
 *     int16 p[32 * n8], float dx[n8], sum[n8], int32 low[n8], high[n8]
 * where low and high are the sums of p over values 0..15 and 16..31 of a block, and sum = dx * (low + high). Blocks lie
 * in pairs, eight values of the one and eight of the other in turn (li_place), so that a vector of 16 holds both in its
 * halves; scales and sums lie in the order of li_slot, which is what vector code makes of the pairs. Fields of the blocks
 * that fill up are 0.
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

#define LI_ACTIVATION_MAX 16383.0f

static inline int64_t li_round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Blocks of 32 of a row, rounded up to whole groups of 8. */
static inline int64_t li_padded_blocks(int64_t n_in) { return li_round_up(n_in, 256) / 32; }

/* Bytes of one token's prepared activations; a multiple of 64. */
static inline int64_t li_token_bytes(int kind, int64_t n_in)
{
    return kind == LI_KIND_INT ? li_padded_blocks(n_in) * 80 : li_round_up(n_in, 16) * 4;
}

/* Where values 8k .. 8k+7 of block b begin in p, and where the block's scales and sums are. */
static inline int64_t li_place(int64_t b, int k) { return b / 2 * 64 + k * 16 + b % 2 * 8; }
static inline int64_t li_slot(int64_t b) { return b / 8 * 8 + b % 2 * 4 + b % 8 / 2; }

typedef struct {
    int16_t *p;
    float *dx, *sum;
    int32_t *low, *high;
} li_int_row;

static inline li_int_row li_int_row_at(const void *xq, int64_t n_in)
{
    int64_t n8 = li_padded_blocks(n_in);
    char *scales = (char *)xq + 64 * n8;
    return (li_int_row){(int16_t *)(char *)xq, (float *)(void *)scales, (float *)(void *)(scales + 4 * n8),
                        (int32_t *)(void *)(scales + 8 * n8), (int32_t *)(void *)(scales + 12 * n8)};
}

/* Zeros for the blocks that fill up. */
static inline void li_fill_up(li_int_row x, int64_t n_in)
{
    for (int64_t b = n_in / 32; b < li_padded_blocks(n_in); b++) {
        int64_t slot = li_slot(b);
        for (int k = 0; k < 4; k++)
            memset(x.p + li_place(b, k), 0, 8 * sizeof *x.p);
        x.dx[slot] = x.sum[slot] = 0.0f;
        x.low[slot] = x.high[slot] = 0;
    }
}

/* One token's row of x, blocks [b0, b1) of 32 values: what li_prepare_blocks does. */
void li_prepare_int_scalar(const float *x, int64_t n_in, int64_t b0, int64_t b1, void *xq);
void li_linear_scalar(const li_matrix *w, const void *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                      int64_t row1, void *scratch);
int64_t li_scratch_scalar(const li_type_info *t, int64_t n_in);

#if LI_X86
void li_prepare_int_avx2(const float *x, int64_t n_in, int64_t b0, int64_t b1, void *xq);
void li_linear_avx2(const li_matrix *w, const void *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                    int64_t row1, void *scratch);
int64_t li_scratch_avx2(const li_type_info *t, int64_t n_in, int64_t n_tokens);
#endif

#endif

/* Matrices of GGUF blocks times activations: y = x W^T, straight from the raw blocks.
 *
 * Letters: T tokens, n_in values of a row of x and of W, n_out rows of W. W is (n_out, n_in) blocks as they lie in the
 * file, at any alignment; x is (T, n_in) float32, prepared once for all matrices that read it; y is (T, n_out) float32.
 *
 * What is computed, the same bits for every T, thread count, split of the rows and instruction set:
 *
 *   Block types. Every block type is seen as blocks of 32 values w[i] = D * q[i] + M, with q an int16 (|q| <= 4096), D
 *   and M float32; a 6-bit or 8-bit scale that is shared by 16 values is multiplied into q. x is rounded per block of 32
 *   to int16: x[i] ~ dx * p[i], |p| <= P, dx = max |x| / P, where P is 16383, and 1927 for Q4_0 and Q4_1. Then, for block
 *   b = 0, 1, ...:
 *       isum = sum of q[i] * p[i]          int32, exact in any order: 32 * 4096 * 16383 < 2^31
 *       lane[b % 2] = fma(D * dx, float(isum), lane[b % 2])
 *       lane[b % 2] = fma(M, dx * float(sum of p[i]), lane[b % 2])       for types with M
 *       y = lane0 + lane1
 *   Q2_K and Q3_K: D is that of 256 values, and x is rounded per 256 of them, P = 8191. For halves h = 0, 1 of blocks of
 *   32 (values 0..15 and 16..31) and groups of 256 values, one after the other:
 *       isum = sum of q[i] * p[i] over halves h of the group's 8 blocks
 *       lane[h] = fma(D * dx, float(isum), lane[h])
 *       lane[h] = fma(-dmin * dx, float(sum of min * (sum of p[i]) over halves h), lane[h])       Q2_K
 *       y = lane0 + lane1
 *   Rounding x costs at most 2^-15 of the largest value with the same dx, 2^-12 for Q4_0 and Q4_1, 2^-14 for Q2_K and
 *   Q3_K: 128, 15 and 64 times finer than 8-bit activations.
 *   Where x holds an infinity or a NaN, dx is NaN, and so is y.
 *   Float types (F32, F16, BF16, and NVFP4, whose scales are floats of 16 values): x stays float32;
 *       lane[i % 8] = fma(w[i], x[i], lane[i % 8])
 *       y = ((lane0 + lane4) + (lane2 + lane6)) + ((lane1 + lane5) + (lane3 + lane7))
 *   fma rounds once.
 */
#ifndef LI_LINEAR_H
#define LI_LINEAR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix: n_out rows of row_bytes bytes. `type` is the ggml type id. n_in is a multiple of the type's block. */
typedef struct {
    const uint8_t *blocks;
    int32_t type;
    int32_t reserved;
    int64_t n_in, n_out;
    int64_t row_bytes;
} li_matrix;

/* 1 where the type has kernels, else 0. */
int li_type_supported(int type);
/* Values per block, bytes per block; 0 for an unsupported type. */
int li_type_block_values(int type);
int li_type_block_bytes(int type);

/* Matrices of the same kind and n_in share prepared activations: 0 float32, 1 and 2 int16 (in two
 * orders), 3 int16 rounded per 256 values; -1 for an unsupported type. */
int li_activation_kind(int type);
/* Bytes of the prepared form of n_tokens rows: n_tokens times that of one. Token t starts at t times that of one. */
int64_t li_activation_bytes(int type, int64_t n_in, int64_t n_tokens);
/* Prepares rows [t0, t1) of x (row t at x + t * ldx values) into xq, the start of the room for all rows; xq is aligned
 * to 64 bytes. Threads may split the rows. */
void li_prepare_activations(int type, const float *x, int64_t ldx, int64_t n_in, int64_t t0, int64_t t1, void *xq);
/* The same for blocks [b0, b1) of 32 values of one row (the last one may be shorter, for float types): x and xq are
 * those of the row; b0 and b1 are multiples of 8 for types with blocks of 256. For threads that split a single row. */
void li_prepare_blocks(int type, const float *x, int64_t n_in, int64_t b0, int64_t b1, void *xq);

/* Scratch bytes that each thread needs, aligned to 64; may be 0. Does not grow with n_tokens beyond 16. */
int64_t li_linear_scratch_bytes(int type, int64_t n_in, int64_t n_tokens);
/* Rows [row0, row1) of W for all n_tokens: y[t * ldy + row] for those rows. Splits at multiples of 16 rows are the
 * fastest for n_tokens > 1; any split gives the same bits. */
void li_linear(const li_matrix *w, const void *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0, int64_t row1,
               void *scratch);

/* n values of one row of blocks as float32, n a multiple of the type's block: embedding rows. Each value is rounded as
 * D * q + M above. */
void li_dequantize_row(int type, const uint8_t *blocks, int64_t n, float *out);

#ifdef __cplusplus
}
#endif

#endif

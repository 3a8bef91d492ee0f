/* The inner loops of attention, once per instruction set. All sets compute the same bits (attention.h has the order).
 *
 * A chunk is up to 256 positions from a multiple of 256, seen by a block of query rows that share one key/value head.
 * Row r is a (token, query head) pair; it sees positions lo[r] .. hi[r]-1 of the chunk, lo and hi ascending with r.
 */
#ifndef LI_ATTENTION_KERNELS_H
#define LI_ATTENTION_KERNELS_H

#include <stdint.h>

#include "attention.h"
#include "cpu.h"

#define LI_CHUNK 256
#define LI_CHUNK_PAGES 16
#define LI_SCORE_LD 272 /* floats between score rows: not a power of two, or rows would share cache sets */

#define LI_TILE_FLOATS 8192

/* What softmax needs to know of a row besides its scores. */
typedef struct {
    float scale; /* multiplies the raw dot product; includes the step of a rounded query */
    float slope; /* alibi, 0: none */
    int32_t lo, hi;
    int32_t distance; /* position of the chunk's first key minus the row's own: <= 0 */
} li_row;

/* Running softmax of a row: output values so far are acc / sum, relative to exp(max). max = -inf: nothing yet. */
typedef struct {
    float max, sum;
} li_softmax;

typedef struct {
    int32_t k_type, v_type;
    int32_t d_k, d_v;
    int32_t acc_ld; /* d_v rounded up to 8 */
    int32_t n_rows;
    float softcap;
    const uint8_t *k[LI_CHUNK_PAGES], *v[LI_CHUNK_PAGES]; /* a head's block in each page that some row sees */
    const li_row *rows;
    const float *q;        /* (rows, d_k), for f32 and f16 keys */
    const int16_t *q16;    /* (rows, d_k) steps, for q8_0 and q4_0 keys */
    const int32_t *q_sums; /* (rows, d_k / 32) sums of q16, for q4_0 keys */
    float *s;              /* (rows, LI_SCORE_LD) out: raw dots, then exp(score - max) */
    li_softmax *softmax;   /* (rows) out */
    float *acc;            /* (rows, acc_ld) out: sums of weights times values */
    float *tile;           /* li_tile_floats(the larger head size) */
} li_chunk;

/* Room for decoded keys or values: pages of a head as floats, and four pages' scales. */
static inline int64_t li_tile_floats(int64_t d)
{
    const int64_t page = 16 * ((d + 7) / 8 * 8);
    return (page > LI_TILE_FLOATS ? page : LI_TILE_FLOATS) + 64 * ((d + 31) / 32);
}

typedef struct {
    void (*scores)(const li_chunk *chunk);  /* s = q . k where a row sees the page */
    void (*weights)(const li_chunk *chunk); /* s = exp(score - max), softmax = max and sum */
    void (*values)(const li_chunk *chunk);  /* acc = s . v */
    /* dst and its n values take in src: both become relative to the larger maximum */
    void (*merge)(li_softmax *dst, float *dst_acc, const li_softmax *src, const float *src_acc, int32_t n);
    void (*scale)(const float *x, float factor, int32_t n, float *out); /* out = x * factor + 0 */
    /* x (n) times the block x block Hadamard matrix / sqrt(block), in place */
    void (*rotate)(float *x, int32_t n, int32_t block);
    /* q16 = steps of x, sums of 32 each; returns the step. n % 32 == 0 */
    float (*round_query)(const float *x, int32_t n, int16_t *q16, int32_t *sums);
    /* one token's row of n values into slot j of a page's block */
    void (*store_k)(int type, const float *x, int32_t n, int32_t j, uint8_t *block);
    void (*store_v)(int type, const float *x, int32_t n, int32_t j, uint8_t *block);
} li_attention_kernels;

extern const li_attention_kernels li_attention_scalar;
#if LI_X86
extern const li_attention_kernels li_attention_avx2, li_attention_avx512;
#elif LI_ARM64
extern const li_attention_kernels li_attention_neon;
#endif

/* The table of the level in use. */
const li_attention_kernels *li_attention_best(void);

#endif

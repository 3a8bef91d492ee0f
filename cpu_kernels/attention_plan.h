/* How a call of attention is divided into items, and where in the scratch each of them works.
 *
 * Query rows that share a key/value head are numbered r = token * ratio + head; a block is up to block_rows of them.
 * An item is a head's block over all its spans, or, where that would be too few items for the threads, over one span:
 * then it leaves a partial result in the scratch, and whichever item comes last merges them in ascending order.
 */
#ifndef LI_ATTENTION_PLAN_H
#define LI_ATTENTION_PLAN_H

#include <stdatomic.h>

#include "attention_kernels.h"
#include "kv_page.h"

#define MAX_SPLIT_ROWS 512 /* T * H up to which spans may be divided among items; bounds the scratch */
#define NEAR_POSITIONS 4096
#define FAR_SPAN 1024

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

/* ---- spans ---- */

static inline int64_t span_of(const li_kv_layer *kv, int64_t position)
{
    if (kv->window || position < NEAR_POSITIONS)
        return position / LI_CHUNK;
    return NEAR_POSITIONS / LI_CHUNK + (position - NEAR_POSITIONS) / FAR_SPAN;
}

static inline int64_t span_start(const li_kv_layer *kv, int64_t span)
{
    const int64_t n_near = NEAR_POSITIONS / LI_CHUNK;
    return kv->window || span <= n_near ? span * LI_CHUNK : NEAR_POSITIONS + (span - n_near) * FAR_SPAN;
}

static inline int64_t first_visible(const li_attention_call *c, int64_t position)
{
    int64_t lo = c->kv->window ? max64(0, position - c->kv->window + 1) : 0;
    return c->attention->chunk ? max64(lo, position - position % c->attention->chunk) : lo;
}

/* ---- how a call is divided ---- */

typedef struct {
    int64_t ratio, n_rows;        /* query heads per kv head; T * ratio */
    int64_t block_rows, n_blocks; /* per kv head */
    int64_t first_span, n_spans;  /* that the call touches */
    int split;                    /* items are (block, head, span) */
    int append;                   /* items store the new tokens of their span */
} li_division;

static inline int64_t full_block_rows(const li_kv_layer *kv) { return kv->d_k <= 128 && kv->d_v <= 128 ? 96 : 48; }

static inline int may_split(int64_t n_tokens, int64_t n_heads, int32_t n_threads)
{
    return n_threads > 1 && n_tokens * n_heads <= MAX_SPLIT_ROWS;
}

static inline li_division divide(const li_attention_call *c)
{
    const int64_t heads = c->kv->n_kv_heads, wanted = 4 * (int64_t)c->n_threads;
    li_division d;
    d.ratio = c->attention->n_heads / heads;
    d.n_rows = c->n_tokens * d.ratio;
    d.block_rows = full_block_rows(c->kv);
    d.first_span = span_of(c->kv, first_visible(c, c->start));
    d.n_spans = span_of(c->kv, c->start + c->n_tokens - 1) - d.first_span + 1;
    d.split = 0;
    if (may_split(c->n_tokens, c->attention->n_heads, c->n_threads))
        d.split = d.n_spans > 1 && divide_up(d.n_rows, d.block_rows) * heads < wanted;
    else
        while (c->n_threads > 1 && d.block_rows > 24 && divide_up(d.n_rows, d.block_rows) * heads < wanted)
            d.block_rows /= 2;
    d.n_blocks = divide_up(d.n_rows, d.block_rows);
    d.append = d.n_blocks == 1;
    return d;
}

/* ---- scratch: counters, partial results, then a part for each thread ---- */

static inline int64_t acc_ld(const li_kv_layer *kv) { return round_up(kv->d_v, 8); }

/* Floats of a row's partial result: its softmax (padded) and its values. */
static inline int64_t partial_floats(const li_kv_layer *kv) { return 8 + acc_ld(kv); }

static inline int64_t counter_bytes(const li_attention *a, const li_kv_layer *kv)
{
    /* at most one block more than rows / block_rows for each kv head */
    return round_up((MAX_SPLIT_ROWS / full_block_rows(kv) + 1 + kv->n_kv_heads + a->n_heads) * 4, 64);
}

typedef struct {
    float *q;
    int16_t *q16;
    int32_t *q_sums;
    float *s, *tile, *chunk_acc, *span_acc, *total_acc;
    li_softmax *chunk, *span, *total;
    li_row *rows;
    int64_t bytes;
} li_thread_part;

static inline void *take(uint8_t *base, int64_t *at, int64_t bytes)
{
    void *p = base ? base + *at : NULL;
    *at += round_up(bytes, 64);
    return p;
}

/* One thread's part of the scratch at `base` (NULL: only its size). */
static inline li_thread_part thread_part(const li_kv_layer *kv, uint8_t *base)
{
    const int64_t rows = full_block_rows(kv), ld = acc_ld(kv);
    li_thread_part t;
    int64_t at = 0;
    t.q = take(base, &at, (rows + 1) * kv->d_k * 4);
    t.q16 = take(base, &at, rows * kv->d_k * 2);
    t.q_sums = take(base, &at, rows * divide_up(kv->d_k, LI_KV_BLOCK) * 4);
    t.s = take(base, &at, rows * LI_SCORE_LD * 4);
    t.tile = take(base, &at, li_tile_floats(max64(kv->d_k, kv->d_v)) * 4);
    t.chunk_acc = take(base, &at, rows * ld * 4);
    t.span_acc = take(base, &at, rows * ld * 4);
    t.total_acc = take(base, &at, rows * ld * 4);
    t.chunk = take(base, &at, rows * (int64_t)sizeof(li_softmax));
    t.span = take(base, &at, rows * (int64_t)sizeof(li_softmax));
    t.total = take(base, &at, rows * (int64_t)sizeof(li_softmax));
    t.rows = take(base, &at, rows * (int64_t)sizeof(li_row));
    t.bytes = at;
    return t;
}

/* Bytes of partial results of T tokens that end at `end`. */
static inline int64_t partial_bytes(const li_attention *a, const li_kv_layer *kv, int64_t n_tokens, int64_t end)
{
    int64_t n_spans = span_of(kv, max64(end, 1) - 1) + 1;
    if (kv->window)
        n_spans = min64(n_spans, (kv->window + n_tokens - 1) / LI_CHUNK + 2);
    return round_up(n_tokens * a->n_heads * n_spans * partial_floats(kv) * 4, 64);
}

static inline atomic_int *counter(const li_attention_call *c, const li_division *d, int64_t g, int64_t block)
{
    return (atomic_int *)c->scratch + g * d->n_blocks + block;
}

/* Partial result of a block: `span` counts from the first span; n rows of softmax (8 floats each), then of values. */
static inline float *partial(const li_attention_call *c, const li_division *d, int64_t g, int64_t row0, int64_t n, int64_t span)
{
    float *base = (float *)(void *)((uint8_t *)c->scratch + counter_bytes(c->attention, c->kv));
    return base + ((g * d->n_rows + row0) * d->n_spans + n * span) * partial_floats(c->kv);
}

/* Where a thread's part starts: behind the most that calls of at most T tokens can leave as partial results. The
 * partial results of this call end below it, and no state is kept there from call to call. */
static inline li_thread_part part_of(const li_attention_call *c, const li_division *d, int32_t thread)
{
    int64_t at = counter_bytes(c->attention, c->kv);
    if (d->split)
        at += round_up(c->kv->n_kv_heads * d->n_rows * d->n_spans * partial_floats(c->kv) * 4, 64);
    return thread_part(c->kv, (uint8_t *)c->scratch + at + thread * thread_part(c->kv, NULL).bytes);
}

#endif

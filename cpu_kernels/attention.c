/* What is done in which order: blocks of query rows, spans of positions, merging. Who does what is in attention_plan.h,
 * the arithmetic in attention_kernels.inc.
 */
#include "attention.h"

#include <math.h>
#include <string.h>

#include "attention_plan.h"
#include "vec_math.h"

static const li_attention_kernels *kernels(void)
{
    switch (li_cpu_level()) {
#if LI_X86
    case LI_CPU_AVX2:
        return &li_attention_avx2;
    case LI_CPU_AVX512:
        return &li_attention_avx512;
#elif LI_ARM64
    case LI_CPU_NEON:
    case LI_CPU_NEON_DOT:
        return &li_attention_neon;
#endif
    default:
        return &li_attention_scalar;
    }
}

const li_attention_kernels *li_attention_best(void) { return kernels(); }

/* ---- one block ---- */

typedef struct {
    const li_attention_call *call;
    const li_division *division;
    const li_attention_kernels *k;
    li_thread_part part;
    int64_t g, row0, n; /* kv head; rows row0 .. row0+n-1 */
} li_block;

static int64_t token_of(const li_block *b, int64_t r) { return (b->row0 + r) / b->division->ratio; }
static int64_t head_of(const li_block *b, int64_t r)
{
    return b->g * b->division->ratio + (b->row0 + r) % b->division->ratio;
}

/* Queries of the block, rotated and rounded as the keys want them; scale and slope of each row. */
static void load_queries(const li_block *b)
{
    const li_attention_call *c = b->call;
    const int32_t d = c->kv->d_k;
    const int rounded = li_kv_is_block_type(c->kv->k_type);
    for (int64_t r = 0; r < b->n; r++) {
        const int64_t head = head_of(b, r);
        float *q = b->part.q + (rounded ? 0 : r * d);
        li_row *row = b->part.rows + r;
        memcpy(q, c->q + token_of(b, r) * c->q_ld + head * d, (size_t)d * sizeof(float));
        if (c->kv->k_rotate)
            b->k->rotate(q, d, c->kv->k_rotate);
        row->scale = c->attention->scale;
        row->slope = c->attention->slopes ? c->attention->slopes[head] : 0.0f;
        if (rounded)
            row->scale *= b->k->round_query(q, d, b->part.q16 + r * d, b->part.q_sums + r * (d / LI_KV_BLOCK));
    }
}

/* The chunk's part of all rows into part.chunk and part.chunk_acc. */
static void run_chunk(const li_block *b, int64_t base)
{
    const li_attention_call *c = b->call;
    const li_kv_layer *kv = c->kv;
    li_chunk chunk = {.k_type = kv->k_type, .v_type = kv->v_type, .d_k = kv->d_k, .d_v = kv->d_v,
                      .acc_ld = (int32_t)acc_ld(kv), .n_rows = (int32_t)b->n, .softcap = c->attention->softcap,
                      .rows = b->part.rows, .q = b->part.q, .q16 = b->part.q16, .q_sums = b->part.q_sums,
                      .s = b->part.s, .softmax = b->part.chunk, .acc = b->part.chunk_acc, .tile = b->part.tile};
    for (int64_t r = 0; r < b->n; r++) {
        const int64_t position = c->start + token_of(b, r);
        b->part.rows[r].lo = (int32_t)min64(max64(first_visible(c, position) - base, 0), LI_CHUNK);
        b->part.rows[r].hi = (int32_t)min64(max64(position + 1 - base, 0), LI_CHUNK);
        b->part.rows[r].distance = (int32_t)(base - position);
    }
    const int64_t head = li_kv_head_bytes(kv->k_type, kv->d_k);
    for (int64_t p = b->part.rows[0].lo / LI_PAGE_TOKENS; p * LI_PAGE_TOKENS < b->part.rows[b->n - 1].hi; p++) {
        chunk.k[p] = li_kv_k_block(kv, base / LI_PAGE_TOKENS + p, (int)b->g);
        chunk.v[p] = chunk.k[p] + head;
    }
    b->k->scores(&chunk);
    b->k->weights(&chunk);
    b->k->values(&chunk);
}

static void clear(li_softmax *softmax, int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        softmax[r] = (li_softmax){-INFINITY, 0.0f};
}

/* One span of all rows into softmax (n) and acc (n, acc_ld). */
static void run_span(const li_block *b, int64_t span, li_softmax *softmax, float *acc)
{
    const li_attention_call *c = b->call;
    const int64_t ld = acc_ld(c->kv);
    const int64_t seen = first_visible(c, c->start + token_of(b, 0));
    const int64_t end = min64(span_start(c->kv, span + 1), c->start + token_of(b, b->n - 1) + 1);
    clear(softmax, b->n);
    for (int64_t base = max64(span_start(c->kv, span), seen / LI_CHUNK * LI_CHUNK); base < end; base += LI_CHUNK) {
        run_chunk(b, base);
        for (int64_t r = 0; r < b->n; r++)
            b->k->merge(softmax + r, acc + r * ld, b->part.chunk + r, b->part.chunk_acc + r * ld, (int32_t)ld);
    }
}

/* Sink, division, rotation back: the row's result to where the caller wants it. */
static void finish_row(const li_block *b, int64_t r, li_softmax softmax, const float *acc)
{
    const li_attention_call *c = b->call;
    const int64_t head = head_of(b, r);
    float *out = c->out + token_of(b, r) * c->out_ld + head * c->kv->d_v;
    float factor;
    if (c->attention->sinks) {
        const float sink = c->attention->sinks[head], max = sink > softmax.max ? sink : softmax.max;
        const float keep = li_exp(softmax.max - max);
        factor = keep / __builtin_fmaf(softmax.sum, keep, li_exp(sink - max));
    } else {
        factor = 1.0f / softmax.sum;
    }
    b->k->scale(acc, factor, c->kv->d_v, out);
    if (c->kv->v_rotate)
        b->k->rotate(out, c->kv->d_v, c->kv->v_rotate);
}

static void run_all_spans(const li_block *b)
{
    const li_attention_call *c = b->call;
    const li_division *d = b->division;
    const int64_t ld = acc_ld(c->kv);
    clear(b->part.total, b->n);
    for (int64_t span = d->first_span; span < d->first_span + d->n_spans; span++) {
        run_span(b, span, b->part.span, b->part.span_acc);
        for (int64_t r = 0; r < b->n; r++)
            b->k->merge(b->part.total + r, b->part.total_acc + r * ld, b->part.span + r, b->part.span_acc + r * ld,
                        (int32_t)ld);
    }
    for (int64_t r = 0; r < b->n; r++)
        finish_row(b, r, b->part.total[r], b->part.total_acc + r * ld);
}

/* Softmax of row r in a partial result and its values. */
static li_softmax *partial_softmax(float *at) { return (li_softmax *)(void *)at; }
static float *partial_values(float *at, int64_t n) { return at + 8 * n; }

static void merge_partials(const li_block *b)
{
    const li_division *d = b->division;
    const int64_t ld = acc_ld(b->call->kv);
    clear(b->part.total, b->n);
    for (int64_t span = 0; span < d->n_spans; span++) {
        float *at = partial(b->call, d, b->g, b->row0, b->n, span);
        for (int64_t r = 0; r < b->n; r++)
            b->k->merge(b->part.total + r, b->part.total_acc + r * ld, partial_softmax(at) + r,
                        partial_values(at, b->n) + r * ld, (int32_t)ld);
    }
    for (int64_t r = 0; r < b->n; r++)
        finish_row(b, r, b->part.total[r], b->part.total_acc + r * ld);
}

/* ---- storing ---- */

/* Tokens [first, last) of the call into head g's pages. */
static void append(const li_attention_call *c, const li_attention_kernels *k, int64_t g, int64_t first, int64_t last)
{
    const li_kv_layer *kv = c->kv;
    float row[LI_MAX_HEAD];
    for (int64_t t = first; t < last; t++) {
        const int64_t position = c->start + t;
        const int32_t slot = (int32_t)(position % LI_PAGE_TOKENS);
        const float *key = c->k + t * c->k_ld + g * kv->d_k, *value = c->v + t * c->v_ld + g * kv->d_v;
        uint8_t *block = li_kv_k_block(kv, position / LI_PAGE_TOKENS, (int)g);
        if (kv->k_rotate || kv->k_offset) {
            memcpy(row, key, (size_t)kv->d_k * sizeof(float));
            for (int64_t i = 0; kv->k_offset && i < kv->d_k; i++)
                row[i] -= kv->k_offset[g * kv->d_k + i];
            if (kv->k_rotate)
                k->rotate(row, kv->d_k, kv->k_rotate);
            key = row;
        }
        k->store_k(kv->k_type, key, kv->d_k, slot, block);
        if (kv->v_rotate) {
            memcpy(row, value, (size_t)kv->d_v * sizeof(float));
            k->rotate(row, kv->d_v, kv->v_rotate);
            value = row;
        }
        k->store_v(kv->v_type, value, kv->d_v, slot, block + li_kv_head_bytes(kv->k_type, kv->d_k));
    }
}

/* An item is a head's part of one page: nobody else writes there. */
int64_t li_attention_append_items(const li_attention_call *c)
{
    if (c->n_tokens < 1 || divide(c).append)
        return 0;
    return ((c->start + c->n_tokens - 1) / LI_PAGE_TOKENS - c->start / LI_PAGE_TOKENS + 1) * c->kv->n_kv_heads;
}

void li_attention_append_item(const li_attention_call *c, int64_t item)
{
    const int64_t page = c->start / LI_PAGE_TOKENS + item / c->kv->n_kv_heads;
    const int64_t first = max64(page * LI_PAGE_TOKENS, c->start) - c->start;
    append(c, kernels(), item % c->kv->n_kv_heads, first,
           min64((page + 1) * LI_PAGE_TOKENS - c->start, c->n_tokens));
}

/* ---- items ---- */

int64_t li_attention_scratch_bytes(const li_attention *a, const li_kv_layer *kv, int32_t max_tokens,
                                   int64_t max_position, int32_t n_threads)
{
    int64_t bytes = counter_bytes(a, kv) + n_threads * thread_part(kv, NULL).bytes;
    const int64_t split_tokens = min64(max_tokens, MAX_SPLIT_ROWS / a->n_heads);
    if (n_threads > 1 && split_tokens > 0)
        bytes += partial_bytes(a, kv, split_tokens, max_position);
    return bytes;
}

int64_t li_attention_items(const li_attention_call *c)
{
    if (c->n_tokens < 1)
        return 0;
    const li_division d = divide(c);
    return c->kv->n_kv_heads * d.n_blocks * (d.split ? d.n_spans : 1);
}

void li_attention_item(const li_attention_call *c, int64_t item, int32_t thread)
{
    const li_division d = divide(c);
    const int64_t heads = c->kv->n_kv_heads, spans = d.split ? d.n_spans : 1;
    const int64_t span = item % spans, block = d.n_blocks - 1 - item / spans / heads; /* the longest first */
    li_block b = {.call = c, .division = &d, .k = kernels(), .part = part_of(c, &d, thread),
                  .g = item / spans % heads, .row0 = block * d.block_rows};
    b.n = min64(d.block_rows, d.n_rows - b.row0);
    if (d.append) {
        const int64_t from = d.split ? span_start(c->kv, d.first_span + span) - c->start : 0;
        const int64_t to = d.split ? span_start(c->kv, d.first_span + span + 1) - c->start : c->n_tokens;
        append(c, b.k, b.g, max64(from, 0), min64(to, c->n_tokens));
    }
    load_queries(&b);
    if (!d.split) {
        run_all_spans(&b);
        return;
    }
    float *at = partial(c, &d, b.g, b.row0, b.n, span);
    run_span(&b, d.first_span + span, partial_softmax(at), partial_values(at, b.n));
    atomic_int *done = counter(c, &d, b.g, block);
    if (atomic_fetch_add_explicit(done, 1, memory_order_acq_rel) == (int)d.n_spans - 1) {
        merge_partials(&b);
        atomic_store_explicit(done, 0, memory_order_relaxed);
    }
}

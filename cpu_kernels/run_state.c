/* Recurrent mixers: taps over time, selective scans, the delta rule. A channel or a head is one item for all tokens, so
 * its memory has one owner and time goes in order. */
#include <math.h>
#include <string.h>

#include "run.h"

/* ---- taps over time ---- */

enum { CHANNELS = 64 };

int64_t li_conv_items(const li_run *r, const li_conv_args *a) {
    (void)r;
    return (a->x.n + CHANNELS - 1) / CHANNELS;
}

/* Leaves the last K-1 rows of (past, x) in past; `n` channels of rows of C. */
static void remember(float *past, const float *x, int64_t x_ld, int64_t n_tokens, int64_t keep, int64_t channels,
                     int64_t n) {
    for (int64_t k = 0; k < keep; k++) {
        const int64_t from = n_tokens - keep + k; /* row of x; negative: row keep + from of past, which lies ahead of k */
        const float *row = from >= 0 ? x + from * x_ld : past + (keep + from) * channels;
        memmove(past + k * channels, row, (size_t)n * sizeof(float));
    }
}

void li_conv_item(const li_run *r, const li_conv_args *a, int64_t item) {
    const int64_t channels = a->x.n, c0 = item * CHANNELS, keep = a->n_taps - 1, n_tokens = li_rows(r, &a->x);
    const int64_t n = c0 + CHANNELS < channels ? CHANNELS : channels - c0;
    float *past = r->args->state[a->layer] + c0, *out = li_at(r, &a->out) + c0;
    const float *x = li_at(r, &a->x) + c0;
    for (int64_t t = 0; t < n_tokens; t++, out += a->out.ld) {
        for (int64_t k = 0; k <= keep; k++) {
            const int64_t from = t - keep + k;
            const float *row = from >= 0 ? x + from * a->x.ld : past + (keep + from) * channels;
            const float *taps = a->taps + k * channels + c0;
            if (k == 0)
                r->ops->mul(row, taps, n, out);
            else
                r->ops->add_product(row, taps, n, out);
        }
        if (a->bias) r->ops->add(out, a->bias + c0, n, out);
    }
    remember(past, x, a->x.ld, n_tokens, keep, channels, n);
}

/* ---- scans ---- */

static int32_t group_of(const li_scan_args *a, int64_t h) {
    return (int32_t)(a->tiled ? h % a->n_groups : h / (a->n_heads / a->n_groups));
}

static float softplus(float x) { return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x))); }

static float *memory_of(const li_run *r, const li_scan_args *a, int64_t h) {
    return r->args->state[a->layer] + a->state_offset + h * a->d_head * a->d_state;
}

int64_t li_scan_items(const li_run *r, const li_scan_args *a) { return li_blocks(r, a->n_heads); }

/* decay (N) = exp(step * a) of head h. `work` has room for N. */
static void decay_of(const li_run *r, const li_scan_args *a, int64_t h, float step, float *decay) {
    const float *rate = a->a + h * a->a_values;
    for (int32_t i = 0; i < a->d_state; i++) decay[i] = step * rate[a->a_values == 1 ? 0 : i];
    r->ops->exp(decay, a->d_state, decay);
}

static void scan_head(const li_run *r, const li_scan_args *a, int64_t h, float *decay) {
    const int64_t n_tokens = li_rows(r, &a->x), p_size = a->d_head, n_size = a->d_state;
    const int32_t g = group_of(a, h);
    for (int64_t t = 0; t < n_tokens; t++) {
        const float step = softplus(li_at(r, &a->dt)[t * a->dt.ld + h] + a->dt_bias[h]);
        const float *x = li_at(r, &a->x) + t * a->x.ld + h * p_size;
        const float *b = li_at(r, &a->b) + t * a->b.ld + g * n_size, *c = li_at(r, &a->c) + t * a->c.ld + g * n_size;
        float *y = li_at(r, &a->out) + t * a->out.ld + h * p_size, *s = memory_of(r, a, h);
        decay_of(r, a, h, step, decay);
        for (int64_t p = 0; p < p_size; p++, s += n_size) {
            y[p] = r->ops->scan(s, decay, step * x[p], b, c, n_size);
            if (a->d) y[p] += x[p] * a->d[h];
        }
    }
}

void li_scan_item(const li_run *r, const li_scan_args *a, int64_t item, int32_t thread) {
    int64_t first, end;
    li_block(r, a->n_heads, item, &first, &end);
    for (int64_t h = first; h < end; h++) scan_head(r, a, h, li_own_row(r, thread));
}

/* ---- the delta rule: x is v, dt is alpha, b is k, c is q ---- */

static void unit(const li_run *r, const float *x, int64_t n, float eps, float factor, float *out) {
    r->ops->scale(x, factor / sqrtf(r->ops->dot(x, x, n) + eps), n, out);
}

static void delta_head(const li_run *r, const li_scan_args *a, int64_t h, float *work) {
    const int64_t n_tokens = li_rows(r, &a->x), p_size = a->d_head, n_size = a->d_state;
    const int64_t group = group_of(a, h) * n_size;
    float *k = work, *q = work + n_size;
    for (int64_t t = 0; t < n_tokens; t++) {
        unit(r, li_at(r, &a->b) + t * a->b.ld + group, n_size, a->eps, 1.0f, k);
        unit(r, li_at(r, &a->c) + t * a->c.ld + group, n_size, a->eps, 1.0f / sqrtf((float)n_size), q);
        const float decay = expf(softplus(li_at(r, &a->dt)[t * a->dt.ld + h] + a->dt_bias[h]) * a->a[h]);
        const float rate = 1.0f / (1.0f + expf(-li_at(r, &a->beta)[t * a->beta.ld + h]));
        const float *v = li_at(r, &a->x) + t * a->x.ld + h * p_size;
        float *y = li_at(r, &a->out) + t * a->out.ld + h * p_size, *s = memory_of(r, a, h);
        for (int64_t p = 0; p < p_size; p++, s += n_size) {
            r->ops->scale(s, decay, n_size, s);
            r->ops->add_scaled(k, rate * (v[p] - r->ops->dot(s, k, n_size)), n_size, s);
            y[p] = r->ops->dot(s, q, n_size);
        }
    }
}

void li_delta_item(const li_run *r, const li_scan_args *a, int64_t item, int32_t thread) {
    int64_t first, end;
    li_block(r, a->n_heads, item, &first, &end);
    for (int64_t h = first; h < end; h++) delta_head(r, a, h, li_own_row(r, thread));
}

void li_scan_room(li_tape *tape, const li_scan_args *a) {
    li_at_least(&tape->row_bytes, li_round_up(2 * (int64_t)a->d_state * 4, 64));
}

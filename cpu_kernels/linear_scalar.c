/* The definition of linear.h in plain C: reference for every other file, and what runs where there is none. */
#include <math.h>

#include "linear_parts.h"

/* To the nearest whole number, halves to even, for |v| < 2^22. */
static int round_even(float v)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: whole numbers are one unit in the last place apart here */
    volatile float shifted = v + shift;
    return (int)(shifted - shift);
}

/* The largest of n |x| as bits, so that infinities and NaNs come out on top. */
static uint32_t largest_bits(const float *x, int n)
{
    uint32_t largest = 0;
    for (int i = 0; i < n; i++) {
        uint32_t bits = li_bits_of_float(x[i]) & 0x7FFFFFFFu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* The nibble kind: of which value 16 times is taken off value i, which is odd. */
static int value_before(int i) { return i < 16 ? i + 15 : i - 16; }

/* Block b of a group as bytes. */
static void split(const int q[32], const int sums[2], li_split_group *to, int64_t b)
{
    for (int i = 0; i < 32; i++) {
        int hi = (q[i] + 64) >> 7;
        to->hi[32 * b + i] = (int8_t)hi;
        to->lo[32 * b + i] = (int8_t)(q[i] - 128 * hi);
    }
    for (int half = 0; half < 2; half++) {
        to->sum_hi[half][b] = (int16_t)(sums[half] >> 7);
        to->sum_lo[half][b] = (int16_t)(sums[half] & 127);
    }
}

static void prepare_int(int kind, const float *x, int64_t n_in, int64_t b0, int64_t b1, void *xq)
{
    li_int_row to = li_int_row_at(xq, n_in);
    const int shared = li_shared_blocks(kind);
    uint32_t bits = 0;
    for (int64_t b = b0; b < b1; b++) {
        if ((b - b0) % shared == 0)
            bits = largest_bits(x + 32 * b, 32 * shared);
        float largest = li_float_of_bits(bits), most = li_activation_max(kind), inverse = most / largest;
        int64_t slot = li_slot(b);
        int q[32], sums[2] = {0, 0};
        /* below 1e-30 the inverse may be infinite; such a block counts as zeros */
        int usable = largest >= 1e-30f && bits < 0x7F800000u;
        for (int i = 0; i < 32; i++) {
            q[i] = usable ? round_even(x[32 * b + i] * inverse) : 0;
            sums[i / 16] += q[i];
        }
        for (int i = 0; i < 32; i++)
            to.p[li_place(b, i)] = (int16_t)(q[i] - (kind == LI_KIND_NIBBLE && i % 2 ? 16 * q[value_before(i)] : 0));
        to.dx[slot] = usable ? largest / most : bits < 0x7F800000u ? 0.0f : li_float_of_bits(0x7FC00000u);
        to.sum[slot] = to.dx[slot] * (float)(sums[0] + sums[1]);
        to.low[slot] = sums[0];
        to.high[slot] = sums[1];
        if (kind == LI_KIND_GROUP)
            split(q, sums, &to.groups[b / 8], b % 8);
    }
    if (b1 == n_in / 32)
        li_fill_up(to, n_in);
}

static float tree(const float l[8])
{
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

/* The 32 values of block b; differences are undone. */
static void values_of(int kind, const int16_t *p, int64_t b, int32_t x[32])
{
    for (int i = 0; i < 32; i++)
        x[i] = p[li_place(b, i)];
    if (kind != LI_KIND_NIBBLE)
        return;
    for (int i = 1; i < 16; i += 2) {
        x[i] += 16 * x[value_before(i)];
        x[i + 16] += 16 * x[value_before(i + 16)];
    }
}

/* Sum over values first .. end - 1. */
static int32_t dot(const int16_t *q, int kind, const int16_t *p, int64_t b, int first, int end)
{
    int32_t sum = 0, x[32];
    values_of(kind, p, b, x);
    for (int i = first; i < end; i++)
        sum += q[i] * x[i];
    return sum;
}

/* The group kind: 256 values times one token's, into the two lanes. */
static void add_whole_group(const li_group *g, const li_type_info *t, li_int_row x, int64_t b0, float lanes[2])
{
    float dx = x.dx[li_slot(b0)];
    for (int half = 0; half < 2; half++) {
        int32_t sum = 0, mins = 0;
        for (int b = 0; b < 8; b++) {
            sum += dot(g->q + 32 * b, t->kind, x.p, b0 + b, 16 * half, 16 * half + 16);
            if (t->n_mins == 2)
                mins += g->mins[2 * b + half] * (half ? x.high : x.low)[li_slot(b0 + b)];
        }
        lanes[half] = fmaf(g->d[0] * dx, (float)sum, lanes[half]);
        if (t->n_mins == 2)
            lanes[half] = fmaf(g->m[0] * dx, (float)mins, lanes[half]);
    }
}

/* Blocks of one group times one token's, into the two lanes. */
static void add_group(const li_group *g, const li_type_info *t, int n, li_int_row x, int64_t b0, float lanes[2])
{
    for (int b = 0; b < n; b++) {
        int64_t slot = li_slot(b0 + b);
        float dx = x.dx[slot], *lane = &lanes[b % 2];
        *lane = fmaf(g->d[b] * dx, (float)dot(g->q + 32 * b, t->kind, x.p, b0 + b, 0, 32), *lane);
        if (t->n_mins == 1)
            *lane = fmaf(g->m[b], x.sum[slot], *lane);
    }
}

static int blocks_in_group(int64_t n_in, int64_t b0)
{
    int64_t rest = n_in / 32 - b0;
    return rest < 8 ? (int)rest : 8;
}

static void int_row(const li_matrix *w, const li_type_info *t, const uint8_t *row, const void *xq, int64_t n_tokens,
                    float *y, int64_t ldy, li_group *groups)
{
    int64_t n_blocks = w->n_in / 32;
    for (int64_t b = 0; b < n_blocks; b += 8)
        t->decode_group(row + b / 8 * li_group_bytes(t), blocks_in_group(w->n_in, b), &groups[b / 8]);
    for (int64_t token = 0; token < n_tokens; token++) {
        li_int_row x = li_int_row_at((const char *)xq + token * li_token_bytes(t->kind, w->n_in), w->n_in);
        float lanes[2] = {0};
        for (int64_t b = 0; b < n_blocks; b += 8)
            if (t->kind == LI_KIND_GROUP)
                add_whole_group(&groups[b / 8], t, x, b, lanes);
            else
                add_group(&groups[b / 8], t, blocks_in_group(w->n_in, b), x, b, lanes);
        y[token * ldy] = lanes[0] + lanes[1];
    }
}

static void float_row(const li_matrix *w, const li_type_info *t, const uint8_t *row, const void *xq, int64_t n_tokens,
                      float *y, int64_t ldy, float *values)
{
    t->decode_floats(row, w->n_in, values);
    for (int64_t token = 0; token < n_tokens; token++) {
        const float *x = (const float *)xq + token * li_round_up(w->n_in, 16);
        float lane[8] = {0};
        for (int64_t i = 0; i < w->n_in; i++)
            lane[i % 8] = fmaf(values[i], x[i], lane[i % 8]);
        y[token * ldy] = tree(lane);
    }
}

static int64_t scratch_bytes(const li_type_info *t, int64_t n_in, int64_t n_tokens)
{
    (void)n_tokens;
    int64_t bytes = t->kind != LI_KIND_FLOAT ? li_padded_blocks(n_in) / 8 * (int64_t)sizeof(li_group) : 4 * n_in;
    return li_round_up(bytes, 64);
}

static void linear(const li_matrix *w, const void *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                   int64_t row1, void *scratch)
{
    const li_type_info *t = li_type(w->type);
    for (int64_t r = row0; r < row1; r++) {
        const uint8_t *row = w->blocks + r * w->row_bytes;
        if (t->kind != LI_KIND_FLOAT)
            int_row(w, t, row, xq, n_tokens, y + r, ldy, scratch);
        else
            float_row(w, t, row, xq, n_tokens, y + r, ldy, scratch);
    }
}

const li_linear_kernels li_linear_scalar = {prepare_int, linear, scratch_bytes};

/* The doors of linear.h: checks of the type, room, and the way to the instruction set in use. */
#include "linear.h"

#include "linear_parts.h"

/* Of the level in use. */
static const li_linear_kernels *kernels(void)
{
    switch (li_cpu_level()) {
#if LI_X86
    case LI_CPU_AVX2:
        return &li_linear_avx2;
    case LI_CPU_AVX512:
        return &li_linear_avx512;
#elif LI_ARM64
    case LI_CPU_NEON:
    case LI_CPU_NEON_DOT:
        return &li_linear_neon;
#endif
    default:
        return &li_linear_scalar;
    }
}

int li_type_supported(int type) { return li_type(type)->block_values != 0; }

int li_type_block_values(int type) { return li_type(type)->block_values; }

int li_type_block_bytes(int type) { return li_type(type)->block_bytes; }

int li_activation_kind(int type) { return li_type_supported(type) ? li_type(type)->kind : -1; }

int64_t li_activation_bytes(int type, int64_t n_in, int64_t n_tokens)
{
    return li_token_bytes(li_type(type)->kind, n_in) * n_tokens;
}

static void prepare_floats(const float *x, int64_t n_in, int64_t b0, int64_t b1, void *xq)
{
    float *out = xq;
    int64_t end = b1 * 32 < n_in ? b1 * 32 : n_in;
    if (end > b0 * 32)
        memcpy(out + b0 * 32, x + b0 * 32, (size_t)(end - b0 * 32) * sizeof *out);
    if (end == n_in)
        memset(out + n_in, 0, (size_t)(li_round_up(n_in, 16) - n_in) * sizeof *out);
}

void li_prepare_blocks(int type, const float *x, int64_t n_in, int64_t b0, int64_t b1, void *xq)
{
    if (li_type(type)->kind == LI_KIND_FLOAT)
        prepare_floats(x, n_in, b0, b1, xq);
    else
        kernels()->prepare_int(li_type(type)->kind, x, n_in, b0, b1, xq);
}

void li_prepare_activations(int type, const float *x, int64_t ldx, int64_t n_in, int64_t t0, int64_t t1, void *xq)
{
    int64_t stride = li_activation_bytes(type, n_in, 1);
    for (int64_t t = t0; t < t1; t++)
        li_prepare_blocks(type, x + t * ldx, n_in, 0, (n_in + 31) / 32, (char *)xq + t * stride);
}

int64_t li_linear_scratch_bytes(int type, int64_t n_in, int64_t n_tokens)
{
    return kernels()->scratch_bytes(li_type(type), n_in, n_tokens);
}

void li_linear(const li_matrix *w, const void *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0, int64_t row1,
               void *scratch)
{
    kernels()->linear(w, xq, n_tokens, y, ldy, row0, row1, scratch);
}

static float value(const li_group *g, int n_mins, int i)
{
    float product = (float)g->q[i] * g->d[i / 32];
    if (n_mins == 0)
        return product;
    return product + (n_mins == 2 ? g->m[i / 32] * (float)g->mins[i / 16] : g->m[i / 32]);
}

void li_dequantize_row(int type, const uint8_t *blocks, int64_t n, float *out)
{
    const li_type_info *t = li_type(type);
    li_group g;
    if (t->kind == LI_KIND_FLOAT) {
        t->decode_floats(blocks, n, out);
        return;
    }
    for (; n > 0; n -= 256, blocks += li_group_bytes(t), out += 256) {
        int count = n < 256 ? (int)n : 256;
        t->decode_group(blocks, count / 32, &g);
        for (int i = 0; i < count; i++)
            out[i] = value(&g, t->n_mins, i);
    }
}

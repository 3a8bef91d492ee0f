/* Attention's inner loops in plain C: the reference for every instruction set, and the fallback. */
#include "attention_kernels.h"

#include "kv_half.h"
#include "vec_math.h"

#define INLINE static inline
#define UNROLL
#define NO_UNROLL
#define FIXED_ROWS 0

typedef struct {
    float f[8];
} vf;
typedef struct {
    int32_t i[8];
} vi;

#define LANES(expression)                                                                                              \
    do {                                                                                                               \
        for (int l = 0; l < 8; l++)                                                                                    \
            expression;                                                                                                \
    } while (0)

INLINE vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void vf_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
INLINE vf vf_set1(float x)
{
    vf v;
    LANES(v.f[l] = x);
    return v;
}
#define VF_BINARY(name, expression)                                                                                    \
    INLINE vf name(vf a, vf b)                                                                                         \
    {                                                                                                                  \
        LANES(a.f[l] = (expression));                                                                                  \
        return a;                                                                                                      \
    }
VF_BINARY(vf_add, a.f[l] + b.f[l])
VF_BINARY(vf_sub, a.f[l] - b.f[l])
VF_BINARY(vf_mul, a.f[l] *b.f[l])
VF_BINARY(vf_max, a.f[l] > b.f[l] ? a.f[l] : b.f[l])
VF_BINARY(vf_min, a.f[l] < b.f[l] ? a.f[l] : b.f[l])
INLINE vf vf_fma(vf a, vf b, vf c)
{
    LANES(c.f[l] = __builtin_fmaf(a.f[l], b.f[l], c.f[l]));
    return c;
}
INLINE vf vf_exp(vf x)
{
    LANES(x.f[l] = li_exp(x.f[l]));
    return x;
}
INLINE vf vf_tanh(vf x)
{
    LANES(x.f[l] = li_tanh(x.f[l]));
    return x;
}
INLINE vf vf_count(float first)
{
    vf v;
    LANES(v.f[l] = first + (float)l);
    return v;
}
INLINE vf vf_keep(vf x, int lo, int hi, float other)
{
    LANES(x.f[l] = l >= lo && l < hi ? x.f[l] : other);
    return x;
}
INLINE vf vf_half(const uint8_t *p)
{
    vf v;
    uint16_t h[8];
    memcpy(h, p, sizeof h);
    LANES(v.f[l] = li_half_to_float(h[l]));
    return v;
}
INLINE void vf_to_half(vf v, uint16_t *out) { LANES(out[l] = li_float_to_half(v.f[l])); }
INLINE vf vf_int8(const uint8_t *p)
{
    vf v;
    LANES(v.f[l] = (float)(int8_t)p[l]);
    return v;
}
INLINE vf vf_nibbles(const uint8_t *p, int high)
{
    vf v;
    LANES(v.f[l] = (float)(((high ? p[l] >> 4 : p[l] & 15) ^ 8) - 8));
    return v;
}
INLINE vf vf_from_vi(vi a)
{
    vf v;
    LANES(v.f[l] = (float)a.i[l]);
    return v;
}
INLINE vi vi_load(const uint8_t *p)
{
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void vi_store(uint8_t *p, vi v) { memcpy(p, &v, sizeof v); }
INLINE vi vi_set1(int32_t x)
{
    vi v;
    LANES(v.i[l] = x);
    return v;
}
INLINE int32_t low16(int32_t x) { return (int16_t)(uint16_t)((uint32_t)x & 0xffffu); }
INLINE int32_t high16(int32_t x) { return (int16_t)(uint16_t)((uint32_t)x >> 16); }
INLINE int32_t pair16(int32_t low, int32_t high) { return (int32_t)(((uint32_t)low & 0xffffu) | (uint32_t)high << 16); }
INLINE vi vi_add_products(vi sum, vi a, vi b)
{
    LANES(sum.i[l] += low16(a.i[l]) * low16(b.i[l]) + high16(a.i[l]) * high16(b.i[l]));
    return sum;
}
INLINE vi vi_pair(const int16_t *p) { return vi_set1(pair16(p[0], p[1])); }
INLINE vi vi_widen(const uint8_t *p)
{
    vi v;
    LANES(v.i[l] = pair16((int8_t)p[2 * l], (int8_t)p[2 * l + 1]));
    return v;
}
INLINE vi vi_nibble(vi words)
{
    LANES(words.i[l] &= 0x000f000f);
    return words;
}
INLINE vi vi_next_nibble(vi words)
{
    LANES(words.i[l] = (int32_t)((uint32_t)words.i[l] >> 4));
    return words;
}
INLINE vi vi_sub16(vi a, int32_t x)
{
    LANES(a.i[l] = pair16(low16(a.i[l]) - x, high16(a.i[l]) - x));
    return a;
}

#define LI_ATTENTION_TABLE li_attention_scalar
#include "attention_kernels.inc"

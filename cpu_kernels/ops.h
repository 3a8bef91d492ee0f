/* Operations on rows of float32 that are no matrix products. One table of functions per instruction set.
 *
 * All sets compute the same bits: eight lanes, one order of sums, no fused multiply-add.
 * exp and tanh are polynomials; bounds against exact arithmetic, checked by tests/cpu_kernels/test_run_ops.py:
 * exp 2e-7 relative on [-87, 88]; tanh 3e-7 relative; silu, gelu 5e-7 of the larger of |x| and |result|.
 */
#ifndef LI_OPS_H
#define LI_OPS_H

#include <stdint.h>

typedef struct {
    /* out = x / sqrt(mean(x^2) + eps) * w; w may be NULL; out may be x */
    void (*rms_norm)(const float *x, const float *w, float eps, int64_t n, float *out);
    /* out = (x - mean) / sqrt(var + eps) * w + b; w, b may be NULL; out may be x */
    void (*layer_norm)(const float *x, const float *w, const float *b, float eps, int64_t n, float *out);
    /* out = act(gate) * up; out may be gate or up */
    void (*glu)(int act, const float *gate, const float *up, int64_t n, float *out);
    void (*activate)(int act, const float *x, int64_t n, float *out);
    /* out = cap * tanh(x / cap) */
    void (*softcap)(const float *x, float cap, int64_t n, float *out);
    void (*scale)(const float *x, float factor, int64_t n, float *out);
    void (*add)(const float *a, const float *b, int64_t n, float *out);
    void (*mul)(const float *a, const float *b, int64_t n, float *out);
    /* out += factor * x */
    void (*add_scaled)(const float *x, float factor, int64_t n, float *out);
    /* out += a * b, elementwise */
    void (*add_product)(const float *a, const float *b, int64_t n, float *out);
    /* sum of a * b: eight lanes, then one order */
    float (*dot)(const float *a, const float *b, int64_t n);
    /* s = s * decay + x * b, elementwise; returns sum of s * c */
    float (*scan)(float *s, const float *decay, float x, const float *b, const float *c, int64_t n);
    /* Rotate pairs in place: halves (i, i + n_pairs) or neighbours (2i, 2i+1); cos and sin hold n_pairs values. */
    void (*rotate_half)(float *x, const float *cos, const float *sin, int64_t n_pairs);
    void (*rotate_interleaved)(float *x, const float *cos, const float *sin, int64_t n_pairs);
    /* x = exp(x - max(x)) / sum; in place */
    void (*softmax)(float *x, int64_t n);
    void (*exp)(const float *x, int64_t n, float *out); /* for tests */
} li_ops;

extern const li_ops li_ops_baseline; /* what the compiler's default target has: SSE2, NEON, or scalar */
#if defined(__x86_64__)
extern const li_ops li_ops_avx2;
#endif

/* The table of the level in use (cpu.h). */
const li_ops *li_ops_best(void);

#endif

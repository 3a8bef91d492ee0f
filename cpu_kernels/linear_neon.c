/* linear.h for 64-bit ARM: activations, float types, and block types with what every such processor has. */
#include "linear_neon.h"

#if LI_ARM64

#define LI_DOT 0
#include "linear_neon_rows.h"

/* -- activations ------------------------------------------------------------------------------------------------------*/

/* Bits of the largest of n |x|: infinities and NaNs come out on top. */
static uint32_t largest_bits(const float *x, int n)
{
    uint32x4_t bits = vdupq_n_u32(0);
    for (int i = 0; i < n; i += 4)
        bits = vmaxq_u32(bits, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
    return vmaxvq_u32(bits);
}

static void prepare_int(int kind, const float *x, int64_t n_in, int64_t b0, int64_t b1, void *xq)
{
    li_int_row to = li_int_row_at(xq, n_in);
    const float most = li_activation_max(kind);
    const int shared = li_shared_blocks(kind);
    uint32_t top = 0;
    for (int64_t b = b0; b < b1; b++) {
        const float *from = x + 32 * b;
        if ((b - b0) % shared == 0)
            top = largest_bits(from, 32 * shared);
        float largest = li_float_of_bits(top), inverse = most / largest;
        int usable = largest >= 1e-30f && top < 0x7F800000u;
        int8_t *upper = (int8_t *)(void *)(to.p + 32 * b), *lower = upper + 32;
        int32_t sums[2];
        for (int half = 0; half < 2; half++) {
            int32x4_t sum = vdupq_n_s32(0);
            for (int i = 16 * half; i < 16 * half + 16; i += 8) {
                int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(from + i), inverse));
                int32x4_t c = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(from + i + 4), inverse));
                int16x8_t p = usable ? vcombine_s16(vmovn_s32(a), vmovn_s32(c)) : vdupq_n_s16(0);
                sum = vpadalq_s16(sum, p);
                vst1_s8(upper + i, vrshrn_n_s16(p, 8)); /* (p + 128) >> 8 */
                vst1_s8(lower + i, vmovn_s16(p));
            }
            sums[half] = vaddvq_s32(sum);
        }
        int64_t slot = li_slot(b);
        to.dx[slot] = usable ? largest / most : top < 0x7F800000u ? 0.0f : li_float_of_bits(0x7FC00000u);
        to.sum[slot] = to.dx[slot] * (float)(sums[0] + sums[1]);
        to.low[slot] = sums[0];
        to.high[slot] = sums[1];
    }
}

/* -- float types ------------------------------------------------------------------------------------------------------*/

/* A row as floats, filled up with zeros to a multiple of 8. */
static void decode_floats(const li_matrix *w, int64_t row, float *out)
{
    const uint8_t *from = w->blocks + row * w->row_bytes;
    int64_t done = 0;
    if (w->type == LI_F16)
        for (; done + 4 <= w->n_in; done += 4)
            vst1q_f32(out + done, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from + 2 * done))));
    if (done < w->n_in)
        li_type(w->type)->decode_floats(from + 2 * done, w->n_in - done, out + done);
    for (int64_t i = w->n_in; i < li_round_up(w->n_in, 8); i++)
        out[i] = 0.0f;
}

/* The sum of linear.h over lanes 0..3 and 4..7. */
LI_INLINE float tree(float32x4_t low, float32x4_t high)
{
    float32x4_t s = vaddq_f32(low, high);
    return (vgetq_lane_f32(s, 0) + vgetq_lane_f32(s, 2)) + (vgetq_lane_f32(s, 1) + vgetq_lane_f32(s, 3));
}

/* Four rows of floats at a time: their sums do not wait for each other. */
static void linear_floats(const li_matrix *w, const float *x, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                          int64_t row1, float *values)
{
    int64_t n = li_round_up(w->n_in, 8), ldx = li_round_up(w->n_in, 16);
    for (int64_t row = row0; row < row1; row += ROWS) {
        int n_rows = row1 - row < ROWS ? (int)(row1 - row) : ROWS;
        for (int r = 0; r < ROWS; r++)
            decode_floats(w, r < n_rows ? row + r : row, values + r * n);
        for (int64_t t = 0; t < n_tokens; t++) {
            float32x4_t low[ROWS], high[ROWS];
            for (int r = 0; r < ROWS; r++)
                low[r] = high[r] = vdupq_n_f32(0.0f);
            for (int64_t i = 0; i < n; i += 8) {
                float32x4_t a = vld1q_f32(x + t * ldx + i), b = vld1q_f32(x + t * ldx + i + 4);
                for (int r = 0; r < ROWS; r++) {
                    low[r] = vfmaq_f32(low[r], vld1q_f32(values + r * n + i), a);
                    high[r] = vfmaq_f32(high[r], vld1q_f32(values + r * n + i + 4), b);
                }
            }
            for (int r = 0; r < n_rows; r++)
                y[t * ldy + row + r] = tree(low[r], high[r]);
        }
    }
}

/* -- doors ------------------------------------------------------------------------------------------------------------*/

static int64_t scratch_bytes(const li_type_info *t, int64_t n_in, int64_t n_tokens)
{
    (void)n_tokens;
    return t->kind == LI_KIND_FLOAT ? li_round_up(li_round_up(n_in, 8) * ROWS * (int64_t)sizeof(float), 64) : 0;
}

static void linear(const li_matrix *w, const void *xq, int64_t n_tokens, float *y, int64_t ldy, int64_t row0,
                   int64_t row1, void *scratch)
{
    if (li_type(w->type)->kind == LI_KIND_FLOAT)
        linear_floats(w, xq, n_tokens, y, ldy, row0, row1, scratch);
#if LI_NEON_DOT
    else if (li_cpu_level() == LI_CPU_NEON_DOT)
        li_linear_blocks_neon_dot(w, xq, n_tokens, y, ldy, row0, row1);
#endif
    else
        linear_blocks(w, xq, n_tokens, y, ldy, row0, row1);
}

const li_linear_kernels li_linear_neon = {prepare_int, linear, scratch_bytes};

#endif

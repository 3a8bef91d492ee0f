/* Stored keys and values as floats again, one by one by the layout that attention.h draws: it shares no code with the
 * kernels, so it can check them. */
#include <string.h>

#include "attention.h"
#include "attention_kernels.h"
#include "kv_half.h"
#include "kv_page.h"

static float half_at(const uint8_t *p, int64_t i)
{
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    return li_half_to_float(h);
}

static float float_at(const uint8_t *p, int64_t i)
{
    float f;
    memcpy(&f, p + 4 * i, 4);
    return f;
}

static float key_at(int type, const uint8_t *block, int64_t d, int64_t i, int64_t j)
{
    const uint8_t *scales = block + li_kv_quant_bytes(type, d);
    if (type == LI_KV_F32)
        return float_at(block, 16 * i + j);
    if (type == LI_KV_F16)
        return half_at(block, 16 * i + j);
    const float scale = half_at(scales, i / LI_KV_BLOCK * 16 + j);
    if (type == LI_KV_Q8_0)
        return scale * (float)(int8_t)block[(i / 2 * 16 + j) * 2 + i % 2];
    const uint8_t *word = block + (i / 8 * 16 + j) * 4 + i % 2 * 2; /* its low or high half */
    const int64_t t = i % 8 / 2;
    return scale * (float)((word[t / 2] >> t % 2 * 4 & 15) - 8);
}

static float value_at(int type, const uint8_t *block, int64_t d, int64_t i, int64_t j)
{
    const uint8_t *scales = block + li_kv_quant_bytes(type, d);
    if (type == LI_KV_F32)
        return float_at(block, j * d + i);
    if (type == LI_KV_F16)
        return half_at(block, j * d + i);
    const float scale = half_at(scales, i / LI_KV_BLOCK * 16 + j);
    if (type == LI_KV_Q8_0)
        return scale * (float)(int8_t)block[j * d + i];
    const uint8_t byte = block[j * (d / 2) + i / 32 * 16 + i % 16];
    const int nibble = i % 32 < 16 ? byte & 15 : byte >> 4;
    return scale * (float)(nibble < 8 ? nibble : nibble - 16);
}

void li_kv_read(const li_kv_layer *kv, int64_t first, int32_t n, float *k, float *v)
{
    const li_attention_kernels *kernels = li_attention_best();
    for (int64_t t = 0; t < n; t++)
        for (int64_t g = 0; g < kv->n_kv_heads; g++) {
            const uint8_t *block = li_kv_k_block(kv, (first + t) / LI_PAGE_TOKENS, (int)g);
            const int64_t j = (first + t) % LI_PAGE_TOKENS;
            float *key = k ? k + (t * kv->n_kv_heads + g) * kv->d_k : NULL;
            float *value = v ? v + (t * kv->n_kv_heads + g) * kv->d_v : NULL;
            for (int64_t i = 0; key && i < kv->d_k; i++)
                key[i] = key_at(kv->k_type, block, kv->d_k, i, j);
            if (key && kv->k_rotate)
                kernels->rotate(key, kv->d_k, kv->k_rotate);
            for (int64_t i = 0; key && kv->k_offset && i < kv->d_k; i++)
                key[i] += kv->k_offset[g * kv->d_k + i];
            block += li_kv_head_bytes(kv->k_type, kv->d_k);
            for (int64_t i = 0; value && i < kv->d_v; i++)
                value[i] = value_at(kv->v_type, block, kv->d_v, i, j);
            if (value && kv->v_rotate)
                kernels->rotate(value, kv->d_v, kv->v_rotate);
        }
}

int64_t li_kv_page_bytes(const li_kv_layer *kv)
{
    return kv->n_kv_heads * (li_kv_head_bytes(kv->k_type, kv->d_k) + li_kv_head_bytes(kv->v_type, kv->d_v));
}

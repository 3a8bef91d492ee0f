/* Where things lie inside a page (attention.h draws it). d is a head's size. */
#ifndef LI_KV_PAGE_H
#define LI_KV_PAGE_H

#include <stdint.h>

#include "attention.h"

#define LI_KV_BLOCK 32 /* values that share one f16 scale in q8_0 and q4_0 */

/* Bytes of 16 tokens of one head without the scales. */
static inline int64_t li_kv_quant_bytes(int type, int64_t d)
{
    switch (type) {
    case LI_KV_F32:
        return LI_PAGE_TOKENS * d * 4;
    case LI_KV_F16:
        return LI_PAGE_TOKENS * d * 2;
    case LI_KV_Q8_0:
        return LI_PAGE_TOKENS * d;
    default:
        return LI_PAGE_TOKENS * d / 2;
    }
}

static inline int li_kv_is_block_type(int type) { return type == LI_KV_Q8_0 || type == LI_KV_Q4_0; }

/* The same with the scales: what a head's K or V takes in a page. */
static inline int64_t li_kv_head_bytes(int type, int64_t d)
{
    int64_t scales = li_kv_is_block_type(type) ? LI_PAGE_TOKENS * (d / LI_KV_BLOCK) * 2 : 0;
    return li_kv_quant_bytes(type, d) + scales;
}

static inline int64_t li_kv_table_index(const li_kv_layer *kv, int64_t page)
{
    return kv->window ? page % kv->n_pages : page;
}

/* K of head g in logical page `page`; V lies li_kv_head_bytes(k_type, d_k) after it. */
static inline uint8_t *li_kv_k_block(const li_kv_layer *kv, int64_t page, int g)
{
    int64_t head = li_kv_head_bytes(kv->k_type, kv->d_k) + li_kv_head_bytes(kv->v_type, kv->d_v);
    return kv->pages + kv->table[li_kv_table_index(kv, page)] * kv->page_bytes + g * head;
}

static inline uint8_t *li_kv_v_block(const li_kv_layer *kv, int64_t page, int g)
{
    return li_kv_k_block(kv, page, g) + li_kv_head_bytes(kv->k_type, kv->d_k);
}

#endif

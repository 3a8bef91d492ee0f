/* Attention with the best instruction set against plain C, bit for bit, for processors that only an emulator has here:
 * results of every call and what is stored, for all types of keys and values, several head sizes, windows, few and many
 * tokens at a time. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "cpu.h"

#ifndef POSITIONS
#define POSITIONS 288
#endif
enum { HEADS = 4, KV_HEADS = 2, MOST_TOKENS = 40 };

static float noise(void) { return (float)(rand() % 4001) / 1000.0f - 2.0f; }

/* Everything that a level computes: outputs of all positions, then the pages. */
static void *run(const char *level, li_kv_layer kv, const li_attention *a, int tokens, int64_t *n_bytes)
{
    if (li_cpu_select(level) != 0)
        exit(3);
    int32_t table[POSITIONS / LI_PAGE_TOKENS + 1];
    kv.n_pages = POSITIONS / LI_PAGE_TOKENS + 1;
    for (int p = 0; p < kv.n_pages; p++)
        table[p] = kv.n_pages - 1 - p;
    kv.table = table;
    kv.page_bytes = li_kv_page_bytes(&kv);
    const int64_t width = HEADS * kv.d_k + KV_HEADS * (kv.d_k + kv.d_v), out_width = HEADS * kv.d_v;
    const int64_t out_bytes = POSITIONS * out_width * 4, page_bytes = kv.n_pages * kv.page_bytes;
    const int64_t scratch_bytes = li_attention_scratch_bytes(a, &kv, MOST_TOKENS, POSITIONS, 1);
    uint8_t *result = aligned_alloc(64, (size_t)(out_bytes + page_bytes + 127) / 64 * 64);
    void *scratch = aligned_alloc(64, (size_t)(scratch_bytes + 63) / 64 * 64);
    float *rows = malloc((size_t)(MOST_TOKENS * width) * sizeof *rows);
    memset(result, 0, (size_t)(out_bytes + page_bytes));
    memset(scratch, 0, (size_t)scratch_bytes);
    kv.pages = result + out_bytes;
    srand(1);
    for (int start = 0, n; start < POSITIONS; start += n) {
        n = POSITIONS - start < tokens ? POSITIONS - start : tokens;
        for (int64_t i = 0; i < n * width; i++)
            rows[i] = noise();
        const float *k = rows + HEADS * kv.d_k;
        li_attention_call call = {a, &kv, start, n, 1, rows, k, k + KV_HEADS * kv.d_k,
                                  (float *)(void *)result + start * out_width, width, width, width, out_width, scratch};
        for (int64_t i = 0, items = li_attention_append_items(&call); i < items; i++)
            li_attention_append_item(&call, i);
        for (int64_t i = 0, items = li_attention_items(&call); i < items; i++)
            li_attention_item(&call, i, 0);
    }
    free(scratch);
    free(rows);
    *n_bytes = out_bytes + page_bytes;
    return result;
}

int main(void)
{
    const int32_t types[] = {LI_KV_F32, LI_KV_F16, LI_KV_Q8_0, LI_KV_Q4_0}, sizes[] = {64, 96}, tokens[] = {1, 40};
    int n_different = 0, n_runs = 0;
    for (int k = 0; k < 4; k++)
        for (int v = 0; v < 4; v++)
            for (int s = 0; s < 2; s++)
                for (int t = 0; t < 2; t++, n_runs++) {
                    li_kv_layer kv = {.k_type = types[k], .v_type = types[v], .n_kv_heads = KV_HEADS, .d_k = sizes[s],
                                      .d_v = sizes[1 - s], .page_tokens = LI_PAGE_TOKENS, .k_rotate = k > 1 ? 32 : 0,
                                      .v_rotate = v > 1 ? 32 : 0};
                    li_attention a = {.n_heads = HEADS, .scale = 0.125f, .softcap = k % 2 ? 20.0f : 0.0f};
                    int64_t n_bytes;
                    void *plain = run("scalar", kv, &a, tokens[t], &n_bytes), *best = run(NULL, kv, &a, tokens[t], &n_bytes);
                    if (memcmp(plain, best, (size_t)n_bytes) != 0) {
                        printf("K type %d, V type %d, heads of %d, %d tokens\n", types[k], types[v], sizes[s], tokens[t]);
                        n_different++;
                    }
                    free(plain);
                    free(best);
                }
    printf("%s: %d of %d different\n", li_cpu_name(), n_different, n_runs);
    return n_different != 0;
}

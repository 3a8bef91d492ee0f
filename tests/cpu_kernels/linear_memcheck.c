/* Every type, odd sizes, rows that end where their memory ends: run under valgrind, which sees a stray read or write and
 * a value that was never set. Also compares plain C with the best instruction set, bit for bit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "linear.h"

static void *aligned(int64_t n) { return n ? aligned_alloc(64, (size_t)(n + 63) / 64 * 64) : NULL; }

static float *multiply(const char *level, const li_matrix *w, const float *x, int64_t n_tokens)
{
    if (li_cpu_select(level) != 0)
        exit(3);
    void *xq = aligned(li_activation_bytes(w->type, w->n_in, n_tokens));
    void *scratch = aligned(li_linear_scratch_bytes(w->type, w->n_in, n_tokens));
    float *y = malloc((size_t)(w->n_out * n_tokens) * sizeof *y);
    li_prepare_activations(w->type, x, w->n_in, w->n_in, 0, n_tokens, xq);
    li_linear(w, xq, n_tokens, y, w->n_out, 0, w->n_out, scratch);
    free(xq);
    free(scratch);
    return y;
}

static int differs(int type, int64_t n_in, int64_t n_out, int64_t n_tokens)
{
    int64_t row_bytes = n_in / li_type_block_values(type) * li_type_block_bytes(type);
    uint8_t *blocks = malloc((size_t)(row_bytes * n_out));
    float *x = malloc((size_t)(n_in * n_tokens) * sizeof *x), *row = malloc((size_t)n_in * sizeof *row);
    for (int64_t i = 0; i < row_bytes * n_out; i++)
        blocks[i] = (uint8_t)(rand() & 0x3F); /* no half float among these is infinite */
    for (int64_t i = 0; i < n_in * n_tokens; i++)
        x[i] = (float)(rand() % 2001) / 1000.0f - 1.0f;
    li_matrix w = {blocks, type, 0, n_in, n_out, row_bytes};
    float *plain = multiply("scalar", &w, x, n_tokens), *best = multiply(NULL, &w, x, n_tokens);
    int found = memcmp(plain, best, (size_t)(n_out * n_tokens) * sizeof *plain) != 0;
    li_dequantize_row(type, blocks, n_in, row);
    free(blocks);
    free(x);
    free(row);
    free(plain);
    free(best);
    return found;
}

int main(void)
{
    int n_different = 0, n_runs = 0;
    for (int type = 0; type < 64; type++) {
        int block = li_type_block_values(type);
        const int64_t n_ins[] = {block, block == 1 ? 33 : 2 * block, 5 * block, 7 * block, 18 * block, 20 * block};
        if (!li_type_supported(type))
            continue;
        for (int n = 0; n < (block == 256 ? 2 : 6); n++)
            for (int64_t n_tokens = 1; n_tokens <= 15; n_tokens += n_tokens < 5 ? 1 : 5)
                for (int64_t n_out = 1; n_out <= 19; n_out += 9, n_runs++)
                    n_different += differs(type, n_ins[n], n_out, n_tokens);
    }
    printf("%s: %d of %d different\n", li_cpu_name(), n_different, n_runs);
    return n_different != 0;
}

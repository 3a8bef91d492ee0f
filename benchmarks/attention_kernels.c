/* Time of attention's inner loops over one chunk of 256 positions that lies in cache: the least of many runs, so that
 * other programs disturb it little. Prints nanoseconds a page (16 positions) of one key/value head.
 *
 *   cc -O3 -std=gnu11 -ffp-contract=off -Icpu_kernels benchmarks/attention_kernels.c cpu_kernels/attention*.c \
 *      cpu_kernels/kv_read.c cpu_kernels/cpu.c -lm -o /tmp/attention_kernels
 *   /tmp/attention_kernels ROWS HEAD_SIZE      (rows: query heads of a kv head times tokens, 1..96)
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "attention_kernels.h"

enum { SCORES, WEIGHTS, VALUES, N_PARTS };
static const struct {
    int id;
    const char *name;
} types[] = {{LI_KV_F32, "f32"}, {LI_KV_F16, "f16"}, {LI_KV_Q8_0, "q8_0"}, {LI_KV_Q4_0, "q4_0"}};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static void *room(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL)
        exit(1);
    return p;
}

static void fill(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)rand() / (float)RAND_MAX * 4.0f - 2.0f;
}

/* A chunk of full pages of one type, with random keys, values and queries. */
static li_chunk make_chunk(const li_attention_kernels *k, int type, int n_rows, int d)
{
    li_row *rows = room((size_t)n_rows * sizeof *rows);
    float *q = room((size_t)(n_rows * d) * 4), *x = room((size_t)d * 4);
    int16_t *q16 = room((size_t)(n_rows * d) * 2);
    int32_t *sums = room((size_t)(n_rows * (d / 32 + 1)) * 4);
    li_chunk c = {.k_type = type, .v_type = type, .d_k = d, .d_v = d, .acc_ld = d, .n_rows = n_rows, .rows = rows};
    for (int p = 0; p < LI_CHUNK_PAGES; p++) {
        uint8_t *key = room((size_t)(64 * d)), *value = room((size_t)(64 * d));
        for (int j = 0; j < LI_PAGE_TOKENS; j++) {
            fill(x, d);
            k->store_k(type, x, d, j, key);
            k->store_v(type, x, d, j, value);
        }
        c.k[p] = key;
        c.v[p] = value;
    }
    for (int r = 0; r < n_rows; r++) {
        fill(q + r * d, d);
        k->round_query(q + r * d, d, q16 + r * d, sums + r * (d / 32));
        rows[r] = (li_row){.scale = 0.1f, .lo = 0, .hi = LI_CHUNK};
    }
    c.q = q;
    c.q16 = q16;
    c.q_sums = sums;
    c.s = room((size_t)n_rows * LI_SCORE_LD * 4);
    c.softmax = room((size_t)n_rows * sizeof(li_softmax));
    c.acc = room((size_t)(n_rows * d) * 4);
    c.tile = room((size_t)li_tile_floats(d) * 4);
    return c;
}

int main(int argc, char **argv)
{
    const int n_rows = argc > 1 ? atoi(argv[1]) : 3, d = argc > 2 ? atoi(argv[2]) : 64;
    if (n_rows < 1 || n_rows > 96 || d < 32 || d > LI_MAX_HEAD || d % 32) {
        fprintf(stderr, "rows 1..96, head size a multiple of 32 up to %d\n", LI_MAX_HEAD);
        return 2;
    }
    const li_attention_kernels *k = li_attention_best();
    printf("%s, %d rows, head size %d\n", li_cpu_name(), n_rows, d);
    for (int t = 0; t < 4; t++) {
        const li_chunk c = make_chunk(k, types[t].id, n_rows, d);
        double best[N_PARTS] = {1e30, 1e30, 1e30};
        for (int i = 0; i < 20000 / n_rows; i++) {
            double at[N_PARTS + 1] = {now()};
            k->scores(&c);
            at[1] = now();
            k->weights(&c);
            at[2] = now();
            k->values(&c);
            at[3] = now();
            for (int part = 0; part < N_PARTS; part++)
                if (at[part + 1] - at[part] < best[part])
                    best[part] = at[part + 1] - at[part];
        }
        printf("%-5s scores %7.1f  weights %6.1f  values %7.1f  all %7.1f ns a page\n", types[t].name,
               best[SCORES] / LI_CHUNK_PAGES, best[WEIGHTS] / LI_CHUNK_PAGES, best[VALUES] / LI_CHUNK_PAGES,
               (best[SCORES] + best[WEIGHTS] + best[VALUES]) / LI_CHUNK_PAGES);
    }
    return 0;
}

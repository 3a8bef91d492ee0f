#include "measure.h"

#include <time.h>

#include "cpu.h"

#if LI_X86
#include <immintrin.h>
#define TARGET_AVX2 __attribute__((target("avx2,fma")))
#elif LI_ARM64
#include <arm_neon.h>
#endif

#define ITEM_BYTES 65536 /* what a thread reads before it takes the next item */
/* Timed by itself: short enough to find a moment in which no other program had the cores. The whole buffer is larger
 * than the caches, so a window is read from memory when its turn comes again. */
#define WINDOW_BYTES (16 * 1024 * 1024)
#define FMA_ROUNDS 20000 /* of 16 vectors: some 100 us an item */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
    const uint8_t *data;
    int64_t n_items;
    volatile uint64_t sink[LI_MAX_THREADS]; /* results nobody needs, kept from the optimizer */
} work;

static int64_t items_of(const void *context, int32_t phase) {
    (void)phase;
    return ((const work *)context)->n_items;
}

#if LI_X86
/* As four streams, the fastest way to read: one has a core read two thirds as fast (PROFILE.md). */
TARGET_AVX2 static uint64_t read_avx2(const uint8_t *p) {
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (int i = 0; i < ITEM_BYTES / 4; i += 32) {
        const uint8_t *at = p + i;
        a = _mm256_xor_si256(a, _mm256_load_si256((const __m256i *)at));
        b = _mm256_xor_si256(b, _mm256_load_si256((const __m256i *)(at + ITEM_BYTES / 4)));
        c = _mm256_xor_si256(c, _mm256_load_si256((const __m256i *)(at + ITEM_BYTES / 2)));
        d = _mm256_xor_si256(d, _mm256_load_si256((const __m256i *)(at + ITEM_BYTES / 4 * 3)));
    }
    a = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
    return (uint64_t)_mm256_extract_epi64(a, 0) ^ (uint64_t)_mm256_extract_epi64(a, 1);
}

/* 12 sums in flight cover the latency of two units (4 to 5 cycles each). */
TARGET_AVX2 static float fma_avx2(void) {
    __m256 s[12];
    const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    for (int i = 0; i < 12; i++) s[i] = _mm256_set1_ps((float)i);
    for (int r = 0; r < FMA_ROUNDS; r++) {
#define STEP(i) s[i] = _mm256_fmadd_ps(s[i], x, y)
        STEP(0); STEP(1); STEP(2); STEP(3); STEP(4); STEP(5);
        STEP(6); STEP(7); STEP(8); STEP(9); STEP(10); STEP(11);
#undef STEP
    }
    for (int i = 1; i < 12; i++) s[0] = _mm256_add_ps(s[0], s[i]);
    return _mm_cvtss_f32(_mm256_castps256_ps128(s[0]));
}
#elif LI_ARM64
static float fma_neon(void) {
    float32x4_t s[16];
    const float32x4_t x = vdupq_n_f32(0.999f), y = vdupq_n_f32(0.001f);
    for (int i = 0; i < 16; i++) s[i] = vdupq_n_f32((float)i);
    for (int r = 0; r < FMA_ROUNDS; r++)
        for (int i = 0; i < 16; i++) s[i] = vfmaq_f32(y, s[i], x);
    for (int i = 1; i < 16; i++) s[0] = vaddq_f32(s[0], s[i]);
    return vgetq_lane_f32(s[0], 0);
}
#endif

static uint64_t read_plain(const uint8_t *p) {
    const uint64_t *q = (const uint64_t *)(const void *)p;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (int i = 0; i < ITEM_BYTES / 8; i += 4) {
        a ^= q[i];
        b ^= q[i + 1];
        c ^= q[i + 2];
        d ^= q[i + 3];
    }
    return a ^ b ^ c ^ d;
}

static float fma_plain(void) {
    float s[8];
    for (int i = 0; i < 8; i++) s[i] = (float)i;
    for (int r = 0; r < FMA_ROUNDS; r++)
        for (int i = 0; i < 8; i++) s[i] = s[i] * 0.999f + 0.001f;
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

static void read_item(void *context, int32_t phase, int64_t item, int32_t thread) {
    (void)phase;
    work *w = context;
    const uint8_t *p = w->data + item * ITEM_BYTES;
#if LI_X86
    if (li_cpu_level() >= LI_CPU_AVX2) {
        w->sink[thread] ^= read_avx2(p);
        return;
    }
#endif
    w->sink[thread] ^= read_plain(p);
}

/* Values that one round of fma_item multiplies and adds. */
static int fma_width(void) {
    const int level = li_cpu_level();
    return level == LI_CPU_SCALAR ? 8 : LI_ARM64 ? 64 : 96;
}

static void fma_item(void *context, int32_t phase, int64_t item, int32_t thread) {
    (void)phase;
    (void)item;
    work *w = context;
    float sum;
#if LI_X86
    sum = li_cpu_level() >= LI_CPU_AVX2 ? fma_avx2() : fma_plain();
#elif LI_ARM64
    sum = li_cpu_level() >= LI_CPU_NEON ? fma_neon() : fma_plain();
#else
    sum = fma_plain();
#endif
    w->sink[thread] += (uint64_t)(sum > 0.0f);
}

/* Units of work a second that one job of so many does. */
static double rate_of(li_pool *pool, const li_job *job, double units) {
    const double start = now_s();
    li_pool_run(pool, job);
    return units / (now_s() - start);
}

double li_measure_read_bandwidth(li_pool *pool, const void *data, int64_t n_bytes, double seconds) {
    const int64_t window = n_bytes < WINDOW_BYTES ? n_bytes : WINDOW_BYTES;
    work w = {.n_items = window / ITEM_BYTES};
    const li_job job = {.context = &w, .n_phases = 1, .n_items = items_of, .run_item = read_item};
    double best = 0.0;
    for (const double end = now_s() + seconds; now_s() < end;) {
        for (int64_t at = 0; at + window <= n_bytes; at += window) {
            w.data = (const uint8_t *)data + at;
            const double rate = rate_of(pool, &job, (double)(w.n_items * ITEM_BYTES));
            if (rate > best) best = rate;
        }
    }
    return best;
}

double li_measure_fma(li_pool *pool, double seconds) {
    work w = {.n_items = 4 * (int64_t)li_pool_threads(pool)};
    const li_job job = {.context = &w, .n_phases = 1, .n_items = items_of, .run_item = fma_item};
    double best = 0.0;
    for (const double end = now_s() + seconds; now_s() < end;) {
        const double rate = rate_of(pool, &job, 2.0 * fma_width() * FMA_ROUNDS * (double)w.n_items);
        if (rate > best) best = rate;
    }
    return best;
}

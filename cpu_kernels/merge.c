/* An open-addressing table of keys, and per word the arrays of its symbols' starts and of its pairs' priorities.
 * Words are short: finding the smallest priority by a scan beats a heap. */
#include "merge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t at; /* of the key in the table's text */
    uint16_t n;  /* its bytes; 0: an empty slot */
    uint16_t tag; /* of its hash, what the slot's place does not say */
    double priority;
} slot;

enum { LONGEST_KEY = 2 * 4 * LI_MERGE_LONGEST }; /* a longer one cannot come from a word */

struct li_merge_table {
    char *keys;
    slot *slots;
    uint64_t mask;
    char between[8];
    int64_t n_between;
};

static const uint64_t HASH_START = 0xcbf29ce484222325u;

/* FNV-1a, 64 bits: keys have about ten bytes. */
static uint64_t hash_more(uint64_t hash, const char *bytes, int64_t n) {
    for (int64_t i = 0; i < n; i++) hash = (hash ^ (uint8_t)bytes[i]) * 0x100000001b3u;
    return hash;
}

/* The high bits of FNV's product are its good ones. */
static uint64_t first_slot(const li_merge_table *t, uint64_t hash) { return (hash ^ (hash >> 32)) & t->mask; }

static uint16_t tag_of(uint64_t hash) { return (uint16_t)(hash >> 48); }

typedef struct {
    int64_t at, n;
    uint64_t hash;
    double priority;
} entry;

static void insert(li_merge_table *t, const entry *e) {
    uint64_t i = first_slot(t, e->hash);
    for (; t->slots[i].n; i = (i + 1) & t->mask) {
        const slot *s = &t->slots[i];
        if (s->tag == tag_of(e->hash) && s->n == e->n && memcmp(t->keys + s->at, t->keys + e->at, (size_t)e->n) == 0)
            return;
    }
    t->slots[i] = (slot){(uint32_t)e->at, (uint16_t)e->n, tag_of(e->hash), e->priority};
}

enum { AHEAD = 16 }; /* entries whose slots are on their way from memory */

static int fill(li_merge_table *t, int64_t n_bytes, const double *priority, int64_t n_keys) {
    entry coming[AHEAD] = {0};
    int64_t start = 0, k = 0;
    for (; start <= n_bytes && k < n_keys; k++) {
        const char *end = memchr(t->keys + start, 0, (size_t)(n_bytes - start));
        const int64_t n = end ? end - (t->keys + start) : n_bytes - start;
        entry *e = &coming[k % AHEAD];
        if (e->n) insert(t, e);
        *e = (entry){start, n > LONGEST_KEY ? 0 : n, hash_more(HASH_START, t->keys + start, n),
                     priority ? priority[k] : (double)k};
        __builtin_prefetch(&t->slots[first_slot(t, e->hash)], 1);
        start += n + 1;
    }
    for (int64_t i = k; i < k + AHEAD; i++)
        if (coming[i % AHEAD].n) insert(t, &coming[i % AHEAD]);
    return k == n_keys && start == n_bytes + 1;
}

li_merge_table *li_merge_create(const char *keys, int64_t n_bytes, const double *priority, int64_t n_keys,
                                const char *between) {
    li_merge_table *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    uint64_t n_slots = 16; /* a third of them stays empty */
    while (2 * n_slots < 3 * (uint64_t)n_keys) n_slots *= 2;
    t->mask = n_slots - 1;
    t->n_between = (int64_t)strlen(between);
    t->keys = malloc((size_t)n_bytes + 1);
    t->slots = calloc(n_slots, sizeof(slot));
    if (!t->keys || !t->slots || t->n_between >= (int64_t)sizeof t->between || n_bytes > UINT32_MAX) {
        li_merge_destroy(t);
        return NULL;
    }
    memcpy(t->keys, keys, (size_t)n_bytes);
    memcpy(t->between, between, (size_t)t->n_between);
    if (!fill(t, n_bytes, priority, n_keys)) {
        li_merge_destroy(t);
        return NULL;
    }
    return t;
}

void li_merge_destroy(li_merge_table *t) {
    if (!t) return;
    free(t->keys);
    free(t->slots);
    free(t);
}

static int is_pair(const li_merge_table *t, const slot *s, const char *a, int64_t n_a, const char *b, int64_t n_b) {
    const char *key = t->keys + s->at;
    return s->n == n_a + t->n_between + n_b && memcmp(key, a, (size_t)n_a) == 0 &&
           memcmp(key + n_a, t->between, (size_t)t->n_between) == 0 &&
           memcmp(key + n_a + t->n_between, b, (size_t)n_b) == 0;
}

/* The priority of merging the symbols start..middle-1 and middle..end-1 of a word, INFINITY where they never do. */
static double pair_priority(const li_merge_table *t, const char *word, int start, int middle, int end) {
    const int64_t n_a = middle - start, n_b = end - middle;
    uint64_t hash = hash_more(HASH_START, word + start, n_a);
    hash = hash_more(hash, t->between, t->n_between);
    hash = hash_more(hash, word + middle, n_b);
    for (uint64_t i = first_slot(t, hash); t->slots[i].n; i = (i + 1) & t->mask)
        if (t->slots[i].tag == tag_of(hash) && is_pair(t, &t->slots[i], word + start, n_a, word + middle, n_b))
            return t->slots[i].priority;
    return INFINITY;
}

/* starts (n + 1): where symbols begin, and the word's end. Returns how many symbols are left. */
static int merge(const li_merge_table *t, const char *word, int *starts, int n, double *pairs) {
    for (int i = 0; i + 1 < n; i++) pairs[i] = pair_priority(t, word, starts[i], starts[i + 1], starts[i + 2]);
    while (n > 1) {
        int best = 0;
        for (int i = 1; i + 1 < n; i++)
            if (pairs[i] < pairs[best]) best = i;
        if (pairs[best] == INFINITY) break;
        memmove(starts + best + 1, starts + best + 2, (size_t)(n - best - 1) * sizeof *starts);
        memmove(pairs + best, pairs + best + 1, (size_t)(n - best - 2) * sizeof *pairs);
        n--;
        if (best) pairs[best - 1] = pair_priority(t, word, starts[best - 1], starts[best], starts[best + 1]);
        if (best + 1 < n) pairs[best] = pair_priority(t, word, starts[best], starts[best + 1], starts[best + 2]);
    }
    return n;
}

/* Writes the symbols of one word with byte 1 between them; returns the bytes written, -1 for a word too long. */
static int64_t merge_word(const li_merge_table *t, const char *word, int64_t n_bytes, char *out) {
    int starts[LI_MERGE_LONGEST + 1], n = 0;
    double pairs[LI_MERGE_LONGEST];
    for (int64_t i = 0; i < n_bytes; i++) {
        if (((uint8_t)word[i] & 0xc0) == 0x80) continue; /* inside of a character */
        if (n == LI_MERGE_LONGEST) return -1;
        starts[n++] = (int)i;
    }
    starts[n] = (int)n_bytes;
    n = merge(t, word, starts, n, pairs);
    char *at = out;
    for (int i = 0; i < n; i++) {
        if (i) *at++ = 1;
        memcpy(at, word + starts[i], (size_t)(starts[i + 1] - starts[i]));
        at += starts[i + 1] - starts[i];
    }
    return at - out;
}

int64_t li_merge_words(const li_merge_table *t, const char *words, int64_t n_bytes, char *out) {
    int64_t start = 0, written = 0;
    for (int64_t i = 0; i <= n_bytes; i++) {
        if (i < n_bytes && words[i]) continue;
        const int64_t n = merge_word(t, words + start, i - start, out + written);
        if (n < 0) return -1;
        written += n;
        if (i < n_bytes) out[written++] = 0;
        start = i + 1;
    }
    return written;
}

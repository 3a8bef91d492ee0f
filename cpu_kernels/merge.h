/* Merging symbols of words, best pair first: the loop of models/tokenizer/merging.py for many words at once.
 *
 * A table holds keys (UTF-8, NUL between them) with a priority each; smaller is sooner. Two neighbours a and b may
 * merge where a + between + b is a key. At each step the pair of the smallest priority merges, the leftmost of equals.
 */
#ifndef LOCALINFER_MERGE_H
#define LOCALINFER_MERGE_H

#include <stdint.h>

typedef struct li_merge_table li_merge_table;

/* priority: one a key, or NULL for its place among them. A key that comes twice counts with its first. Returns NULL where
 * there is no memory, or where n_keys is not the number of keys in the text. */
li_merge_table *li_merge_create(const char *keys, int64_t n_bytes, const double *priority, int64_t n_keys,
                                const char *between);
void li_merge_destroy(li_merge_table *table);

/* words: UTF-8, NUL between them, at most LI_MERGE_LONGEST characters each; they hold neither NUL nor byte 1.
 * out (2 n_bytes): the same text with byte 1 between the symbols of a word. Returns the bytes written, -1 where a word
 * is too long. */
enum { LI_MERGE_LONGEST = 512 };
int64_t li_merge_words(const li_merge_table *table, const char *words, int64_t n_bytes, char *out);

#endif

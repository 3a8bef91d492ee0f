/* Weights that come from storage while others compute: a thread reads them in the order of their use, pass after pass,
 * into a ring of planned size.
 *
 * A unit is a tensor; a set is the units that one instruction of a tape reads. Compute waits for its set; a unit's room
 * is not written again before the set that last used it is done. Every pass over a model uses all sets in the same
 * order, so rooms are fixed when the tape is made and reading ahead goes on from one pass into the next.
 */
#ifndef LI_PAGER_H
#define LI_PAGER_H

#include "storage.h"

typedef struct {
    li_extent from;
    uint8_t *to;
    int32_t set;   /* of the instruction that reads it; units are in the order of their sets */
    int32_t after; /* so many sets earlier (counted through the passes) is the last that used any of this room */
} li_unit;

typedef struct {
    int64_t bytes;   /* read so far */
    int64_t read_ns; /* time in reads */
    int64_t wait_ns; /* time that compute waited */
    int32_t failed;  /* unit that was needed and could not be read, or -1 */
    int32_t status;  /* why: an errno or LI_STORAGE_ENDED */
} li_pager_state;

typedef struct li_pager li_pager;

/* Starts the thread, which reads ahead at once. NULL when memory or the thread is refused. Copies the units. */
li_pager *li_pager_create(const li_unit *units, int32_t n_units, int32_t n_sets);
void li_pager_destroy(li_pager *pager);

/* Called by one thread at a time, for set 0, 1, .. n_sets - 1, then 0 again: wait until the next set is there; say that
 * it is done. What failed to be read ahead is read once more. Where that fails too `need` returns all the same, with
 * room that holds anything: look at the state. */
void li_pager_need(li_pager *pager);
void li_pager_done(li_pager *pager);

void li_pager_read_state(li_pager *pager, li_pager_state *state);
/* Forget a failed read: the next pass tries again. */
void li_pager_forgive(li_pager *pager);

#endif

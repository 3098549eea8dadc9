/* Divides a job among the threads of the OpenMP runtime that torch uses.
 *
 * Between operations these threads spin: others would wait for a core meanwhile. The runtime is the caller's,
 * by its entry that compilers use, so that no second one is loaded. */
#include "share.h"

struct shared {
    kernel work;
    const void *job;
    int64_t count, parts, taken, result;
};

static void member(void *with)
{
    struct shared *all = with;
    int64_t part;
    while ((part = __atomic_fetch_add(&all->taken, 1, __ATOMIC_RELAXED)) < all->parts) {
        int64_t found = all->work(all->job, all->count * part / all->parts, all->count * (part + 1) / all->parts);
        int64_t before = __atomic_load_n(&all->result, __ATOMIC_RELAXED);
        /* No memory is reported first, then the first position. */
        while (found != DONE && (before == DONE || found < before))
            if (__atomic_compare_exchange_n(&all->result, &before, found, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                break;
    }
}

/* `parts` is the number of threads, too. What a part does may not depend on which thread does it. */
int64_t share(team run, kernel work, const void *job, int64_t count, int64_t parts)
{
    struct shared all = {work, job, count, parts, 0, DONE};
    run(member, &all, (unsigned)parts, 0);
    return all.result;
}

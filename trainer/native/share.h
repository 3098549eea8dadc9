/* A kernel does a part of its work: the items from `first` to before `last` of a job.
 * It returns DONE, NO_MEMORY, or the position of an id that its table does not have. */
#ifndef SHARE_H
#define SHARE_H
#include <stdint.h>

#define DONE -1
#define NO_MEMORY -2

typedef int64_t (*kernel)(const void *job, int64_t first, int64_t last);
typedef void (*team)(void (*member)(void *), void *with, unsigned members, unsigned flags); /* GOMP_parallel */

int64_t share(team run, kernel work, const void *job, int64_t count, int64_t parts);

#endif

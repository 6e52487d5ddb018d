/* A program under a profiler, or under none: calls on several threads, the first of which makes the table known. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hipfile.h"

enum { THREADS = 8, READS = 100 };

static void fail(const char *what)
{
    fprintf(stderr, "FAILED: %s\n", what);
    exit(1);
}

static void *reads(void *unused)
{
    (void)unused;
    for (int i = 0; i < READS; i++) {
        errno = 0;
        if (hipFileRead(NULL, NULL, 1, 0, 0) != -1 || errno != EINVAL)
            fail("a read with a closed driver answers otherwise");
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    errno = ERANGE;
    if (hipFileUseCount() != 0 || errno != ERANGE)
        fail("the first call, or what it leaves in errno");
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, reads, NULL) != 0)
            fail("pthread_create");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int *offers = dlsym(RTLD_DEFAULT, "profiler_offers");
    int *seen = dlsym(RTLD_DEFAULT, "profiler_reads");
    const char **complaint = dlsym(RTLD_DEFAULT, "profiler_complaint");
    if (strcmp(mode, "none") == 0) {
        if (offers)
            fail("there is a profiler");
    } else {
        if (!offers || !seen || !complaint)
            fail("there is no profiler");
        if (*complaint)
            fail(*complaint);
        if (*offers != 1)
            fail("the table was not offered once");
        if (*seen != (strcmp(mode, "fails") == 0 ? 0 : THREADS * READS))
            fail("the profiler saw another number of reads");
    }
    puts("OK");
    return 0;
}

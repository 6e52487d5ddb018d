/*
 * loads.c - opens the runtime by the name in its argument, as programs without a link to HIP do, and closes it again:
 * its code must stay, as its threads run on.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#define FAIL(what)                                        \
    do {                                                  \
        fprintf(stderr, "%s: %s\n", what, dlerror());     \
        return 1;                                         \
    } while (0)

int main(int argc, char **argv) {
    void *library = dlopen(argc > 1 ? argv[1] : "libamdhip64.so", RTLD_NOW | RTLD_LOCAL);
    int (*create)(void **);
    int (*query)(void *);
    const char *marker;
    void *stream = NULL;

    if (!library)
        FAIL("dlopen");
    marker = dlsym(library, "hipfile_emulated_gpu");
    if (!marker)
        FAIL("marker");
    *(void **)&create = dlsym(library, "hipStreamCreate");
    *(void **)&query = dlsym(library, "hipStreamQuery");
    if (!create || !query)
        FAIL("symbol");
    if (create(&stream) != 0 || query(stream) != 0)
        return 2;
    puts(marker);
    dlclose(library);
    usleep(20000);
    return query(stream);
}

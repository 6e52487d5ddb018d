/*
 * deref.c - touches device memory with the CPU, in the way that the argument names. None may succeed.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "check.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    volatile char *device;
    void *at = NULL;
    int ends[2];

    OK(hipMalloc(&at, 10000));
    OK(hipMemset(at, 1, 10000));
    device = at;
    if (strcmp(how, "syscall") == 0) {
        /* The kernel may not read it for us either. */
        CHECK(pipe(ends) == 0);
        CHECK(write(ends[1], at, 100) == -1 && errno == EFAULT);
        CHECK(write(ends[1], "x", 1) == 1);
        CHECK(read(ends[0], at, 1) == -1 && errno == EFAULT);
        OK(hipFree(at));
        puts("passed");
        return 0;
    }
    puts("touching");
    fflush(stdout);
    if (strcmp(how, "read") == 0)
        return device[0];
    if (strcmp(how, "read-inside") == 0)
        return device[9999];
    if (strcmp(how, "write") == 0)
        device[5000] = 2;
    if (strcmp(how, "after-free") == 0) {
        OK(hipFree(at));
        return device[0];
    }
    puts("lived");
    return 0;
}
